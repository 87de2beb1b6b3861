"""Split of a message over all equal paths.

Each device forwards data over all its links that are equally near to the target, in proportion to their
bandwidths. It does not consider the links behind them. Links that always carry the same are one
(`machine.trunks`), so on a regular tree a message has only one path, over trunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.machine.graph import NPU, numbers_of
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.network.route_tables import FAR, RouteTables, without_speeds
from et_sim.network.routes import equal_links
from et_sim.network.ways import SplitTables, no_split


def split_tables(network: Network, most: int | None = None) -> SplitTables:
    """Return tables with space for the links of any message, at `most` so many; empty where messages are not
    split.
    """
    usual = most_links_of_split(network)
    most = 0 if usual == 0 else most or usual
    if most == 0:
        return no_split()
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    devices = len(fabric.routed.graph)
    link, depth = np.zeros((2, most), np.int32)
    queue, away = np.zeros((2, devices), np.int32)
    return SplitTables(link, np.zeros(most), depth, queue, np.zeros(devices), away, np.zeros(devices))


def most_links_of_split(network: Network, avoided: Any = None) -> int:
    """Return the largest number of links of a message on all its paths together; 0: messages are
    not split.
    """
    fabric = network.fabric
    if not isinstance(fabric, GraphFabric) or fabric.routing is not Routing.SPREAD:
        return 0
    routes = without_speeds(network, avoided)
    if avoided is None:
        return fabric.routed.derived(_most_of_split, routes)
    return _most_of_split(fabric.routed, routes)


def _most_of_split(fabric: GraphFabric, routes: RouteTables) -> int:
    graph, links = fabric.graph, len(fabric.graph.sources)
    if fabric.grid:
        return links
    onward = (routes.column[graph.sources] >= 0) & (routes.column[graph.targets] >= 0)
    ends = routes.column[graph.sources[onward]], routes.column[graph.targets[onward]]
    deepest = max((_most_from(*ends, away.astype(np.int64), links) for away in routes.hops), default=0)
    goals = int(np.diff(routes.first_goal).max())
    if fabric.npus_forward:
        return min(links, deepest)
    is_first = (graph.kinds[graph.sources] == NPU) & (graph.kinds[graph.targets] != NPU)
    first = int(np.bincount(graph.sources[is_first], minlength=1).max())
    given = max((len(way) for way in fabric.routes), default=0)
    return max(min(links, max(first, 1) * (1 + goals * (deepest + 1))), given)


def _most_from(sources: Any, targets: Any, away: Any, links: int) -> int:
    """Return the most links on all shortest paths from a device to a goal; a shared link counts once per
    path.

    `away`: distances from the goal by device that forwards, among which the links are.
    """
    there = away[sources]
    on_way = np.flatnonzero((there < FAR) & (away[targets] == there - 1))
    most = np.zeros(len(away), np.int64)
    for distance in range(1, int(there[on_way].max(initial=0)) + 1):
        rows = on_way[there[on_way] == distance]
        np.add.at(most, sources[rows], 1 + most[targets[rows]])
        np.minimum(most, links, out=most)
    return int(most.max())


def by_numbers(network: Network) -> Network:
    """Return a graph whose links have numbers instead of figures, by which links differ.

    Networks without these numbers stay as they are, and those on which paths or shares depend on bandwidths.
    """
    fabric = network.fabric
    if not isinstance(fabric, GraphFabric) or fabric.graph.numbers is None:
        return network
    numbers = fabric.graph.numbers.astype(np.float64)
    graph = replace(fabric.graph, bytes_per_ns=numbers + 1, latency_ns=numbers)
    numbered = replace(network, fabric=replace(fabric, graph=graph))
    if fabric.routing is Routing.SPREAD and (network.failures or _have_unlike_choices(numbered)):
        return network
    return numbered


def _have_unlike_choices(network: Network) -> bool:
    """Return whether a device may choose among links with different figures; true if it is not clear."""
    assert isinstance(network.fabric, GraphFabric)
    fabric, routes = network.fabric.routed, without_speeds(network)
    graph, links = fabric.graph, routes.links
    numbers, many = numbers_of(graph), len(graph.sources)
    ends = np.stack((graph.sources, graph.targets))[:, routes.direct]
    if ((ends[:, 1:] == ends[:, :-1]).all(axis=0) & (np.diff(numbers[routes.direct]) != 0)).any():
        return True
    least, most = np.full(len(graph), many), np.full(len(graph), -1)
    np.minimum.at(least, graph.sources[links], numbers[links])
    np.maximum.at(most, graph.sources[links], numbers[links])
    unlike = np.flatnonzero(most > least).tolist()
    if not unlike:
        return False
    if fabric.grid or (np.diff(routes.first_goal) > 1).any():
        return True
    return any(_are_unlike_ahead(routes, numbers, graph.targets, device) for device in unlike)


def _are_unlike_ahead(routes: RouteTables, numbers: Any, targets: Any, device: int) -> bool:
    """Return whether links of a device that are equally near to some stop have different numbers."""
    links = routes.links[routes.first_link[device] : routes.first_link[device + 1]]
    away = routes.hops[:, routes.column[targets[links]]]
    is_nearest = (away == away.min(axis=1, keepdims=True)) & (away < FAR)
    least = np.where(is_nearest, numbers[links], len(numbers)).min(axis=1)
    return bool((np.where(is_nearest, numbers[links], -1).max(axis=1) > least).any())


@works_on_tables
def split(routes: RouteTables, ways: SplitTables, source: int, target: int) -> int:
    """List the links of a message and its share on each, and return their number."""
    goal, count, head, tail = routes.device_of[target], 0, 0, 1
    ways.queue[0] = routes.device_of[source]
    ways.held[ways.queue[0]], ways.away[ways.queue[0]] = 1.0, 0
    while head < tail:
        at = ways.queue[head]
        head += 1
        held, ways.held[at] = ways.held[at], 0.0
        if at == goal:
            continue
        equal = equal_links(routes, at, target, source, target)
        sum_of_all = 0.0
        for row in range(equal):
            sum_of_all += routes.bytes_per_ns[routes.equal[row]]
        for row in range(equal):
            link = routes.equal[row]
            share = held if equal == 1 else held * (routes.bytes_per_ns[link] / sum_of_all)
            ways.link[count], ways.share[count], ways.depth[count] = link, share, ways.away[at]
            count += 1
            there = routes.target[link]
            if ways.held[there] == 0:
                ways.queue[tail] = there
                tail += 1
                ways.away[there] = ways.away[at] + 1
            ways.held[there] += share
    return count
