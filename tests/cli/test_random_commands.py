"""Random command lines on small inputs have the kept outputs and refusals."""

from __future__ import annotations

from random_shown import IN_TURN, check


def test_random_commands_have_the_kept_results() -> None:
    check("commands", "uses", 6)
    check("commands", "looks", 1)
    check("commands", "tools", 6)
    check("commands", "topologies", 12)
    check("commands", "mistakes", 12)


@IN_TURN
def test_many_random_commands_have_the_kept_results(day: int) -> None:
    check("commands", "uses", day=day)
    check("commands", "looks", day=day)
    check("commands", "tools", day=day)
    check("commands", "topologies", day=day)
    check("commands", "mistakes", day=day)
