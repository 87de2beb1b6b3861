"""Grids: dimensions of rings, switches and fully connected NPUs, whose links may differ in speed.

A message corrects one coordinate after the other, lowest dimension first. Where the last node is partly
filled, and the NPU with the next coordinate is not there, it corrects a higher one before. On a ring it goes
clockwise unless the other direction is strictly shorter. In a switch dimension it passes the switch. Fully
connected NPUs have a link for every pair.

A link is named by its NPU and a port: the direction round a ring, up or down at a switch, the distance among
fully connected NPUs. It belongs to the NPU that it leaves, or, behind a switch, reaches. There is one speed
for every dimension, and one for every link that differs from its dimension.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.state.resources import ResourceTable, sendings
from et_sim.machine.model import AT_SWITCH, Dimension, DimensionShape, GridFabric, Network, UnevenLink
from et_sim.network.fabric import (
    NONE,
    SPEED,
    Hop,
    Leg,
    Wires,
    fabric_tables,
    leg_ns_by_links,
    refuse_slow,
    slowest_of_links,
)
from et_sim.network.paths import GridPaths
from et_sim.plan.records import record, table

RING, FULLY_CONNECTED, SWITCH = 0, 1, 2
SHAPE_CODE = {
    DimensionShape.RING: RING,
    DimensionShape.FULLY_CONNECTED: FULLY_CONNECTED,
    DimensionShape.SWITCH: SWITCH,
}
MOST_LINKS_KEPT, MOST_SHAPES = 1 << 14, 4  # of a grid; grids
LINKS_PER_NPU = 2  # in a ring or switch dimension
CLOCKWISE, ANTICLOCKWISE = 0, 1
UP, DOWN = 0, 1  # links between an NPU and its switch


def ports_of(dimension: Dimension) -> int:
    """Return the number of ports of an NPU in a dimension; some may have no link."""
    return dimension.npus if dimension.shape is DimensionShape.FULLY_CONNECTED else LINKS_PER_NPU


def port_names(wiring: int, ports: int) -> list[str]:
    """Return the names of an NPU's links, by port."""
    named = {RING: ["clockwise", "anticlockwise"], SWITCH: ["to the switch", "from the switch"]}
    return named.get(wiring) or [f"{distance} further on" for distance in range(ports)]


def npu_and_port(fabric: GridFabric, link: UnevenLink) -> tuple[int, int]:
    """Return the NPU that owns a link, and its port."""
    dimension, stride = fabric.dimensions[link.dimension], fabric.strides[link.dimension]
    if dimension.shape is DimensionShape.SWITCH:
        return (link.source, UP) if link.target == AT_SWITCH else (link.target, DOWN)
    ahead = (link.target - link.source) // stride % dimension.npus
    if dimension.shape is DimensionShape.FULLY_CONNECTED:
        return link.source, ahead
    return link.source, CLOCKWISE if ahead == 1 else ANTICLOCKWISE


def speed_table(fabric: GridFabric) -> tuple[Any, Any]:
    """Return the speeds (those of dimensions, then by dimension and link) and where those of each dimension
    begin.
    """
    count = len(fabric.dimensions)
    rows = _uneven_rows(fabric)
    speeds = table(SPEED, count + len(rows))
    for speed, dimension in zip(speeds, fabric.dimensions, strict=False):
        speed.link, speed.bytes_per_ns, speed.latency_ns = -1, dimension.bytes_per_ns, dimension.latency_ns
    for speed, (_, code, link) in zip(speeds[count:], rows, strict=True):
        speed.link, speed.bytes_per_ns, speed.latency_ns = code, link.bytes_per_ns, link.latency_ns
    first = count + np.searchsorted([row[0] for row in rows], np.arange(count + 1))
    return speeds, first


def _uneven_rows(fabric: GridFabric) -> list[tuple[int, int, UnevenLink]]:
    """Return dimension, link and figures of each uneven link in the order of the table."""
    rows = []
    for link in fabric.links:
        npu, port = npu_and_port(fabric, link)
        rows.append((link.dimension, npu * ports_of(fabric.dimensions[link.dimension]) + port, link))
    return sorted(rows, key=lambda row: row[:2])


def dimension_names(count: int) -> tuple[str, ...]:
    return tuple(f"dimension {number}" for number in range(count))


