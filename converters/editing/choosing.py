"""Which nodes are in a slice: those of some iterations, and those that started within some time.

A marker is a node whose name is the marker's text alone or with a number behind it, such as the annotation
`ProfilerStep#12`. A node belongs to the latest iteration of whose marker it is, or waits for, whatever its
thread or stream: kernels belong to the iteration that launched them. Metadata belongs to every slice.

Not here: what becomes of dependencies (`bridging`) and of partners outside the slice (`partners`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from converters.editing.bridging import Lists, row_order
from converters.editing.inputs import Recorded
from et_sim.errors import TraceError, UsageError
from et_sim.trace import Trace
from et_sim.trace.columns import IntColumn, NodeKind

MARKER = "ProfilerStep"
_OUTSIDE = -1
_SHOWN = 8


def iteration_of_rows(recorded: Recorded, marker: str) -> IntColumn:
    """The number of every row's iteration; -1 if it comes after no marker."""
    trace = recorded.trace
    found = _marked(trace, marker)
    if not bool((found >= 0).any()):
        raise TraceError(
            f'no node is called "{marker}", alone or with a number behind it',
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


def in_iterations(recorded: Recorded, marker: str, wanted: Collection[int]) -> tuple[Any, int]:
    """(whether each row is in one of the iterations, how many are in none at all)."""
    iteration = iteration_of_rows(recorded, marker)
    missing = sorted(set(wanted) - set(iteration.tolist()))
    if missing:
        from et_sim.units import format_ranks

        have = format_ranks(np.unique(iteration[iteration >= 0]))
        raise TraceError(
            f"there is no iteration {missing[0]}",
            place=recorded.source,
            remedy=f'"{marker}" marks {have}: correct --iterations',
        )
    outside = (iteration == _OUTSIDE) & (recorded.trace.kind != NodeKind.METADATA)
    return np.isin(iteration, list(wanted)), int(outside.sum())


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
    from et_sim.units import parse_time_ns

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
    numbered = re.compile(re.escape(marker) + r"[#._ :-]?([0-9]{1,18})")
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
    """Texts that several nodes have in common, with different numbers behind them."""
    ending = re.compile(r"(.*?)[#._ :-]?[0-9]+")
    matches = (ending.fullmatch(name) for name in trace.names)
    found = [match[1] for match in matches if match and match[1]]
    several = [text for text in dict.fromkeys(found) if found.count(text) > 1] if len(found) < 2000 else []
    return f" (numbered here: {', '.join(several[:_SHOWN])})" if several else ""
