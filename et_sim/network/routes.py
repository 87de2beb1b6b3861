"""Routes through a graph: of the shortest ways, the one that the routing rule of the network names.

The rule is asked at each device for the next link towards a stop, so that no way is ever stored. How many
links a stop is away from a device that forwards stands in a table with a row for every device through which
stops are reached: the leaves of a fat tree, not its NPUs. On a whole mesh or torus it follows from the
coordinates, and there is no table.

Stops are the target alone, or with dimension order, the NPUs at which one logical coordinate after the other
has become the target's, lowest dimension first. With `valiant`, a message to another group of a dragonfly
first goes to a third one, drawn for each message by a hash; its stops are that group and the target's, each
as a whole, numbered behind all places where messages end. Among links that are equally near to the stop,

- `shortest`, `dimension-order` and `valiant` take the one with the lowest number,
- `ecmp` one by a hash of source, target, seed and device,
- `ecmp-ns3` one by the hash of ns-3's switches, of which the device's number is the seed: the hash counts
  devices in the order in which a search from the target finds them that looks at high numbers first (ns-3
  looks at its switches by their addresses in memory, which descend). Every message between two ranks is a
  flow with a source port of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.errors import MachineError
from et_sim.machine.graph import NPU, Graph
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.plan.tables import record, table
from et_sim.units import format_bytes

NONE = -1
FAR = 255  # more links than any way has
MOST_BYTES_OF_TABLE = 1 << 30
LOWEST, HASHED, NS3 = range(3)
CHOICES = {
    Routing.SHORTEST: LOWEST,
    Routing.DIMENSION_ORDER: LOWEST,
    Routing.VALIANT: LOWEST,
    Routing.ECMP: HASHED,
}
MASK = 0xFFFFFFFF
NS3_SOURCE_PORT, NS3_TARGET_PORT, NS3_ADDRESS = 10000, 100, 0x0B000001
MOST_PORTS = 0xFFFF
FIRST_PORTS = NS3_SOURCE_PORT | NS3_TARGET_PORT << 16  # of the first message between two ranks
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


@dataclass(frozen=True, slots=True)
class RouteTables(Tables):
    """What compiled code needs for the next link of any message."""

    rule: Any  # one row
    source: Any  # device, by link
    target: Any
    rank_of: Any  # by device; NONE: neither an NPU nor a switch that reduces
    # By rank; behind the ranks come switches that reduce, where messages end, too, and a NONE per group.
    device_of: Any
    first_link: Any  # by device, into the next two
    links: Any  # that leave it, by number; those to devices that forward
    first_direct: Any
    direct: Any  # all that leave it, by target
    column: Any  # of `hops`, by device; NONE: it does not forward
    first_goal: Any  # by rank, into the next two
    goal_row: Any  # of `hops`
    goal_extra: Any  # links from there to the NPU
    hops: Any
    found: Any  # in which order a search from a goal finds devices; empty: nothing depends on it
    axes: Any  # of a mesh or torus
    logical: Any  # dimensions in whose order stops come
    group_of: Any  # by device, its group as a stop; NONE: it is in none; empty: nothing depends on it
    route_key: Any  # source * devices + target, ascending
    route_first: Any
    route_links: Any


def route_tables(network: Network) -> RouteTables:
    """The tables of a network that is a graph."""
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    graph = fabric.graph
    devices = len(graph)
    forwards = np.ones(devices, bool) if fabric.npus_forward else graph.kinds != NPU
    column = np.where(forwards, np.cumsum(forwards) - 1, NONE).astype(np.int32)
    onward = np.flatnonzero(forwards[graph.targets])
    onward = onward[np.argsort(graph.sources[onward], kind="stable")]
    direct = np.lexsort((np.arange(len(graph.sources)), graph.targets, graph.sources))
    rule = table(RULE, 1)
    rule.choice, rule.seed = CHOICES.get(fabric.routing, NS3), fabric.seed
    rule.stops = fabric.routing is Routing.DIMENSION_ORDER
    rule.ranks = len(graph.npus)
    rule.has_grid, rule.routes = bool(fabric.grid), len(fabric.routes)
    rank_of = np.full(devices, NONE, np.int32)
    ends = _ends(fabric)
    rule.groups, rule.first_group = len(fabric.groups), len(ends)
    rank_of[ends] = np.arange(len(ends))
    first_goal, goal_row, goal_extra, hops, found = _distances(fabric, forwards, column)
    key, first, links = _given_routes(fabric)
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
        hops=hops,
        found=found,
        axes=_axes([(npus, wraps) for npus, wraps in fabric.grid]),
        logical=_axes([(dimension.npus, False) for dimension in network.grid.dimensions]),
        group_of=_groups(fabric, len(ends)),
        route_key=key,
        route_first=first,
        route_links=links,
    )


def _ends(fabric: GraphFabric) -> Any:
    """The devices at which messages end."""
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


def _given_routes(fabric: GraphFabric) -> tuple[Any, Any, Any]:
    graph = fabric.graph
    keys = [int(graph.sources[way[0]]) * len(graph) + int(graph.targets[way[-1]]) for way in fabric.routes]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ways = [fabric.routes[row] for row in order]
    first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return np.array(sorted(keys), np.int64), first, np.array([x for way in ways for x in way], np.int32)


def _distances(fabric: GraphFabric, forwards: Any, column: Any) -> tuple[Any, Any, Any, Any, Any]:
    """(where the goals of each rank begin, their rows, links left from there, hops, order of the search)."""
    graph, ranks, ends = fabric.graph, len(fabric.graph.npus), len(_ends(fabric))
    unordered = np.zeros((0, 0), np.int32)
    if fabric.grid:
        nothing = np.zeros(0, np.int32)
        return np.zeros(ranks + 1, np.int64), nothing, nothing, np.zeros((0, 0), np.uint8), unordered
    owner, near, extra = _near(fabric, forwards)
    is_ordered = fabric.routing is Routing.ECMP_NS3
    if is_ordered:  # the search begins at the rank, and so at all that is near it
        first_near = np.searchsorted(owner, np.arange(ends + 1))
        sets = [tuple(near[one:end][::-1]) for one, end in pairwise(first_near.tolist())]
        goals = list(dict.fromkeys(sets))
        number = {goal: row for row, goal in enumerate(goals)}
        owner, rows = np.arange(ends), np.array([number[one] for one in sets])
    else:
        single, rows = np.unique(near, return_inverse=True)
        goals = [(one,) for one in single]
        for group in fabric.groups:  # all of it is where it begins
            goals.append(tuple(one for one in group if forwards[one]))
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
    found = np.zeros(hops.shape, np.int32) if is_ordered else unordered
    among = np.flatnonzero(forwards[graph.sources] & forwards[graph.targets])
    order = -graph.sources[among] if is_ordered else np.arange(len(among))
    among = among[np.lexsort((order, graph.targets[among]))]
    back = column[graph.sources[among]].astype(np.int32)
    first = np.searchsorted(column[graph.targets[among]], np.arange(columns + 1))
    first_start = np.cumsum([0, *(len(goal) for goal in goals)])
    starts = column[[one for goal in goals for one in goal]].astype(np.int32)
    deepest = np.zeros(1, np.int64)
    _spread(first_start, starts, first, back, hops, found, np.zeros(columns, np.int32), deepest)
    if deepest[0] >= FAR:
        raise MachineError(
            f"some way has {FAR} links or more",
            place="network configuration",
            remedy="describe a mesh, torus or ring as a whole by its generator",
        )
    first_goal = np.searchsorted(owner, np.arange(ends + 1))
    rows = rows.reshape(-1).astype(np.int32)
    return first_goal, rows, np.where(owner < ranks, extra, 0).astype(np.int32), hops, found


def _near(fabric: GraphFabric, forwards: Any) -> tuple[Any, Any, int]:
    """Ranks, the devices from which they are reached, ascending, and how many links these are away.

    Switches that reduce come behind them, and are reached from themselves.
    """
    graph, ranks, ends = fabric.graph, len(fabric.graph.npus), _ends(fabric)
    if fabric.npus_forward:
        return np.arange(len(ends)), ends, 0
    into = np.flatnonzero(forwards[graph.sources] & (graph.kinds[graph.targets] == NPU))
    rank_of = np.full(len(graph), NONE)
    rank_of[graph.npus] = np.arange(ranks)
    owner, near = np.unique(np.stack([rank_of[graph.targets[into]], graph.sources[into]]), axis=1)
    switches = np.arange(ranks, len(ends))
    return np.concatenate([owner, switches]), np.concatenate([near, ends[switches]]), 1


@entry(what="the routes", seconds=lambda goals, _starts, _first, back, *_: len(goals) * len(back) * 3e-7)
def _spread(
    first_start: Any, starts: Any, first: Any, back: Any, hops: Any, found: Any, queue: Any, deepest: Any
) -> None:
    """How many links each device is away from every goal, against the direction of links."""
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
        if len(found) > 0:
            for at in range(tail):
                found[row, queue[at]] = at


@works_on_tables
def next_stop(routes: RouteTables, at: int, target: int) -> int:
    """The rank to which a message goes first that is at rank `at`."""
    if not routes.rule[0].stops or max(at, target) >= routes.rule[0].ranks:
        return target
    for row in range(len(routes.logical)):
        axis = routes.logical[row]
        here, there = at // axis.stride % axis.npus, target // axis.stride % axis.npus
        if here != there:
            return at + (there - here) * axis.stride
    return target


@works_on_tables
def stop_after(routes: RouteTables, device: int, stop: int, source: int, target: int, ports: int) -> int:
    """Where a message goes next that is at a device, on its way to a stop: there, or if it has come, on."""
    if len(routes.group_of) > 0:
        if stop == source and source != target:
            return _detour(routes, source, target, ports)
        if routes.group_of[device] != stop:
            return stop
        last = routes.group_of[routes.device_of[target]]
        return target if stop == last else last  # straight to its group, not through a third one
    return next_stop(routes, stop, target) if routes.rank_of[device] == stop else stop


@works_on_tables
def _detour(routes: RouteTables, source: int, target: int, ports: int) -> int:
    """The group by way of which a message goes to another one; within a group, the target."""
    rule = routes.rule[0]
    one, other = routes.group_of[routes.device_of[source]], routes.group_of[routes.device_of[target]]
    low, high = min(one, other), max(one, other)
    if low == high or rule.groups < 3:
        return target
    if low == NONE:
        return target
    drawn = murmur3(int(source), int(target), ports, int(rule.seed)) % (rule.groups - 2)
    drawn += rule.first_group
    if drawn >= low:
        drawn += 1
    return drawn + 1 if drawn >= high else drawn


@works_on_tables
def next_link(routes: RouteTables, at: int, stop: int, source: int, target: int, ports: int) -> int:
    """The link that a message between two ranks takes from the device `at` towards the rank `stop`."""
    if routes.rule[0].routes:
        link = _given(routes, at, routes.device_of[source], routes.device_of[target])
        if link != NONE:
            return link
    goal = routes.device_of[stop]
    first = _first_direct(routes, at, goal)
    end = first
    while end < routes.first_direct[at + 1] and routes.target[routes.direct[end]] == goal:
        end += 1
    if end > first:
        return routes.direct[first + _chosen(routes, at, source, target, ports, end - first)]
    nearest, count, lowest = 1 << 40, 0, NONE
    for row in range(routes.first_link[at], routes.first_link[at + 1]):
        hops = _hops(routes, routes.target[routes.links[row]], stop)
        if hops < nearest:
            nearest, count, lowest = hops, 1, row
        elif hops == nearest:
            count += 1
    wanted = _chosen(routes, at, source, target, ports, count)
    if len(routes.found) > 0:
        return routes.links[_in_order_found(routes, at, stop, nearest, wanted)]
    row = lowest
    while wanted > 0:
        row += 1
        if _hops(routes, routes.target[routes.links[row]], stop) == nearest:
            wanted -= 1
    return routes.links[row]


@works_on_tables
def _in_order_found(routes: RouteTables, at: int, stop: int, nearest: int, before: int) -> int:
    """Of the links to the nearest devices, the one before which so many come: as the search from the stop
    finds these, and links side by side by number.
    """
    goal = routes.goal_row[routes.first_goal[stop]]
    last_found, last = NONE, NONE
    for _ in range(before + 1):
        next_found, following = 1 << 40, NONE
        for row in range(routes.first_link[at], routes.first_link[at + 1]):
            there = routes.target[routes.links[row]]
            if _hops(routes, there, stop) == nearest:
                found = int(routes.found[goal, routes.column[there]])
                is_later = found > last_found or (found == last_found and row > last)
                if is_later and found < next_found:
                    next_found, following = found, row
        last_found, last = next_found, following
    return last


@works_on_tables
def _first_direct(routes: RouteTables, at: int, goal: int) -> int:
    """Where links from one device to another begin, or would."""
    low, high = routes.first_direct[at], routes.first_direct[at + 1]
    while low < high:
        middle = (low + high) >> 1
        if routes.target[routes.direct[middle]] < goal:
            low = middle + 1
        else:
            high = middle
    return low


@works_on_tables
def _given(routes: RouteTables, at: int, source: int, target: int) -> int:
    """The next link of a way that the user gave."""
    wanted = source * (len(routes.first_link) - 1) + target
    low, high = 0, len(routes.route_key)
    while low < high:
        middle = (low + high) >> 1
        if routes.route_key[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low == len(routes.route_key) or routes.route_key[low] != wanted:
        return NONE
    for row in range(routes.route_first[low], routes.route_first[low + 1]):
        if routes.source[routes.route_links[row]] == at:
            return routes.route_links[row]
    return NONE


@works_on_tables
def _hops(routes: RouteTables, at: int, stop: int) -> int:
    """How many links a rank is away from a device that forwards."""
    if routes.rule[0].has_grid:
        return _hops_of_grid(routes, routes.rank_of[at], stop)
    hops, column = 1 << 30, routes.column[at]
    for goal in range(routes.first_goal[stop], routes.first_goal[stop + 1]):
        there = int(routes.hops[routes.goal_row[goal], column])
        if there < FAR:
            hops = min(hops, there + routes.goal_extra[goal])
    return hops


@works_on_tables
def _hops_of_grid(routes: RouteTables, here: int, there: int) -> int:
    hops = 0
    for row in range(len(routes.axes)):
        axis = routes.axes[row]
        ahead = abs(there // axis.stride % axis.npus - here // axis.stride % axis.npus)
        hops += min(ahead, axis.npus - ahead) if axis.wraps else ahead
    return hops


@works_on_tables
def _chosen(routes: RouteTables, at: int, source: int, target: int, ports: int, count: int) -> int:
    """Which of so many links that are equally good."""
    rule = routes.rule[0]
    if count == 1 or rule.choice == LOWEST:
        return 0
    if rule.choice == NS3:
        one, other = routes.device_of[source], routes.device_of[target]
        return murmur3(ns3_address(one), ns3_address(other), ports, int(at)) % count
    return murmur3(int(source), int(target), int(rule.seed), int(at)) % count


@works_on_tables
def ports_of_flow(number: int) -> int:
    """Source and target port of the message before which so many went the same way, as one word."""
    return ((NS3_SOURCE_PORT + number) & MOST_PORTS) | (NS3_TARGET_PORT << 16)


@works_on_tables
def ports_back(ports: int) -> int:
    """Those of its acknowledgements."""
    return (ports >> 16) | ((ports & MOST_PORTS) << 16)


@works_on_tables
def ns3_address(device: int) -> int:
    """The address that the reference gives a host: 11.0.0.1 and so on, by its number."""
    return NS3_ADDRESS + (int(device) // 256) * 65536 + (int(device) % 256) * 256


@works_on_tables
def murmur3(first: int, second: int, third: int, seed: int) -> int:
    """MurmurHash3 (32 bits, x86) of three words: what the switches of ns-3's RoCE model hash with."""
    state = mixed(mixed(mixed(seed & MASK, first), second), third)
    state ^= 12  # bytes
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & MASK
    return state ^ (state >> 16)


