"""Do a trace's dependencies ever let all of its nodes run?

A check per template: every rank that runs it has the same answer. Dependencies on nodes that do not
exist never get here; the reader refuses them.
"""

from __future__ import annotations

import numpy as np

from et_sim.basics.units import format_ranks, plural
from et_sim.trace.columns import Trace
from et_sim.trace.order import edges
from et_sim.trace.preflight.cycles import find_knots
from et_sim.trace.preflight.problem import Problem, TemplateIndex

_CYCLES = 3  # so many separate cycles are printed per trace
_NODES = 8  # so many nodes of a cycle are printed in full


def check_dependencies(index: TemplateIndex) -> list[Problem]:
    """Nodes that wait for themselves, directly or in a circle; traces without nodes."""
    problems: list[Problem] = []
    for template in index.used_templates():
        trace = index.workload.templates[template]
        ranks = index.ranks_of(template)
        found = [*_self_dependencies(trace), *_cycles(trace)]
        if not found and len(trace):
            continue
        place, who = index.place(ranks), format_ranks(ranks)
        if not len(trace) and not index.workload.is_idle(int(ranks[0])):
            text = f"{place}: the trace has no nodes, so there is nothing to do"
            problems.append(Problem("warning", "empty-trace", who, text, "check how the trace was made"))
        problems += [Problem("error", kind, who, f"{place}: {text}", remedy) for kind, text, remedy in found]
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
    parent, child = edges(trace)
    knots = find_knots(parent, child, len(trace))
    found = []
    for cycle, rows in knots[:_CYCLES]:
        text = f"dependency cycle of {plural(len(cycle), 'node')}: {_spelled(trace, cycle)}"
        if len(rows) > len(cycle):
            text += f"; {plural(len(rows), 'node')} wait for each other in all"
        remedy = "remove one of these dependencies: no node of a cycle can start"
        found.append(("dependency-cycle", text, remedy))
    if len(knots) > _CYCLES:
        text = f"{plural(len(knots) - _CYCLES, 'more dependency cycle')} in other parts of the trace"
        found.append(("dependency-cycle", text, "repair the first ones and check again"))
    return found


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
