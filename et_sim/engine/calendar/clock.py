"""Simulated time: which event happens next.

Time is a sequence of slots; a slot is a first-in-first-out list, and an event scheduled for the current time
joins its end (`schedule_first` is for a network model with a calendar of its own). Events that an actor
schedules for itself go through a bucket per (actor, time): the bucket has the place in the slot where its
*first* entry was registered, and is drained there at once, including entries added meanwhile. This order is
the reference's, and decides ties between same-time events everywhere. Equal entries that follow each other
are one event with a count, unless observers distinguish them.

Decisions that are made once per instant (rates, which message goes first) come at its end: when the slot is
empty, the events of `schedule_at_end` happen one by one, each followed by the events that it puts into the
slot. So no decision has to be repeated within an instant.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import chain, give_row, join, join_after, leave, take_row, unchain, unchain_all
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import OPENS_BUCKET
from et_sim.engine.state.run import NONE, Run

LOWEST_16_BITS = MOST_MORE = (1 << 16) - 1


@works_on_tables
def schedule(run: Run, time: int, kind: int, a: int, b: int, c: int) -> None:
    """Append an event to the slot of `time`."""
    row = new_event(run, kind, a, b, c)
    observe.event_scheduled(run, row, time, kind)
    join(run.events, run.slots[slot_at(run, time)], row)


@works_on_tables
def schedule_at_end(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """Schedule an event after all other events of the present time."""
    clock = run.clock[0]
    row = new_event(run, kind, a, b, c)
    observe.event_scheduled(run, row, clock.now, kind)
    slot_at(run, clock.now)  # the slot may not be open yet before the first slot is taken
    join(run.events, clock, row)


@works_on_tables
def is_last(run: Run) -> bool:
    """Return whether nothing else is left to happen at the present time."""
    clock = run.clock[0]
    return run.slots[clock.slot].head == NONE and clock.head == NONE


@works_on_tables
def schedule_first(run: Run, time: int, kind: int, a: int, b: int, c: int) -> None:
    """Put an event in front of the slot of `time`."""
    row = new_event(run, kind, a, b, c)
    observe.event_scheduled(run, row, time, kind)
    join_after(run.events, run.slots[slot_at(run, time)], NONE, row)


@works_on_tables(forceinline=True)
def slot_at(run: Run, time: int) -> int:
    """Return the slot of `time`; most calls in a row are for the same time, or for two alternating times."""
    slot = run.clock[0].last_slot
    return slot if run.slots[slot].time == time else _other_slot_at(run, time)


@works_on_tables
def _other_slot_at(run: Run, time: int) -> int:
    clock = run.clock[0]
    clock.last_slot, clock.other_slot = clock.other_slot, clock.last_slot
    if run.slots[clock.last_slot].time != time:
        clock.last_slot = _slot_at(run, time)
    return clock.last_slot


@works_on_tables
def schedule_own(run: Run, actor: int, delay: int, kind: int, a: int, b: int, c: int) -> None:
    """Append an entry to the actor's bucket `delay` from now."""
    time = run.clock[0].now + delay
    home = bucket_home(run, actor, time)
    row = run.bucket_index[home]
    while row != NONE and not (run.buckets[row].actor == actor and run.buckets[row].time == time):
        row = run.buckets[row].chain
    if row != NONE and _is_one_more(run, row, kind, a, b, c):
        return
    if row != NONE:
        observe.entry_joins(run, row)
        entry = new_event(run, kind, a, b, c)
        observe.event_scheduled(run, entry, time, kind)
        join(run.events, run.buckets[row], entry)
        return
    row = new_event(run, OPENS_BUCKET + kind, a, b, c)
    observe.event_scheduled(run, row, time, kind)
    _open_bucket(run, row, actor, time, home)
    join(run.events, run.slots[slot_at(run, time)], row)


@works_on_tables(forceinline=True)
def _is_one_more(run: Run, bucket_row: int, kind: int, a: int, b: int, c: int) -> bool:
    """Return whether an entry equals the last one of a bucket, which then counts one more."""
    if observe.is_watched(run) or observe.is_recording(run) or observe.is_ordered(run):
        return False
    last = run.buckets[bucket_row].tail
    if last == NONE:
        if run.clock[0].bucket == bucket_row:  # its first entry has been taken
            return False
        last, kind = bucket_row, kind + OPENS_BUCKET
    event = run.events[last]
    if event.a != a or event.kind != kind or event.b != b or event.c != c or event.more == MOST_MORE:
        return False
    event.more += 1
    return True


