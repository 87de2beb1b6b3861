"""Analytical network: a message takes its latency and its serialisation, whoever else is sending.

Links have no state. A message is charged the *lowest* dimension in which the two ranks differ, as in
the reference: hops * latency + bytes / bandwidth of that dimension, truncated once. A ring goes the
shorter way round, a switch takes two hops, a fully connected dimension one. With WHOLE_PATH, the message
is charged like that for every dimension in which the ranks differ, one after the other. On idle links, the
link model gives the same where all hops are fully connected; it serialises a message on every link, so a
ring of h hops takes h serialisations there and one here, a switch two and one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.model import Network
from et_sim.network.tables import (
    FULLY_CONNECTED,
    LINK,
    RING,
    SWITCH,
    Model,
    NetworkTables,
    dimension_table,
)
from et_sim.plan.tables import table
from et_sim.tables_by_reference import works_on_tables


def prepare(network: Network, programs: Any, steps: Any) -> NetworkTables:
    """Tables for one run; steps that stay within one dimension get their flight time here, once."""
    dimensions = dimension_table(network, 0)
    flights = np.full(len(steps), -1, np.int64)
    for program in programs:
        along = int(program["dimension"])
        if along >= 0 and program["tree_first"] < 0:  # the peers of a tree differ from member to member
            first = int(program["step_first"])
            rows = slice(first, first + int(program["step_period"]))
            flights[rows] = _flight_along(dimensions[along], steps[rows])
    nobody = np.zeros(0, np.int32)
    return NetworkTables(dimensions, table(LINK, 0), flights, nobody, np.array([Model.ANALYTICAL], np.int64))


def _flight_along(dimension: Any, steps: Any) -> Any:
    distance = steps["distance"].astype(np.int64)
    hops = {
        RING: np.minimum(distance, dimension.npus - distance),
        FULLY_CONNECTED: np.ones_like(distance),
        SWITCH: np.full_like(distance, 2),
    }[int(dimension.wiring)]
    return (hops * dimension.latency_ns + steps["bytes"] / dimension.bytes_per_ns).astype(np.int64)


@works_on_tables
def flight_ns(network: NetworkTables, source: int, target: int, size: int, whole_path: int) -> int:
    """Time from sending `size` bytes to their arrival; a message to oneself takes none."""
    flight = 0
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there:
            ahead = abs(there - here)
            hops = 1
            if dimension.wiring == RING:
                hops = min(ahead, dimension.npus - ahead)
            elif dimension.wiring == SWITCH:
                hops = 2
            flight += int(hops * dimension.latency_ns + size / dimension.bytes_per_ns)
            if not whole_path:
                return flight
        source //= dimension.npus
        target //= dimension.npus
    return flight


@works_on_tables
def leaving_ns(network: NetworkTables, source: int, target: int, size: int) -> int:
    """Time from sending `size` bytes until the last has left the source."""
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        if source % dimension.npus != target % dimension.npus:
            return int(size / dimension.bytes_per_ns)
        source //= dimension.npus
        target //= dimension.npus
    return 0
