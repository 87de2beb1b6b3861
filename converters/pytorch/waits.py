"""Who waited for what: streams for events of other streams, and the host for streams, events and devices.

Newer timelines record synchronisation with the event's recording and its stream. Older ones show only
that `cudaStreamWaitEvent` was called; then the next work that the thread launched waits, and it waits for

* the thread's last work before the event was recorded, if an event was recorded between that work's
  launch and the wait, and the work is of another stream (how communication follows computation);
* else the last work of another stream that had ended when the waiting one began (how computation
  follows communication).

In the same way a host's wait for a stream or event that is not named is for the last work that had ended
when the call returned. A launch that took long may have waited, too, and is judged by what had ended just
before it returned. Whether a wait was recorded or concluded is counted.

Not here: the nodes (`threads`, `streams`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from converters.pytorch.calls import Calls, Flags, Work, named
from converters.pytorch.columns import DeviceTrace, EventSort
from converters.pytorch.graph import Column
from converters.pytorch.nesting import NONE
from converters.pytorch.streams import Pairs
from converters.pytorch.tally import Tally

_LONG_LAUNCH_NS = 50_000
_FULL_QUEUE = 64  # pieces of work under way; queues of devices hold some hundred


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Waiting as recorded or concluded."""

    awaited: Pairs  # work, and work that comes after it
    host_after: Pairs  # work, and the call that returned after it
    until_ns: Column  # by call: when what it waited for had ended, or NONE


@dataclass(slots=True)
class _Launches:
    """Work in the order of launching, of all streams and of each."""

    work: Work
    launched_ns: Column  # by work
    on_device: Flags  # by work; the rest is workers of the host
    by_lane: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)  # times, work

    def __post_init__(self) -> None:
        order = np.lexsort((np.arange(len(self.work)), self.launched_ns))
        for lane in np.unique(self.work.lane[self.on_device]).tolist():
            rows = order[self.work.lane[order] == lane]
            self.by_lane[lane] = self.launched_ns[rows].tolist(), rows.tolist()

    def last_before(self, lane: int, moment: int) -> int:
        """The last work of a stream launched before a moment, or NONE."""
        times, rows = self.by_lane.get(lane, ([], []))
        at = bisect_left(times, moment)
        return rows[at - 1] if at else NONE

    def first_after(self, lane: int, moment: int) -> int:
        """The first work of a stream launched at a moment or later, or NONE."""
        times, rows = self.by_lane.get(lane, ([], []))
        at = bisect_left(times, moment)
        return rows[at] if at < len(rows) else NONE

    def last_ended(self, lane: int, moment: int, ended_by: int) -> int:
        """The last work of a stream launched before a moment, if it has ended by another; or NONE."""
        found = self.last_before(lane, moment)
        return found if found != NONE and self.work.end_ns[found] <= ended_by else NONE


def find_waits(device: DeviceTrace, calls: Calls, work: Work, origin_ns: int, tally: Tally) -> Waits:
    """All waiting of the timeline."""
    launched = np.where(
        work.launch != NONE, device.ts_ns[np.maximum(work.launch, 0)] - origin_ns, work.start_ns
    )
    launches = _Launches(work, launched, device.sort[work.row] != EventSort.ANNOTATION)
    awaited = _recorded(device, launches, tally, origin_ns)
    if not len(awaited[0]):
        awaited = _concluded(device, calls, launches, tally, origin_ns)
    until, host_after = _host_waits(device, calls, launches, tally, origin_ns)
    held = _held_launches(calls, launches, until, tally)
    both = tuple(np.concatenate(side) for side in zip(host_after, held, strict=True))
    return Waits(awaited, (both[0], both[1]), until)


def _recorded(device: DeviceTrace, launches: _Launches, tally: Tally, origin_ns: int) -> Pairs:
    """Waits of streams that the timeline describes."""
    waits, texts = device.waits, device.texts
    call_at = _moments(device, origin_ns)
    lane_of = _lane_of_stream(device)
    found: list[tuple[int, int]] = []
    for at, row in enumerate(waits.row.tolist()):
        if texts[waits.sort[at]] != b"Stream Wait Event":
            continue
        waited = int(device.ts_ns[row]) - origin_ns
        lane = int(device.lane[row])
        recorded = call_at.get(int(waits.record_correlation[at]))
        called = call_at.get(int(device.correlation[row]))
        source = lane_of.get((device.lanes[lane].device, int(waits.stream[at])))
        if recorded is None or called is None or source is None:
            tally.count("waits of streams for events recorded before the recording", waited)
            continue
        pair = (
            launches.last_before(source, recorded),
            launches.first_after(_stream_of(device, lane, lane_of), called),
        )
        tally.count("waits of streams for events, as recorded", waited)
        if NONE not in pair and source != lane:
            found.append(pair)
    return _pairs(found)


