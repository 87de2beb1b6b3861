"""Dependency cycles inside one trace: nodes that can never become ready.

A property of a template, whatever the ranks that run it have done. Not here: waits between ranks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from et_sim.plan.tables import Plan

# A shortest cycle is sought through this many nodes of each knot of dependencies.
STARTS_TRIED = 32


@dataclass(frozen=True, slots=True)
class Cycles:
    """Minimal cycles (each row comes after the next one in its tuple), one per knot of dependencies."""

    found: tuple[tuple[int, ...], ...]
    home: dict[int, int]  # every row of a knot -> the first row of its cycle
    parent: dict[int, int]  # rows of the minimal cycles -> the row they come after


def find_cycles(plan: Plan, template: int) -> Cycles:
    """The dependency cycles of a template; linear, and at once where ids follow the dependencies."""
    parent, child = _edges(plan, template)
    if bool((parent < child).all()):
        return Cycles((), {}, {})
    stuck = _never_ready(len_of(plan, template), parent, child)
    keep = stuck[parent] & stuck[child]
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from(zip(child[keep].tolist(), parent[keep].tolist(), strict=True))
    found: list[tuple[int, ...]] = []
    home: dict[int, int] = {}
    after: dict[int, int] = {}
    for knot in nx.strongly_connected_components(graph):
        rows = sorted(knot)
        if len(rows) == 1 and not graph.has_edge(rows[0], rows[0]):
            continue
        cycle = shortest_cycle(graph.subgraph(knot), rows[:STARTS_TRIED])
        low = cycle.index(min(cycle))
        cycle = cycle[low:] + cycle[:low]
        found.append(tuple(cycle))
        home.update(dict.fromkeys(rows, cycle[0]))
        after.update(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return Cycles(tuple(sorted(found)), home, after)


def len_of(plan: Plan, template: int) -> int:
    """How many nodes a template has."""
    return int(plan.templates["nodes"][template])


def _edges(plan: Plan, template: int) -> tuple[Any, Any]:
    first, count = int(plan.templates["node_first"][template]), len_of(plan, template)
    children = plan.nodes["children"][first : first + count]
    parent = np.repeat(np.arange(count, dtype=np.int64), children)
    if not len(parent):
        return parent, parent
    begin = int(plan.nodes["children_first"][first])
    return parent, plan.children[begin : begin + len(parent)].astype(np.int64)


def _never_ready(count: int, parent: Any, child: Any) -> Any:
    """Rows left over when every row whose parents are all gone is taken away, again and again."""
    missing = np.bincount(child, minlength=count).tolist()
    first = np.searchsorted(parent, np.arange(count + 1)).tolist()
    children = child.tolist()
    free = [row for row in range(count) if missing[row] == 0]
    while free:
        row = free.pop()
        for at in range(first[row], first[row + 1]):
            missing[children[at]] -= 1
            if missing[children[at]] == 0:
                free.append(children[at])
    return np.array(missing, np.int64) > 0


def shortest_cycle(graph: nx.DiGraph[Any], starts: list[Any]) -> list[Any]:
    """The shortest cycle through any of `starts`, beginning there; all of them lie on some cycle."""
    best: list[Any] = []
    for start in starts:
        came_from: dict[Any, Any] = {start: None}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            if graph.has_edge(at, start):
                cycle = _path_to(at, came_from)
                best = cycle if not best or len(cycle) < len(best) else best
                break
            for after in graph.successors(at):
                if after not in came_from:
                    came_from[after] = at
                    queue.append(after)
    return best


def _path_to(end: Any, came_from: dict[Any, Any]) -> list[Any]:
    path = [end]
    while came_from[path[-1]] is not None:
        path.append(came_from[path[-1]])
    return path[::-1]
