"""Random long jobs have the results that are kept."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_months_have_the_kept_results() -> None:
    check("services", "months", 1)
    check("commands", "spans", 2)


@IN_TURN
def test_many_random_months_have_the_kept_results(day: int) -> None:
    check("services", "months", day=day)
    check("commands", "spans", day=day)
