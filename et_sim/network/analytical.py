"""Analytical network: a message takes its latency and its serialisation, whoever else is sending.

Links have no state. A message is charged the *lowest* dimension in which the two ranks differ, as in
the reference: hops * latency + bytes / bandwidth of that dimension, truncated once. A ring goes the
shorter way round, a switch takes two hops, a fully connected dimension one. With WHOLE_PATH, the message
is charged like that for every dimension in which the ranks differ, one after the other. On idle links, the
link model gives the same where all hops are fully connected; it serialises a message on every link, so a
ring of h hops takes h serialisations there and one here, a switch two and one.

In a dimension with links of other speeds, the latencies of the links on the way are added up, and the slowest
one sets the bandwidth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.machine.model import Network
from et_sim.network.hierarchy import flights_along, highest_flight_ns, highest_leaving_ns, level_table
from et_sim.network.speeds import (
    ANTICLOCKWISE,
    CLOCKWISE,
    DOWN,
    FULLY_CONNECTED,
    RING,
    SWITCH,
    UP,
    speed_of,
)
from et_sim.network.tables import LINK, Model, NetworkTables, dimension_tables
from et_sim.plan.tables import table


def prepare(network: Network, programs: Any, steps: Any) -> NetworkTables:
    """Tables for one run; steps that stay within one dimension get their flight time here, once."""
    dimensions, speeds = dimension_tables(network, 0)
    levels = level_table(network)
    flights = np.full(len(steps), -1, np.int64)
    for program in programs:
        along = int(program["dimension"])
        if along < 0 or dimensions[along].uneven_first < dimensions[along].uneven_end:
            continue
        if network.level_of.count(network.level_of[along] if network.levels else -1) > 1:
            continue  # hops along a part of a level differ in length
        if program["tree_first"] < 0:  # the peers of a tree differ from member to member
            first = int(program["step_first"])
            rows = slice(first, first + int(program["step_period"]))
            if network.levels:
                level = levels[network.level_of[along]]
                flights[rows] = flights_along(level, steps["distance"][rows], steps["bytes"][rows])
            else:
                flights[rows] = _flight_along(dimensions[along], steps[rows])
    nobody = np.zeros(0, np.int32)
    model = np.array([Model.ANALYTICAL], np.int64)
    return NetworkTables(dimensions, speeds, table(LINK, 0), flights, nobody, model, levels)


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
    if len(network.levels) > 0:
        return highest_flight_ns(network, source, target, size)
    flight, at = 0, source
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there:
            flight += leg_ns(network, row, at, here, there, size)
            if not whole_path:
                return flight
        at += (there - here) * dimension.stride
        source //= dimension.npus
        target //= dimension.npus
    return flight


@works_on_tables
def leg_ns(network: NetworkTables, row: int, at: int, here: int, there: int, size: int) -> int:
    """Time from NPU `at`, whose place along dimension `row` is `here`, to the one at `there`."""
    dimension = network.dimensions[row]
    if dimension.uneven_first < dimension.uneven_end:
        return _uneven_ns(network, row, at, here, there, size, 1)
    return int(hops_between(dimension, here, there) * dimension.latency_ns + size / dimension.bytes_per_ns)


@works_on_tables
def hops_between(dimension: Any, here: int, there: int) -> int:
    """How many links a message takes along a dimension."""
    if dimension.wiring == RING:
        ahead = abs(there - here)
        return min(ahead, dimension.npus - ahead)
    return 2 if dimension.wiring == SWITCH else 1


@works_on_tables
def leaving_ns(network: NetworkTables, source: int, target: int, size: int) -> int:
    """Time from sending `size` bytes until the last has left the source."""
    if len(network.levels) > 0:
        return highest_leaving_ns(network, source, target, size)
    at = source
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there and dimension.uneven_first < dimension.uneven_end:
            return _uneven_ns(network, row, at, here, there, size, 0)
        if here != there:
            return int(size / dimension.bytes_per_ns)
        source //= dimension.npus
        target //= dimension.npus
    return 0


@works_on_tables
def _uneven_ns(
    network: NetworkTables, row: int, at: int, here: int, there: int, size: int, latencies: int
) -> int:
    """Time from NPU `at` to another one of its line, link by link; with or without `latencies`."""
    dimension = network.dimensions[row]
    ahead = there - here if there > here else there - here + dimension.npus
    if dimension.wiring == RING:
        return _round_ring_ns(network, row, at, here, ahead, size, latencies)
    target = at + (there - here) * dimension.stride
    if dimension.wiring == SWITCH:
        up = network.speeds[speed_of(network, row, at, UP)]
        down = network.speeds[speed_of(network, row, target, DOWN)]
        latency, slowest = up.latency_ns + down.latency_ns, min(up.bytes_per_ns, down.bytes_per_ns)
        return int(latencies * latency + size / slowest)
    speed = network.speeds[speed_of(network, row, at, ahead)]
    return int(latencies * speed.latency_ns + size / speed.bytes_per_ns)


@works_on_tables
def _round_ring_ns(
    network: NetworkTables, row: int, at: int, here: int, ahead: int, size: int, latencies: int
) -> int:
    """The same on a ring, the shorter way round, to the NPU that is `ahead` places ahead."""
    dimension = network.dimensions[row]
    way = ANTICLOCKWISE if dimension.npus - ahead < ahead else CLOCKWISE
    hops = min(ahead, dimension.npus - ahead)
    first, place = at - here * dimension.stride, here
    latency, slowest = 0.0, np.inf
    for _ in range(hops):
        speed = network.speeds[speed_of(network, row, first + place * dimension.stride, way)]
        latency += speed.latency_ns
        slowest = min(slowest, speed.bytes_per_ns)
        place += 1 if way == CLOCKWISE else dimension.npus - 1
        if place >= dimension.npus:
            place -= dimension.npus
    return int(latencies * latency + size / slowest)


@works_on_tables
def speed_of_hop(network: NetworkTables, row: int, at: int, here: int, there: int, hop: int) -> int:
    """The row of the speed of one of the links along a dimension."""
    dimension = network.dimensions[row]
    ahead = there - here if there > here else there - here + dimension.npus
    if dimension.wiring == RING:
        way = ANTICLOCKWISE if dimension.npus - ahead < ahead else CLOCKWISE
        place = (here + hop if way == CLOCKWISE else here - hop + dimension.npus) % dimension.npus
        return speed_of(network, row, at + (place - here) * dimension.stride, way)
    if dimension.wiring == SWITCH:
        target = at + (there - here) * dimension.stride
        return speed_of(network, row, at, UP) if hop == 0 else speed_of(network, row, target, DOWN)
    return speed_of(network, row, at, ahead)


@works_on_tables
def slowest_of_leg(network: NetworkTables, row: int, at: int, here: int, there: int) -> int:
    """The row of the speed of the link that sets the bandwidth along a dimension: the first such one."""
    slowest = speed_of_hop(network, row, at, here, there, 0)
    for hop in range(1, hops_between(network.dimensions[row], here, there)):
        speed = speed_of_hop(network, row, at, here, there, hop)
        if network.speeds[speed].bytes_per_ns < network.speeds[slowest].bytes_per_ns:
            slowest = speed
    return slowest
