"""Trees of switches that reduce: the switches that serve a group of ranks, level by level.

In a network of dimensions, the switch of a line serves ranks that all lie on this line. On a graph, each
member is a child of a switch that it is linked with, directly or by its NIC. Among the trees that reach
all members, the one with the fewest levels is taken, then the one with the fewest links, then the one whose
root was declared first.

Endpoints of messages have numbers: ranks come first, then dimensions, which stand for their switches, or
the switches of a graph that reduce.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_bandwidth, format_ns
from et_sim.machine.graph import NIC, NPU, Graph, row_name
from et_sim.machine.model import GraphFabric, GridFabric, Network, Reducer


class SwitchKind(Struct, frozen=True):
    """A class of switches that differ only in their place."""

    name: str
    reducer: Reducer


def switch_kinds(network: Network) -> tuple[list[int], list[SwitchKind]]:
    """Return the kind of each entry of `network.reducers`, and the kinds in order of appearance."""
    fabric = network.fabric
    of_entry = [
        (f"dimension {at}" if not isinstance(fabric, GraphFabric) else _row(fabric, at), reducer)
        for at, reducer in network.reducers
    ]
    kinds = list(dict.fromkeys(of_entry))
    rows = [row for row, _ in kinds]
    made = [
        SwitchKind(f"reduction in {row}{_figures(reducer) if rows.count(row) > 1 else ''}", reducer)
        for row, reducer in kinds
    ]
    return [kinds.index(entry) for entry in of_entry], made


def _row(fabric: GraphFabric, device: int) -> str:
    return row_name(fabric.graph, int(fabric.graph.tiers[device]))


def _figures(reducer: Reducer) -> str:
    rate = "" if math.isinf(reducer.bytes_per_ns) else f", {format_bandwidth(reducer.bytes_per_ns)}"
    return f"{rate}, {format_ns(reducer.latency_ns)}"


NO_INDEX = -1
FAR = 1 << 20
Figures = tuple[float, float]  # bytes per ns, latency


class TreeSwitch(Struct, frozen=True):
    """A switch of a tree."""

    endpoint: int
    server: int  # its number among all switches of the network
    kind: int  # index in `SwitchTrees.kinds`
    reducer: Reducer
    parent: int  # index in the tree; NO_INDEX: it is the root
    ranks: tuple[int, ...]  # ranks that are its children
    members: int  # ranks below it


class SwitchTree(Struct, frozen=True):
    """The switches of a tree: the root first, and every switch after its parent."""

    switches: tuple[TreeSwitch, ...]
    figures: tuple[Any, ...] | None  # costs of a regular tree, equal for all members; None: they differ


class SwitchTrees:
    """A finder of trees in one network."""

    def __init__(self, network: Network) -> None:
        fabric = network.fabric
        self._grid = fabric if isinstance(fabric, GridFabric) else None
        self._kind_of, self.kinds = switch_kinds(network)
        self._reach = None
        if isinstance(fabric, GraphFabric) and fabric.reducers:
            self._reach = _Reach(fabric, self._kind_of)
        self._reducers = network.reducers
        self._ranks = network.ranks

    @property
    def are_any(self) -> bool:
        """Check whether any switch reduces."""
        return bool(self._reducers)

    @property
    def endpoints(self) -> int:
        """Return the number of endpoints besides the ranks."""
        return len(self._reducers) if self._grid is None else len(self._grid.dimensions)

    @property
    def servers(self) -> int:
        """Return the number of switches that reduce."""
        if self._grid is None:
            return len(self._reducers)
        return sum(self._ranks // self._grid.dimensions[number].npus for number, _ in self._reducers)

    def over(self, ranks: Any) -> SwitchTree | None:
        """Return the tree of some ranks, or None if no switches that reduce reach them all."""
        if self._reach is not None:
            return self._reach.over(ranks)
        return self._of_line(ranks) if self._grid is not None else None

    def _of_line(self, ranks: Any) -> SwitchTree | None:
        assert self._grid is not None
        first_server = 0
        for entry, (number, reducer) in enumerate(self._reducers):
            npus, stride = self._grid.dimensions[number].npus, self._grid.strides[number]
            lines = ranks // (stride * npus) * stride + ranks % stride
            if (lines == lines[0]).all():
                uneven = any(link.dimension == number for link in self._grid.links)
                server, members = first_server + int(lines[0]), tuple(ranks.tolist())
                stands = self._ranks + number, server, self._kind_of[entry]
                switch = TreeSwitch(*stands, reducer, NO_INDEX, members, len(members))
                return SwitchTree((switch,), None if uneven else (number,))
            first_server += self._ranks // npus
        return None


class _Reach:
    """The switches of a graph that reduce, their distances, and their ranks."""

    def __init__(self, fabric: GraphFabric, kind_of: list[int]) -> None:
        graph = fabric.graph
        self._fabric, self._graph, self._kind_of = fabric, graph, kind_of
        self._place = {device: place for place, (device, _) in enumerate(fabric.reducers)}
        self._figures = _cables(graph)
        nics = np.flatnonzero(graph.kinds == NIC).tolist()
        near: dict[int, list[int]] = {}
        for source, target in self._figures:
            near.setdefault(source, []).append(target)
        for nic in nics:  # a host reaches the switches of its NIC
            for host in near.get(nic, []):
                for other in near.get(nic, []):
                    if graph.kinds[host] == NPU and other in self._place:
                        self._figures.setdefault(
                            (host, other), (*self._figures[host, nic], *self._figures[nic, other])
                        )
                        self._figures.setdefault(
                            (other, host), (*self._figures[other, nic], *self._figures[nic, host])
                        )
        self._next = [
            sorted(self._place[other] for other in near.get(device, []) if other in self._place)
            for device, _ in fabric.reducers
        ]
        rank_of = {int(device): rank for rank, device in enumerate(graph.npus)}
        self._hosts: list[list[int]] = [[] for _ in range(len(graph.npus))]  # places of switches, by rank
        for source, target in sorted(self._figures):
            if source in rank_of and target in self._place:
                self._hosts[rank_of[source]].append(self._place[target])
        self._from: dict[int, tuple[list[int], list[int]]] = {}

    def over(self, ranks: Any) -> SwitchTree | None:
        """Return the best tree of some ranks."""
        hosts = [self._hosts[rank] for rank in ranks.tolist()]
        if not all(hosts):
            return None
        best: tuple[int, int, int] | None = None
        for root in range(len(self._next)):
            depth, _ = self._spread(root)
            depths = [min(depth[host] for host in own_hosts) for own_hosts in hosts]
            tree = (max(depths), sum(depths), root)
            if tree[0] < FAR and (best is None or tree < best):
                best = tree
        return None if best is None else self._rooted(best[2], ranks, hosts)

    def _spread(self, root: int) -> tuple[list[int], list[int]]:
        """Return the links from a switch to all others, and the last switch before each."""
        if root not in self._from:
            depth, before = [FAR] * len(self._next), [NO_INDEX] * len(self._next)
            depth[root], waiting = 0, deque([root])
            while waiting:
                here = waiting.popleft()
                for there in self._next[here]:
                    if depth[there] == FAR:
                        depth[there], before[there] = depth[here] + 1, here
                        waiting.append(there)
            self._from[root] = depth, before
        return self._from[root]

    def _rooted(self, root: int, ranks: Any, hosts: list[list[int]]) -> SwitchTree:
        depth, before = self._spread(root)
        hanging: dict[int, list[int]] = {root: []}
        below: dict[int, int] = {}
        for rank, own_hosts in zip(ranks.tolist(), hosts, strict=True):
            host = min(own_hosts, key=lambda place: (depth[place], place))
            hanging.setdefault(host, []).append(rank)
            while host != NO_INDEX:
                hanging.setdefault(host, [])
                below[host] = below.get(host, 0) + 1
                host = before[host]
        order = sorted(hanging, key=lambda place: (depth[place], place))
        place_in_tree = {place: number for number, place in enumerate(order)}
        switches = tuple(
            TreeSwitch(
                endpoint=len(self._graph.npus) + place,
                server=place,
                kind=self._kind_of[place],
                reducer=self._fabric.reducers[place][1],
                parent=NO_INDEX if place == root else place_in_tree[before[place]],
                ranks=tuple(hanging[place]),
                members=below[place],
            )
            for place in order
        )
        return SwitchTree(switches, self._alike(switches, order))

    def _alike(self, switches: tuple[TreeSwitch, ...], order: list[int]) -> tuple[Any, ...] | None:
        """Return the costs of all members of a regular tree, level by level; None: they differ."""
        kinds: list[Any] = [()] * len(switches)
        below: list[list[tuple[int, Any]]] = [[] for _ in switches]  # (device, the costs below it)
        for place, switch in reversed([*enumerate(switches)]):
            device = self._fabric.reducers[order[place]][0]
            below[place] += [(int(self._graph.npus[rank]), ()) for rank in switch.ranks]
            ways = {
                (self._figures[child, device], self._figures[device, child], lower)
                for child, lower in below[place]
            }
            if len(ways) > 1:
                return None
            reducer = switch.reducer
            kinds[place] = (reducer.bytes_per_ns, reducer.latency_ns, len(below[place]), *ways)
            if switch.parent != NO_INDEX:
                below[switch.parent].append((device, kinds[place]))
        return tuple(kinds[0])


def _cables(graph: Graph) -> dict[tuple[int, int], tuple[float, ...]]:
    """Return the figures of links between devices that are linked both ways; of several, the first."""
    cables: dict[tuple[int, int], tuple[float, ...]] = {}
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    figures = zip(graph.bytes_per_ns.tolist(), graph.latency_ns.tolist(), strict=True)
    for pair, link_figures in zip(ends, figures, strict=True):
        cables.setdefault(pair, link_figures)
    return {
        (source, target): link_figures
        for (source, target), link_figures in cables.items()
        if (target, source) in cables
    }
