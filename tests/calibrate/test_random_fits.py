"""Random calibrations have the kept figures and refusals."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_calibrations_have_the_kept_results() -> None:
    check("commands", "fits", 2)
    check("commands", "logs", 1)
    check("commands", "varied", 1)


@IN_TURN
def test_many_random_calibrations_have_the_kept_results(day: int) -> None:
    check("commands", "fits", day=day)
    check("commands", "logs", day=day)
    check("commands", "varied", day=day)
