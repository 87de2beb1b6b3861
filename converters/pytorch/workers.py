"""Who waited for the end of a collective that a worker thread of the host carried out.

The operator of torch.distributed hands the collective to a worker and returns; the thread waits later. Where
the thread did nothing else when the collective ended, and soon went on, it waited there, and goes on as long
after it as measured. Where it was busy then, nothing shows when it waited: at the latest, its next collective
or annotation (`Optimizer.step`) comes after it, and that is taken.

The worker itself slept until it got the collective, and is free again when that has ended.

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
_SOON_NS = 100_000  # after the end of a collective, within which a thread that waited for it goes on


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
    ends = threads.end_of
    mark_of = {int(row): at for at, row in enumerate(calls.row.tolist())}
    is_gap = np.zeros(len(ends), np.bool_)
    is_gap[threads.node] = threads.is_gap
    marks_of_work = np.array([mark_of[int(row)] for row in work.row[by_worker].tolist()])
    freed = threads.after(marks_of_work)
    free = (freed != NONE) & is_gap[freed] & (ends[freed] >= work.end_ns[by_worker])
    starts[freed[free]] = np.maximum(starts[freed[free]], work.end_ns[by_worker[free]])
    before += work_node[by_worker[free]].tolist()
    after += freed[free].tolist()
    slept_of = threads.before(np.array([mark_of[int(work.row[one])] for one in asked.tolist()]))
    for lane in np.unique(calls.lane[work.call[asked]]).tolist():
        nodes_of[lane] = threads.node[threads.lane == lane]
        marks_of[lane] = np.flatnonzero(marks & (calls.lane == lane))
    for one, node in zip(asked.tolist(), slept_of.tolist(), strict=True):
        asking = int(work.call[one])
        if node != NONE and is_gap[node] and ends[asking] <= work.start_ns[one]:
            starts[node] = max(int(starts[node]), int(ends[asking]))
            before.append(asking)
            after.append(node)
        lane = int(calls.lane[work.call[one]])
        nodes, later = nodes_of[lane], marks_of[lane]
        end = int(work.end_ns[one])
        at = bisect_left(nodes, end, key=threads.end_of.__getitem__)  # during which the collective ended
        if at == len(nodes):
            continue
        node = int(nodes[at])
        lasts = int(threads.end_of[node] - threads.start_of[node])
        left = int(threads.end_of[node]) - end
        if node >= len(calls) and lasts >= _SHORTEST_WAIT_NS and left <= max(lasts // 2, _SOON_NS):
            starts[node] = max(int(starts[node]), end)
            found = [node]
        else:
            first = bisect_left(later, end, key=calls.start_ns.__getitem__)
            found = later[first : first + 1].tolist()
        before += [int(work_node[one])] * len(found)
        after += found
    draft.start_ns = [starts]
    draft.link(Link.CROSS_THREAD, np.array(before, np.int64), np.array(after, np.int64))
