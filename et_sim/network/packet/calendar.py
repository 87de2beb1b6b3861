"""The calendar of the packet model: the first event of each port and timer, and which of all comes first.

Events of ports that are soon ahead are in buckets by time, in any order. A bucket is opened when its time has
come: its events then are in a heap, which stays so small that it is in the cache. So an event takes few lines
of the cache, however many ports have one. As long as few ports have events, all are in the heap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.containers import NONE, Heap, first_of, heap_for, put, take_out
from et_sim.plan.records import record, table

IN_BUCKET = -2  # the place of an event that is not in the heap
LEAST_HEAP = 64  # events in the heap before buckets are used
PORTS_PER_BUCKET, LEAST_BUCKETS = 8, 64

NEAR = record(("key", "i8"), ("tie", "i8"), ("next", "i4"), ("before", "i4"))
TURN = record(
    ("first", "i8"),  # the first bucket that is not open; buckets are numbered from time 0
    ("count", "i8"),  # of events in buckets
    ("shift", "i8"),  # a bucket has 2^shift picoseconds
    ("least_heap", "i8"),
)


class Calendar(Tables, Struct, frozen=True):
    """Sources of events, ports and then timers, by the time and order of the next event of each."""

    ports: Heap  # those whose event is not in a bucket
    timers: Heap
    near: Any  # by port: its event in a bucket
    buckets: Any  # the first port in each
    turn: Any  # one row


def new_calendar(ports: int, reach_ps: int) -> Calendar:
    """Return an empty calendar, whose buckets reach at least so far ahead."""
    count = 1 << (max(ports // PORTS_PER_BUCKET, LEAST_BUCKETS) - 1).bit_length()
    turn = table(TURN, 1)
    turn["shift"] = (2 * reach_ps // count).bit_length()
    turn["least_heap"] = LEAST_HEAP
    buckets = np.full(count, NONE, np.int32)
    return Calendar(heap_for(ports, key="i8"), heap_for(0, key="i8"), table(NEAR, ports), buckets, turn)


def with_timers(calendar: Calendar, timers: int) -> Calendar:
    """Return the calendar with space for so many timers."""
    larger = heap_for(timers, calendar.timers)
    return Calendar(calendar.ports, larger, calendar.near, calendar.buckets, calendar.turn)


@works_on_tables
def is_planned(calendar: Calendar, source: int) -> bool:
    """Return whether a source has an event."""
    ports = len(calendar.near)
    if source < ports:
        return bool(calendar.ports.place[source] != NONE)
    return bool(calendar.timers.place[source - ports] != NONE)


@works_on_tables
def planned(calendar: Calendar) -> int:
    """Return the number of sources with an event."""
    return int(calendar.ports.size[0] + calendar.timers.size[0] + calendar.turn[0].count)


@works_on_tables
def set_event(calendar: Calendar, source: int, key: int, tie: int, now: int) -> None:
    """Set the next event of a source; no event is before `now`."""
    heap, turn, ports = calendar.ports, calendar.turn[0], len(calendar.near)
    if source >= ports:
        put(calendar.timers, source - ports, key, tie)
        return
    if heap.place[source] == IN_BUCKET:
        _leave_bucket(calendar, source)
        heap.place[source] = NONE
    if turn.count == 0:
        turn.first = (now >> turn.shift) + 1
    ahead = (key >> turn.shift) - turn.first
    if ahead < 0 or ahead >= len(calendar.buckets) or heap.size[0] < turn.least_heap:
        put(heap, source, key, tie)
        return
    take_out(heap, source)
    heap.place[source] = IN_BUCKET
    _join_bucket(calendar, source, key, tie)


@works_on_tables
def drop(calendar: Calendar, source: int) -> None:
    """Remove the event of a source, if it has one."""
    ports = len(calendar.near)
    if source >= ports:
        take_out(calendar.timers, source - ports)
    elif calendar.ports.place[source] == IN_BUCKET:
        _leave_bucket(calendar, source)
        calendar.ports.place[source] = NONE
    else:
        take_out(calendar.ports, source)


@works_on_tables
def first_source(calendar: Calendar) -> int:
    """Return the source of the first event, of which there must be one."""
    heap, timers, turn = calendar.ports, calendar.timers, calendar.turn[0]
    while turn.count > 0 and (heap.size[0] == 0 or heap.entries[0].key >> turn.shift >= turn.first):
        _open_bucket(calendar)
    if heap.size[0] == 0:
        return len(calendar.near) + first_of(timers)
    if timers.size[0] > 0 and _precedes(timers.entries[0], heap.entries[0]):
        return len(calendar.near) + first_of(timers)
    return int(heap.entries[0].row)


@works_on_tables
def time_of(calendar: Calendar, source: int) -> int:
    """Return the time of the event of a timer, or of a port whose event is the first."""
    ports = len(calendar.near)
    if source < ports:
        return int(calendar.ports.entries[0].key)
    return int(calendar.timers.entries[calendar.timers.place[source - ports]].key)


@works_on_tables
def order_of(calendar: Calendar, source: int) -> int:
    """Return the order of the event of a timer, or of a port whose event is the first."""
    ports = len(calendar.near)
    if source < ports:
        return int(calendar.ports.entries[0].tie)
    return int(calendar.timers.entries[calendar.timers.place[source - ports]].tie)


@works_on_tables
def delay_all(calendar: Calendar, time: int, events: int) -> None:
    """Delay all events by a time and a number of events."""
    while calendar.turn[0].count > 0:
        _open_bucket(calendar)
    for heap in (calendar.ports, calendar.timers):
        for at in range(heap.size[0]):
            heap.entries[at].key += time
            heap.entries[at].tie += events


@works_on_tables
def _open_bucket(calendar: Calendar) -> None:
    """Move the events of the next bucket to the heap."""
    turn, near = calendar.turn[0], calendar.near
    at = turn.first & (len(calendar.buckets) - 1)
    source = calendar.buckets[at]
    calendar.buckets[at] = NONE
    turn.first += 1
    while source != NONE:
        calendar.ports.place[source] = NONE
        put(calendar.ports, source, near[source].key, near[source].tie)
        turn.count -= 1
        source = near[source].next


@works_on_tables
def _join_bucket(calendar: Calendar, source: int, key: int, tie: int) -> None:
    """Put an event in its bucket."""
    turn, entry = calendar.turn[0], calendar.near[source]
    at = (key >> turn.shift) & (len(calendar.buckets) - 1)
    after = calendar.buckets[at]
    entry.key, entry.tie, entry.before, entry.next = key, tie, NONE, after
    if after != NONE:
        calendar.near[after].before = source
    calendar.buckets[at] = source
    turn.count += 1


@works_on_tables
def _leave_bucket(calendar: Calendar, source: int) -> None:
    """Take an event out of its bucket."""
    turn, near = calendar.turn[0], calendar.near
    entry = near[source]
    if entry.before != NONE:
        near[entry.before].next = entry.next
    else:
        calendar.buckets[(entry.key >> turn.shift) & (len(calendar.buckets) - 1)] = entry.next
    if entry.next != NONE:
        near[entry.next].before = entry.before
    turn.count -= 1


@works_on_tables(forceinline=True)
def _precedes(entry: Any, other: Any) -> bool:
    return (entry.key < other.key) | ((entry.key == other.key) & (entry.tie < other.tie))
