"""Levels of ASTRA-sim 1.0: a message pays for the *highest* level in which its ends differ.

It pays the latency of all hops, then the serialisation on all links of the bundle, two network cards, and a
router behind a switch. Each sum is rounded down to whole nanoseconds. If the memory takes longer than all of
this, the time is that of the memory, the only one with a fraction.

Levels describe the wiring. Dimensions, along which collectives run, may be parts of a level: the hops of a
ring along such a part differ in length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.engine.state.run import Run
from et_sim.machine.model import LevelFabric, Network
from et_sim.network.fabric import NONE, Leg, refuse_slow
from et_sim.network.grid import RING, SHAPE_CODE, SWITCH
from et_sim.network.paths import LevelPaths
from et_sim.plan.records import record, table

# Points on the path of a message, and on its path through the memory.
LATENCY_PASSED, LINKS_PASSED, CARDS_PASSED, ROUTER_PASSED, ARRIVED, MEMORY_REACHED, MEMORY_PASSED = range(7)
LINKS, CARDS, ROUTER, MEMORY = range(4)  # parts of the time in a level
PARTS = ("", ": cards", ": router", ": memory")
PART_COUNT = len(PARTS)
CAUSAL_EVENTS_OF_MESSAGE = 7
LEVEL = record(
    ("npus", "i8"),
    ("stride", "i8"),
    ("wiring", "i8"),
    ("latency_ns", "f8"),
    ("bytes_per_ns", "f8"),
    ("nic_ns", "f8"),
    ("router_ns", "f8"),
    ("memory_latency_ns", "f8"),
    ("memory_bytes_per_ns", "f8"),
    ("memory_scale", "f8"),
    ("units_per_ns", "f8"),  # unit of time
)


class LevelTables(Tables, Struct, frozen=True):
    """Tables of the levels for compiled code."""

    dimensions: Any


def levels_of(network: Network) -> LevelFabric:
    assert isinstance(network.fabric, LevelFabric)
    return network.fabric


def tables(network: Network) -> LevelTables:
    """Return the levels of the network as records."""
    levels = table(LEVEL, len(levels_of(network).levels))
    stride = 1
    for row, level in zip(levels, levels_of(network).levels, strict=True):
        row.npus, row.stride, row.wiring = level.npus, stride, SHAPE_CODE[level.shape]
        row.latency_ns, row.bytes_per_ns = level.latency_ns, level.bytes_per_ns
        row.nic_ns, row.router_ns = level.nic_ns, level.router_ns
        row.memory_latency_ns, row.memory_bytes_per_ns = level.memory_latency_ns, level.memory_bandwidth
        row.memory_scale, row.units_per_ns = level.memory_scale, 1 << network.fraction_bits
        stride *= level.npus
    return LevelTables(levels)


def flights_along(network: Network, along: int, distance: Any, size: Any) -> Any:
    """Return the times of messages over `distance` places along a dimension; None: times depend on the
    sender.
    """
    if levels_of(network).level_of.count(levels_of(network).level_of[along]) > 1:
        return None  # hops along a part of a level differ in length
    level = tables(network).dimensions[levels_of(network).level_of[along]]
    pairs = zip(distance.tolist(), size.tolist(), strict=True)
    return np.array([_plain_flight(level, *pair) for pair in pairs], np.int64)


def _plain_flight(level: Any, distance: int, size: int) -> int:
    """Call `_over_level` from Python."""
    return int(_over_level(level, distance, size, ARRIVED))


def check_reach(network: Network, most_bytes: int) -> None:
    """Refuse a network on which a message would take longer than any run may."""
    for number, level in enumerate(tables(network).dimensions):
        flight = _plain_flight(level, int(level.npus) // 2, most_bytes)
        figures = "its latency (ns) or bandwidth (GB/s)"
        refuse_slow(flight / level.units_per_ns, most_bytes, f" in dimension {number}", figures)


def most_links(network: Network) -> int:
    """Return the largest number of links of a message: half a ring, or two links of a switch."""
    return max(max(level.npus // 2, 2) for level in levels_of(network).levels)


def causal_events_of_message(_network: Network) -> int:
    """Return the largest number of causal events of a message."""
    return CAUSAL_EVENTS_OF_MESSAGE


def causal_classes(_network: Network) -> int:
    """Return 0: no switch of levels reduces."""
    return 0


def path_keys(network: Network, **_: bool) -> LevelPaths:
    """Return the keys for folding: a message has one leg and never waits."""
    return LevelPaths(levels_of(network))


def sending_resources(network: Network, actors: int) -> ResourceTable:
    """Return the resources of what actors send over each level, with a class for each part of the time."""
    count = len(levels_of(network).levels)
    classes = tuple(f"dimension {number}{part}" for number in range(count) for part in PARTS)
    return sendings(count, actors, classes)


@works_on_tables
def next_leg(fabric: LevelTables, at: int, target: int) -> Leg:
    """Return a leg to the target, over the highest level in which the ends differ."""
    row = len(fabric.dimensions) - 1
    while row >= 0:
        level = fabric.dimensions[row]
        here, there = at // level.stride % level.npus, target // level.stride % level.npus
        if here != there:
            return Leg(row, at, here, there, target)
        row -= 1
    return Leg(NONE, at, at, at, at)


@works_on_tables
def leg_ns(fabric: LevelTables, leg: Leg, size: int) -> int:
    """Return the time from sending `size` bytes to their arrival."""
    return _over_level(fabric.dimensions[leg.row], abs(leg.there - leg.here), size, ARRIVED)


@works_on_tables
def leaving_ns(fabric: LevelTables, leg: Leg, size: int) -> int:
    """Return the time until the last of `size` bytes has left the source."""
    level = fabric.dimensions[leg.row]
    return int(int(size / level.bytes_per_ns) * level.units_per_ns)


@works_on_tables
def leaving_class(_fabric: LevelTables, leg: Leg) -> int:
    """Return the class of the links of the level."""
    return leg.row * PART_COUNT


@works_on_tables
def describe_leg(fabric: LevelTables, run: Run, leg: Leg, size: int) -> None:
    """Describe the way over links, cards and router, and the concurrent one through the memory."""
    if not observe.describes_causes(run):
        return
    level, distance = fabric.dimensions[leg.row], abs(leg.there - leg.here)
    sent, begin, link = observe.described_so_far(run), observe.described_until(run), leg.row * PART_COUNT
    observe.describe_latency(run, link, begin + _over_level(level, distance, size, LATENCY_PASSED))
    observe.describe_serialisation(run, link, begin + _over_level(level, distance, size, LINKS_PASSED))
    if level.nic_ns > 0:
        observe.describe_latency(run, link + CARDS, begin + _over_level(level, distance, size, CARDS_PASSED))
    if level.wiring == SWITCH and level.router_ns > 0:
        observe.describe_latency(
            run, link + ROUTER, begin + _over_level(level, distance, size, ROUTER_PASSED)
        )
    if level.memory_scale == 0:
        return
    through, through_ns = observe.described_so_far(run), observe.described_until(run)
    observe.describe_from(run, sent, begin)
    link += MEMORY
    observe.describe_latency(run, link, begin + _over_level(level, distance, size, MEMORY_REACHED))
    observe.describe_serialisation(run, link, begin + _over_level(level, distance, size, MEMORY_PASSED))
    observe.describe_bound(run, through, through_ns)


@works_on_tables
def describe_leaving(fabric: LevelTables, run: Run, leg: Leg, size: int) -> None:
    """Describe the serialisation."""
    if observe.describes_causes(run):
        until = observe.described_until(run) + leaving_ns(fabric, leg, size)
        observe.describe_serialisation(run, leaving_class(fabric, leg), until)


@works_on_tables
def add_serialisation(_fabric: LevelTables, _leg: Leg, _size: int, _longest: Any) -> None:
    """Add nothing: no switch of levels reduces."""


@works_on_tables
def _over_level(level: Any, distance: int, size: int, point: int) -> int:
    """Return the time of a message over `distance` places of a level, until it arrives or reaches `point`."""
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
