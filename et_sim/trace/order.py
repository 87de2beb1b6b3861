"""Orders that dependencies force, in time linear in nodes and dependencies.

`settle` is the one compiled pass behind the search for cycles and the order of collectives.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from et_sim.basics.unique import unique
from et_sim.compiled.entry_points import entry
from et_sim.trace.columns import NodeKind, RowColumn, Trace
from et_sim.trace.stack import Stack


def edges(trace: Trace) -> tuple[RowColumn, RowColumn]:
    """Return (parents, children) of all dependencies, without those of a node on itself."""
    rows = np.arange(len(trace), dtype=np.int32)
    data = np.repeat(rows, np.diff(trace.data_start))
    ctrl = np.repeat(rows, np.diff(trace.ctrl_start))
    child = np.concatenate((data, ctrl))
    parent = np.concatenate((trace.data_deps, trace.ctrl_deps)).astype(np.int32)
    real = parent != child
    return parent[real], child[real]


class DependencyLists:
    """The dependencies of one kind by row, as lists of Python integers."""

    def __init__(self, start: Any, rows: Any) -> None:
        self._start = start.tolist()
        self._rows: list[int] = rows.tolist()

    def of(self, row: int) -> list[int]:
        """Return the parents of a row."""
        return self._rows[self._start[row] : self._start[row + 1]]


def dependency_lists(trace: Trace) -> tuple[DependencyLists, DependencyLists]:
    """Return the lists of data and of control dependencies."""
    return DependencyLists(trace.data_start, trace.data_deps), DependencyLists(
        trace.ctrl_start, trace.ctrl_deps
    )


def fits_row_order(parent: RowColumn, child: RowColumn) -> bool:
    """Return whether every parent is a lower row, so that nodes can run in the order of their rows."""
    return bool((parent < child).all())


def program_order(trace: Trace) -> list[int]:
    """Return all rows in a sequence: by node id if dependencies permit, and receives as late as possible.

    A receive may have a low id although its message answers a later node. The trace must have no cycle.
    """
    parent, child = edges(trace)
    is_receive = trace.kind == NodeKind.RECV
    if not is_receive.any() and fits_row_order(parent, child):
        return list(range(len(trace)))
    listed = np.lexsort((-parent, child))  # the lowest parent of each row last: it is treated first
    parents = parent[listed].tolist()
    first = np.concatenate(([0], np.cumsum(np.bincount(child, minlength=len(trace))))).tolist()
    was_met = bytearray(len(trace))
    order: list[int] = []
    rows = np.argsort(is_receive, kind="stable")
    stack = rows[::-1].tolist()
    while stack:
        row = stack[-1]
        if was_met[row] == 0:
            was_met[row] = 1
            stack += [parent for parent in parents[first[row] : first[row + 1]] if not was_met[parent]]
            continue
        if was_met[row] == 1:
            was_met[row] = 2
            order.append(row)
        stack.pop()
    return order


def issue_order(trace: Trace, rows: RowColumn) -> tuple[RowColumn, bool]:
    """Return communication nodes `rows` in the order in which their rank starts them, and whether it is
    certain.

    The order is certain if each must start before the next for all durations.
    """
    order, depth = _settled_with_lane(trace, rows, rows)
    if len(order) < len(trace):  # a cycle, reported elsewhere
        return rows, False
    is_forced = not len(rows) or int(depth[rows].max()) == len(rows)
    if not is_forced and fits_row_order(*edges(trace)):
        return rows, False
    return rows[np.argsort(depth[rows], kind="stable")], is_forced


def in_program_order(stack: Stack, rows: Any) -> Any:
    """Return communication nodes `rows` in ascending order, unless dependencies run against the node ids."""
    parent, child = edges(stack.trace)
    against = np.searchsorted(stack.first, parent[parent > child], side="right") - 1
    bounds = np.searchsorted(rows, stack.first)
    rows = rows.copy()
    for at in unique(against).tolist():
        part, first = slice(bounds[at], bounds[at + 1]), stack.first[at]
        rows[part] = first + issue_order(stack.traces[at], (rows[part] - first).astype(np.int32))[0]
    return rows


def certainly_in_order(trace: Trace, rows: RowColumn, chosen: RowColumn) -> bool:
    """Return whether each of `chosen`, all in `rows`, must start before the next for all durations."""
    order, depth = _settled_with_lane(trace, rows, chosen)
    return len(order) == len(trace) and bool((depth[chosen] == np.arange(1, len(chosen) + 1)).all())


def _settled_with_lane(trace: Trace, rows: RowColumn, marked_rows: RowColumn) -> tuple[Any, Any]:
    """Run `settle` with dependencies and with the order by id of one communication lane for `rows`.

    Ready nodes are started in ascending id, one at a time: of two nodes, the lower one starts first if the
    higher one waits for all dependencies of the lower one.
    """
    parent, child = edges(trace)
    before, after = _forced_by_id(trace, rows)
    marked = np.zeros(len(trace), np.uint8)
    marked[marked_rows] = 1
    order, depth = settle(np.concatenate((parent, before)), np.concatenate((child, after)), marked)
    return order, depth


def _forced_by_id(trace: Trace, rows: RowColumn) -> tuple[RowColumn, RowColumn]:
    """Return pairs of neighbours in id order whose second waits for all dependencies of the first."""
    needs = [frozenset(trace.parents(int(row)).tolist()) for row in rows]
    first = np.array([a <= b for a, b in pairwise(needs)], bool)
    return rows[:-1][first], rows[1:][first]


def settle(parent: Any, child: Any, marked: Any) -> tuple[Any, Any]:
    """Return rows in an order that fits the edges, and per row the most marked rows on a path to it.

    Rows on or behind a cycle are missing from the order.
    """
    count = len(marked)
    first, waits = np.zeros(count + 2, np.int64), np.zeros(count, np.int32)
    children = np.empty(len(parent), np.int32)
    order, depth = np.empty(count, np.int32), np.zeros(count, np.int32)
    settled = _settle(parent, child, marked, first, waits, children, order, depth)
    return order[:settled], depth


@entry(what="the checks", seconds=lambda *arrays: (len(arrays[0]) + len(arrays[2])) * 2e-6)
def _settle(
    parent: Any, child: Any, marked: Any, first: Any, waits: Any, children: Any, order: Any, depth: Any
) -> int:
    """Fill the order and the depths; return its length. `first` has two cells more than rows."""
    count = len(marked)
    for edge in range(len(parent)):
        first[parent[edge] + 2] += 1
        waits[child[edge]] += 1
    for row in range(count):
        first[row + 2] += first[row + 1]
    for edge in range(len(parent)):  # afterwards, `first` holds the beginning of the children of each row
        children[first[parent[edge] + 1]] = child[edge]
        first[parent[edge] + 1] += 1
    done = 0
    settled = 0
    for row in range(count):
        if waits[row] == 0:
            order[settled] = row
            settled += 1
    while done < settled:
        row = order[done]
        done += 1
        depth[row] += marked[row]
        for at in range(first[row], first[row + 1]):
            kid = children[at]
            depth[kid] = max(depth[kid], depth[row])
            waits[kid] -= 1
            if waits[kid] == 0:
                order[settled] = kid
                settled += 1
    return settled
