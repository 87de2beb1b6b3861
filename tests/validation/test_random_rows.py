"""Random measured rows have the kept predictions, remarks and refusals."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_rows_have_the_kept_results() -> None:
    check("commands", "checks", 2)


@IN_TURN
def test_many_random_rows_have_the_kept_results(day: int) -> None:
    check("commands", "checks", day=day)