def _concluded(device: DeviceTrace, calls: Calls, launches: _Launches, tally: Tally, origin_ns: int) -> Pairs:
    """Waits of streams of which only the call is known."""
    is_call = device.sort == EventSort.LAUNCH
    rows = np.flatnonzero(is_call & np.isin(device.name, named(device, "stream_wait")))
    records = np.flatnonzero(is_call & np.isin(device.name, named(device, "record")))
    work = launches.work
    found: list[tuple[int, int]] = []
    for lane in np.unique(device.lane[rows]).tolist():
        own = np.flatnonzero((work.call != NONE) & launches.on_device)
        own = own[calls.lane[work.call[own]] == lane]
        own = own[np.argsort(launches.launched_ns[own], kind="stable")]
        times = launches.launched_ns[own].tolist()
        recorded = np.sort(device.ts_ns[records[device.lane[records] == lane]] - origin_ns).tolist()
        for moment in np.sort(device.ts_ns[rows[device.lane[rows] == lane]] - origin_ns).tolist():
            at = bisect_left(times, moment)
            if at == len(own):
                continue
            follows = int(own[at])
            before = int(own[at - 1]) if at else NONE
            fresh = before != NONE and bisect_left(recorded, times[at - 1]) < bisect_left(recorded, moment)
            pair = _source(launches, follows, before if fresh else NONE, moment), follows
            tally.count("waits of streams for events, concluded from the order of calls", moment)
            if pair[0] != NONE:
                found.append(pair)
    return _pairs(found)


def _source(launches: _Launches, follows: int, before: int, moment: int) -> int:
    """What the work `follows` waited for; `before` was launched last before an event was recorded."""
    work = launches.work
    lane, start = int(work.lane[follows]), int(work.start_ns[follows])
    if before != NONE and int(work.lane[before]) != lane:
        return before if int(work.end_ns[before]) <= start else NONE
    others = (one for one in launches.by_lane if one != lane)
    candidates = [launches.last_ended(one, moment, start) for one in others]
    ended = [(int(work.end_ns[one]), one) for one in candidates if one != NONE]
    return max(ended)[1] if ended else NONE


def _host_waits(
    device: DeviceTrace, calls: Calls, launches: _Launches, tally: Tally, origin_ns: int
) -> tuple[Column, Pairs]:
    """Calls that returned when work had ended: which work, and when."""
    until = np.full(len(calls), NONE, np.int64)
    found: list[tuple[int, int]] = []
    names = {which: set(named(device, which).tolist()) for which in ("wait_device", "wait_own")}
    waiting = set(named(device, "wait_stream", "wait_event", "wait_device", "wait_own").tolist())
    recorded = _recorded_targets(device, launches, origin_ns)
    is_call = ~(calls.is_operator | calls.is_annotation)
    launched_by = _work_of_calls(launches.work)
    for call in np.flatnonzero(is_call & np.isin(device.name[calls.row], sorted(waiting))).tolist():
        row = int(calls.row[call])
        name = int(device.name[row])
        start, end = int(calls.start_ns[call]), int(calls.end_ns[call])
        known = recorded.get(int(device.correlation[row]))
        if known is not None:
            targets = known
            tally.count("waits of the host, as recorded", start)
        elif name in names["wait_own"]:
            targets = launched_by.get(call, [])
        else:
            targets = [launches.last_ended(lane, start, end) for lane in launches.by_lane]
            targets = [one for one in targets if one != NONE]
            if name not in names["wait_device"] and targets:
                targets = [max(targets, key=lambda one: int(launches.work.end_ns[one]))]
            tally.count("waits of the host, concluded from the order of calls", start)
        targets = [one for one in targets if launches.work.end_ns[one] <= end]
        if targets:
            until[call] = max(int(launches.work.end_ns[one]) for one in targets)
            found += [(one, call) for one in targets]
    return until, _pairs(found)


