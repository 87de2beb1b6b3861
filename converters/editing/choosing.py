"""Which nodes are in a slice: those of some iterations, and those that started within some time.

A marker is a node whose name is the marker's text alone or with a number behind it, such as the annotation
`ProfilerStep#12`; a # in the text stands for the number. Of several texts, a trace goes by the first known.
A node belongs to the latest iteration of whose marker it is, or waits for, whatever its thread or stream:
kernels belong to the iteration that launched them. Metadata belongs to every slice.

Not here: what becomes of dependencies (`remove_nodes`) and of partners outside the slice (`partners`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from converters.editing.inputs import Recorded
from converters.editing.remove_nodes import Lists, row_order
from et_sim.basics.errors import TraceError, UsageError
from et_sim.trace import Trace
from et_sim.trace.columns import IntColumn, NodeKind

MARKER = "ProfilerStep"
_OUTSIDE = -1
_SHOWN = 8


def iteration_of_rows(recorded: Recorded, markers: Sequence[str]) -> IntColumn:
    """The number of every row's iteration; -1 if it comes after no marker."""
    trace = recorded.trace
    known = (_marked(trace, marker) for marker in markers)
    found = next((rows for rows in known if bool((rows >= 0).any())), None)
    if found is None:
        listed = " or ".join(f'"{marker}"' for marker in markers)
        raise TraceError(
            f"no node is called {listed}, alone or with a number behind it",
            place=recorded.source,
            remedy=f"name the nodes with which iterations begin: --marker TEXT{_candidates(trace)}",
        )
    iteration = found.tolist()
    data, ctrl = Lists(trace.data_start, trace.data_deps), Lists(trace.ctrl_start, trace.ctrl_deps)
    for row in row_order(recorded):
        for parent in (*data.of(row), *ctrl.of(row)):
            if iteration[parent] > iteration[row]:
                iteration[row] = iteration[parent]
    return np.array(iteration, np.int64)


def in_iterations(recorded: Recorded, markers: Sequence[str], wanted: Sequence[range]) -> tuple[Any, int]:
    """(whether each row is in one of the iterations, how many are in none at all)."""
    iteration = iteration_of_rows(recorded, markers)
    present = np.unique(iteration[iteration != _OUTSIDE])
    chosen = np.zeros(len(iteration), np.bool_)
    for piece in wanted:
        there = int(((present >= piece.start) & (present < piece.stop)).sum())
        if there < piece.stop - piece.start:
            raise _missing(recorded, piece, present)
        chosen |= (iteration >= piece.start) & (iteration < piece.stop)
    outside = (iteration == _OUTSIDE) & (recorded.trace.kind != NodeKind.METADATA)
    return chosen, int(outside.sum())


def _missing(recorded: Recorded, piece: range, present: IntColumn) -> TraceError:
    from et_sim.basics.units import format_ranks

    known = set(present.tolist())
    first = next(number for number in piece if number not in known)
    return TraceError(
        f"there is no iteration {first}",
        place=recorded.source,
        remedy=f"there are {format_ranks(present)}: correct --iterations",
    )


def in_window(recorded: Recorded, starts: IntColumn, begin_us: float, end_us: float) -> Any:
    """Whether each row started within [begin, end)."""
    is_timed = recorded.trace.kind != NodeKind.METADATA
    if bool(is_timed.any()) and not bool(starts[is_timed].any()):
        raise TraceError(
            "no node says when it started (start_time_micros), so a window of time has no meaning",
            place=recorded.source,
            remedy="choose by --iterations, or convert from a recording with times",
        )
    chosen: Any = (starts >= begin_us) & (starts < end_us)
    return chosen


def parse_window(text: str) -> tuple[float, float]:
    """ "10ms:20ms" in microseconds; either end may be left out."""
    from et_sim.basics.units import parse_time_ns

    form = "give BEGIN:END with units, such as 10ms:20ms, 1.5s: or :300us"
    if text.count(":") != 1:
        raise UsageError(f"--window is {text!r}", remedy=form)
    begin, end = text.split(":")
    first = parse_time_ns(begin) / 1000 if begin.strip() else 0.0
    last = parse_time_ns(end) / 1000 if end.strip() else float("inf")
    if last <= first:
        raise UsageError(f"--window {text} ends before it begins", remedy=form)
    return first, last


def _marked(trace: Trace, marker: str) -> IntColumn:
    """The iteration that each row begins, or -1; markers without numbers are counted from 0."""
    before, sign, behind = marker.partition("#")
    sign = "#?" if sign else "[#._ :-]?"
    numbered = re.compile(re.escape(before) + sign + "([0-9]{1,18})" + re.escape(behind))
    number = np.full(max(1, len(trace.names)), _OUTSIDE, np.int64)
    for at, name in enumerate(trace.names):
        match = numbered.fullmatch(name)
        if match:
            number[at] = int(match[1])
    found = number[trace.name]
    if not bool((found >= 0).any()) and marker in trace.names:
        rows = np.flatnonzero(trace.name == trace.names.index(marker))
        found[rows] = np.arange(len(rows))
    return found


def _candidates(trace: Trace) -> str:
    """Names that several nodes have in common but for one number."""
    once = (re.sub("#?[0-9]+", "#", name) for name in trace.names if len(re.findall("[0-9]+", name)) == 1)
    several = [text for text, count in Counter(once).items() if count > 1]
    return f" (numbered here: {', '.join(several[:_SHOWN])})" if several else ""