@works_on_tables
def mixed(state: int, word: int) -> int:
    """The state of the hash after another word."""
    word = ((word & MASK) * 0xCC9E2D51) & MASK
    word = ((word << 15) | (word >> 17)) & MASK
    word = (word * 0x1B873593) & MASK
    state ^= word
    state = ((state << 13) | (state >> 19)) & MASK
    return (state * 5 + 0xE6546B64) & MASK


@works_on_tables
def route_into(routes: RouteTables, source: int, target: int, found: Any) -> int:
    """Fill in the links of a message's way; returns how many, or NONE if they are too many."""
    stop, count = source, 0
    device = routes.device_of[source]
    while device != routes.device_of[target]:
        stop = stop_after(routes, device, stop, source, target, FIRST_PORTS)
        link = next_link(routes, device, stop, source, target, FIRST_PORTS)
        if count == len(found):
            return NONE
        found[count] = link
        count += 1
        device = routes.target[link]
    return count


@entry(what="the routes", seconds=lambda _, sources, *__: len(sources) * 1e-3)
def routes_of(routes: RouteTables, sources: Any, targets: Any, counts: Any, found: Any) -> None:
    """The links of many ways: a row each."""
    for row in range(len(sources)):
        counts[row] = route_into(routes, sources[row], targets[row], found[row])