@works_on_tables
def take_from_slot(run: Run) -> int:
    """Return the next event of the current slot, or of the events at its end; NONE if there is none."""
    clock = run.clock[0]
    if clock.slot == NONE:
        return NONE
    row = leave(run.events, run.slots[clock.slot])
    return row if row != NONE else leave(run.events, clock)


@works_on_tables
def take_from_bucket(run: Run) -> int:
    """Return the next entry of the bucket being drained; it stays if it counts more than once."""
    row, events = run.clock[0].bucket, run.events
    if events[row].more > 0:
        events[row].more -= 1
        return row
    bucket = run.buckets[row]
    return bucket.head if events[bucket.head].more > 0 else leave(events, bucket)


@works_on_tables
def close_drained_bucket(run: Run) -> None:
    """Close the bucket being drained if no entry is left."""
    clock = run.clock[0]
    if run.buckets[clock.bucket].head == NONE and run.events[clock.bucket].more == 0:
        _close_bucket(run, clock.bucket)
        clock.bucket = NONE


@works_on_tables
def advance(run: Run) -> bool:
    """Leave the current slot for the next one; return False if there is none."""
    clock = run.clock[0]
    if clock.slot != NONE:
        _close_slot(run, clock.slot)
        clock.slot = NONE
    if clock.times == 0:
        return False
    clock.slot = _pop_time(run)
    clock.now = run.slots[clock.slot].time
    return True


@works_on_tables
def stop_before(run: Run, time: int) -> None:
    """Begin an empty slot at an earlier time than that of the slot that has just begun."""
    clock = run.clock[0]
    if clock.now > time:
        _push_time(run, clock.now, clock.slot)
        clock.now = time
        slot_at(run, time)
        clock.slot = _pop_time(run)


