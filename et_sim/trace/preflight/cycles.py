"""Cycles of a directed graph given as two columns: a short one of each knot.

Finding out whether there are any is linear and compiled; only what is left after that is looked at
node by node. Not here: what the nodes are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from et_sim.trace.columns import RowColumn
from et_sim.trace.preflight.order import fits_row_order, settle

_THOROUGH = 400  # in knots up to this size the shortest of all cycles is looked for
_MANY = 50_000  # with more nodes than this in knots, only one cycle is looked for


def find_knots(parent: RowColumn, child: RowColumn, count: int) -> list[tuple[list[int], int]]:
    """(a short cycle, how many nodes wait for each other) per knot, by lowest node.

    In a cycle, each node is followed by one it waits for; the lowest node comes first.
    """
    rows = _entangled(parent, child, count)
    if not len(rows):
        return []
    parents = _parents_within(parent, child, count, rows)
    knots = _knots(parents) if len(parents) <= _MANY else [[_on_a_cycle(parents)]]
    return [(_shortest_cycle(parents, knot), len(knot)) for knot in knots]


def _entangled(parent: RowColumn, child: RowColumn, count: int) -> RowColumn:
    """Nodes on a cycle or between two cycles, ascending."""
    if fits_row_order(parent, child):
        return np.empty(0, np.int32)
    unmarked = np.zeros(count, np.uint8)
    left = np.ones(count, bool)
    left[settle(parent, child, unmarked)[0]] = False
    inside = left[parent] & left[child]
    # What only hangs behind a cycle can be taken off from its far end.
    far = np.zeros(count, bool)
    far[settle(child[inside], parent[inside], unmarked)[0]] = True
    return np.flatnonzero(left & ~far).astype(np.int32)


def _parents_within(parent: RowColumn, child: RowColumn, count: int, rows: RowColumn) -> dict[int, list[int]]:
    """Edges among `rows`, each once."""
    is_row = np.zeros(count, bool)
    is_row[rows] = True
    among = is_row[parent] & is_row[child]
    pairs = np.unique(child[among].astype(np.int64) * count + parent[among])
    needed = (pairs % count).tolist()
    ends = np.searchsorted(pairs, (rows.astype(np.int64) + 1) * count).tolist()
    spans = zip(rows.tolist(), [0, *ends[:-1]], ends, strict=True)
    return {row: needed[first:end] for row, first, end in spans}


def _knots(parents: Mapping[int, list[int]]) -> list[list[int]]:
    """Sets of nodes that all wait for each other, ascending; the one with the lowest node first."""
    import networkx

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_edges_from((row, parent) for row, needed in parents.items() for parent in needed)
    parts = networkx.strongly_connected_components(graph)
    return sorted(sorted(part) for part in parts if len(part) > 1)


def _on_a_cycle(parents: Mapping[int, list[int]]) -> int:
    """Some node on a cycle: every one here has a parent, so walking on ends where one has been."""
    row, seen = min(parents), set[int]()
    while row not in seen:
        seen.add(row)
        row = parents[row][0]
    return row


def _shortest_cycle(parents: Mapping[int, list[int]], knot: list[int]) -> list[int]:
    """A shortest cycle of the knot; in a large knot, a shortest through its lowest node."""
    starts = knot if len(knot) <= _THOROUGH else knot[:1]
    cycle = min((_shortest_cycle_through(parents, start) for start in starts), key=len)
    lowest = cycle.index(min(cycle))
    return cycle[lowest:] + cycle[:lowest]


def _shortest_cycle_through(parents: Mapping[int, list[int]], start: int) -> list[int]:
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        row = queue.popleft()
        for parent in parents[row]:
            if parent == start:
                return _walk_back(came_from, row, start)
            if parent not in came_from:
                came_from[parent] = row
                queue.append(parent)
    raise AssertionError("every node of a knot is on a cycle")


def _walk_back(came_from: Mapping[int, int], row: int, start: int) -> list[int]:
    path = [row]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]
