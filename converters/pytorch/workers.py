"""Who waited for the end of a collective that a worker thread of the host carried out.

The operator of torch.distributed hands the collective to a worker and returns; the thread waits later. Where
the thread did nothing else when the collective ended, it waited there, and goes on as long after it as
measured. Where it was busy then, nothing shows when it waited: at the latest, its next collective or
annotation (`Optimizer.step`) comes after it, and that is taken.

Not here: which call carries what (`collectives`), and threads that wait without a collective (`threads`).
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from converters.pytorch.calls import Calls, Work
from converters.pytorch.graph import Column, Draft, Link
from converters.pytorch.nesting import NONE
from converters.pytorch.threads import Threads

_SHORTEST_WAIT_NS = 1_000


def link_groups(draft: Draft, work: Work, by_worker: Column, group: Column, work_node: Column) -> None:
    """Collectives of one group that followed each other, on whatever worker, stay in order."""
    order = by_worker[np.lexsort((work.end_ns[by_worker], work.start_ns[by_worker], group[by_worker]))]
    before, after = order[:-1], order[1:]
    same = (group[before] == group[after]) & (work.end_ns[before] <= work.start_ns[after])
    draft.link(Link.STREAM_ORDER, work_node[before[same]], work_node[after[same]])


def link_workers(
    draft: Draft, threads: Threads, calls: Calls, work: Work, by_worker: Column, work_node: Column
) -> None:
    """Dependencies from what workers did to the thread that had asked for it."""
    asked = by_worker[work.call[by_worker] != NONE]
    if not len(asked):
        return
    marks = calls.is_annotation.copy()
    marks[work.call[asked]] = True
    starts = np.concatenate(draft.start_ns)
    before, after = [], []
    nodes_of, marks_of = {}, {}
    for lane in np.unique(calls.lane[work.call[asked]]).tolist():
        nodes_of[lane] = threads.node[threads.lane == lane]
        marks_of[lane] = np.flatnonzero(marks & (calls.lane == lane))
    for one in asked.tolist():
        lane = int(calls.lane[work.call[one]])
        nodes, later = nodes_of[lane], marks_of[lane]
        end = int(work.end_ns[one])
        at = bisect_left(nodes, end, key=threads.end_of.__getitem__)  # during which the collective ended
        if at == len(nodes):
            continue
        node = int(nodes[at])
        lasts = int(threads.end_of[node] - threads.start_of[node])
        if node >= len(calls) and lasts >= _SHORTEST_WAIT_NS:  # between or after calls
            starts[node] = max(int(starts[node]), end)
            found = [node]
        else:
            first = bisect_left(later, end, key=calls.start_ns.__getitem__)
            found = later[first : first + 1].tolist()
        before += [int(work_node[one])] * len(found)
        after += found
    draft.start_ns = [starts]
    draft.link(Link.CROSS_THREAD, np.array(before, np.int64), np.array(after, np.int64))
