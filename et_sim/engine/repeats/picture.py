"""A picture of the state that determines the next events, relative to the present, and its comparison.

The state consists of the calendar, the queues with the chunks that run, and early messages. Other events of
the calendar are not in the picture: they end the periods.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import sort_times
from et_sim.engine.collectives.matching import chunk_of, is_in_phase
from et_sim.engine.collectives.unexpected import find_unexpected
from et_sim.engine.repeats.advance import advance_of, follows, limit_by_collectives
from et_sim.engine.repeats.alike import all_turn, image_of, turns_or_stays
from et_sim.engine.repeats.description import not_described, put
from et_sim.engine.repeats.queues import describe_queues, limit_by_queues
from et_sim.engine.repeats.turns import turn
from et_sim.engine.state import kinds
from et_sim.engine.state.records import NO_PHASE, PHASE_KEY_BITS
from et_sim.engine.state.run import LATEST, NEVER, NONE, Run

KIND_BITS, MORE_BITS = 8, 16  # of an entry about an event
ENTRIES_OF_UNEXPECTED = 4
SORTED_AT_ONCE = 4  # entries that may be compared for each time


# (run, entry, kind, row): describe an event of the network, and the messages that wait for it, from an entry
# of the picture on. Return the entry behind it; NONE: it cannot be described, or differs from the picture.
describe_event = chosen_by_tables("describe_event", "network", not_described)


@works_on_tables
def put_turned(run: Run, pool: Any, at: int, row: int) -> int:
    """Put a row into the picture; if it has turned, another row may be in the place of each."""
    if not run.repeats[0].compares or at == NONE or row == NONE or run.picture[at] == NONE:
        return put(run, at, row)
    return at + 1 if turn(run, pool, run.picture[at], row) else NONE


@works_on_tables
def put_chunk(run: Run, at: int, row: int) -> int:
    """Put a chunk into the picture; a chunk of another rank, or a later one, may be in the place of each."""
    if not run.repeats[0].compares or at == NONE or row == NONE or run.picture[at] == NONE:
        return put(run, at, row)
    return at + 1 if follows(run, run.picture[at], row) else NONE


@works_on_tables
def put_step(run: Run, at: int, member: int, step_key: int, phase_key: int) -> int:
    """Put a message of a step into the picture, by its distance from the step of its chunk."""
    chunk_row = chunk_of(run, member, phase_key >> PHASE_KEY_BITS)
    at = put_chunk(run, at, chunk_row)
    if chunk_row == NONE:
        return put(run, at, member, phase_key, step_key)
    return put(run, at, phase_key & NO_PHASE, step_key - steps_passed(run, chunk_row, phase_key))


@works_on_tables
def steps_passed(run: Run, chunk_row: int, phase_key: int) -> int:
    """Return the key of the next step of a chunk, if it runs in a phase."""
    return 2 * run.chunks[chunk_row].sent if is_in_phase(run, chunk_row, phase_key) else 0


@works_on_tables
def describe(run: Run, compares: bool) -> bool:
    """Take a picture, or return whether the state equals the last one; the next events come first."""
    repeats, clock = run.repeats[0], run.clock[0]
    repeats.compares, repeats.entries, repeats.periods = compares, 0, NEVER
    repeats.turns = repeats.stays = repeats.advances = repeats.chunks_left = 0
    repeats.comparison += 1
    repeats.ends_ns = run.plan.settings[LATEST] + 1
    if clock.slot == NONE or clock.head != NONE:
        return False
    at = _describe_slot(run, 0, clock.slot)
    if at == NONE or repeats.ends_ns == clock.now:
        return False
    if compares and clock.times > 0 and not _is_next(run, at):
        return False
    sort_times(run)
    repeats.entries += SORTED_AT_ONCE * clock.times
    for row in range(clock.times):
        at = _describe_slot(run, at, run.heap_slot[row])
        if at == NONE:
            return False
    at = _describe_unexpected(run, describe_queues(run, at))
    if not compares or at == NONE:
        return at != NONE
    if repeats.advances and not (limit_by_collectives(run) and limit_by_queues(run)):
        return False
    return bool(not repeats.turns or all_turn(run))


@works_on_tables
def _is_next(run: Run, at: int) -> bool:
    """Return whether the next instant is as far away as on the picture, or beyond it."""
    slot = run.slots[run.heap_slot[0]]
    if slot.head == NONE or not _repeats(run.events[slot.head].kind):
        return True
    return bool(run.picture[at] == slot.time - run.clock[0].now)


@works_on_tables
def _describe_slot(run: Run, at: int, slot_row: int) -> int:
    """Describe the events of an instant that repeats; the first other event ends the periods."""
    repeats, slot = run.repeats[0], run.slots[slot_row]
    row = slot.head
    if row == NONE or not _repeats(run.events[row].kind):
        repeats.ends_ns = min(repeats.ends_ns, slot.time)
    is_beyond = slot.time >= repeats.ends_ns
    if not is_beyond:
        repeats.last_ns = slot.time
        at = put(run, at, slot.time - run.clock[0].now)
    while row != NONE and at != NONE:
        at = _describe_event(run, at, row, is_beyond)
        if run.events[row].kind >= kinds.OPENS_BUCKET:
            entry = run.buckets[row].head
            while entry != NONE and at != NONE:
                at = _describe_event(run, at, entry, is_beyond)
                entry = run.events[entry].next
        row = run.events[row].next
    return at if is_beyond else put(run, at, NONE)


@works_on_tables
def _repeats(kind: int) -> bool:
    """Return whether periods are made of events of this kind."""
    if kind >= kinds.OPENS_BUCKET:
        kind -= kinds.OPENS_BUCKET
    if kind == kinds.TRANSFER_AT_ENDPOINT or kind == kinds.TRANSFER_READY or kind == kinds.STEP_LEFT:
        return True
    return bool(kind == kinds.STEP or kind == kinds.LATE_STEP or kind >= kinds.NETWORK)


@works_on_tables
def _describe_event(run: Run, at: int, row: int, is_beyond: bool) -> int:
    event = run.events[row]
    kind = event.kind
    if _repeats(kind) == is_beyond:
        return NONE
    if is_beyond:
        return at
    if kinds.NETWORK <= kind < kinds.OPENS_BUCKET:
        return describe_event(run, put(run, at, kind), kind - kinds.NETWORK, event.a)
    if kind == kinds.STEP:
        return put_step(run, put(run, at, kind), event.a, event.b, event.c)
    at = put(run, at, (((event.b << MORE_BITS) + event.more) << KIND_BITS) + kind)
    return put(run, put_chunk(run, at, event.a), event.c)


@works_on_tables
def _describe_unexpected(run: Run, at: int) -> int:
    """Describe messages that came early: their number, and each of them in any order."""
    count = len(run.unexpected) - run.clock[0].free_unexpecteds.rows
    at = put(run, at, count)
    if count == 0 or at == NONE:
        return at
    if run.repeats[0].compares:
        for _ in range(count):
            if _find_image(run, at) == NONE:
                return NONE
            at += ENTRIES_OF_UNEXPECTED
        return at
    for row in range(len(run.unexpected)):
        message = run.unexpected[row]
        if message.is_here:
            chunk_row = chunk_of(run, message.member, message.phase_key >> PHASE_KEY_BITS)
            passed = 0 if chunk_row == NONE else steps_passed(run, chunk_row, message.phase_key)
            at = put(run, at, chunk_row, message.member, message.phase_key, message.step_key - passed)
    return at


@works_on_tables
def _find_image(run: Run, at: int) -> int:
    """Return the early message in the place of one on the picture; NONE if there is none."""
    before, member = run.picture[at], run.picture[at + 1]
    phase_key, step_key = run.picture[at + 2], run.picture[at + 3]
    if before == NONE:
        return find_unexpected(run, member, step_key, phase_key)
    running_row = run.visits[before].running
    if not turns_or_stays(run, running_row):
        return NONE
    running, row = run.running[run.running_turns[running_row].turns_to], image_of(run, before)
    row += advance_of(run, running_row)
    if row >= running.chunks_first + running.chunks:
        return NONE
    chunk = run.chunks[row]
    phase_key = (chunk.phase_key & ~NO_PHASE) | (phase_key & NO_PHASE)
    return find_unexpected(run, chunk.member, step_key + steps_passed(run, row, phase_key), phase_key)
