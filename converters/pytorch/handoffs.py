"""Threads that waited for other threads: detection of the gaps that were waits, and of their causes.

Recordings do not show that a thread of the host slept until another one released it (autograd's thread and
its caller, loaders of data). It is inferred from their activity:

* a thread that resumes right after another one stopped, which then stays idle for much longer, was handed
  control: autograd's thread after the forward pass, and back;
* a thread that resumes while the other one works was released by it if it was at the same place in other
  iterations, too: at a name that the other thread seldom passes;
* a thread resumes with a node of autograd because autograd has finished another one.

The gap is shortened to the part after the other thread's event. If there are several
explanations, the one that explains most gaps before the same operator wins, then the one that leaves the
shortest part.

A collective of a worker thread has better evidence. The operator of torch.distributed hands it to the worker
and returns; the thread waits later. If the thread was idle when the collective ended and resumed soon, it
waited there, and resumes as long after it as measured. If it was busy, the time of its wait is unknown: its
next collective or annotation (`Optimizer.step`) is taken, which is the latest possibility. The worker itself
slept until it received the collective, and is free again at its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import Calls, DeviceWork
from converters.pytorch.columns import NONE, DeviceTrace
from converters.pytorch.graph import Column, Draft, Link
from converters.pytorch.threads import Threads
from et_sim.basics.unique import unique

_SHORTEST_NS = 20_000
_LEFT = 4  # a gap is explained if at most this part of it is left
_CHANCE = 0.05  # greatest probability of the same place by accident
_AUTOGRAD = "autograd::engine::evaluate_function"


class _Reason(Struct, frozen=True):
    """Another thread that may have ended a gap."""

    gap: int  # position in the chains
    cause: int  # node
    ended_ns: int
    left_ns: int
    lane: int
    has_stopped: bool
    place: int  # name of the last call of the other thread


def link_handoffs(draft: Draft, device: DeviceTrace, calls: Calls, threads: Threads) -> None:
    """Shorten gaps that waited for other threads to the part after their event."""
    lanes = unique(threads.lane).tolist()
    if len(lanes) < 2:
        return
    name = np.full(threads.node.max(initial=0) + 2, -1, np.int64)  # by node; only calls have one
    plain = {at: full_name.partition("#")[0] for at, full_name in enumerate(device.names)}  # ProfilerStep#3
    number = {plain_name: at for at, plain_name in reversed(plain.items())}
    name[: len(calls)] = np.array([number[plain_name] for plain_name in plain.values()], np.int64)[
        device.name[calls.row]
    ]
    chains = {lane: np.flatnonzero(threads.lane == lane) for lane in lanes}
    reasons: dict[int, list[_Reason]] = {}
    for lane in lanes:
        for other in lanes:
            if other != lane:
                for new in _reasons(threads, chains[lane], chains[other], other, name):
                    reasons.setdefault(new.gap, []).append(new)
    follows = {gap: int(name[threads.node[gap + 1]]) for gap in reasons}
    votes = Counter(
        (follows[gap], reason.lane, reason.has_stopped, -1 if reason.has_stopped else reason.place)
        for gap, several in reasons.items()
        for reason in several
    )
    by_autograd = {at for at, full_name in enumerate(device.names) if full_name.startswith(_AUTOGRAD)}
    ran_autograd = {
        lane: bool(by_autograd & set(name[threads.node[chain]].tolist())) for lane, chain in chains.items()
    }
    often = {lane: Counter(name[threads.node[chain]].tolist()) for lane, chain in chains.items()}
    begin = np.concatenate(draft.start_ns)
    before, after = [], []
    for gap, several in sorted(reasons.items()):
        good: list[tuple[int, int, _Reason]] = []
        for reason in several:
            place = -1 if reason.has_stopped else reason.place
            count = votes[follows[gap], reason.lane, reason.has_stopped, place]
            chance = often[reason.lane][place] / len(chains[reason.lane])
            by_autograd_too = follows[gap] in by_autograd and ran_autograd[reason.lane]
            if reason.has_stopped or by_autograd_too or chance ** (count - 1) <= _CHANCE:
                good.append((-count, reason.left_ns, reason))
        if good:
            best = min(good, key=lambda candidate: candidate[:2])[2]
            node = int(threads.node[gap])
            begin[node] = max(int(begin[node]), best.ended_ns)
            before.append(best.cause)
            after.append(node)
    draft.start_ns = [begin]
    draft.link(Link.CROSS_THREAD, np.array(before, np.int64), np.array(after, np.int64))


def _reasons(threads: Threads, chain: Column, other: Column, lane: int, name: Column) -> list[_Reason]:
    """Return the evidence of another thread about the gaps of one."""
    starts, ends, is_gap = threads.start_ns, threads.end_ns, threads.is_gap
    gaps = chain[is_gap[chain] & (ends[chain] - starts[chain] >= _SHORTEST_NS)]
    gaps = gaps[gaps < chain[-1]]
    busy = other[~is_gap[other]]
    if not len(gaps) or not len(busy):
        return []
    idle = other[is_gap[other]]
    reasons = []
    done = np.searchsorted(ends[busy], ends[gaps], "right")
    begun = np.searchsorted(starts[busy], ends[gaps])  # calls that begin later have released no thread
    at = np.minimum(done, begun) - 1  # its last event
    resting = np.searchsorted(starts[idle], ends[gaps]) - 1  # its gap around that moment
    for gap, last, rest in zip(gaps.tolist(), at.tolist(), resting.tolist(), strict=True):
        if last < 0:
            continue
        cause, ended, finish = busy[last], int(ends[busy[last]]), int(ends[gap])
        left, lasted = finish - ended, int(ends[gap] - starts[gap])
        if ended <= starts[gap] or _LEFT * left > lasted:
            continue
        has_stopped = last == len(busy) - 1
        if not has_stopped and rest >= 0 and starts[idle[rest]] >= ended and ends[idle[rest]] > finish:
            has_stopped = int(ends[idle[rest]]) - ended >= _LEFT * left
        reasons.append(
            _Reason(
                gap, int(threads.node[cause]), ended, left, lane, has_stopped, int(name[threads.node[cause]])
            )
        )
    return reasons


_SHORTEST_WAIT_NS = 1_000
_SOON_NS = 100_000  # after the end of a collective, within which a waiting thread resumes


def link_groups(draft: Draft, work: DeviceWork, by_worker: Column, group: Column, work_node: Column) -> None:
    """Keep consecutive collectives of one group in order, on any worker."""
    order = by_worker[np.lexsort((work.end_ns[by_worker], work.start_ns[by_worker], group[by_worker]))]
    before, after = order[:-1], order[1:]
    same = (group[before] == group[after]) & (work.end_ns[before] <= work.start_ns[after])
    draft.link(Link.STREAM_ORDER, work_node[before[same]], work_node[after[same]])


def link_workers(
    draft: Draft, threads: Threads, calls: Calls, work: DeviceWork, by_worker: Column, work_node: Column
) -> None:
    """Add dependencies from the work of workers to the thread that issued it."""
    issued = by_worker[work.call[by_worker] != NONE]
    if not len(issued):
        return
    marks = calls.is_annotation.copy()
    marks[work.call[issued]] = True
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
    slept_of = threads.before(np.array([mark_of[int(work.row[at_work])] for at_work in issued.tolist()]))
    for lane in unique(calls.lane[work.call[issued]]).tolist():
        nodes_of[lane] = threads.node[threads.lane == lane]
        marks_of[lane] = np.flatnonzero(marks & (calls.lane == lane))
    for at_work, node in zip(issued.tolist(), slept_of.tolist(), strict=True):
        issuing = int(work.call[at_work])
        if node != NONE and is_gap[node] and ends[issuing] <= work.start_ns[at_work]:
            starts[node] = max(int(starts[node]), int(ends[issuing]))
            before.append(issuing)
            after.append(node)
        lane = int(calls.lane[work.call[at_work]])
        nodes, later = nodes_of[lane], marks_of[lane]
        end = int(work.end_ns[at_work])
        at = bisect_left(
            nodes, end, key=threads.end_of.__getitem__
        )  # the one around the end of the collective
        if at == len(nodes):
            continue
        node = int(nodes[at])
        lasts = int(threads.end_of[node] - threads.start_of[node])
        left = int(threads.end_of[node]) - end
        if node >= len(calls) and lasts >= _SHORTEST_WAIT_NS and left <= max(lasts // 2, _SOON_NS):
            starts[node] = max(int(starts[node]), end)
            waiting = [node]
        else:
            first = bisect_left(later, end, key=calls.start_ns.__getitem__)
            waiting = later[first : first + 1].tolist()
        before += [int(work_node[at_work])] * len(waiting)
        after += waiting
    draft.start_ns = [starts]
    draft.link(Link.CROSS_THREAD, np.array(before, np.int64), np.array(after, np.int64))
