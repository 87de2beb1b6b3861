"""Classes of channels, which prevent cyclic waits of packets on any graph and routing.

Links are numbered so that routes follow ascending numbers where they can. Where a route continues on a link
with a lower number, it crosses a dateline, and its packets change to channels of the next class. Class and
number only grow along every route, so packets wait only for channels further on, and the last one never
waits. A ring needs one dateline in each direction.

Numbers come from a depth-first search over the successors of each link on any route.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.compiled.entry_points import entry
from et_sim.machine.credits import MOST_RANKS
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.network.graph import GraphTables
from et_sim.network.link import DIFFERS_BY_MESSAGE
from et_sim.network.routes import next_link, next_stop
from et_sim.network.ways import FIRST_PORTS


def check_pairs(network: Network) -> None:
    """Refuse networks with too many routes, or with several for a pair."""
    routing = network.fabric.routing if isinstance(network.fabric, GraphFabric) else Routing.SHORTEST
    if routing in DIFFERS_BY_MESSAGE:
        raise MachineError(
            f"credits require one route for all messages between two ranks; {routing} takes several",
            place="network configuration",
            remedy="give routing: ecmp",
        )
    if network.ranks > MOST_RANKS:
        raise MachineError(
            f"credits require the routes of all pairs of ranks: {network.ranks} ranks are too many, "
            f"the limit is {MOST_RANKS}",
            place="network configuration",
            remedy="take --network-model flow, or fewer NPUs",
        )


def order_of_links(fabric: GraphTables, ranks: int) -> tuple[Any, int]:
    """Return the number of each link, and the number of classes."""
    links = len(fabric.speed_of)
    follows = np.zeros((links, _most_ahead(fabric)), np.int32)
    _note_what_follows(fabric, ranks, follows)
    order = _upwards(follows)
    most = np.zeros(1, np.int64)
    _count_classes(fabric, ranks, order, most)
    return order, int(most[0])


def _most_ahead(fabric: GraphTables) -> int:
    """Return the most links that leave one device."""
    return int(np.bincount(fabric.routes.source).max())


@entry(what="the ways", seconds=lambda _, ranks, *__: ranks * ranks * 1e-4)
def _note_what_follows(fabric: GraphTables, ranks: int, follows: Any) -> None:
    """Record for each link the links (plus 1) that follow it on some route."""
    routes = fabric.routes
    for source in range(ranks):
        for target in range(ranks):
            device, stop, last = routes.device_of[source], source, -1
            while device != routes.device_of[target]:
                if routes.rank_of[device] == stop:
                    stop = next_stop(routes, stop, target)
                link = next_link(routes, device, stop, source, target, FIRST_PORTS)
                if last >= 0:
                    at = 0
                    while follows[last, at] != 0 and follows[last, at] != link + 1:
                        at += 1
                    follows[last, at] = link + 1
                last = link
                device = routes.target[link]


def _upwards(follows: Any) -> Any:
    """Return numbers in the reverse order in which a depth-first search leaves links."""
    links = len(follows)
    order, is_seen, left = np.zeros(links, np.int32), np.zeros(links, bool), links
    for first in range(links):
        if is_seen[first]:
            continue
        is_seen[first] = True
        stack = [(first, 0)]
        while stack:
            link, at = stack.pop()
            following = int(follows[link, at]) - 1 if at < follows.shape[1] else -1
            if following < 0:
                left -= 1
                order[link] = left
                continue
            stack.append((link, at + 1))
            if not is_seen[following]:
                is_seen[following] = True
                stack.append((following, 0))
    return order


@entry(what="the ways", seconds=lambda _, ranks, *__: ranks * ranks * 1e-4)
def _count_classes(fabric: GraphTables, ranks: int, order: Any, most: Any) -> None:
    """Count the most classes that a packet passes."""
    routes = fabric.routes
    for source in range(ranks):
        for target in range(ranks):
            device, stop, last, classes = routes.device_of[source], source, -1, 1
            while device != routes.device_of[target]:
                if routes.rank_of[device] == stop:
                    stop = next_stop(routes, stop, target)
                link = next_link(routes, device, stop, source, target, FIRST_PORTS)
                if last >= 0 and order[link] < order[last]:
                    classes += 1
                last = link
                device = routes.target[link]
            most[0] = max(most[0], classes)
