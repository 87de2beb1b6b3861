"""Do a trace's dependencies ever let all of its nodes run?

A check per template: every rank that runs it has the same answer. Dependencies on nodes that do not
exist never get here; the reader refuses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from et_sim.trace.columns import RowColumn, Trace
from et_sim.trace.preflight.order import edges, entangled_rows
from et_sim.trace.preflight.problem import Problem, Sharing, compact_ranks, counted

_CYCLES = 3  # so many separate cycles are printed per trace
_NODES = 8  # so many nodes of a cycle are printed in full
_THOROUGH = 400  # in knots up to this size the shortest of all cycles is looked for
_MANY = 50_000  # with more nodes than this in knots, only one cycle is looked for


def check_dependencies(sharing: Sharing) -> list[Problem]:
    """Nodes that wait for themselves, directly or in a circle; traces without nodes."""
    problems: list[Problem] = []
    for template in sharing.used_templates():
        trace = sharing.workload.templates[template]
        ranks = sharing.ranks_of(template)
        place, who = sharing.place(ranks), compact_ranks(ranks)
        if not len(trace):
            text = f"{place}: the trace has no nodes, so there is nothing to do"
            problems.append(Problem("warning", "empty-trace", who, text, "check how the trace was made"))
        problems += [
            Problem("error", kind, who, f"{place}: {text}", remedy)
            for kind, text, remedy in (*_self_dependencies(trace), *_cycles(trace))
        ]
    return problems


def _self_dependencies(trace: Trace) -> list[tuple[str, str, str]]:
    rows = np.arange(len(trace))
    data = np.repeat(rows, np.diff(trace.data_start))
    ctrl = np.repeat(rows, np.diff(trace.ctrl_start))
    selfish = np.union1d(data[data == trace.data_deps], ctrl[ctrl == trace.ctrl_deps])
    if not len(selfish):
        return []
    row = int(selfish[0])
    how = _edge_kind(trace, row, row)
    more = f", and so do {len(selfish) - 1} more nodes" if len(selfish) > 2 else ""
    more = ", and so does 1 more node" if len(selfish) == 2 else more
    text = f"{trace.describe(row)} depends on itself ({how}) and can never start{more}"
    return [("self-dependency", text, "remove the node's own id from its dependencies")]


def _cycles(trace: Trace) -> list[tuple[str, str, str]]:
    """One finding per knot of nodes that wait for each other."""
    rows = entangled_rows(trace)
    if not len(rows):
        return []
    parents = _parents_within(trace, rows)
    starts = _knots(parents) if len(parents) <= _MANY else [[_on_a_cycle(parents)]]
    found = []
    for knot in starts[:_CYCLES]:
        cycle = _shortest_cycle(parents, knot)
        text = f"dependency cycle of {counted(len(cycle), 'node')}: {_spelled(trace, cycle)}"
        if len(knot) > len(cycle):
            text += f"; {len(knot)} nodes wait for each other in all"
        remedy = "remove one of these dependencies: no node of a cycle can start"
        found.append(("dependency-cycle", text, remedy))
    if len(starts) > _CYCLES:
        text = f"{counted(len(starts) - _CYCLES, 'more dependency cycle')} in other parts of the trace"
        found.append(("dependency-cycle", text, "repair the first ones and check again"))
    return found


def _parents_within(trace: Trace, rows: RowColumn) -> dict[int, list[int]]:
    """Dependencies among `rows`, each once, without those of a node on itself."""
    parent, child = edges(trace)
    inside = np.zeros(len(trace), bool)
    inside[rows] = True
    among = inside[parent] & inside[child]
    pairs = np.unique(child[among].astype(np.int64) * len(trace) + parent[among])
    needed = (pairs % len(trace)).tolist()
    ends = np.searchsorted(pairs, (rows.astype(np.int64) + 1) * len(trace)).tolist()
    return {
        row: needed[first:end] for row, first, end in zip(rows.tolist(), [0, *ends[:-1]], ends, strict=True)
    }


def _knots(parents: Mapping[int, list[int]]) -> list[list[int]]:
    """Sets of nodes that all wait for each other, ascending; the one with the lowest row first."""
    import networkx

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_edges_from((row, parent) for row, needed in parents.items() for parent in needed)
    parts = networkx.strongly_connected_components(graph)
    return sorted(sorted(part) for part in parts if len(part) > 1)


def _on_a_cycle(parents: Mapping[int, list[int]]) -> int:
    """Some row on a cycle: every row here has a parent, so walking on ends where one began."""
    row, seen = min(parents), set[int]()
    while row not in seen:
        seen.add(row)
        row = parents[row][0]
    return row


def _shortest_cycle(parents: Mapping[int, list[int]], knot: list[int]) -> list[int]:
    """A shortest cycle of the knot, each row followed by one it waits for; starts at its lowest row.

    In a large knot: a shortest through the knot's lowest row.
    """
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


def _spelled(trace: Trace, cycle: list[int]) -> str:
    """`node 1 "a" waits for node 2 "b" (data), which waits for node 1 "a" (control)`."""
    shown = cycle if len(cycle) <= _NODES else cycle[: _NODES - 2]
    closed = [*cycle, cycle[0]]
    steps = [f"waits for {_edge(trace, row, closed[k + 1])}" for k, row in enumerate(shown)]
    if len(shown) < len(cycle):
        steps.append(f"and so on through {len(cycle) - len(shown) - 1} more nodes")
        steps.append(f"the last of which waits for {_edge(trace, cycle[-1], cycle[0])}")
    head, *tail = steps
    return f"{trace.describe(cycle[0])} {head}" + "".join(
        f", {step}" if step.startswith(("and", "the")) else f", which {step}" for step in tail
    )


def _edge(trace: Trace, row: int, parent: int) -> str:
    return f"{trace.describe(parent)} ({_edge_kind(trace, row, parent)})"


def _edge_kind(trace: Trace, row: int, parent: int) -> str:
    """Through which list `row` depends on `parent`."""
    data = parent in trace.data_deps[trace.data_start[row] : trace.data_start[row + 1]]
    ctrl = parent in trace.ctrl_deps[trace.ctrl_start[row] : trace.ctrl_start[row + 1]]
    return "data and control" if data and ctrl else "data" if data else "control"
