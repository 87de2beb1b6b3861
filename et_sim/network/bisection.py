"""What can flow from the lower half of the ranks to the upper half, all links together.

The NPUs of each half become one device, and devices that no figure tells apart are added up: of those with
equal colours, each has the same capacity to and from every other colour, and a largest flow can be spread
evenly over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.graph import NPU, Graph
from et_sim.plan.splitmix import splitmix64

MOST_ARCS = 20_000
LOWER, UPPER = 0, 1


def bisection(graph: Graph) -> float | None:
    """In bytes per ns; None: the graph is too irregular and large to say."""
    import networkx as nx

    colours = _merged(graph)
    one, other, capacity = _coloured(graph, colours)
    if len(one) > MOST_ARCS:
        return None
    arcs: Any = nx.DiGraph()
    arcs.add_nodes_from((LOWER, UPPER))
    for source, target, total in zip(one.tolist(), other.tolist(), capacity.tolist(), strict=True):
        arcs.add_edge(source, target, capacity=total)
    return float(nx.maximum_flow_value(arcs, LOWER, UPPER))


def _merged(graph: Graph) -> Any:
    """A colour for each device; those of the halves are 0 and 1."""
    half = np.full(len(graph), -1)
    ranks = len(graph.npus)
    half[graph.npus] = np.arange(ranks) >= ranks // 2
    colours = np.where(graph.kinds == NPU, half, 2)
    weight = splitmix64(np.round(graph.bytes_per_ns * 1e6).astype(np.int64), 1)
    count = 0
    while len(np.unique(colours)) > count:
        count = len(np.unique(colours))
        mixed = splitmix64(colours, 2)
        seen = splitmix64(colours, 3)
        with np.errstate(over="ignore"):
            np.add.at(seen, graph.sources, splitmix64(mixed[graph.targets] + weight, 4))
            np.add.at(seen, graph.targets, splitmix64(mixed[graph.sources] + weight, 5))
        seen[graph.kinds == NPU] = half[graph.kinds == NPU]
        order = np.unique(seen, return_inverse=True)[1].reshape(-1)
        colours = np.where(graph.kinds == NPU, half, order + 2)
    return colours


def _coloured(graph: Graph, colours: Any) -> tuple[Any, Any, Any]:
    """(from, to, capacity) between colours."""
    pairs = np.stack([colours[graph.sources], colours[graph.targets]])
    keys, row = np.unique(pairs, axis=1, return_inverse=True)
    total = np.bincount(row.reshape(-1), weights=graph.bytes_per_ns, minlength=keys.shape[1])
    apart = keys[0] != keys[1]
    return keys[0][apart], keys[1][apart], total[apart]
