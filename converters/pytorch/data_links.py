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
from converters.pytorch.storages import write_read_pairs
from converters.pytorch.threads import Threads


def link_data(
    draft: Draft,
    host: HostTrace,
    calls: Calls,
    work: Work,
    host_of_call: Rows,
    work_node: Column,
    threads: Threads,
) -> None:
    """Add the dependencies of both sorts."""
    operator = _described(calls, host_of_call, work.call)
    items = np.flatnonzero(operator != NONE)
    moment = calls.start_ns[work.call[items]]
    before, after = write_read_pairs(host, host_of_call[operator[items]], moment, work.lane[items])
    before, after = items[before], items[after]
    ended = work.end_ns[before] <= work.start_ns[after]
    draft.link(Link.DATA, work_node[before[ended]], work_node[after[ended]])
    own = np.flatnonzero(host_of_call != NONE)
    before, after = write_read_pairs(host, host_of_call[own], calls.start_ns[own], calls.lane[own])
    before, after = own[before], own[after]
    ended = calls.end_ns[before] <= calls.start_ns[after]
    last = threads.last_before(calls.lane[before[ended]], calls.end_ns[before[ended]])
    draft.link(Link.DATA, last, after[ended])


def _described(calls: Calls, host_of_call: Rows, call: Column) -> Column:
    """The innermost call around each call that the execution trace knows."""
    found = call.copy()
    while True:
        on = np.flatnonzero(found != NONE)
        on = on[host_of_call[found[on]] == NONE]
        if not len(on):
            return found
        found[on] = calls.parent[found[on]]
