"""Steps along a line of ranks give the same comparison of members' paths as a request for each pair."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import collective, network, system

from et_sim.api import run
from et_sim.engine.state.run import _turns
from et_sim.machine import read_network_alone
from et_sim.network import grid


@st.composite
def lines(draw: Any) -> tuple[Any, Any]:
    """Draw a grid whose messages queue, and members of a line in it, in some order."""
    npus = draw(st.lists(st.integers(2, 6), min_size=1, max_size=2))
    shapes = draw(st.lists(st.sampled_from(["Switch", "FullyConnected"]), min_size=2, max_size=2))
    along = draw(st.integers(0, len(npus) - 1))
    places = draw(st.lists(st.integers(0, npus[along] - 1), min_size=2, unique=True))
    stride = 1 if along == 0 else npus[0]
    paths = grid.path_keys(read_network_alone(network(shapes[: len(npus)], npus)), on_links=True, whole=True)
    return paths, np.array(places) * stride


def rounds(numbers: Any) -> list[list[int]]:
    return [np.roll(numbers, -place).tolist() for place in range(len(numbers))]


@given(lines())
def test_members_that_read_the_same_steps_have_the_same_paths(case: tuple[Any, Any]) -> None:
    paths, members = case
    steps = paths.steps(members[None])[0]
    to_all = [
        [int(paths.codes(np.array(source), np.array(target))) for target in np.roll(members, -place)[1:]]
        for place, source in enumerate(members)
    ]
    assert all(paths.can_be_folded(members, np.roll(members, -d)) for d in range(1, len(members)))
    read = rounds(steps)
    for first in range(len(members)):
        for second in range(len(members)):
            assert (read[first] == read[second]) == (to_all[first] == to_all[second])


def test_steps_are_not_enough_on_rings_over_several_dimensions_and_where_nothing_queues() -> None:
    both = read_network_alone(network(["Ring", "Switch"], [4, 4]))
    queues = grid.path_keys(both, on_links=True, whole=True)
    assert queues.steps(np.arange(4)[None]) is None
    assert queues.steps(np.array([[0, 5, 10]])) is None
    assert queues.steps(np.array([[1, 5, 13]])) is not None
    assert grid.path_keys(both, on_links=False, whole=True).steps(np.array([[1, 5, 13]])) is None


@pytest.mark.deep
def test_thousands_that_all_exchange_messages_at_once_are_one_actor() -> None:
    corrected = system("direct", profile="corrected")
    result = run(
        collective(4096, "all_to_all"), system=corrected, network=network(["FullyConnected"], [4096])
    )
    assert len(result.outcome.plan.actors) == 1


def test_a_folded_run_remembers_a_turn_of_each_member() -> None:
    for members, turns in ((8, 4096), (2048, 4096), (4096, 8192), (5000, 8192)):
        plan: Any = SimpleNamespace(programs={"members": np.array([2, members])})
        assert _turns(plan) == turns > members