def _held_launches(calls: Calls, launches: _Launches, until: Column, tally: Tally) -> Pairs:
    """Launches that took long, and returned soon after work had ended: the launched work itself (a copy from
    memory that is not pinned), or what made room in a full queue. Adds to `until`."""
    work = launches.work
    own_end = np.full(len(calls), NONE, np.int64)
    some = np.flatnonzero((work.call != NONE) & launches.on_device)
    np.maximum.at(own_end, work.call[some], work.end_ns[some])
    launching = np.flatnonzero((own_end != NONE) & (until == NONE))
    launching = launching[(calls.end_ns - calls.start_ns)[launching] >= _LONG_LAUNCH_NS]
    by_end = some[np.argsort(work.end_ns[some], kind="stable")]
    ends, begins = work.end_ns[by_end], np.sort(launches.launched_ns[some])
    found: list[tuple[int, int]] = []
    for call in launching.tolist():
        start, end = int(calls.start_ns[call]), int(calls.end_ns[call])
        soon = end - (end - start) // 5
        if soon <= own_end[call] <= end:
            tally.count("launches that waited for their own work, concluded from how long they took", start)
            targets = some[(work.call[some] == call) & (work.end_ns[some] == own_end[call])].tolist()
        else:
            queued = np.searchsorted(begins, start) - np.searchsorted(ends, start)
            last = int(by_end[np.searchsorted(ends, end, "right") - 1])
            if queued < _FULL_QUEUE or not soon <= work.end_ns[last] <= end:
                continue
            tally.count("launches that waited for room in a queue, concluded from how long they took", start)
            targets = [last]
        until[call] = max(int(work.end_ns[one]) for one in targets)
        found += [(one, call) for one in targets]
    return _pairs(found)


def _recorded_targets(device: DeviceTrace, launches: _Launches, origin_ns: int) -> dict[int, list[int]]:
    """By correlation of the waiting call: what the timeline says that the host waited for."""
    waits, found = device.waits, dict[int, list[int]]()
    call_at = _moments(device, origin_ns)
    lane_of = _lane_of_stream(device)
    for at, row in enumerate(waits.row.tolist()):
        kind, correlation = device.texts[waits.sort[at]], int(device.correlation[row])
        called = call_at.get(correlation)
        if called is None:
            continue
        number = device.lanes[int(device.lane[row])].device
        if kind == b"Event Sync":
            recorded = call_at.get(int(waits.record_correlation[at]))
            lane = lane_of.get((number, int(waits.stream[at])))
            targets = [NONE] if recorded is None or lane is None else [launches.last_before(lane, recorded)]
        elif kind == b"Stream Sync":
            lane = _stream_of(device, int(device.lane[row]), lane_of)
            targets = [launches.last_before(lane, called)]
        elif kind == b"Context Sync":
            targets = [launches.last_before(lane, called) for lane in launches.by_lane]
        else:
            continue
        found[correlation] = [one for one in targets if one != NONE]
    return found


def _moments(device: DeviceTrace, origin_ns: int) -> dict[int, int]:
    """When the call of a correlation began; only of calls that waits can mean."""
    which = named(device, "record", "stream_wait", "wait_stream", "wait_event", "wait_device")
    rows = np.flatnonzero((device.sort == EventSort.LAUNCH) & np.isin(device.name, which))
    times = (device.ts_ns[rows] - origin_ns).tolist()
    return dict(zip(device.correlation[rows].tolist(), times, strict=True))


def _lane_of_stream(device: DeviceTrace) -> dict[tuple[int, int], int]:
    """By device and stream: the lane that work of the stream is on."""
    return {(lane.device, lane.stream): at for at, lane in enumerate(device.lanes) if lane.stream >= 0}


def _stream_of(device: DeviceTrace, lane: int, lane_of: dict[tuple[int, int], int]) -> int:
    own = device.lanes[lane]
    return lane_of.get((own.device, own.stream), lane)


def _work_of_calls(work: Work) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for at in np.flatnonzero(work.call != NONE).tolist():
        found.setdefault(int(work.call[at]), []).append(at)
    return found


def _pairs(found: list[tuple[int, int]]) -> Pairs:
    pairs = np.array(sorted(set(found)), np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
