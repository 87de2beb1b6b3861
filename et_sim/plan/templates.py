"""Node tables of all templates, end to end: of the workload's traces and of custom collectives.

Not here: the rules for single nodes (`nodes`), and what differs from rank to rank (`lowering`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan import tables
from et_sim.trace.columns import Trace


class TemplateTables:
    """Collects node tables: first those of the workload's templates, by number, then any others."""

    def __init__(self, workload_templates: int, lanes: int) -> None:
        self._lanes = lanes
        self._nodes: list[Any] = [None] * workload_templates
        self._children: list[Any] = [None] * workload_templates

    def put(self, template: int, nodes: Any, trace: Trace) -> None:
        """Set one of the workload's templates, whose nodes are lowered."""
        self._children[template] = _attach_children(nodes, trace)
        self._nodes[template] = nodes

    def add(self, nodes: Any, trace: Trace) -> int:
        """Add another template; returns its number."""
        self._nodes.append(None)
        self._children.append(None)
        self.put(len(self._nodes) - 1, nodes, trace)
        return len(self._nodes) - 1

    def finish(self) -> tuple[Any, Any, Any, Any]:
        """(template table, where lanes begin in each, node table, children)."""
        templates = tables.table(tables.TEMPLATE, len(self._nodes))
        lane_first = np.zeros((len(self._nodes), self._lanes), np.int64)
        node_first = child_first = 0
        every_template = zip(templates, lane_first, self._nodes, self._children, strict=True)
        for row, first_of_lane, nodes, children in every_template:
            row.node_first, row.nodes = node_first, len(nodes)
            per_lane = np.bincount(nodes["lane"], minlength=self._lanes)
            first_of_lane[1:] = np.cumsum(per_lane)[:-1]
            nodes["children_first"] += child_first
            node_first += len(nodes)
            child_first += len(children)
        every = np.concatenate(self._nodes).view(np.recarray)
        return templates, lane_first, every, np.concatenate(self._children)


def _attach_children(nodes: Any, trace: Trace) -> Any:
    """Fill indegree and the children columns; returns the children, grouped by parent."""
    if not len(trace.data_deps) and not len(trace.ctrl_deps):
        return np.zeros(0, np.int32)  # the columns are 0 already
    count = max(len(trace), 1)
    rows = np.arange(len(trace), dtype=np.int64)
    child = np.concatenate(
        (np.repeat(rows, np.diff(trace.data_start)), np.repeat(rows, np.diff(trace.ctrl_start)))
    )
    parent = np.concatenate((trace.data_deps, trace.ctrl_deps)).astype(np.int64)
    edges = np.unique(parent * count + child)  # a parent listed twice counts once
    parent, child = edges // count, edges % count
    nodes["indegree"] = np.bincount(child, minlength=len(trace))
    nodes["children"] = np.bincount(parent, minlength=len(trace))
    if len(trace):
        nodes["children_first"] = np.concatenate(([0], np.cumsum(nodes["children"])[:-1]))
    return child.astype(np.int32)
