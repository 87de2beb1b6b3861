"""Cycles of a directed graph given as two columns: a short one for each knot.

The search for knots is linear and compiled; only their nodes are visited in Python.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from et_sim.basics.unique import unique
from et_sim.trace.columns import RowColumn
from et_sim.trace.order import fits_row_order, settle

Vertex = TypeVar("Vertex", bound=Hashable)

_THOROUGH = 400  # in knots up to this size the shortest of all cycles is searched
_MANY = 50_000  # more nodes than this in knots are reported as one knot, with any of its cycles


class Knot(NamedTuple):
    """Nodes that all wait for each other."""

    cycle: list[int]  # a short one: each node is followed by one it waits for; the lowest comes first
    rows: list[int]


def find_knots(parent: RowColumn, child: RowColumn, count: int) -> list[Knot]:
    """Return the knots, by their lowest nodes."""
    rows = _entangled(parent, child, count)
    if not len(rows):
        return []
    parents = _parents_within(parent, child, count, rows)
    if len(parents) > _MANY:
        return [_knot(parents, rows.tolist(), [_on_a_cycle(parents)])]
    return [
        _knot(parents, knot, knot if len(knot) <= _THOROUGH else knot[:1]) for knot in _components(parents)
    ]


def shortest_cycle(providers: Mapping[Vertex, Iterable[Vertex]], starts: Iterable[Vertex]) -> list[Vertex]:
    """Return the shortest cycle through any of `starts`, beginning there; all of them lie on cycles."""
    return min((_shortest_cycle_through(providers, start) for start in starts), key=len)


def _knot(parents: Mapping[int, list[int]], rows: list[int], starts: list[int]) -> Knot:
    cycle = shortest_cycle(parents, starts)
    lowest = cycle.index(min(cycle))
    return Knot(cycle[lowest:] + cycle[:lowest], rows)


def _entangled(parent: RowColumn, child: RowColumn, count: int) -> RowColumn:
    """Return the nodes on a cycle or between two cycles, ascending."""
    if fits_row_order(parent, child):
        return np.empty(0, np.int32)
    unmarked = np.zeros(count, np.uint8)
    left = np.ones(count, bool)
    left[settle(parent, child, unmarked)[0]] = False
    inside = left[parent] & left[child]
    # nodes behind a cycle are removed from their far end
    far = np.zeros(count, bool)
    far[settle(child[inside], parent[inside], unmarked)[0]] = True
    return np.flatnonzero(left & ~far).astype(np.int32)


def _parents_within(parent: RowColumn, child: RowColumn, count: int, rows: RowColumn) -> dict[int, list[int]]:
    """Return the parents of `rows` among `rows`, each once."""
    is_row = np.zeros(count, bool)
    is_row[rows] = True
    among = is_row[parent] & is_row[child]
    pairs = unique(child[among].astype(np.int64) * count + parent[among])
    needed = (pairs % count).tolist()
    ends = np.searchsorted(pairs, (rows.astype(np.int64) + 1) * count).tolist()
    spans = zip(rows.tolist(), [0, *ends[:-1]], ends, strict=True)
    return {row: needed[first:end] for row, first, end in spans}


def _components(parents: Mapping[int, list[int]]) -> list[list[int]]:
    """Return sets of nodes that all wait for each other, ascending; the one with the lowest node first."""
    import networkx

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_edges_from((row, parent) for row, needed in parents.items() for parent in needed)
    parts = networkx.strongly_connected_components(graph)
    return sorted(sorted(part) for part in parts if len(part) > 1 or graph.has_edge(*part, *part))


def _on_a_cycle(parents: Mapping[int, list[int]]) -> int:
    """Return some node on a cycle: every node here has a parent, so a walk reaches a visited node."""
    row, seen = min(parents), set[int]()
    while row not in seen:
        seen.add(row)
        row = parents[row][0]
    return row


def _shortest_cycle_through(providers: Mapping[Vertex, Iterable[Vertex]], start: Vertex) -> list[Vertex]:
    came_from: dict[Vertex, Vertex] = {}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for provider in providers[at]:
            if provider == start:
                path = [at]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if provider not in came_from:
                came_from[provider] = at
                queue.append(provider)
    raise AssertionError("every node of a knot is on a cycle")
