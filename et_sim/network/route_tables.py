"""Tables of routes through a graph: distances to stops in links, and the order in which a search finds
devices.

Distances are kept in a table with a row for every device through which stops are reached: the leaves of a fat
tree, not its NPUs. On a whole mesh or torus they follow from the coordinates, and there is no table.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.unique import unique_rows
from et_sim.basics.units import format_bytes
from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables
from et_sim.machine.graph import NPU
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.plan.records import record, table

NONE = -1
FAR = 255  # more links than any way has
MOST_BYTES_OF_TABLE = 1 << 30
LOWEST, HASHED, NS3, BY_TARGET, SPREAD = range(5)
CHOICES = {
    Routing.SHORTEST: LOWEST,
    Routing.DIMENSION_ORDER: LOWEST,
    Routing.VALIANT: LOWEST,
    Routing.ECMP: HASHED,
    Routing.DESTINATION: BY_TARGET,
    Routing.SPREAD: SPREAD,
}
RULE = record(
    ("choice", "i8"),
    ("seed", "i8"),
    ("stops", "i8"),
    ("has_grid", "i8"),
    ("routes", "i8"),
    ("ranks", "i8"),
    ("groups", "i8"),  # through which messages may go
    ("first_group", "i8"),  # as a stop
)
AXIS = record(("npus", "i8"), ("stride", "i8"), ("wraps", "i8"))


class RouteTables(Tables, Struct, frozen=True):
    """Tables for the next link of any message, for compiled code."""

    rule: Any  # one row
    source: Any  # device, by link
    target: Any
    rank_of: Any  # by device; NONE: neither an NPU nor a switch that reduces
    # By rank, followed by reducing switches, where messages may end, and NONE for each group.
    device_of: Any
    first_link: Any  # by device, into the next two
    links: Any  # that leave it for devices that forward, by number
    first_direct: Any
    direct: Any  # all that leave it, by target
    column: Any  # of `hops`, by device; NONE: it does not forward
    first_goal: Any  # by rank, into the next two
    goal_row: Any  # of `hops`
    goal_extra: Any  # links from there to the NPU
    near: Any  # by rank, the only device from which it is reached; NONE: there are several; empty: unknown
    hops: Any
    search_order: Any  # in which a search from a goal finds devices; empty if unused
    axes: Any  # of a mesh or torus
    logical: Any  # dimensions in the order of stops
    place_of: Any  # by rank, in the order of the devices near to it; empty if unused
    choices_below: Any  # by device: the number of choices of lower tiers; empty if unused
    bytes_per_ns: Any  # by link; empty if unused
    equal: Any  # equally near links, during a choice
    group_of: Any  # by device, its group as a stop; NONE: it is in none; empty if unused
    route_key: Any  # source * devices + target, ascending
    route_first: Any
    route_links: Any


def no_routes() -> RouteTables:
    """Return the tables of a network that is no graph."""
    known: dict[str, Any] = {"rule": table(RULE, 0), "axes": table(AXIS, 0), "logical": table(AXIS, 0)}
    known |= {"hops": np.zeros((0, 0), np.uint8), "search_order": np.zeros((0, 0), np.int32)}
    for name in ("first_link", "first_direct", "first_goal", "route_key", "route_first", "choices_below"):
        known[name] = np.zeros(0, np.int64)
    known["bytes_per_ns"] = np.zeros(0)
    others = (name for name in RouteTables.__struct_fields__ if name not in known)
    return RouteTables(**known, **{name: np.zeros(0, np.int32) for name in others})


def route_tables(network: Network, avoided: Any = None, left: Any = None) -> RouteTables:
    """Return the tables of a network that is a graph.

    `avoided`: links that no message takes; `left`: the share of its bandwidth that each link has.
    """
    tables = without_speeds(network, avoided)
    assert isinstance(network.fabric, GraphFabric)
    if network.fabric.routing is not Routing.SPREAD:
        return tables
    graph = network.fabric.routed.graph
    speeds = graph.bytes_per_ns if left is None else graph.bytes_per_ns * left
    return replace(tables, bytes_per_ns=speeds, equal=np.zeros_like(tables.equal))


def without_speeds(network: Network, avoided: Any = None) -> RouteTables:
    """Return these tables without speeds, by which messages spread."""
    assert isinstance(network.fabric, GraphFabric)
    fabric = network.fabric.routed
    taken = np.ones(len(fabric.graph.sources), bool)
    sizes = np.array([dimension.npus for dimension in network.grid.dimensions]).tobytes()
    if avoided is None or not avoided.any():
        return fabric.derived(_without_speeds, sizes, taken.tobytes())
    taken = ~avoided
    routes = tuple(way for way in fabric.routes if taken[list(way)].all())
    return _without_speeds(replace(fabric, grid=(), routes=routes), sizes, taken.tobytes())


def _without_speeds(fabric: GraphFabric, sizes: bytes, taken_links: bytes) -> RouteTables:
    graph, taken = fabric.graph, np.frombuffer(taken_links, bool)
    devices = len(graph)
    forwards = np.ones(devices, bool) if fabric.npus_forward else graph.kinds != NPU
    column = np.where(forwards, np.cumsum(forwards) - 1, NONE).astype(np.int32)
    onward = np.flatnonzero(forwards[graph.targets] & taken)
    onward = onward[np.argsort(graph.sources[onward], kind="stable")]
    direct = np.lexsort((np.arange(len(graph.sources)), graph.targets, graph.sources))
    direct = direct[taken[direct]]
    rule = table(RULE, 1)
    rule.choice, rule.seed = CHOICES.get(fabric.routing, NS3), fabric.seed
    rule.stops = fabric.routing is Routing.DIMENSION_ORDER
    rule.ranks = len(graph.npus)
    rule.has_grid, rule.routes = bool(fabric.grid), len(fabric.routes)
    rank_of = np.full(devices, NONE, np.int32)
    ends = _ends(fabric)
    rule.groups, rule.first_group = len(fabric.groups), len(ends)
    rank_of[ends] = np.arange(len(ends))
    first_goal, goal_row, goal_extra, hops, places = _distances(fabric, forwards, column, taken)
    key, first, links = _given_routes(fabric)
    place, choices = _turns(fabric, first_goal, goal_row)
    most = int(np.bincount(graph.sources).max()) if fabric.routing is Routing.SPREAD else 0
    return RouteTables(
        rule=rule,
        source=graph.sources,
        target=graph.targets,
        rank_of=rank_of,
        device_of=np.concatenate([ends, np.full(len(fabric.groups), NONE)]).astype(np.int32),
        first_link=np.searchsorted(graph.sources[onward], np.arange(devices + 1)),
        links=onward.astype(np.int32),
        first_direct=np.searchsorted(graph.sources[direct], np.arange(devices + 1)),
        direct=direct.astype(np.int32),
        column=column,
        first_goal=first_goal,
        goal_row=goal_row,
        goal_extra=goal_extra,
        near=_only_device(fabric, forwards, taken),
        hops=hops,
        search_order=places,
        axes=_axes([(npus, wraps) for npus, wraps in fabric.grid]),
        logical=_axes([(npus, False) for npus in np.frombuffer(sizes, np.int64).tolist()]),
        place_of=place,
        choices_below=choices,
        bytes_per_ns=np.zeros(0),
        equal=np.zeros(most, np.int32),
        group_of=_groups(fabric, len(ends)),
        route_key=key,
        route_first=first,
        route_links=links,
    )


def _ends(fabric: GraphFabric) -> Any:
    """Return the devices at which messages end."""
    return np.concatenate([fabric.graph.npus, np.array([row for row, _ in fabric.reducers], np.int64)])


def _groups(fabric: GraphFabric, first: int) -> Any:
    of_device = np.full(len(fabric.graph) if fabric.groups else 0, NONE, np.int32)
    for number, devices in enumerate(fabric.groups):
        of_device[list(devices)] = first + number
    return of_device


def _axes(sizes: list[tuple[int, bool]]) -> Any:
    axes = table(AXIS, len(sizes))
    stride = 1
    for axis, (npus, wraps) in zip(axes, sizes, strict=True):
        axis.npus, axis.stride, axis.wraps = npus, stride, wraps
        stride *= npus
    return axes


def _turns(fabric: GraphFabric, first_goal: Any, goal_row: Any) -> tuple[Any, Any]:
    """Return the place of each end of messages, leaf by leaf, and by device the choices of lower tiers.

    Places count the ends below a leaf in order, so that neighbours take different paths. A tier chooses by
    the quotient that the tiers below have left, so all ways up serve equally many targets.
    """
    if fabric.routing is not Routing.DESTINATION:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    graph, ends = fabric.graph, np.arange(len(_ends(fabric)))
    near = goal_row[np.minimum(first_goal[ends], len(goal_row) - 1)] if len(goal_row) else ends
    place = np.empty(len(ends), np.int32)
    place[np.lexsort((ends, near))] = ends
    up = graph.tiers[graph.targets] > graph.tiers[graph.sources]
    upward = np.bincount(graph.sources[up & (graph.kinds[graph.sources] != NPU)], minlength=len(graph))
    most = np.zeros(int(graph.tiers.max()) + 1, np.int64)
    np.maximum.at(most, graph.tiers, upward)
    below = np.cumprod(np.maximum(np.concatenate([[1], most[:-1]]), 1))
    return place, below[graph.tiers]


def _given_routes(fabric: GraphFabric) -> tuple[Any, Any, Any]:
    graph = fabric.graph
    keys = [int(graph.sources[way[0]]) * len(graph) + int(graph.targets[way[-1]]) for way in fabric.routes]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ways = [fabric.routes[row] for row in order]
    first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return np.array(sorted(keys), np.int64), first, np.array([x for way in ways for x in way], np.int32)


def _distances(fabric: GraphFabric, forwards: Any, column: Any, taken: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return where the goals of each rank begin, their rows, links left from there, hops, and
    search order.
    """
    graph, ranks, ends = fabric.graph, len(fabric.graph.npus), len(_ends(fabric))
    unordered = np.zeros((0, 0), np.int32)
    if fabric.grid:
        nothing = np.zeros(0, np.int32)
        return np.zeros(ranks + 1, np.int64), nothing, nothing, np.zeros((0, 0), np.uint8), unordered
    owner, near, extra = _near(fabric, forwards, taken)
    is_ordered = fabric.routing is Routing.ECMP_NS3
    if is_ordered:  # the search begins at the rank, and so at all devices near it
        first_near = np.searchsorted(owner, np.arange(ends + 1))
        sets = [tuple(near[begin:end][::-1]) for begin, end in pairwise(first_near.tolist())]
        goals = list(dict.fromkeys(sets))
        number = {goal: row for row, goal in enumerate(goals)}
        owner, rows = np.arange(ends), np.array([number[near_set] for near_set in sets])
    else:
        single, rows = np.unique(near, return_inverse=True)
        goals = [(goal,) for goal in single]
        for group in fabric.groups:  # the search begins at all of it
            goals.append(tuple(device for device in group if forwards[device]))
        owner = np.concatenate([owner, ends + np.arange(len(fabric.groups))])
        rows = np.concatenate([rows.reshape(-1), np.arange(len(single), len(goals))])
        ends += len(fabric.groups)
    columns = int(forwards.sum())
    size = len(goals) * columns * (1 + 4 * is_ordered)
    if size > MOST_BYTES_OF_TABLE:
        raise MachineError(
            f"routes among {columns} devices that forward would need a table of {format_bytes(size)}",
            place="network configuration",
            remedy="let switches alone forward (forwarding: switches), or use a mesh or torus as a whole",
        )
    hops = np.full((len(goals), columns), FAR, np.uint8)
    places = np.zeros(hops.shape, np.int32) if is_ordered else unordered
    among = np.flatnonzero(forwards[graph.sources] & forwards[graph.targets] & taken)
    order = -graph.sources[among] if is_ordered else np.arange(len(among))
    among = among[np.lexsort((order, graph.targets[among]))]
    back = column[graph.sources[among]].astype(np.int32)
    first = np.searchsorted(column[graph.targets[among]], np.arange(columns + 1))
    first_start = np.cumsum([0, *(len(goal) for goal in goals)])
    starts = column[[device for goal in goals for device in goal]].astype(np.int32)
    deepest = np.zeros(1, np.int64)
    _spread(first_start, starts, first, back, hops, places, np.zeros(columns, np.int32), deepest)
    if deepest[0] >= FAR:
        raise MachineError(
            f"a path has {FAR} links or more",
            place="network configuration",
            remedy="describe a mesh, torus or ring as a whole by its generator",
        )
    first_goal = np.searchsorted(owner, np.arange(ends + 1))
    rows = rows.reshape(-1).astype(np.int32)
    return first_goal, rows, np.where(owner < ranks, extra, 0).astype(np.int32), hops, places