def speed_names(fabric: GridFabric) -> tuple[str, ...]:
    """Return the name of the owner of each speed, in the order of the table."""
    names = [*dimension_names(len(fabric.dimensions))]
    for _, _, link in _uneven_rows(fabric):
        ends = ("switch" if end == AT_SWITCH else str(end) for end in (link.source, link.target))
        names.append(f"dimension {link.dimension}: {' to '.join(ends)}")
    return tuple(names)


@works_on_tables
def speed_of(fabric: Tables, row: int, npu: int, port: int) -> int:
    """Return the row of the speed of a link in dimension `row`."""
    dimension = fabric.dimensions[row]  # type: ignore[attr-defined]
    wanted = npu * dimension.ports + port
    low, high = dimension.uneven_first, dimension.uneven_end
    while low < high:
        middle = (low + high) >> 1
        if fabric.speeds[middle].link < wanted:  # type: ignore[attr-defined]
            low = middle + 1
        else:
            high = middle
    is_uneven = low < dimension.uneven_end and fabric.speeds[low].link == wanted  # type: ignore[attr-defined]
    return low if is_uneven else row


DIMENSION = record(
    ("npus", "i8"),
    ("stride", "i8"),
    ("wiring", "i8"),
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
    ("ports", "i8"),  # links of an NPU
    ("uneven_first", "i8"),  # into `speeds`: links with a speed of their own
    ("uneven_end", "i8"),
    ("ranks", "i8"),  # of the whole grid
)


class GridTables(Tables, Struct, frozen=True):
    """Tables of a grid for compiled code."""

    dimensions: Any
    speeds: Any  # those of dimensions come first


NOTHING = GridTables(table(DIMENSION, 0), table(SPEED, 0))  # for a network that is no grid


def wired(network: Network) -> GridFabric:
    assert isinstance(network.fabric, GridFabric)
    return network.fabric


def tables(network: Network) -> GridTables:
    """Return the dimensions and the speeds of links as records."""
    fabric = wired(network)
    dimensions = table(DIMENSION, len(fabric.dimensions))
    speeds, uneven = speed_table(fabric)
    units = 1 << network.fraction_bits  # of time, per ns
    dimensions["uneven_first"], dimensions["uneven_end"] = uneven[:-1], uneven[1:]
    speeds["bytes_per_ns"] /= units
    speeds["latency_ns"] *= units
    dimensions["stride"], dimensions["ranks"] = fabric.strides, fabric.ranks
    columns = {
        "npus": [dimension.npus for dimension in fabric.dimensions],
        "wiring": [SHAPE_CODE[dimension.shape] for dimension in fabric.dimensions],
        "bytes_per_ns": [dimension.bytes_per_ns / units for dimension in fabric.dimensions],
        "latency_ns": [dimension.latency_ns * units for dimension in fabric.dimensions],
        "ports": [ports_of(dimension) for dimension in fabric.dimensions],
    }
    for name, column in columns.items():
        dimensions[name] = column
    return GridTables(dimensions, speeds)


def rewritten(made: Any, before: Network, network: Network) -> bool:
    """Write the figures of a network into the tables of the one before; return False if more differs."""
    fabric, former, units = wired(network), before.fabric, 1 << network.fraction_bits
    if not isinstance(former, GridFabric) or former.links or fabric.links or former.filled != fabric.filled:
        return False
    shapes, others = ([(each.npus, each.shape) for each in one.dimensions] for one in (former, fabric))
    if shapes != others or before.fraction_bits != network.fraction_bits:
        return False
    for rows in (made.grid.dimensions, made.speeds):
        rows["bytes_per_ns"] = [dimension.bytes_per_ns / units for dimension in fabric.dimensions]
        rows["latency_ns"] = [dimension.latency_ns * units for dimension in fabric.dimensions]
    return True


def of_wires(fabric: GridFabric) -> GridFabric:
    """Return a grid with the same links, and no figures: paths do not depend on these."""
    dimensions = tuple(replace(dimension, bandwidth=1.0, latency_ns=0.0) for dimension in fabric.dimensions)
    links = tuple(replace(link, bandwidth=1.0, latency_ns=0.0) for link in fabric.links)
    return replace(fabric, dimensions=dimensions, links=links)


