"""The grid: dimensions of rings, switches and fully connected NPUs, whose links may differ in speed.

A message corrects one coordinate after the other, lowest dimension first. On a ring it goes clockwise unless
the other way is strictly shorter; a switch stands between any two NPUs of its line; among fully connected
NPUs there is a link for every pair.

Not here: who has to wait for whom (`analytical`, `link`), and how links are told apart (`speeds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.engine.state.run import Run
from et_sim.machine.model import Dimension, GridFabric, Network, Shape
from et_sim.network.fabric import NONE, Leg
from et_sim.network.paths import GridPaths
from et_sim.network.reach import refuse_slow
from et_sim.network.speeds import (
    ANTICLOCKWISE,
    CLOCKWISE,
    DOWN,
    FULLY_CONNECTED,
    RING,
    SHAPE_CODE,
    SWITCH,
    UP,
    dimension_names,
    npu_and_port,
    port_names,
    ports_of,
    speed_names,
    speed_of,
    speed_table,
)
from et_sim.plan.tables import record, table

DIMENSION = record(
    ("npus", "i8"),
    ("stride", "i8"),
    ("wiring", "i8"),
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
    ("ports", "i8"),  # links of an NPU
    ("uneven_first", "i8"),  # into `speeds`: links of a speed of their own
    ("uneven_end", "i8"),
)


@dataclass(frozen=True, slots=True)
class GridTables(Tables):
    """What compiled code knows of a grid."""

    dimensions: Any
    speeds: Any  # the first ones are the dimensions'


def wired(network: Network) -> GridFabric:
    """The network's fabric, which is a grid."""
    assert isinstance(network.fabric, GridFabric)
    return network.fabric


def tables(network: Network) -> GridTables:
    """The network's dimensions and the speeds of its links as records."""
    fabric = wired(network)
    dimensions = table(DIMENSION, len(fabric.dimensions))
    speeds, uneven = speed_table(fabric)
    units = 1 << network.fraction_bits  # of time, per ns
    dimensions["uneven_first"], dimensions["uneven_end"] = uneven[:-1], uneven[1:]
    speeds["bytes_per_ns"] /= units
    speeds["latency_ns"] *= units
    for row, dimension, stride in zip(dimensions, fabric.dimensions, fabric.strides, strict=True):
        row.npus, row.stride, row.wiring = dimension.npus, stride, SHAPE_CODE[dimension.shape]
        row.bytes_per_ns, row.latency_ns = dimension.bytes_per_ns / units, dimension.latency_ns * units
        row.ports = ports_of(dimension)
    return GridTables(dimensions, speeds)


def flights_along(network: Network, along: int, distance: Any, size: Any) -> Any:
    """Time of messages over `distance` places along a dimension; None if it depends on who sends them."""
    dimension = tables(network).dimensions[along]
    if dimension.uneven_first < dimension.uneven_end:
        return None
    distance = distance.astype(np.int64)
    hops = {
        RING: np.minimum(distance, dimension.npus - distance),
        FULLY_CONNECTED: np.ones_like(distance),
        SWITCH: np.full_like(distance, 2),
    }[int(dimension.wiring)]
    return (hops * dimension.latency_ns + size / dimension.bytes_per_ns).astype(np.int64)


def check_reach(network: Network, most_bytes: int) -> None:
    """Refuse a network on which a message of the run would take longer than any run may."""
    for number, dimension in enumerate(wired(network).dimensions):
        uneven = [link for link in wired(network).links if link.dimension == number]
        bandwidth = min([dimension.bytes_per_ns, *(link.bytes_per_ns for link in uneven)])
        latency = max([dimension.latency_ns, *(link.latency_ns for link in uneven)])
        refuse_slow(_most_hops(dimension) * (latency + most_bytes / bandwidth), number, most_bytes)