def _near(fabric: GraphFabric, forwards: Any, taken: Any) -> tuple[Any, Any, int]:
    """Return ranks, the devices from which they are reached, ascending, and the distance of these in links.

    Reducing switches come after the ranks, and are reached from themselves.
    """
    graph, ranks, ends = fabric.graph, len(fabric.graph.npus), _ends(fabric)
    if fabric.npus_forward:
        return np.arange(len(ends)), ends, 0
    into = np.flatnonzero(forwards[graph.sources] & (graph.kinds[graph.targets] == NPU) & taken)
    rank_of = np.full(len(graph), NONE)
    rank_of[graph.npus] = np.arange(ranks)
    owner, near = unique_rows(rank_of[graph.targets[into]], graph.sources[into]).T
    switches = np.arange(ranks, len(ends))
    return np.concatenate([owner, switches]), np.concatenate([near, ends[switches]]), 1


def _only_device(fabric: GraphFabric, forwards: Any, taken: Any) -> Any:
    """Return the only device from which each end of messages is reached; NONE for others, and for groups."""
    if fabric.grid:
        return np.zeros(0, np.int32)
    owner, devices, _ = _near(fabric, forwards, taken)
    near = np.full(len(_ends(fabric)) + len(fabric.groups), NONE, np.int32)
    near[owner] = np.where(np.bincount(owner)[owner] == 1, devices, NONE)
    return near


@entry(what="the routes", seconds=lambda goals, _starts, _first, back, *_: len(goals) * len(back) * 3e-7)
def _spread(
    first_start: Any, starts: Any, first: Any, back: Any, hops: Any, places: Any, queue: Any, deepest: Any
) -> None:
    """Fill in the distance of each device from every goal, against the direction of links."""
    for row in range(len(hops)):
        head, tail = 0, 0
        for at in range(first_start[row], first_start[row + 1]):
            hops[row, starts[at]] = 0
            queue[tail] = starts[at]
            tail += 1
        while head < tail:
            here = queue[head]
            head += 1
            distance = int(hops[row, here]) + 1
            if distance >= FAR:
                deepest[0] = FAR
                break
            for at in range(first[here], first[here + 1]):
                there = back[at]
                if hops[row, there] == FAR:
                    hops[row, there] = distance
                    queue[tail] = there
                    tail += 1
        if len(places) > 0:
            for at in range(tail):
                places[row, queue[at]] = at
