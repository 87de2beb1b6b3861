"""Link network: whole messages, stored and forwarded over directed links that carry one at a time.

A message corrects one coordinate after the other, lowest dimension first. On a ring it goes clockwise
unless the other way is strictly shorter; a switch stands between any two NPUs of its line; a fully
connected dimension has a link for every pair. A busy link queues messages in the order they came. Links may
have speeds of their own.

Not here: the queues' workings in time (`engine.transport`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.machine.model import Network
from et_sim.network.hierarchy import level_table
from et_sim.network.speeds import (
    ANTICLOCKWISE,
    CLOCKWISE,
    DOWN,
    FULLY_CONNECTED,
    LINKS_PER_NPU,
    RING,
    UP,
)
from et_sim.network.tables import Model, NetworkTables, dimension_tables, link_table


def prepare(network: Network, home: Any) -> NetworkTables:
    """Tables for one run; `home` says per rank whose links stand for its own."""
    dimensions, speeds = dimension_tables(network, int(home.max()) + 1)
    links = link_table(network, dimensions, speeds, home)
    model = np.array([Model.LINK], np.int64)
    return NetworkTables(dimensions, speeds, links, np.zeros(0, np.int64), home, model, level_table(network))


@works_on_tables
def take_hop(network: NetworkTables, transit: Any) -> int:
    """The next link of a message; moves the message to the link's far end.

    A message inside a switch has `via_switch` set, and `at` is the NPU it will come out at.
    """
    if transit.via_switch:
        dimension = network.dimensions[transit.dimension]
        transit.via_switch = 0
        return dimension.link_first + network.home[transit.at] * LINKS_PER_NPU + DOWN
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        outermost = row + 1 == len(network.dimensions)
        here = _coordinate(dimension, transit.at, outermost)
        there = _coordinate(dimension, transit.target, outermost)
        if here != there:
            transit.dimension = row
            return _leave(network, dimension, transit, here, there)
    transit.dimension = 0  # a message to oneself goes through the switch and back
    transit.via_switch = 1
    return network.dimensions[0].link_first + network.home[transit.at] * LINKS_PER_NPU + UP


@works_on_tables
def _coordinate(dimension: Any, rank: int, outermost: bool) -> int:
    """A rank's place along a dimension; divisions are slow, and one dimension needs none."""
    if dimension.stride > 1:
        rank //= dimension.stride
    return rank if outermost else rank % dimension.npus


@works_on_tables
def _leave(network: NetworkTables, dimension: Any, transit: Any, here: int, there: int) -> int:
    origin = transit.at
    home = network.home[origin]
    ahead = there - here if there > here else there - here + dimension.npus
    if dimension.wiring == FULLY_CONNECTED:
        transit.at = origin + (there - here) * dimension.stride
        return dimension.link_first + home * dimension.npus + ahead
    if dimension.wiring == RING:
        way = ANTICLOCKWISE if dimension.npus - ahead < ahead else CLOCKWISE
        after = here + 1 if way == CLOCKWISE else here - 1
        if after == dimension.npus:
            after = 0
        elif after < 0:
            after = dimension.npus - 1
        transit.at = origin + (after - here) * dimension.stride
        return dimension.link_first + home * LINKS_PER_NPU + way
    transit.at = origin + (there - here) * dimension.stride
    transit.via_switch = 1
    return dimension.link_first + home * LINKS_PER_NPU + UP
