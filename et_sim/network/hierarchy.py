"""Hierarchical network of ASTRA-sim 1.0: a message pays for the *highest* level in which its ends differ.

It is the analytical model with another rule for time: latency of all hops, then the serialisation on all
links of the bundle, two network cards, and a router behind a switch; each sum is cut to whole nanoseconds.
Where the memory takes longer than all that, it takes the memory's time, the only one with a fraction.

Levels are what is wired; dimensions, along which collectives run, may be parts of a level. A ring along a
part of a level then has hops of several lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.machine.model import Network
from et_sim.network.speeds import RING, SHAPE_CODE, SWITCH
from et_sim.plan.tables import record, table

# Points on a message's way, and on that through the memory.
LATENCY_PASSED, LINKS_PASSED, CARDS_PASSED, ROUTER_PASSED, ARRIVED, MEMORY_REACHED, MEMORY_PASSED = range(7)
LEVEL = record(
    ("npus", "i8"),
    ("wiring", "i8"),
    ("latency_ns", "f8"),
    ("bytes_per_ns", "f8"),
    ("nic_ns", "f8"),
    ("router_ns", "f8"),
    ("memory_latency_ns", "f8"),
    ("memory_bytes_per_ns", "f8"),
    ("memory_scale", "f8"),
    ("units_per_ns", "f8"),  # in which time is counted
)


def level_table(network: Network) -> Any:
    """The network's levels as records; none if it has none."""
    levels = table(LEVEL, len(network.levels))
    for row, level in zip(levels, network.levels, strict=True):
        row.npus, row.wiring = level.npus, SHAPE_CODE[level.shape]
        row.latency_ns, row.bytes_per_ns = level.latency_ns, level.bytes_per_ns
        row.nic_ns, row.router_ns = level.nic_ns, level.router_ns
        row.memory_latency_ns, row.memory_bytes_per_ns = level.memory_latency_ns, level.memory_bandwidth
        row.memory_scale, row.units_per_ns = level.memory_scale, 1 << network.fraction_bits
    return levels


def flights_along(level: Any, distance: Any, size: Any) -> Any:
    """Time of messages of `size` bytes over `distance` places round a whole level, one row each."""
    pairs = zip(distance.tolist(), size.tolist(), strict=True)
    return np.array([plain_flight(level, *pair) for pair in pairs], np.int64)


def plain_flight(level: Any, distance: int, size: int) -> int:
    """`over_level`, called by Python."""
    return int(getattr(over_level, "py_func", over_level)(level, distance, size, ARRIVED))


@works_on_tables
def highest_flight_ns(network: Tables, source: int, target: int, size: int) -> int:
    """Time from sending `size` bytes to their arrival; a message to oneself takes none."""
    levels = network.levels  # type: ignore[attr-defined]
    at = highest_level(levels, source, target)
    if at < 0:
        return 0
    return over_level(levels[at], distance_along(levels, at, source, target), size, ARRIVED)


@works_on_tables
def highest_leaving_ns(network: Tables, source: int, target: int, size: int) -> int:
    """Time from sending `size` bytes until the last has left the source."""
    levels = network.levels  # type: ignore[attr-defined]
    at = highest_level(levels, source, target)
    return int(int(size / levels[at].bytes_per_ns) * levels[at].units_per_ns) if at >= 0 else 0


@works_on_tables
def highest_level(levels: Any, source: int, target: int) -> int:
    """The last level in which two NPUs differ; -1: they do not."""
    highest = -1
    for row in range(len(levels)):
        if source % levels[row].npus != target % levels[row].npus:
            highest = row
        source //= levels[row].npus
        target //= levels[row].npus
    return highest


@works_on_tables
def distance_along(levels: Any, at: int, source: int, target: int) -> int:
    """How many places two NPUs are apart in a level."""
    stride = 1
    for row in range(at):
        stride *= levels[row].npus
    return abs(target // stride % levels[at].npus - source // stride % levels[at].npus)


@works_on_tables
def over_level(level: Any, distance: int, size: int, point: int) -> int:
    """Time of a message to another NPU of a level, which is `distance` places away either way: until it
    arrives, or has come to another point of its way."""
    traffic = 0.0 if point == MEMORY_REACHED else size / level.memory_bytes_per_ns
    memory = (level.memory_latency_ns + traffic) * level.memory_scale
    if point >= MEMORY_REACHED:
        return int(memory * level.units_per_ns)
    hops = 1
    if level.wiring == RING:
        hops = min(distance, level.npus - distance)
    elif level.wiring == SWITCH:
        hops = 2
    time = int(hops * level.latency_ns)
    if point >= LINKS_PASSED:
        time = int(time + size / level.bytes_per_ns)
    if point >= CARDS_PASSED:
        time = int(time + 2 * level.nic_ns)
    if point >= ROUTER_PASSED and level.wiring == SWITCH:
        time = int(time + level.router_ns)
    longest = max(float(time), memory) if point == ARRIVED else float(time)
    return int(longest * level.units_per_ns)
