"""States of a network whose parts fail: links that are dead or slower at a time, and the ways around them.

Switches take dead links out of their tables at once; senders notice later (`Recovery`). A dead link stays in
the tables if nothing else leads to some rank, so messages to that rank run into it and wait. A port of an NPU
or NIC leaves the tables only with fail-over, when the transport has given up and probed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.unique import groups_of
from et_sim.machine.failure_effects import are_ports
from et_sim.machine.graph import Graph, unreachable_pair
from et_sim.machine.model import (
    AT_SWITCH,
    DimensionShape,
    GraphFabric,
    GridFabric,
    Network,
    Routing,
    UnevenLink,
)
from et_sim.machine.networks import Failure
from et_sim.network import grid


class LinkState(Struct, frozen=True, eq=False):
    """The state of all links between two changes."""

    begins_ns: int
    left: Any  # share of its bandwidth that each link has; 0: it is dead
    avoided: Any  # links that no message takes

    @property
    def weights(self) -> Any:
        """Return the shares of bandwidth by which messages are split; dead links that stay count in full."""
        return np.where(self.left > 0, self.left, 1.0)

    def changes_paths(self, are_spread: bool) -> bool:
        """Return whether messages take other paths, or spread differently, than without failures."""
        return bool(self.avoided.any() or (are_spread and (self.weights < 1).any()))


StateT = TypeVar("StateT", bound=LinkState)


def rows_of(network: Network, failure: Failure) -> Any:
    """Return the links of a failure, as models number links."""
    fabric = network.fabric
    if isinstance(fabric, GraphFabric):
        return np.unique(fabric.trunks.of_link[np.array(failure.links, np.int64)])
    assert isinstance(fabric, GridFabric)
    counts = [fabric.ranks * grid.ports_of(dimension) for dimension in fabric.dimensions]
    first = np.cumsum([0, *counts])
    rows = []
    for link in failure.links:
        ports = grid.ports_of(fabric.dimensions[link.dimension])
        for npu, port in _places(fabric, UnevenLink(link.dimension, link.source, link.target)):
            rows.append(int(first[link.dimension]) + npu * ports + port)
    return np.unique(np.array(rows, np.int64))


def _places(fabric: GridFabric, link: UnevenLink) -> list[tuple[int, int]]:
    """Return the owner and port of a link; a ring of two has both ports between its NPUs."""
    npu, port = grid.npu_and_port(fabric, link)
    dimension = fabric.dimensions[link.dimension]
    is_pair = AT_SWITCH not in (link.source, link.target) and dimension.npus == 2
    if is_pair and dimension.shape is DimensionShape.RING:
        return [(npu, grid.CLOCKWISE), (npu, grid.ANTICLOCKWISE)]
    return [(npu, port)]


def links_of(network: Network) -> int:
    """Return the number of links, as models number them."""
    fabric = network.fabric
    if isinstance(fabric, GraphFabric):
        return len(fabric.routed.graph.sources)
    assert isinstance(fabric, GridFabric)
    return sum(fabric.ranks * grid.ports_of(dimension) for dimension in fabric.dimensions)


def marks_of_links(network: Network) -> Any:
    """Return a number for the failures of each link; 0: it never fails.

    Failures at equal times with equal effects are alike. Dead parts of a graph are not: messages may find
    other ways around one, and none around another.
    """
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for number, failure in enumerate(network.failures):
        own = number if failure.is_dead and isinstance(network.fabric, GraphFabric) else -1
        effect = failure.at_ns, failure.until_ns, failure.left, own
        alike.setdefault(effect, []).append(rows_of(network, failure))
    marks = np.zeros(links_of(network), np.int64)
    for rows in alike.values():
        times = np.bincount(np.concatenate(rows), minlength=len(marks))
        marks = groups_of(marks, times).of_row
    return marks


def longest_by_failure(network: Network, of_link: Any) -> list[int]:
    """Return the longest wait of each failure from those of links; 0 for failures that leave bandwidth."""
    dead = (rows_of(network, failure) if failure.is_dead else [] for failure in network.failures)
    return [int(of_link[rows].max(initial=0)) for rows in dead]


def link_states(network: Network) -> list[LinkState]:
    """Return the states of all links in the order of time; the first begins with the run."""
    links = [rows_of(network, failure) for failure in network.failures]
    moments = {0}
    for failure in network.failures:
        moments.add(failure.at_ns)
        if failure.until_ns is not None:
            moments.add(failure.until_ns)
        moments.update(int(moment) for moment in _on_other_ports(network, failure) if moment < math.inf)
    return [_state_at(network, links, moment) for moment in sorted(moments)]


def with_other_paths(network: Network, states: Sequence[StateT]) -> list[StateT]:
    """Return the states in which messages take other paths, or other shares of them, than without failures;
    of those with equal paths, the first.
    """
    fabric = network.fabric
    if not isinstance(fabric, GraphFabric):
        return []
    are_spread = fabric.routing is Routing.SPREAD
    others = [state for state in states if state.changes_paths(are_spread)]
    by_paths = {(state.avoided.tobytes(), are_spread and state.weights.tobytes()): state for state in others}
    return [*by_paths.values()]


def _on_other_ports(network: Network, failure: Failure) -> tuple[float, float]:
    """Return when messages leave a dead port for another one, and when they come back."""
    recovery = network.recovery
    begins = failure.at_ns + recovery.given_up_ns + int(recovery.probe_ns)
    until = math.inf if failure.until_ns is None else failure.until_ns
    if not (recovery.fail_over and failure.is_dead and begins < until):
        return math.inf, math.inf
    return begins, until + int(recovery.fail_back_ns)


def _state_at(network: Network, links: list[Any], moment: int) -> LinkState:
    left = np.ones(links_of(network))
    wanted = []
    for failure, rows in zip(network.failures, links, strict=True):
        until = math.inf if failure.until_ns is None else failure.until_ns
        if failure.at_ns <= moment < until:
            left[rows] *= failure.left
        if failure.is_dead:
            is_port = _are_ports(network, rows)
            begins, ends = _on_other_ports(network, failure)
            avoided = rows[is_port] if begins <= moment < ends else rows[:0]
            if failure.at_ns <= moment < until:
                avoided = np.concatenate([avoided, rows[~is_port]])
            wanted.append(avoided)
    return LinkState(moment, left, _avoidable(network, wanted))


def _are_ports(network: Network, rows: Any) -> Any:
    """Return which links are ports; in dimensions, all are."""
    fabric = network.fabric
    return are_ports(fabric.routed, rows) if isinstance(fabric, GraphFabric) else np.ones(len(rows), bool)


def _avoidable(network: Network, wanted: list[Any]) -> Any:
    """Return the links that no message takes: those of each failure without which all ranks are reached.

    Trees of switches that reduce are fixed, so nothing is avoided with them.
    """
    fabric = network.fabric
    avoided = np.zeros(links_of(network), bool)
    if not isinstance(fabric, GraphFabric) or fabric.reducers:
        return avoided
    for rows in wanted:
        more = avoided.copy()
        more[rows] = True
        if (
            len(rows)
            and unreachable_pair(graph_without(fabric.routed.graph, more), fabric.npus_forward) is None
        ):
            avoided = more
    return avoided


def graph_without(graph: Graph, avoided: Any) -> Graph:
    """Return a graph without some of its links, whose numbers change."""
    kept = ~avoided
    ends = {"sources": graph.sources[kept], "targets": graph.targets[kept]}
    return replace(graph, **ends, numbers=None, kept=None)