def _most_hops(dimension: Dimension) -> int:
    return max(dimension.npus // 2, 2) if dimension.shape is Shape.RING else 2


def causal_events_of_message(network: Network) -> int:
    """The most causal events that a message may need: latencies of links are told apart."""
    links = sum(dimension.npus // 2 + 1 for dimension in wired(network).dimensions)
    told_apart = 2 * len(wired(network).links) + 1  # stretches of links of one speed
    return 5 * min(links, told_apart + len(wired(network).dimensions)) + 2 * len(wired(network).dimensions)


def causal_classes(network: Network) -> int:
    """How many speeds of links there are."""
    return len(tables(network).speeds)


def most_links(network: Network) -> int:
    """The most links that a message takes."""
    return sum(_most_hops(dimension) for dimension in wired(network).dimensions)


def path_keys(network: Network, *, on_links: bool, whole: bool) -> GridPaths:
    """What folding must tell apart."""
    return GridPaths(wired(network), on_links=on_links, whole=whole)


def sending_resources(network: Network, actors: int) -> ResourceTable:
    """All that an actor sends along each dimension."""
    return sendings(len(wired(network).dimensions), actors, speed_names(wired(network)))


def link_resources(network: Network, actor_of_rank: Any) -> ResourceTable:
    """Every link of every actor, dimension by dimension."""
    actors = int(actor_of_rank.max()) + 1
    ports = [ports_of(dimension) for dimension in wired(network).dimensions]
    counts = np.array([actors * count for count in ports])
    shapes = [SHAPE_CODE[dimension.shape] for dimension in wired(network).dimensions]
    named = [port_names(shape, count) for shape, count in zip(shapes, ports, strict=True)]
    names = tuple(dict.fromkeys(name for of_dimension in named for name in of_dimension))
    number = {name: row for row, name in enumerate(names)}
    of_ports = [np.array([number[name] for name in of_dimension], np.int32) for of_dimension in named]
    return ResourceTable(
        actor=np.concatenate([np.repeat(np.arange(actors, dtype=np.int32), count) for count in ports]),
        dimension=np.repeat(np.arange(len(ports), dtype=np.int32), counts),
        port=np.concatenate([np.tile(of_dimension, actors) for of_dimension in of_ports]),
        port_names=names,
        tier=np.repeat(np.arange(len(ports), dtype=np.int32), counts),
        tier_names=dimension_names(wired(network)),
        bytes_per_ns=_capacities(wired(network), actor_of_rank, np.cumsum(counts) - counts, counts),
        class_names=speed_names(wired(network)),
        are_links=True,
        sizes=tuple(dimension.npus for dimension in wired(network).dimensions),
    )


def _capacities(fabric: GridFabric, actor_of_rank: Any, first: Any, counts: Any) -> Any:
    """Of every link; an NPU that is connected with all others has no link to itself."""
    found = np.repeat([dimension.bytes_per_ns for dimension in fabric.dimensions], counts)
    for dimension, begin, count in zip(fabric.dimensions, first.tolist(), counts.tolist(), strict=True):
        if dimension.shape is Shape.FULLY_CONNECTED:
            found[begin : begin + count : dimension.npus] = 0
    for link in fabric.links:
        npu, port = npu_and_port(fabric, link)
        at = int(actor_of_rank[npu]) * ports_of(fabric.dimensions[link.dimension]) + port
        found[first[link.dimension] + at] = link.bytes_per_ns
    return found


@works_on_tables
def note_leg(fabric: GridTables, run: Run, leg: Leg, begin: int, size: int) -> None:
    """A message crosses a dimension from `begin` on."""
    observe.actor_sends(run, leg.row, len(fabric.dimensions), begin, leaving_ns(fabric, leg, size), size)


@works_on_tables
def next_leg(fabric: GridTables, at: int, target: int) -> Leg:
    """Along the lowest dimension in which the ends differ, or between a rank and a switch that reduces."""
    if max(at, target) >= ranks_of(fabric):
        return _leg_of_switch(fabric, at, target)
    for row in range(len(fabric.dimensions)):
        dimension = fabric.dimensions[row]
        outermost = row + 1 == len(fabric.dimensions)
        here = _coordinate(dimension, at, outermost)
        there = _coordinate(dimension, target, outermost)
        if here != there:
            return Leg(row, at, here, there, at + (there - here) * dimension.stride)
    return Leg(NONE, at, at, at, at)


@works_on_tables
def ranks_of(fabric: GridTables) -> int:
    """How many ranks there are; the numbers behind them stand for the switches of dimensions."""
    outermost = fabric.dimensions[len(fabric.dimensions) - 1]
    return outermost.stride * outermost.npus


@works_on_tables
def _leg_of_switch(fabric: GridTables, at: int, target: int) -> Leg:
    """One link: the place of the switch is NONE."""
    ranks = ranks_of(fabric)
    if at == target:
        return Leg(NONE, at, at, at, at)
    if target >= ranks:
        return Leg(target - ranks, at, 0, NONE, target)
    return Leg(at - ranks, at, NONE, 0, target)


@works_on_tables
def _coordinate(dimension: Any, rank: int, outermost: bool) -> int:
    """A rank's place along a dimension; divisions are slow, and one dimension needs none."""
    if dimension.stride > 1:
        rank //= dimension.stride
    return rank if outermost else rank % dimension.npus


@works_on_tables
def hops_of(fabric: GridTables, leg: Leg) -> int:
    """How many links a message takes along a dimension."""
    dimension = fabric.dimensions[leg.row]
    if dimension.wiring == RING:
        ahead = abs(leg.there - leg.here)
        return min(ahead, dimension.npus - ahead)
    return 2 if dimension.wiring == SWITCH and min(leg.here, leg.there) != NONE else 1


@works_on_tables
def way_round(fabric: GridTables, leg: Leg) -> int:
    """In which direction a message goes round a ring."""
    npus = fabric.dimensions[leg.row].npus
    ahead = places_ahead(fabric, leg)
    return ANTICLOCKWISE if npus - ahead < ahead else CLOCKWISE


@works_on_tables
def places_ahead(fabric: GridTables, leg: Leg) -> int:
    """How far ahead the end is, round the dimension."""
    ahead = leg.there - leg.here
    return ahead if ahead > 0 else ahead + fabric.dimensions[leg.row].npus


@works_on_tables
def leg_ns(fabric: GridTables, leg: Leg, size: int) -> int:
    """The latencies of all links on the way, and the serialisation on the slowest."""
    dimension = fabric.dimensions[leg.row]
    if dimension.uneven_first == dimension.uneven_end:
        return int(hops_of(fabric, leg) * dimension.latency_ns + size / dimension.bytes_per_ns)
    latency, slowest = 0.0, np.inf
    for hop in range(hops_of(fabric, leg)):
        speed = fabric.speeds[_speed_of_hop(fabric, leg, hop)]
        latency += speed.latency_ns
        slowest = min(slowest, speed.bytes_per_ns)
    return int(latency + size / slowest)


@works_on_tables
def leaving_ns(fabric: GridTables, leg: Leg, size: int) -> int:
    """The serialisation alone."""
    return int(size / fabric.speeds[leaving_class(fabric, leg)].bytes_per_ns)


@works_on_tables
def leaving_class(fabric: GridTables, leg: Leg) -> int:
    """The speed of the slowest link along a dimension: the first such one."""
    dimension = fabric.dimensions[leg.row]
    if dimension.uneven_first == dimension.uneven_end:
        return leg.row
    slowest = _speed_of_hop(fabric, leg, 0)
    for hop in range(1, hops_of(fabric, leg)):
        speed = _speed_of_hop(fabric, leg, hop)
        if fabric.speeds[speed].bytes_per_ns < fabric.speeds[slowest].bytes_per_ns:
            slowest = speed
    return slowest


@works_on_tables
def _speed_of_hop(fabric: GridTables, leg: Leg, hop: int) -> int:
    """The row of the speed of one of the links along a dimension."""
    dimension = fabric.dimensions[leg.row]
    if dimension.wiring == RING:
        way = way_round(fabric, leg)
        place = (leg.here + hop if way == CLOCKWISE else leg.here - hop + dimension.npus) % dimension.npus
        return speed_of(fabric, leg.row, leg.at + (place - leg.here) * dimension.stride, way)
    if dimension.wiring == SWITCH:
        is_up = hop == 0 and leg.here != NONE
        return speed_of(fabric, leg.row, leg.at if is_up else leg.end, UP if is_up else DOWN)
    return speed_of(fabric, leg.row, leg.at, places_ahead(fabric, leg))


@works_on_tables
def describe_leg(fabric: GridTables, run: Run, leg: Leg, size: int) -> None:
    """The latencies of the links along one dimension, and then the slowest one's serialisation."""
    if not observe.describes_causes(run):
        return
    begin, latency = observe.described_until(run), 0.0
    hops = hops_of(fabric, leg)
    for hop in range(hops):
        speed = _speed_of_hop(fabric, leg, hop)
        latency += fabric.speeds[speed].latency_ns
        if hop + 1 == hops or _speed_of_hop(fabric, leg, hop + 1) != speed:
            observe.describe_latency(run, speed, begin + int(latency))
    _describe_serialisation(fabric, run, leg, size, begin, latency)


@works_on_tables
def describe_leaving(fabric: GridTables, run: Run, leg: Leg, size: int) -> None:
    """The serialisation alone."""
    if observe.describes_causes(run):
        _describe_serialisation(fabric, run, leg, size, observe.described_until(run), 0.0)


@works_on_tables
def _describe_serialisation(
    fabric: GridTables, run: Run, leg: Leg, size: int, begin: int, latency: float
) -> None:
    """That of the slowest link, and beside it those of other speeds, which may become the slowest."""
    sent, sent_ns = observe.described_so_far(run), observe.described_until(run)
    slowest = leaving_class(fabric, leg)
    time = latency + size / fabric.speeds[slowest].bytes_per_ns
    observe.describe_serialisation(run, slowest, begin + int(time))
    dimension = fabric.dimensions[leg.row]
    if dimension.uneven_first == dimension.uneven_end:
        return
    last = slowest
    for hop in range(hops_of(fabric, leg)):
        speed = _speed_of_hop(fabric, leg, hop)
        if speed not in (last, slowest):
            time = latency + size / fabric.speeds[speed].bytes_per_ns
            observe.describe_beside(run, speed, sent, sent_ns, begin + int(time))
        last = speed


@works_on_tables
def add_serialisation(fabric: GridTables, leg: Leg, size: int, longest: Any) -> None:
    """What each link on the way takes for so many bytes, if that is longer than is noted of its speed."""
    for hop in range(hops_of(fabric, leg)):
        speed = _speed_of_hop(fabric, leg, hop)
        longest[speed] = max(longest[speed], int(size / fabric.speeds[speed].bytes_per_ns))
