"""Random calibrations have the kept figures and refusals."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_calibrations_have_the_kept_results() -> None:
    check("commands", "fits", 4)
    check("commands", "logs", 3)
    check("commands", "varied", 2)


@IN_TURN
def test_many_random_calibrations_have_the_kept_results(day: int) -> None:
    check("commands", "fits", day=day)
    check("commands", "logs", day=day)
    check("commands", "varied", day=day)
