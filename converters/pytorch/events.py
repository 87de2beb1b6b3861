"""Targets of waits for events, inferred if only the calls are recorded.

Calls are visited in the order of time. The event stands for the last work of a stream when it was recorded:

* the first record of a thread after a launch is on the stream of that launch (the end of a collective, the
  gradients before one); a further one is on the stream that the thread used before (the next collective's);
* a wait right after the record of an event, in the same call, is for this event;
* any other wait is for the oldest event of another stream without a wait so far, because collectives are
  awaited in the order of their start. If the waiting work began right after the work of one of the events,
  and nothing else explains its start, the wait is for that event.

The stream that waits is the one that the thread uses next, or else used last. A wait is not for an event for
which it would have lasted longer than it did. The recording determines the limit of "right after"
(`late_work`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import Struct, field
from sortedcontainers import SortedKeyList

from converters.pytorch.calls import Calls, DeviceWork, Flags, Recording, named
from converters.pytorch.columns import NONE, DeviceTrace, EventKind
from converters.pytorch.graph import Column
from converters.pytorch.latencies import before_on_stream
from et_sim.basics.unique import unique

RETURN_NS = 10_000  # from the end of work to the return of a call that waited for it
_MOST_KEPT = 256  # events without a waiting stream
_LAUNCH, _RECORD, _WAIT, _HOST_WAIT, _STREAM = range(5)


class Launches(Struct):
    """Work in the order of launching, over all streams and for each."""

    work: DeviceWork
    launched_ns: Column  # by work; negative: before the recording, in the order of beginning
    on_device: Flags  # by work; the others are workers of the host
    is_early: Flags  # by work: launched before the recording
    by_lane: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)  # times, work

    def __post_init__(self) -> None:
        order = np.lexsort((np.arange(len(self.work)), self.launched_ns))
        for lane in unique(self.work.lane[self.on_device]).tolist():
            rows = order[self.work.lane[order] == lane]
            self.by_lane[lane] = self.launched_ns[rows].tolist(), rows.tolist()

    @classmethod
    def of(cls, device: DeviceTrace, work: DeviceWork) -> Launches:
        """Return the launches of a recording.

        Work without a launch that began before all launched work of its stream was launched before the
        recording; other work without a launch counts as launched when it began.
        """
        on_device = device.kind[work.row] != EventKind.ANNOTATION
        known = work.launch != NONE
        of_lane = np.flatnonzero(np.diff(work.lane, prepend=NONE))  # the first of each
        so_far = np.cumsum(known)
        before_lane = np.repeat((so_far - known)[of_lane], np.diff(of_lane, append=len(work)))
        is_early = on_device & (so_far == before_lane) & bool((known & on_device).any())
        launched = np.where(known, device.ts_ns[np.maximum(work.launch, 0)], work.start_ns)
        launched[is_early] -= int(work.start_ns.max(initial=0)) + 1
        return cls(work, launched, on_device, is_early)

    def last_before(self, lane: int, moment: int) -> int:
        """Return the last work of a stream launched before a moment, or NONE."""
        times, rows = self.by_lane.get(lane, ([], []))
        at = bisect_left(times, moment)
        return rows[at - 1] if at else NONE

    def first_after(self, lane: int, moment: int) -> int:
        """Return the first work of a stream launched at a moment or later, or NONE."""
        times, rows = self.by_lane.get(lane, ([], []))
        at = bisect_left(times, moment)
        return rows[at] if at < len(rows) else NONE

    def last_time(self, lane: int, moment: int) -> int:
        """Return the launch time of the last work of a stream before a moment."""
        times, _ = self.by_lane.get(lane, ([], []))
        at = bisect_left(times, moment)
        return times[at - 1] if at else NONE

    def last_ended(self, lane: int, moment: int, ended_by: int) -> int:
        """Return the last work of a stream launched before a moment, if it has ended by another; or NONE."""
        last = self.last_before(lane, moment)
        return last if last != NONE and self.work.end_ns[last] <= ended_by else NONE


class Pending(Struct):
    """The waits of streams from calls, in the order of calls: moments and work."""

    by_lane: dict[int, SortedKeyList] = field(
        default_factory=lambda: defaultdict(partial(SortedKeyList, key=itemgetter(0)))
    )

    def add(self, lane: int, moment: int, work: int) -> None:
        """Add a wait of a stream for work, from a moment on."""
        self.by_lane[lane].add((moment, work))

    def between(self, lane: int, first: int, last: int) -> list[int]:
        """Return the work that calls between two moments made a stream wait for."""
        return [work for _, work in self.by_lane[lane].irange_key(first, last, inclusive=(False, False))]


class Concluded(Struct, frozen=True):
    """The conclusions from the order of calls."""

    awaited: list[tuple[int, int]]  # work, and work of another stream that waits for it
    of_host: dict[int, int]  # by row of a call of the host: the work before the awaited event
    stream_of: dict[int, int]  # by row of a wait for a stream: the last stream of the thread
    pending: Pending


class _Thread(Struct):
    """The state of a thread while its calls are visited."""

    lane: int = NONE  # stream of its last launch
    other: int = NONE  # stream used before
    records: int = 0  # since its last launch
    fresh: _Event | None = None  # recorded by its last call


class _Event(Struct):
    lane: int  # stream
    work: int  # the last on it
    within: int  # call in which it was recorded


def conclude(given: Recording, launches: Launches, host_waits: dict[int, int], reach_ns: int) -> Concluded:
    """Infer the targets of waits from all calls, in order.

    `host_waits` maps rows of calls of the host that wait for events to the last time before these happened;
    `reach_ns` is the longest time from the end of awaited work to the start of its successor.
    """
    return _Search(given, launches, host_waits, reach_ns).result()


class _Search:
    def __init__(
        self, given: Recording, launches: Launches, host_waits: dict[int, int], reach_ns: int
    ) -> None:
        self._device, self._launches, self._work = given.device, launches, launches.work
        self._calls = given.calls
        self._reach = reach_ns
        self._held = before_on_stream(launches.work)
        self._threads: dict[int, _Thread] = {}
        self._events: list[_Event] = []
        self._awaited: list[tuple[int, int]] = []
        self._of_host: dict[int, int] = {}
        self._stream_of: dict[int, int] = {}
        self._pending = Pending()
        self._next: dict[int, tuple[list[int], list[int]]] = {}  # by thread: times and streams of launches
        self._not_yet = host_waits
        self._items = self._in_order(np.array(list(host_waits), np.int64))
        self._has_records = any(item[0] == _RECORD for item in self._items)

    def result(self) -> Concluded:
        for kind, row, thread, moment, argument, within in self._items:
            known = self._threads.setdefault(thread, _Thread())
            if kind == _LAUNCH:
                if known.lane != argument:
                    known.lane, known.other = argument, known.lane
                known.records, known.fresh = 0, None
            elif kind == _RECORD:
                known.records += 1
                known.fresh = self._record(known, moment, within)
            elif kind == _STREAM:
                self._stream_of[row] = known.lane
            else:
                fresh = known.fresh if known.fresh is not None and known.fresh.within == within else None
                if kind == _WAIT:
                    self._stream_waits(known, thread, moment, fresh)
                else:
                    self._host_waits(row, moment, argument, fresh)
        return Concluded(self._awaited, self._of_host, self._stream_of, self._pending)

    def _in_order(self, host_waits: Column) -> list[tuple[int, int, int, int, int, int]]:
        """Return kind, row, thread, time, stream (or end) and innermost enclosing call of all
        relevant calls.
        """
        device, work = self._device, self._work
        launched = np.flatnonzero(self._launches.on_device & (work.launch != NONE))
        _, first = np.unique(work.launch[launched], return_index=True)
        launched = launched[first]
        is_call = device.kind == EventKind.LAUNCH
        records = np.flatnonzero(is_call & np.isin(device.name, named(device, "record")))
        waits = np.flatnonzero(is_call & np.isin(device.name, named(device, "stream_wait")))
        streams = np.flatnonzero(is_call & np.isin(device.name, named(device, "wait_stream")))
        groups = work.launch[launched], records, waits, host_waits, streams
        rows = np.concatenate(groups)
        kind = np.repeat(
            (_LAUNCH, _RECORD, _WAIT, _HOST_WAIT, _STREAM), [len(rows_of_kind) for rows_of_kind in groups]
        )
        times = device.ts_ns[rows]
        argument = np.where(kind == _HOST_WAIT, times + device.dur_ns[rows], NONE)
        argument[: len(launched)] = work.lane[launched]
        within = _innermost(self._calls, device.lane[rows], times)
        order = np.lexsort((rows, times))
        columns = (kind, rows, device.lane[rows], times, argument, within)
        items = list(zip(*(column[order].tolist() for column in columns), strict=True))
        for kind_of_call, _, thread, moment, lane, _ in items:
            if kind_of_call == _LAUNCH:
                ahead = self._next.setdefault(thread, ([], []))
                ahead[0].append(moment)
                ahead[1].append(lane)
        return items

    def _record(self, known: _Thread, moment: int, within: int) -> _Event | None:
        lane = known.lane if known.records == 1 or known.other == NONE else known.other
        last = self._launches.last_before(lane, moment)
        if last == NONE:
            return None
        event = _Event(lane, last, within)
        self._events.append(event)
        del self._events[:-_MOST_KEPT]
        return event

    def _stream_waits(self, known: _Thread, thread: int, moment: int, fresh: _Event | None) -> None:
        times, lanes = self._next.get(thread, ([], []))
        at = bisect_left(times, moment)
        wanted = [*lanes[at : at + 1], known.lane, known.other]
        if fresh is not None:
            for lane in wanted:
                if lane not in (NONE, fresh.lane) and self._take(fresh, lane, moment):
                    return
        for lane in wanted:
            if lane != NONE and self._oldest(lane, moment):
                return
        if not self._has_records and at < len(lanes):
            self._last(known.lane, lanes[at], moment)

    def _last(self, used: int, lane: int, moment: int) -> None:
        """Add a wait without an event record: for the last work of the thread's former stream, or else the
        last ended work of any other.
        """
        launches = self._launches
        follows = launches.first_after(lane, moment)
        start = int(self._work.start_ns[follows])
        others = (
            [used] if used not in (NONE, lane) else [other for other in launches.by_lane if other != lane]
        )
        ended = [launches.last_ended(other, moment, start) for other in others]
        ended = [work for work in ended if work != NONE]
        if ended:
            self._awaited.append((max(ended, key=lambda work: int(self._work.end_ns[work])), follows))

    def _take(self, event: _Event, lane: int, moment: int) -> bool:
        """Let the next work of a stream wait for an event, if the times permit it."""
        follows = self._launches.first_after(lane, moment)
        if follows != NONE:
            if self._work.end_ns[event.work] > self._work.start_ns[follows]:
                return False
            self._awaited.append((event.work, follows))
        self._pending.add(lane, moment, event.work)
        self._consume(event)
        return True

    def _oldest(self, lane: int, moment: int) -> bool:
        follows = self._launches.first_after(lane, moment)
        if follows == NONE:
            return False
        start, end = int(self._work.start_ns[follows]), self._work.end_ns
        fitting = [event for event in self._events if event.lane != lane and end[event.work] <= start]
        known = max(int(self._held[follows]), int(self._launches.launched_ns[follows]))
        tight = [event for event in fitting if end[event.work] >= max(start - self._reach, known)]
        if not fitting:
            return False
        return self._take(
            max(tight, key=lambda event: int(end[event.work])) if tight else fitting[0], lane, moment
        )

    def _host_waits(self, row: int, moment: int, returned: int, fresh: _Event | None) -> None:
        end = self._work.end_ns
        fitting = [event for event in self._events if self._not_yet[row] < end[event.work] <= returned]
        tight = [event for event in fitting if end[event.work] > max(moment, returned - 2 * RETURN_NS)]
        chosen = fresh if fresh in fitting else None
        if chosen is None and tight:
            chosen = max(tight, key=lambda event: int(end[event.work]))
        if chosen is not None:
            self._of_host[row] = chosen.work
            self._consume(chosen)

    def _consume(self, event: _Event) -> None:
        """Remove an event and all earlier ones of its stream."""
        place = next((at for at, other in enumerate(self._events) if other is event), NONE)
        self._events = [
            other
            for at, other in enumerate(self._events)
            if other.lane != event.lane or (at > place and other.work != event.work)
        ]


def _innermost(calls: Calls, lane: Column, moment: Column) -> Column:
    """Return the operator or annotation that is open on a thread at a moment, or NONE."""
    innermost = np.full(len(moment), NONE, np.int64)
    is_open = calls.is_operator | calls.is_annotation
    rows = np.flatnonzero(is_open)
    for thread in unique(lane).tolist():
        of_thread, wanted = rows[calls.lane[rows] == thread], np.flatnonzero(lane == thread)
        if not len(of_thread):
            continue
        at = np.searchsorted(calls.start_ns[of_thread], moment[wanted], "right") - 1
        at_call: Any = np.where(at >= 0, of_thread[np.maximum(at, 0)], NONE)
        while True:
            over = (at_call != NONE) & (calls.end_ns[at_call] <= moment[wanted])
            if not over.any():
                break
            at_call = np.where(over, calls.parent[at_call], at_call)
        innermost[wanted] = at_call
    return innermost