@works_on_tables
def sort_times(run: Run) -> None:
    """Sort the heap of times; sorted rows are still a heap."""
    clock = run.clock[0]
    times = clock.times
    while clock.times > 0:
        slot = _pop_time(run)
        run.heap_time[clock.times], run.heap_slot[clock.times] = run.slots[slot].time, slot
    clock.times = times
    for row in range(times // 2):
        other = times - 1 - row
        time, slot = run.heap_time[row], run.heap_slot[row]
        run.heap_time[row], run.heap_slot[row] = run.heap_time[other], run.heap_slot[other]
        run.heap_time[other], run.heap_slot[other] = time, slot


@works_on_tables
def shift_times(run: Run, time: int, last: int) -> None:
    """Shift the present time, and all slots due by `last`, by `time`; `move_bucket` shifts buckets.

    All later slots must still be later afterwards.
    """
    clock = run.clock[0]
    clock.now += time
    _put_off(run, clock.slot, time)
    for at in range(clock.times):
        if run.heap_time[at] <= last:
            run.heap_time[at] += time
            _put_off(run, run.heap_slot[at], time)


@works_on_tables
def _put_off(run: Run, slot_row: int, time: int) -> None:
    slot = run.slots[slot_row]
    unchain(run.slots, run.slot_index, slot_home(run, slot.time), slot_row)
    slot.time += time
    chain(run.slots, run.slot_index, slot_home(run, slot.time), slot_row)


@works_on_tables
def new_event(run: Run, kind: int, a: int, b: int, c: int) -> int:
    """Return an event that is not yet in a slot, a bucket or a queue."""
    row = take_row(run.events, run.clock[0].free_events)
    event = run.events[row]
    event.next, event.kind, event.more = NONE, kind, 0
    event.a = a
    event.b = b
    event.c = c
    observe.event_made(run, row)
    return row


@works_on_tables
def slot_home(run: Run, time: int) -> int:
    """Return the place in the index where the search for a slot begins."""
    return (time ^ (time >> 9) ^ (time >> 19)) & (run.clock[0].slot_places - 1)


@works_on_tables
def _slot_at(run: Run, time: int) -> int:
    """Return the slot of `time`, opened if it does not exist."""
    home = slot_home(run, time)
    row = run.slot_index[home]
    while row != NONE:
        if run.slots[row].time == time:
            return row
        row = run.slots[row].chain
    row = take_row(run.slots, run.clock[0].free_slots)
    slot = run.slots[row]
    slot.time = time
    slot.head = slot.tail = NONE
    chain(run.slots, run.slot_index, home, row)
    _push_time(run, time, row)
    if run.clock[0].times > run.clock[0].slot_places and run.clock[0].slot_places < len(run.slot_index):
        _double_slot_places(run)
    return row


@works_on_tables
def _double_slot_places(run: Run) -> None:
    """Use twice as many places of the index of slots; few places stay in the processor's cache."""
    clock = run.clock[0]
    places = clock.slot_places
    clock.slot_places = 2 * places
    row = unchain_all(run.slots, run.slot_index, places)
    while row != NONE:
        after = run.slots[row].chain
        chain(run.slots, run.slot_index, slot_home(run, run.slots[row].time), row)
        row = after


@works_on_tables
def _close_slot(run: Run, row: int) -> None:
    slot = run.slots[row]
    unchain(run.slots, run.slot_index, slot_home(run, slot.time), row)
    slot.time = NONE
    give_row(run.slots, run.clock[0].free_slots, row)


@works_on_tables
def bucket_home(run: Run, actor: int, time: int) -> int:
    """Return the place in the index where the search for a bucket begins; actors in step are neighbours."""
    mixed = (time ^ (time >> 9) ^ (time >> 19)) & LOWEST_16_BITS
    return (mixed * 40503 + actor) & (run.clock[0].bucket_places - 1)


@works_on_tables
def _open_bucket(run: Run, row: int, actor: int, time: int, home: int) -> None:
    bucket = run.buckets[row]
    bucket.time = time
    bucket.actor = actor
    bucket.head = bucket.tail = NONE
    chain(run.buckets, run.bucket_index, home, row)
    clock = run.clock[0]
    clock.open_buckets += 1
    if clock.open_buckets > clock.bucket_places and clock.bucket_places < len(run.bucket_index):
        _double_bucket_places(run)


@works_on_tables
def _double_bucket_places(run: Run) -> None:
    """Use twice as many places of the index of buckets, as of slots."""
    clock = run.clock[0]
    places = clock.bucket_places
    clock.bucket_places = 2 * places
    row = unchain_all(run.buckets, run.bucket_index, places)
    while row != NONE:
        bucket = run.buckets[row]
        after = bucket.chain
        chain(run.buckets, run.bucket_index, bucket_home(run, bucket.actor, bucket.time), row)
        row = after


@works_on_tables
def _close_bucket(run: Run, row: int) -> None:
    bucket = run.buckets[row]
    unchain(run.buckets, run.bucket_index, bucket_home(run, bucket.actor, bucket.time), row)
    run.clock[0].open_buckets -= 1
    give_row(run.events, run.clock[0].free_events, row)


@works_on_tables
def move_bucket(run: Run, row: int, actor: int, time: int) -> None:
    """Give a bucket to an actor, and shift its time by `time`."""
    bucket = run.buckets[row]
    unchain(run.buckets, run.bucket_index, bucket_home(run, bucket.actor, bucket.time), row)
    bucket.actor = actor
    bucket.time += time
    chain(run.buckets, run.bucket_index, bucket_home(run, actor, bucket.time), row)


@works_on_tables
def _push_time(run: Run, time: int, slot: int) -> None:
    clock = run.clock[0]
    clock.times += 1
    _rise(run, clock.times - 1, time, slot)


@works_on_tables(forceinline=True)
def _rise(run: Run, at: int, time: int, slot: int) -> None:
    """Put a time in an empty place of the heap, or above it."""
    while at > 0:
        above = (at - 1) >> 2
        if run.heap_time[above] <= time:
            break
        run.heap_time[at] = run.heap_time[above]
        run.heap_slot[at] = run.heap_slot[above]
        at = above
    run.heap_time[at] = time
    run.heap_slot[at] = slot


@works_on_tables
def _pop_time(run: Run) -> int:
    """Return the slot of the first time, which leaves the heap.

    Each time has up to four below. These are moved up first, down to a leaf, from where the last one rises:
    it seldom does. So each step down only compares the four, without a branch.
    """
    clock = run.clock[0]
    first = run.heap_slot[0]
    clock.times -= 1
    last = clock.times
    at, child, times = 0, 1, run.heap_time
    while child + 3 < last:
        least = child + int(times[child + 1] < times[child])
        other = child + 2 + int(times[child + 3] < times[child + 2])
        least += (other - least) * int(times[other] < times[least])
        times[at], run.heap_slot[at] = times[least], run.heap_slot[least]
        at, child = least, 4 * least + 1
    if child < last:
        least = child
        for other in range(child + 1, last):
            if times[other] < times[least]:
                least = other
        times[at], run.heap_slot[at] = times[least], run.heap_slot[least]
        at = least
    _rise(run, at, run.heap_time[last], run.heap_slot[last])
    return first
