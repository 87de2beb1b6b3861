"""Recorded and inferred waits: of streams for events of other streams, and of the host for devices.

Newer timelines record a synchronisation with its event and stream. Older ones have only the calls, whose
targets are inferred (`events`); so are the causes of work that began late for no recorded reason
(`late_work`).

A wait of the host for an unnamed stream is for the last work that had ended when the call returned. A long
launch may have waited, too, and is judged by the work that had ended just before it returned. Recorded and
inferred waits are counted.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import WAITING, Calls, DeviceWork, Recording, named
from converters.pytorch.columns import NONE, DeviceTrace, EventKind
from converters.pytorch.events import RETURN_NS, Concluded, Launches, Pending, conclude
from converters.pytorch.graph import Column, EventTally
from converters.pytorch.late_work import find_late_work
from converters.pytorch.latencies import Latencies, Pairs, before_on_stream, find_latencies

_LONG_LAUNCH_NS = 50_000
_PAGEABLE = "Pageable"  # in names of copies
_FULL_QUEUE = 64  # pieces of work under way; queues of devices hold some hundred


class RecordedWaits(Struct, frozen=True, eq=False):
    """The recorded and inferred waits."""

    awaited: Pairs  # work, and its successor
    host_after: Pairs  # work, and the call that returned after it
    until_ns: Column  # by call: the end of the awaited work, or NONE
    latencies: Latencies


def find_waits(given: Recording, tally: EventTally) -> RecordedWaits:
    """Return all waits of the timeline."""
    device, calls, work = given.device, given.calls, given.work
    launches = Launches.of(device, work)
    pending = Pending()
    recorded = _recorded(device, launches, pending, tally)
    not_yet = _waits_for_events(device, calls)
    arrival = find_latencies(given, _pairs(recorded)).arrival_ns
    reach = find_late_work(launches, arrival, recorded).reach()
    concluded = conclude(given, launches, not_yet, reach.ns)
    if not recorded:
        recorded, pending = concluded.awaited, concluded.pending
        remark = "waits of streams for events, concluded from the order of calls"
        tally.count(remark, len(recorded))
    arrival = find_latencies(given, _pairs(recorded)).arrival_ns
    is_wait = (device.kind == EventKind.LAUNCH) & np.isin(device.name, named(device, "stream_wait"))
    late = find_late_work(launches, arrival, recorded).causes(reach.ns, np.sort(device.ts_ns[is_wait]))
    tally.count("waits of streams, concluded from when work began", len(late), example=str(reach))
    awaited = _pairs(recorded + late)
    until, host_after = _host_waits(device, calls, launches, concluded, pending, not_yet, tally)
    held = _held_launches(device, calls, launches, until, tally)
    both = tuple(np.concatenate(side) for side in zip(host_after, held, strict=True))
    return RecordedWaits(awaited, (both[0], both[1]), until, find_latencies(given, awaited))


def _waits_for_events(device: DeviceTrace, calls: Calls) -> dict[int, int]:
    """Return the rows of calls that wait for an event, and when it had not yet happened: for repeated
    queries, at the last but one.
    """
    waits = calls.row[np.isin(device.name[calls.row], named(device, "wait_event"))]
    records = dict.fromkeys(waits.tolist(), NONE)
    queries = np.flatnonzero((device.kind == EventKind.LAUNCH) & np.isin(device.name, named(device, "query")))
    queries = queries[np.lexsort((device.ts_ns[queries], device.lane[queries]))]
    is_call = np.isin(queries, calls.row)
    for before, row in zip(
        queries[:-1][is_call[1:]].tolist(), queries[1:][is_call[1:]].tolist(), strict=True
    ):
        records[row] = int(device.ts_ns[before])
    return records


def _recorded(
    device: DeviceTrace, launches: Launches, pending: Pending, tally: EventTally
) -> list[tuple[int, int]]:
    """Return the waits of streams that the timeline describes."""
    waits, texts = device.waits, device.texts
    call_at = _moments(device)
    lane_of = _lane_of_stream(device)
    pairs: list[tuple[int, int]] = []
    for at, row in enumerate(waits.row.tolist()):
        if texts[waits.kind[at]] != b"Stream Wait Event":
            continue
        lane = int(device.lane[row])
        recorded = call_at.get(int(waits.record_correlation[at]))
        called_at = call_at.get(int(device.correlation[row]))
        source = lane_of.get((device.lanes[lane].device, int(waits.stream[at])))
        if recorded is None or called_at is None or source is None:
            tally.count("waits of streams for events recorded before the recording")
            continue
        pair = (
            launches.last_before(source, recorded),
            launches.first_after(_stream_of(device, lane, lane_of), called_at),
        )
        tally.count("waits of streams for events, as recorded")
        if pair[0] != NONE and source != lane:
            pending.add(_stream_of(device, lane, lane_of), called_at, pair[0])
        if NONE not in pair and source != lane:
            pairs.append(pair)
    return pairs


def _host_waits(
    device: DeviceTrace,
    calls: Calls,
    launches: Launches,
    concluded: Concluded,
    pending: Pending,
    not_yet: dict[int, int],
    tally: EventTally,
) -> tuple[Column, Pairs]:
    """Return the end of the awaited work by call, and pairs of work and the call that returned after it."""
    until = np.full(len(calls), NONE, np.int64)
    pairs: list[tuple[int, int]] = []
    names = {which: set(named(device, which).tolist()) for which in ("wait_device", "wait_own", "query")}
    waiting = set(named(device, *WAITING, "query").tolist())
    recorded = _recorded_targets(device, launches, pending)
    is_call = ~(calls.is_operator | calls.is_annotation)
    launched_by = _work_of_calls(launches.work)
    for call in np.flatnonzero(is_call & np.isin(device.name[calls.row], sorted(waiting))).tolist():
        row = int(calls.row[call])
        name = int(device.name[row])
        start, end = int(calls.start_ns[call]), int(calls.end_ns[call])
        known = recorded.get(int(device.correlation[row]))
        if known is not None:
            targets = known
            tally.count("waits of the host, as recorded")
        elif name in names["wait_own"]:
            targets = launched_by.get(call, [])
        elif row in concluded.of_host:
            targets = [concluded.of_host[row]]
            tally.count("waits of the host, concluded from the order of calls")
        else:
            targets = [launches.last_ended(lane, start, end) for lane in launches.by_lane]
            targets = [
                target
                for target in targets
                if target != NONE and launches.work.end_ns[target] > not_yet.get(row, NONE)
            ]
            if name not in names["wait_device"] and targets:
                targets = [_likeliest(launches, targets, start, concluded.stream_of.get(row, NONE))]
            if row in concluded.stream_of:
                lane = int(launches.work.lane[targets[0]]) if targets else concluded.stream_of[row]
                targets += pending.between(lane, launches.last_time(lane, start), start)
            if targets or name not in names["query"]:
                tally.count("waits of the host, concluded from the order of calls")
        targets = [target for target in targets if launches.work.end_ns[target] <= end]
        if targets:
            until[call] = max(int(launches.work.end_ns[target]) for target in targets)
            pairs += [(target, call) for target in targets]
    return until, _pairs(pairs)


def _likeliest(launches: Launches, targets: list[int], start: int, lane: int) -> int:
    """Return the likeliest target of a wait for a stream: the last work to end, if it ended within the wait;
    else the last work of the thread's own stream.
    """
    ends, lanes = launches.work.end_ns, launches.work.lane
    last = max(targets, key=lambda target: int(ends[target]))
    of_lane = [target for target in targets if lanes[target] == lane]
    return of_lane[0] if of_lane and ends[last] <= start else last


def _held_launches(
    device: DeviceTrace, calls: Calls, launches: Launches, until: Column, tally: EventTally
) -> Pairs:
    """Return long launches that returned soon after work had ended, with that work, and add to `until`.

    The work is the launched work itself (a copy from memory that is not pinned, of any duration), or work
    whose end made room in a full queue.
    """
    work = launches.work
    own_end = np.full(len(calls), NONE, np.int64)
    launched = np.flatnonzero((work.call != NONE) & launches.on_device)
    np.maximum.at(own_end, work.call[launched], work.end_ns[launched])
    own_start = np.full(len(calls), np.iinfo(np.int64).max)
    np.minimum.at(own_start, work.call[launched], work.start_ns[launched])
    before = np.full(len(calls), NONE, np.int64)
    np.maximum.at(before, work.call[launched], before_on_stream(work)[launched])
    launching = np.flatnonzero((own_end != NONE) & (until == NONE))
    pageable = np.array([_PAGEABLE in name for name in device.names], np.bool_)
    copies = np.zeros(len(calls), np.bool_)
    copies[work.call[launched[pageable[device.name[work.row[launched]]]]]] = True
    is_long = (calls.end_ns - calls.start_ns)[launching] >= _LONG_LAUNCH_NS
    launching = launching[is_long | copies[launching]]
    by_end = launched[np.argsort(work.end_ns[launched], kind="stable")]
    ends, begins = work.end_ns[by_end], np.sort(launches.launched_ns[launched])
    pairs: list[tuple[int, int]] = []
    for call in launching.tolist():
        start, end = int(calls.start_ns[call]), int(calls.end_ns[call])
        soon = end - max((end - start) // 5, RETURN_NS * int(copies[call]))
        # a kernel that began late although nothing delayed it did not delay the call
        of_device = copies[call] or own_end[call] - max(start, int(own_start[call])) >= (end - start) // 2
        if soon <= own_end[call] <= end and (of_device or before[call] > start):
            tally.count("launches that waited for their own work, concluded from how long they took")
            targets = launched[
                (work.call[launched] == call) & (work.end_ns[launched] == own_end[call])
            ].tolist()
        else:
            queued = np.searchsorted(begins, start) - np.searchsorted(ends, start)
            last = int(by_end[np.searchsorted(ends, end, "right") - 1])
            if queued < _FULL_QUEUE or not soon <= work.end_ns[last] <= end:
                continue
            tally.count("launches that waited for room in a queue, concluded from how long they took")
            targets = [last]
        until[call] = max(int(work.end_ns[target]) for target in targets)
        pairs += [(target, call) for target in targets]
    return _pairs(pairs)


def _recorded_targets(device: DeviceTrace, launches: Launches, pending: Pending) -> dict[int, list[int]]:
    """Return the recorded targets of waits of the host, by correlation of the waiting call."""
    waits, targets_of = device.waits, dict[int, list[int]]()
    call_at = _moments(device)
    lane_of = _lane_of_stream(device)
    for at, row in enumerate(waits.row.tolist()):
        kind, correlation = device.texts[waits.kind[at]], int(device.correlation[row])
        called_at = call_at.get(correlation)
        if called_at is None:
            continue
        number = device.lanes[int(device.lane[row])].device
        if kind == b"Event Sync":
            recorded = call_at.get(int(waits.record_correlation[at]))
            lane = lane_of.get((number, int(waits.stream[at])))
            targets = [NONE] if recorded is None or lane is None else [launches.last_before(lane, recorded)]
        elif kind == b"Stream Sync":
            lane = _stream_of(device, int(device.lane[row]), lane_of)
            targets = [launches.last_before(lane, called_at)]
            targets += pending.between(lane, launches.last_time(lane, called_at), called_at)
        elif kind == b"Context Sync":
            targets = [launches.last_before(lane, called_at) for lane in launches.by_lane]
        else:
            continue
        targets_of[correlation] = [target for target in targets if target != NONE]
    return targets_of


def _moments(device: DeviceTrace) -> dict[int, int]:
    """Return the start of each call by correlation, for calls that waits can refer to."""
    which = named(device, "record", "stream_wait", "wait_stream", "wait_event", "wait_device")
    rows = np.flatnonzero((device.kind == EventKind.LAUNCH) & np.isin(device.name, which))
    times = device.ts_ns[rows].tolist()
    return dict(zip(device.correlation[rows].tolist(), times, strict=True))


def _lane_of_stream(device: DeviceTrace) -> dict[tuple[int, int], int]:
    """Return the lane of the work of each stream, by device and stream."""
    return {(lane.device, lane.stream): at for at, lane in enumerate(device.lanes) if lane.stream >= 0}


def _stream_of(device: DeviceTrace, lane: int, lane_of: dict[tuple[int, int], int]) -> int:
    lane_meant = device.lanes[lane]
    return lane_of.get((lane_meant.device, lane_meant.stream), lane)


def _work_of_calls(work: DeviceWork) -> dict[int, list[int]]:
    work_of: dict[int, list[int]] = {}
    for at in np.flatnonzero(work.call != NONE).tolist():
        work_of.setdefault(int(work.call[at]), []).append(at)
    return work_of


def _pairs(listed: list[tuple[int, int]]) -> Pairs:
    pairs = np.array(sorted(set(listed)), np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
