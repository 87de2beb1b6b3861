"""The resources of a rank of a graph while no other sends: links to its node, and a card it may share.

Dimension 0 of the collectives is the node if paths within it do not use the link to other ranks, or use no
more of it than the path to the card. Else each rank is a node of its own. Switches between cards do not
matter: a collective library chooses by nodes and cards, and messages cross the actual links.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.graph import NIC, NPU, Graph, LinkFigures, links_away
from et_sim.machine.networks import GIB, Dimension, DimensionShape, RankCards


def cards_of(graph: Graph, sizes: tuple[int, ...], *, npus_forward: bool) -> RankCards | None:
    """Return the cards of the first of three ranks whose lines are all joined by switches, or None."""
    ranks = len(graph.npus)
    for rank in dict.fromkeys((0, ranks - 1, ranks // 2)):
        seen = _Rank(graph, rank, sizes, npus_forward=npus_forward).cards()
        if seen is not None:
            return seen
    return None


class _Rank:
    """The paths from one rank to others, without forwarding NPUs."""

    def __init__(self, graph: Graph, rank: int, sizes: tuple[int, ...], *, npus_forward: bool) -> None:
        self._graph, self._rank, self._sizes = graph, rank, sizes
        device, without = int(graph.npus[rank]), graph.kinds != NPU
        self._away = links_away(graph.sources, graph.targets, device, without)
        self._least = self._away
        if npus_forward:
            self._least = links_away(graph.sources, graph.targets, device, np.ones(len(graph), bool))
        strides = np.cumprod((1, *sizes))[:-1].tolist()
        self._lines = [self._line(size, stride) for size, stride in zip(sizes, strides, strict=True)]

    def _line(self, size: int, stride: int) -> Any:
        """Return the devices along a dimension, starting at the rank."""
        place = self._rank // stride % size
        ranks = self._rank + ((place + np.arange(size)) % size - place) * stride
        return self._graph.npus[ranks]

    def cards(self) -> RankCards | None:
        """Return the node and card of the rank, or None if NPUs forward along a line."""
        for line in self._lines:
            if (self._away[line] != self._least[line]).any() or self._away[line].min() < 0:
                return None
        inner, *others = self._lines
        ways = [self._way(int(line[1])) if len(line) > 1 else [] for line in others]
        inside = self._way(int(inner[len(inner) // 2])) if len(inner) > 1 else []
        out = next(filter(None, ways), [])
        is_behind = len(out) > 1 and bool(self._graph.kinds[self._graph.targets[out[0]]] == NIC)
        meets = inside[:1] == out[:1]
        is_only_port = meets and is_behind and inside[:2] != out[:2]
        has_node = bool(inside) and (not meets or is_only_port)
        if not has_node and not out:
            out = inside
        card = self._figures(out[is_behind] if out else inside[0])
        port = self._figures(out[0]) if is_behind else LinkFigures(card.bytes_per_ns, 0)
        sharers = self._sharers(int(self._graph.targets[out[0]]), inner) if is_behind and has_node else 1
        rate = self._rate(inside) if has_node else card.bytes_per_ns
        if is_only_port:
            rate = min(rate, self._rate(inside[1:-1]) / sharers)
        outer = [
            self._dimension(line, way, card.bytes_per_ns) for line, way in zip(others, ways, strict=True)
        ]
        dimensions = (self._dimension(inner, inside, rate), *outer)
        return RankCards(dimensions, port, sharers, has_node=has_node, is_only_port=is_only_port)

    def _dimension(self, line: Any, way: list[int], rate: float) -> Dimension:
        is_mesh = len(line) > 1 and bool((self._away[line[1:]] == 1).all())
        latency = sum(self._figures(link).latency_ns for link in way)
        shape = DimensionShape.FULLY_CONNECTED if is_mesh else DimensionShape.SWITCH
        return Dimension(shape, len(line), rate / GIB, latency if is_mesh else latency / 2)

    def _sharers(self, card: int, inner: Any) -> int:
        to_card = self._graph.sources[self._graph.targets == card]
        return max(int(np.isin(inner, to_card).sum()), 1)

    def _figures(self, link: int) -> LinkFigures:
        return LinkFigures(float(self._graph.bytes_per_ns[link]), float(self._graph.latency_ns[link]))

    def _rate(self, way: list[int]) -> float:
        return min((self._figures(link).bytes_per_ns for link in way), default=1.0)

    def _way(self, device: int) -> list[int]:
        """Return the links of a shortest path to a device."""
        graph, way = self._graph, list[int]()
        while self._away[device] > 0:
            before = graph.sources[graph.targets == device]
            links = np.flatnonzero(graph.targets == device)
            is_nearer = self._away[before] == self._away[device] - 1
            is_nearer &= (graph.kinds[before] != NPU) | (self._away[before] == 0)
            way.append(int(links[is_nearer][0]))
            device = int(graph.sources[way[-1]])
        return way[::-1]
