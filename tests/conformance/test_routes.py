"""Folding and network models use the same routes: `places_ahead`, on arrays, agrees with `next_leg`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import network

from et_sim.compiled.interpreted import interpret
from et_sim.machine.model import Network
from et_sim.machine.readers import read_network_alone
from et_sim.network import grid
from et_sim.network.fabric import NONE, next_leg
from et_sim.network.paths import places_ahead


def walk(fabric: Any, sources: Any, targets: Any, ahead: Any, order: Any) -> None:
    """Fill in, for each pair and dimension, the distance of the leg and its position in the order."""
    for pair in range(len(sources)):
        count = 0
        leg = next_leg(fabric, sources[pair], targets[pair])
        while leg.row != NONE:
            npus = fabric.dimensions[leg.row].npus
            ahead[pair, leg.row] = (leg.there - leg.here + npus) % npus
            order[pair, leg.row] = count
            count += 1
            leg = next_leg(fabric, leg.end, targets[pair])


@pytest.mark.parametrize("npus", [[5], [2, 3], [4, 1, 3], [2, 2, 2, 2]])
def test_legs_of_a_grid_are_where_folding_sees_them(npus: list[int]) -> None:
    machine: Network = read_network_alone(network(["Ring"] * len(npus), npus))
    ranks = np.arange(machine.ranks)
    sources, targets = np.repeat(ranks, len(ranks)), np.tile(ranks, len(ranks))
    ahead, order = np.zeros((2, len(sources), len(npus)), np.int64)
    interpret(walk, (grid.tables(machine), sources, targets, ahead, order))
    seen = [places for _, _, places in places_ahead(grid.wired(machine).dimensions, sources, targets)]
    assert np.array_equal(ahead, np.stack(seen, axis=1))
    earlier = np.cumsum(ahead != 0, axis=1) - (ahead != 0)  # lowest dimension first
    assert np.array_equal(order[ahead != 0], earlier[ahead != 0])