@entry(what="the routes", seconds=lambda _, sources, *__: len(sources) * 1e-4)
def distances_of(routes: RouteTables, sources: Any, targets: Any, hops: Any) -> None:
    """How many links lie between pairs of ranks, on the shortest way."""
    for row in range(len(sources)):
        hops[row] = _distance(routes, sources[row], targets[row])


@works_on_tables
def _distance(routes: RouteTables, source: int, target: int) -> int:
    at, goal = routes.device_of[source], routes.device_of[target]
    if at == goal:
        return 0
    if routes.column[at] != NONE:
        return _hops(routes, at, target)
    first = _first_direct(routes, at, goal)
    if first < routes.first_direct[at + 1] and routes.target[routes.direct[first]] == goal:
        return 1
    nearest = 1 << 40
    for row in range(routes.first_link[at], routes.first_link[at + 1]):
        nearest = min(nearest, _hops(routes, routes.target[routes.links[row]], target))
    return nearest + 1


def path_between(routes: RouteTables, source: int, target: int) -> list[int]:
    """The links of one way."""
    room = 64
    while True:
        counts, found = np.zeros(1, np.int64), np.zeros((1, room), np.int32)
        routes_of(routes, np.array([source]), np.array([target]), counts, found)
        if counts[0] != NONE:
            return [int(link) for link in found[0, : counts[0]]]
        room *= 8


def names_on(graph: Graph, links: list[int]) -> list[str]:
    """The devices on a way."""
    if not links:
        return []
    return [graph.names[graph.sources[links[0]]], *(graph.names[graph.targets[link]] for link in links)]
