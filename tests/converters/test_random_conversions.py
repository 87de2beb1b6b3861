"""Random conversions and edits have the kept traces and refusals."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_conversions_have_the_kept_results() -> None:
    check("commands", "conversions", 5)


@IN_TURN
def test_many_random_conversions_have_the_kept_results(day: int) -> None:
    check("commands", "conversions", day=day)
