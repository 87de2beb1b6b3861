"""Whether every NPU can reach every other, and whether switches alone suffice for that."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.unique import unique
from et_sim.machine.graph import NPU, Graph


def switches_suffice(graph: Graph) -> bool:
    """Whether some switch is reached by all NPUs and reaches them all, with no NPU in between."""
    first = graph.npus[0]
    near = graph.targets[(graph.sources == first) & (graph.kinds[graph.targets] != NPU)]
    forwards = graph.kinds != NPU
    lengths = (_ways_through(graph, switch, forwards) for switch in unique(near).tolist())
    return any(length is not None for length in lengths)


def longest_way(graph: Graph, npus_forward: bool) -> int | None:
    """More links than this no shortest way has: so many lead through one device; None: not known."""
    if npus_forward:
        return _ways_through(graph, graph.npus[0], np.ones(len(graph), bool))
    near = graph.targets[graph.sources == graph.npus[0]]
    lengths = (_ways_through(graph, device, graph.kinds != NPU) for device in near.tolist())
    return min((length for length in lengths if length is not None), default=None)


def _ways_through(graph: Graph, device: int, forwards: Any) -> int | None:
    """How long ways through a device are at most; None: it is not between all NPUs."""
    if not forwards[device]:
        return None
    there = _links_away(graph.sources, graph.targets, device, forwards)[graph.npus]
    back = _links_away(graph.targets, graph.sources, device, forwards)[graph.npus]
    return None if min(there.min(), back.min()) < 0 else int(there.max() + back.max())


def unreachable_pair(graph: Graph, npus_forward: bool) -> tuple[int, int] | None:
    """Two ranks, the first of which cannot reach the second; None: there are none."""
    forwards = np.ones(len(graph), bool) if npus_forward else graph.kinds != NPU
    if npus_forward:
        first = graph.npus[0]
        there = _links_away(graph.sources, graph.targets, first, forwards)[graph.npus] >= 0
        if not there.all():
            return 0, int(np.argmin(there))
        back = _links_away(graph.targets, graph.sources, first, forwards)[graph.npus] >= 0
        return None if back.all() else (int(np.argmin(back)), 0)
    if switches_suffice(graph):
        return None
    for rank, npu in enumerate(graph.npus.tolist()):
        is_reached = _links_away(graph.sources, graph.targets, npu, forwards)[graph.npus] >= 0
        if not is_reached.all():
            return rank, int(np.argmin(is_reached))
    return None


def _links_away(sources: Any, targets: Any, first: int, forwards: Any) -> Any:
    """How many links devices are away from one, which need not forward; -1: they cannot be reached."""
    order = np.argsort(sources, kind="stable")
    begin = np.searchsorted(sources[order], np.arange(len(forwards) + 1))
    ends = targets[order]
    away = np.full(len(forwards), -1)
    away[first] = distance = 0
    edge = np.array([first])
    while len(edge):
        distance += 1
        counts = begin[edge + 1] - begin[edge]
        of = np.repeat(begin[edge] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        devices = unique(ends[of])
        devices = devices[away[devices] < 0]
        away[devices] = distance
        edge = devices[forwards[devices]]
    return away
