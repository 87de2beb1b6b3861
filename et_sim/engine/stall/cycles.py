"""Dependency cycles inside one trace: nodes that can never become ready.

A property of a template, whatever the ranks that run it have done. Not here: waits between ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.plan.tables import Plan
from et_sim.trace.preflight.cycles import find_knots


@dataclass(frozen=True, slots=True)
class Cycles:
    """Minimal cycles (each row comes after the next one in its list), one per knot of dependencies."""

    found: list[list[int]]
    home: dict[int, int]  # every row of a knot -> the first row of its cycle
    parent: dict[int, int]  # rows of the minimal cycles -> the row they come after


def find_cycles(plan: Plan, template: int) -> Cycles:
    """The dependency cycles of a template; linear, and at once where ids follow the dependencies."""
    knots = find_knots(*_edges(plan, template), int(plan.templates["nodes"][template]))
    home = {row: knot.cycle[0] for knot in knots for row in knot.rows}
    cycles = sorted(knot.cycle for knot in knots)
    after = {row: cycle[at - len(cycle) + 1] for cycle in cycles for at, row in enumerate(cycle)}
    return Cycles(cycles, home, after)


def _edges(plan: Plan, template: int) -> tuple[Any, Any]:
    """(parents, children) of all dependencies."""
    first, count = int(plan.templates["node_first"][template]), int(plan.templates["nodes"][template])
    parent = np.repeat(np.arange(count, dtype=np.int32), plan.nodes["children"][first : first + count])
    if not len(parent):
        return parent, parent
    begin = int(plan.nodes["children_first"][first])
    return parent, plan.children[begin : begin + len(parent)].astype(np.int32)
