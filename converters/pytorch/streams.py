"""The work of devices as nodes, after its launch, earlier work of its stream, and awaited events.

Each of these permits the start only after the usual latency (`latencies`), which is a node of its own: a
`LAUNCH_GAP` after the launch, else a `STREAM_GAP`. The last of them decided the start, and its gap lasts
until then.

Overlapping work of one stream (kernels that may start before the previous one has ended) comes after the last
work that had ended, and its successors wait for all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import Calls, DeviceWork, Flags, Recording
from converters.pytorch.columns import NONE, EventKind
from converters.pytorch.graph import Column, Draft, Link, RunPart
from converters.pytorch.latencies import Latencies, Pairs
from converters.pytorch.threads import STEP, Threads

_ROLE_OF = {
    EventKind.KERNEL: RunPart.KERNEL,
    EventKind.MEMCPY: RunPart.COPY,
    EventKind.MEMSET: RunPart.FILL,
    EventKind.ACCELERATOR: RunPart.ACCELERATOR,
    EventKind.ANNOTATION: RunPart.COMMUNICATION,  # of a worker
}


class Streams(Struct, frozen=True, eq=False):
    """Nodes of the draft: those of the work, and the gaps before it."""

    node: Column  # by work
    position: Column  # by added node: work first, then gaps


_LONG_GAP_NS = 100_000  # longer than a launch takes
_MOST = 256  # most pieces of overlapping work that are examined


def add_streams(
    draft: Draft,
    given: Recording,
    threads: Threads,
    awaited: Pairs,
    latencies: Latencies,
    communicates: Flags,
    base: int,
) -> Streams:
    """Add nodes for all work; of each pair in `awaited`, the second comes after the first.

    `communicates` marks work whose order on its stream matters to other ranks; `base` is the first position
    of this work among nodes without duration.
    """
    device, calls, work = given.device, given.calls, given.work
    role = np.array([_ROLE_OF.get(EventKind(kind), RunPart.KERNEL) for kind in range(len(EventKind))])
    node = draft.add(role[device.kind[work.row]], work.start_ns, work.end_ns, work=np.arange(len(work)))
    own_position = base + np.arange(len(work)) * STEP
    launches, arrival = _launch_nodes(draft, calls, work, threads, latencies.arrival_ns)
    before, after = stream_order(work)
    starts, ends = work.start_ns, work.end_ns
    launched = np.flatnonzero(launches != NONE)
    allowed: tuple[tuple[Link, Column, Column, Column], ...] = (
        (Link.LAUNCH, launches[launched], launched, arrival[launched]),
        (Link.STREAM_ORDER, node[before], after, ends[before] + latencies.turn_ns),
        (Link.EVENT_WAIT, node[awaited[0]], awaited[1], ends[awaited[0]] + latencies.event_ns),
    )
    _keep_order(draft, work, node, np.flatnonzero(communicates))
    kind = np.concatenate([np.full(len(pairs), link) for link, pairs, *_ in allowed])
    first = np.concatenate([pairs for _, pairs, *_ in allowed])
    second = np.concatenate([pairs for *_, pairs, _ in allowed])
    moment = np.concatenate([moments for *_, moments in allowed])
    late = np.flatnonzero(starts > 0)
    gap = _gaps(
        draft, kind, first, node[second], np.minimum(moment, starts[second]), node, own_position, late
    )
    return Streams(node, np.concatenate([own_position, gap]))


def _keep_order(draft: Draft, work: DeviceWork, node: Column, communications: Column) -> None:
    """Keep the communication of one stream in order, even if it overlaps in the recording."""
    before, after = communications[:-1], communications[1:]
    overlaps = (work.lane[before] == work.lane[after]) & (work.end_ns[before] > work.start_ns[after])
    overlaps &= work.row[before] != work.row[after]
    if overlaps.any():
        remark = "communications of one stream that overlap in the recording (kept in order)"
        draft.tally.count(remark, int(overlaps.sum()))
        draft.link(Link.STREAM_ORDER, node[before[overlaps]], node[after[overlaps]], though_late=True)


def _gaps(
    draft: Draft,
    kind: Column,
    before: Column,
    after: Column,
    moment: Column,
    node: Column,
    own_position: Column,
    late: Column,
) -> Column:
    """Add dependencies, with a gap node if the successor may begin only later, at its `moment`.

    Of the dependencies of a node, the one with the latest moment decided, and its gap lasts until the node
    begins. Returns the positions of the gaps.
    """
    start, end = np.concatenate(draft.start_ns), np.concatenate(draft.end_ns)
    fits = end[before] <= start[after]
    order = np.lexsort((kind, -end[before], -moment, ~fits, after))
    decides = np.zeros(len(before), bool)
    if len(order):
        decides[order] = np.insert(after[order][1:] != after[order][:-1], 0, True)
    decides &= fits
    anchored = np.zeros(len(start), bool)
    anchored[after[decides]] = True
    left = np.where(decides, start[after] - moment, 0)
    lasts = np.where(decides, start[after], moment) - end[before]
    gap_of = fits & (lasts > 0)
    lone = late[~anchored[node[late]]]
    role = np.where(kind[gap_of] == Link.LAUNCH, RunPart.LAUNCH_GAP, RunPart.STREAM_GAP)
    role = np.concatenate([role, np.full(len(lone), RunPart.STREAM_GAP)])
    opens = np.concatenate([end[before[gap_of]], np.zeros(len(lone), np.int64)])
    closes = np.concatenate([(end[before] + lasts)[gap_of], start[node[lone]]])
    target = np.concatenate([after[gap_of], node[lone]])
    gaps = draft.add(role, opens, closes)
    for link in (Link.LAUNCH, Link.STREAM_ORDER, Link.EVENT_WAIT):
        plain = (kind == link) & ~gap_of
        draft.link(link, before[plain], after[plain])
        of_kind = np.flatnonzero(kind[gap_of] == link)
        draft.link(link, before[gap_of][of_kind], gaps[of_kind])
        draft.link(link, gaps[of_kind], target[of_kind])
    draft.link(Link.STREAM_ORDER, gaps[len(target) - len(lone) :], node[lone])
    draft.tally.count("launches of work that began before the recording", len(lone))
    is_worker = np.concatenate(draft.role)[after] == RunPart.COMMUNICATION
    remark = f"gaps of streams longer than {_LONG_GAP_NS // 1000} us that nothing explains"
    draft.tally.count(remark, int(((left > _LONG_GAP_NS) & ~is_worker).sum()))
    first = node[0] if len(node) else 0
    position: Column = own_position[target - first] - 1
    return position


def _launch_nodes(
    draft: Draft, calls: Calls, work: DeviceWork, threads: Threads, arrival: Column
) -> tuple[Column, Column]:
    """Return the predecessor of each piece of work (its launching call, or that call's predecessor), and the
    time at which it permits the start.

    If a call launches several, some may begin before it returns and others after it: the latter come after
    all of the call. The node of a call that launches and waits begins too late. Clocks of host and device
    differ a little, so work may seem to begin before its launch.
    """
    node = work.call.copy()  # node i is call i
    launched = np.flatnonzero(node != NONE)
    rest = threads.after(node[launched])
    ends = (rest != NONE) & (np.concatenate(draft.role)[rest] == RunPart.LAUNCH_REST)
    ends &= threads.end_of[rest] <= arrival[launched]
    node[launched[ends]] = rest[ends]
    early = launched[np.concatenate(draft.end_ns)[node[launched]] > work.start_ns[launched]]
    if len(early):
        call = node[early]
        node[early] = threads.before(call)
        seems = calls.start_ns[call] > work.start_ns[early]
        seems |= (node[early] != NONE) & (threads.end_of[node[early]] > work.start_ns[early])
        seeming = early[seems]
        node[seeming] = threads.last_before(calls.lane[call[seems]], work.start_ns[seeming])
        arrival = arrival.copy()
        arrival[seeming] = work.start_ns[seeming]
        remark = "launches that seem to begin after what they launched (the call before is taken)"
        draft.tally.count(remark, len(seeming))
    return node, arrival


def stream_order(work: DeviceWork) -> Pairs:
    """Return pairs of work: each comes after the last work of its stream, all of it if that overlapped."""
    same = work.lane[1:] == work.lane[:-1]
    overlaps = same & (work.end_ns[:-1] > work.start_ns[1:])
    plain = np.flatnonzero(same & ~overlaps)
    before, after = [plain], [plain + 1]
    if overlaps.any():
        extra = _overlapping(work, np.flatnonzero(overlaps))
        before.append(extra[0])
        after.append(extra[1])
    return np.concatenate(before), np.concatenate(after)


def _overlapping(work: DeviceWork, overlapped: Column) -> Any:
    """Return the additional pairs around overlaps: from the last that had ended, to all that still ran."""
    before: list[int] = []
    after: list[int] = []
    start, end, lane = work.start_ns, work.end_ns, work.lane
    for at in overlapped.tolist():
        late = at + 1  # starts while `at` runs
        back = at - 1
        while back >= max(0, at - _MOST) and lane[back] == lane[late] and end[back] > start[late]:
            back -= 1
        if back >= 0 and lane[back] == lane[late] and end[back] <= start[late]:
            before.append(back)
            after.append(late)
        ahead = late + 1  # the first that starts after the end of `at`
        while ahead < min(len(start), at + _MOST) and lane[ahead] == lane[at] and start[ahead] < end[at]:
            ahead += 1
        if ahead < len(start) and lane[ahead] == lane[at] and start[ahead] >= end[at]:
            before.append(at)
            after.append(ahead)
    return np.array(before, np.int64), np.array(after, np.int64)