def flights_along(network: Network, along: int, distance: Any, size: Any) -> Any:
    """Return the times of messages over `distance` places along a dimension; None: times depend on the
    sender.
    """
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
    """Refuse a network on which a message would take longer than any run may."""
    for number, dimension in enumerate(wired(network).dimensions):
        uneven = [link for link in wired(network).links if link.dimension == number]
        bandwidth = min([dimension.bytes_per_ns, *(link.bytes_per_ns for link in uneven)])
        latency = max([dimension.latency_ns, *(link.latency_ns for link in uneven)])
        slowest = _most_hops(dimension) * (latency + most_bytes / bandwidth)
        refuse_slow(slowest, most_bytes, f" in dimension {number}", "its latency (ns) or bandwidth (GB/s)")


def _most_hops(dimension: Dimension) -> int:
    return max(dimension.npus // 2, 2) if dimension.shape is DimensionShape.RING else 2


def causal_events_of_message(network: Network) -> int:
    """Return the most causal events of a message; each latency of a link has its own."""
    links = sum(dimension.npus // 2 + 1 for dimension in wired(network).dimensions)
    stretches = 2 * len(wired(network).links) + 1  # stretches of links of one speed
    return 5 * min(links, stretches + len(wired(network).dimensions)) + 2 * len(wired(network).dimensions)


def causal_classes(network: Network) -> int:
    """Return the number of speeds of links."""
    return len(tables(network).speeds)


def most_links(network: Network) -> int:
    """Return the largest number of links of a message."""
    return sum(_most_hops(dimension) for dimension in wired(network).dimensions)


def path_keys(network: Network, *, on_links: bool, whole: bool) -> GridPaths:
    """Return the keys for folding."""
    return GridPaths(wired(network), on_links=on_links, whole=whole)


def sending_resources(network: Network, actors: int) -> ResourceTable:
    """Return the resources of what actors send along each dimension."""
    return sendings(len(wired(network).dimensions), actors, speed_names(wired(network)))


def link_resources(network: Network, actor_of_rank: Any) -> ResourceTable:
    """Return every link of every actor, dimension by dimension."""
    fabric, actors = wired(network), int(actor_of_rank.max()) + 1
    shapes = tuple((dimension.npus, dimension.shape) for dimension in fabric.dimensions)
    counts = np.array([actors * ports_of(dimension) for dimension in fabric.dimensions])
    is_small = counts.sum() <= MOST_LINKS_KEPT
    links = (_links_of_shapes if is_small else _links_of_shapes.__wrapped__)(shapes, actors)
    return replace(
        links,
        bytes_per_ns=_capacities(fabric, actor_of_rank, np.cumsum(counts) - counts, counts),
        class_names=speed_names(fabric),
        shape=links if is_small else None,
    )


@lru_cache(MOST_SHAPES)
def _links_of_shapes(shapes: tuple[tuple[int, DimensionShape], ...], actors: int) -> ResourceTable:
    """Return these links without figures, by the NPUs and shape of each dimension."""
    dimensions = [Dimension(shape, npus, 1.0, 0.0) for npus, shape in shapes]
    ports = [ports_of(dimension) for dimension in dimensions]
    counts = np.array([actors * count for count in ports])
    codes = [SHAPE_CODE[dimension.shape] for dimension in dimensions]
    named = [port_names(code, count) for code, count in zip(codes, ports, strict=True)]
    names = tuple(dict.fromkeys(name for of_dimension in named for name in of_dimension))
    number = {name: row for row, name in enumerate(names)}
    of_ports = [np.array([number[name] for name in of_dimension], np.int32) for of_dimension in named]
    return ResourceTable(
        actor=np.concatenate([np.repeat(np.arange(actors, dtype=np.int32), count) for count in ports]),
        dimension=np.repeat(np.arange(len(ports), dtype=np.int32), counts),
        port=np.concatenate([np.tile(of_dimension, actors) for of_dimension in of_ports]),
        port_names=names,
        tier=np.repeat(np.arange(len(ports), dtype=np.int32), counts),
        tier_names=dimension_names(len(ports)),
        bytes_per_ns=np.zeros(counts.sum()),
        class_names=(),
        are_links=True,
        sizes=tuple(npus for npus, _ in shapes),
    )


def wires(network: Network, home: Any) -> tuple[Wires, Any, Any]:
    """Return the tables of paths for ranks with these homes, the speed of every link, and its NPU."""
    fabric, records = wired(network), tables(network)
    homes = int(home.max()) + 1
    counts = np.array([homes * ports_of(dimension) for dimension in fabric.dimensions])
    first, speed = np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts)
    for link in fabric.links:
        npu, port = npu_and_port(fabric, link)
        of = records.dimensions[link.dimension]
        uneven_links = records.speeds[of.uneven_first : of.uneven_end]["link"]
        row = of.uneven_first + np.searchsorted(uneven_links, npu * of.ports + port)
        speed[first[link.dimension] + home[npu] * of.ports + port] = row
    owner = np.concatenate([np.repeat(np.arange(homes), count // homes) for count in counts])
    nothing = np.zeros(0, np.int32)
    return Wires(fabric_tables(records), home, first, nothing, nothing.astype(np.uint16)), speed, owner


def _capacities(fabric: GridFabric, actor_of_rank: Any, first: Any, counts: Any) -> Any:
    """Return the capacity of every link; a fully connected NPU has no link to itself."""
    capacities = np.repeat([dimension.bytes_per_ns for dimension in fabric.dimensions], counts)
    for dimension, begin, count in zip(fabric.dimensions, first.tolist(), counts.tolist(), strict=True):
        if dimension.shape is DimensionShape.FULLY_CONNECTED:
            capacities[begin : begin + count : dimension.npus] = 0
    for link in fabric.links:
        npu, port = npu_and_port(fabric, link)
        at = int(actor_of_rank[npu]) * ports_of(fabric.dimensions[link.dimension]) + port
        capacities[first[link.dimension] + at] = link.bytes_per_ns
    return capacities


@works_on_tables
def next_leg(fabric: GridTables, at: int, target: int) -> Leg:
    """Return the leg along the lowest dimension in which the ends differ and that leads to an NPU, or to or
    from a reducing switch.
    """
    ranks = ranks_of(fabric)
    if max(at, target) >= ranks:
        return _leg_of_switch(fabric, at, target)
    for row in range(len(fabric.dimensions)):
        dimension = fabric.dimensions[row]
        outermost = row + 1 == len(fabric.dimensions)
        here = _coordinate(dimension, at, outermost)
        there = _coordinate(dimension, target, outermost)
        end = at + (there - here) * dimension.stride
        if here != there and end < ranks:
            return Leg(row, at, here, there, end)
    return Leg(NONE, at, at, at, at)


@works_on_tables
def ranks_of(fabric: GridTables) -> int:
    """Return the number of ranks; higher numbers stand for the switches of dimensions."""
    return fabric.dimensions[0].ranks


@works_on_tables
def _leg_of_switch(fabric: GridTables, at: int, target: int) -> Leg:
    """Return the leg of one link to or from a switch, whose place is NONE."""
    ranks = ranks_of(fabric)
    if at == target:
        return Leg(NONE, at, at, at, at)
    if target >= ranks:
        return Leg(target - ranks, at, 0, NONE, target)
    return Leg(at - ranks, at, NONE, 0, target)


@works_on_tables
def _coordinate(dimension: Any, rank: int, outermost: bool) -> int:
    """Return a rank's place along a dimension, with as few divisions as possible, which are slow."""
    if dimension.stride > 1:
        rank //= dimension.stride
    return rank if outermost else rank % dimension.npus


@works_on_tables
def hops_of(fabric: GridTables, leg: Leg) -> int:
    """Return the number of links of a leg."""
    dimension = fabric.dimensions[leg.row]
    if dimension.wiring == RING:
        ahead = abs(leg.there - leg.here)
        return min(ahead, dimension.npus - ahead)
    return 2 if dimension.wiring == SWITCH and min(leg.here, leg.there) != NONE else 1


@works_on_tables
def way_round(fabric: GridTables, leg: Leg) -> int:
    """Return the direction in which a message goes round a ring."""
    npus = fabric.dimensions[leg.row].npus
    ahead = places_ahead(fabric, leg)
    return ANTICLOCKWISE if npus - ahead < ahead else CLOCKWISE


@works_on_tables
def places_ahead(fabric: GridTables, leg: Leg) -> int:
    """Return the distance to the end of a leg, clockwise."""
    ahead = leg.there - leg.here
    return ahead if ahead > 0 else ahead + fabric.dimensions[leg.row].npus


@works_on_tables
def leg_ns(fabric: GridTables, leg: Leg, size: int) -> int:
    """Return the latencies of all links of a leg plus serialisation on the slowest."""
    dimension = fabric.dimensions[leg.row]
    if dimension.uneven_first < dimension.uneven_end:
        return leg_ns_by_links(fabric, leg, size)
    return int(hops_of(fabric, leg) * dimension.latency_ns + size / dimension.bytes_per_ns)


@works_on_tables
def leaving_class(fabric: GridTables, leg: Leg) -> int:
    """Return the class of the slowest link of a leg."""
    dimension = fabric.dimensions[leg.row]
    return slowest_of_links(fabric, leg) if dimension.uneven_first < dimension.uneven_end else leg.row


@works_on_tables
def ends_of_leg(fabric: GridTables, leg: Leg) -> tuple[int, int]:
    """Return the first and last place of a leg; a place is the number of links passed."""
    return 0, int(hops_of(fabric, leg))


@works_on_tables
def next_link(fabric: GridTables, leg: Leg, at: int, stop: int) -> Hop:
    """Return the next link of a leg."""
    dimension = fabric.dimensions[leg.row]
    if dimension.wiring == RING:
        port = way_round(fabric, leg)
        place = (leg.here + at if port == CLOCKWISE else leg.here - at + dimension.npus) % dimension.npus
        npu = leg.at + (place - leg.here) * dimension.stride
    elif dimension.wiring == SWITCH:
        port = UP if at == 0 and leg.here != NONE else DOWN
        npu = leg.at if port == UP else leg.end
    else:
        npu, port = leg.at, places_ahead(fabric, leg)
    return Hop(NONE, int(speed_of(fabric, leg.row, npu, port)), at + 1, stop)


@works_on_tables
def is_wired_to_itself(network: Any) -> bool:
    """Return whether messages of a rank to itself pass a switch."""
    return bool(network.fabric.grid.dimensions[0].wiring == SWITCH)


@works_on_tables
def set_out(_network: Any, message: Any, source: int, _ports: int) -> None:
    """Put a message at a rank."""
    message.at = source
    message.via_switch = 0


@works_on_tables
def take_hop(network: Any, message: Any) -> int:
    """Return the next link of a message, and move the message to its far end.

    A message inside a switch has `via_switch` set, and `at` is the NPU that it leaves to.
    """
    if message.via_switch:
        message.via_switch = 0
        return network.first[message.dimension] + network.home[message.at] * LINKS_PER_NPU + DOWN
    leg = next_leg(network.fabric.grid, message.at, message.target)
    if leg.row == NONE:  # a message to its own rank goes through the switch and back
        message.dimension = 0
        message.via_switch = 1
        return network.first[0] + network.home[message.at] * LINKS_PER_NPU + UP
    message.dimension = leg.row
    return _leave(network, leg, message)


@works_on_tables
def _leave(network: Any, leg: Leg, message: Any) -> int:
    """Return the first link of a leg, and move the message over it."""
    first = network.first[leg.row]
    if leg.here == NONE:  # a switch that reduces sends
        message.at = leg.end
        return first + network.home[leg.end] * LINKS_PER_NPU + DOWN
    dimension, home = network.fabric.grid.dimensions[leg.row], network.home[leg.at]
    if dimension.wiring == FULLY_CONNECTED:
        message.at = leg.end
        return first + home * dimension.npus + places_ahead(network.fabric.grid, leg)
    if dimension.wiring == RING:
        way = way_round(network.fabric.grid, leg)
        after = leg.here + 1 if way == CLOCKWISE else leg.here - 1
        if after == dimension.npus:
            after = 0
        elif after < 0:
            after = dimension.npus - 1
        message.at = leg.at + (after - leg.here) * dimension.stride
        return first + home * LINKS_PER_NPU + way
    message.at = leg.end
    message.via_switch = int(leg.there != NONE)
    return first + home * LINKS_PER_NPU + UP
