"""Random servings have the results that are kept."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_servings_have_the_kept_results() -> None:
    check("services", "servings", 1)
    check("commands", "serves", 1)


@IN_TURN
def test_many_random_servings_have_the_kept_results(day: int) -> None:
    check("services", "servings", day=day)
    check("commands", "serves", day=day)
