"""Dependencies through tensors: whoever reads a tensor comes after whoever wrote it last.

Only where nothing else says so already: between calls of different threads, and between work of different
streams, and where the writer had ended when the reader began.

Not here: who wrote last (`storages`); the order within a thread (`threads`) and a stream (`streams`).
"""

from __future__ import annotations

import numpy as np

from converters.pytorch.calls import Calls, Work
from converters.pytorch.columns import HostTrace
from converters.pytorch.graph import Column, Draft, Link, Rows
from converters.pytorch.nesting import NONE
from converters.pytorch.storages import Past, Uses, Written
from converters.pytorch.tally import Span
from converters.pytorch.threads import Threads


def link_data(
    draft: Draft,
    host: HostTrace,
    calls: Calls,
    work: Work,
    host_of_call: Rows,
    work_node: Column,
    threads: Threads,
    past: Past | None,
) -> Past:
    """Add the dependencies of both sorts.

    With a past, dependencies on its writers, too; and gives who has written since then. Writers of the past
    are keys, and those since then nodes of the draft, of what belongs to its span.
    """
    span = draft.tally.span
    operator = _described(calls, host_of_call, work.call)
    around = past.around if past is not None else Span()
    items = np.flatnonzero(operator != NONE)
    items = items[around.holds(calls.start_ns[work.call[items]])]
    uses = Uses.of(host, host_of_call[operator[items]], calls.start_ns[work.call[items]])
    lane, start, end = work.lane[items], work.start_ns[items], work.end_ns[items]
    before, after = uses.pairs(lane)
    ended = end[before] <= start[after]
    draft.link(Link.DATA, work_node[items[before[ended]]], work_node[items[after[ended]]])
    own = np.flatnonzero((host_of_call != NONE) & around.holds(calls.start_ns))
    of_calls = Uses.of(host, host_of_call[own], calls.start_ns[own])
    call_lane, call_start, call_end = calls.lane[own], calls.start_ns[own], calls.end_ns[own]
    before, after = of_calls.pairs(call_lane)
    ended = call_end[before] <= call_start[after]
    last = threads.last_before(call_lane[before[ended]], call_end[before[ended]])
    draft.link(Link.DATA, last, own[after[ended]])
    if past is None:
        return Past()
    _link_past(draft, past.work, *uses.pairs_with(past.work, lane), start, work_node[items])
    _link_past(draft, past.calls, *of_calls.pairs_with(past.calls, call_lane), call_start, own)
    by_work = uses.last(span.holds(start), lane, end)
    by_calls = of_calls.last(span.holds(call_start), call_lane, call_end)
    writers = threads.last_before(by_calls.lane, by_calls.end_ns)
    return Past(by_work.by(work_node[items[by_work.writer]]), by_calls.by(writers).some(writers != NONE))


def _link_past(
    draft: Draft, past: Written, before: Column, after: Column, start: Column, node: Column
) -> None:
    """Dependencies on writers of earlier windows."""
    ended = past.end_ns[before] <= start[after]
    before, after = before[ended], after[ended]
    draft.link(Link.DATA, draft.add_others(past.writer[before], past.end_ns[before]), node[after])


def _described(calls: Calls, host_of_call: Rows, call: Column) -> Column:
    """The innermost call around each call that the execution trace knows."""
    found = call.copy()
    while True:
        on = np.flatnonzero(found != NONE)
        on = on[host_of_call[found[on]] == NONE]
        if not len(on):
            return found
        found[on] = calls.parent[found[on]]
