"""A picture of the state that determines the next events, relative to the present, and its comparison.

The state consists of the calendar, early messages, and the chunks that run, with the differences of their
counters. Other events of the calendar are not in the picture: they end the periods.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import sort_times
from et_sim.engine.collectives.matching import chunk_in
from et_sim.engine.collectives.unexpected import find_unexpected
from et_sim.engine.repeats.description import not_described, put
from et_sim.engine.repeats.turns import turn, turn_chunks
from et_sim.engine.state import kinds
from et_sim.engine.state.run import LATEST, NEVER, NONE, Run, setting_of
from et_sim.machine.corrections import Correction
from et_sim.plan.records import NO_LIMIT

KIND_BITS, MORE_BITS = 8, 16  # of an entry about an event
COUNTER_BITS = 21  # three are one entry
ENDS_WHEN_SENT = setting_of(Correction.ENDS_WHEN_SENT)
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
def put_step(run: Run, at: int, member: int, step_key: int, phase_key: int) -> int:
    """Put a message of a step into the picture, by its distance from the step of its chunk."""
    chunk_row = chunk_in(run, member, phase_key)
    at = put_turned(run, run.chunk_turns, at, chunk_row)
    if chunk_row != NONE:
        return put(run, at, step_key - 2 * run.chunks[chunk_row].sent)
    return put(run, at, member, phase_key, step_key)


@works_on_tables
def describe(run: Run, compares: bool) -> bool:
    """Take a picture, or return whether the state equals the last one; the next events come first."""
    repeats, clock = run.repeats[0], run.clock[0]
    repeats.compares, repeats.entries, repeats.periods = compares, 0, NEVER
    repeats.turns = repeats.stays = 0
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
    at = _describe_unexpected(run, at)
    if at == NONE or (repeats.turns and not turn_chunks(run)):
        return False
    return _describe_chunks(run, at) != NONE


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
    if kind == kinds.TRANSFER_AT_ENDPOINT or kind == kinds.TRANSFER_READY:
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
    return put(run, put_turned(run, run.chunk_turns, at, event.a), event.c)


@works_on_tables
def _describe_unexpected(run: Run, at: int) -> int:
    """Describe messages that came early: their number, and each of them in any order."""
    count = len(run.unexpected) - run.clock[0].free_unexpecteds.rows
    at = put(run, at, count)
    if count == 0 or at == NONE:
        return at
    if not run.repeats[0].compares:
        for row in range(len(run.unexpected)):
            message = run.unexpected[row]
            if message.is_here:
                chunk_row = chunk_in(run, message.member, message.phase_key)
                passed = 0 if chunk_row == NONE else 2 * run.chunks[chunk_row].sent
                at = put(run, at, message.member, message.phase_key, message.step_key - passed)
        return at
    for _ in range(count):
        member, phase_key, step_key = run.picture[at], run.picture[at + 1], run.picture[at + 2]
        chunk_row = chunk_in(run, member, phase_key)
        if chunk_row != NONE:
            run.repeats[0].stays = 1
            step_key += 2 * run.chunks[chunk_row].sent
        if find_unexpected(run, member, step_key, phase_key) == NONE:
            return NONE
        at += 3
    return at


@works_on_tables
def _describe_chunks(run: Run, at: int) -> int:
    """Describe all running chunks, which are in front in their queues; the picture ends behind them."""
    run.repeats[0].first_chunk = at
    for queue_row in range(len(run.queues)):
        queue = run.queues[queue_row]
        row = queue.head if queue.running > 0 else NONE
        while row != NONE and row != queue.waiting:
            at = _describe_chunk(run, at, row)
            if at == NONE:
                return NONE
            row = run.visits[row].next
    return put(run, at, NONE)


@works_on_tables
def _describe_chunk(run: Run, at: int, row: int) -> int:
    """Describe a chunk whose members all follow one list of steps; return NONE for other chunks."""
    repeats, chunk = run.repeats[0], run.chunks[row]
    program = run.plan.programs[chunk.program]
    has_places = program.tree_first != NONE or program.custom_first != NONE or program.own_steps > 0
    if has_places or program.half > 0 or program.window != NO_LIMIT:
        return NONE
    at = _put_counters(run, put(run, at, row), chunk)
    if at == NONE:
        return NONE
    if repeats.compares:
        repeats.periods = min(repeats.periods, _periods_left(run, row))
        return at
    run.chunk_turns[row].sent_before = chunk.sent
    if len(run.phase_log) > 0:
        run.chunk_times[row].waited_before = run.chunk_times[row].waited_ns
    return at


@works_on_tables
def _put_counters(run: Run, at: int, chunk: Any) -> int:
    """Put the differences of a chunk's counters into one entry."""
    ahead, behind, credit = chunk.transfers - chunk.sent, chunk.received - chunk.sent, chunk.credit
    if max(abs(ahead), abs(behind), abs(credit)) >= 1 << COUNTER_BITS - 1:
        return NONE
    return put(run, at, ((ahead << COUNTER_BITS) + behind << COUNTER_BITS) + credit)


@works_on_tables
def _periods_left(run: Run, row: int) -> int:
    """Return for how many periods, after that of the picture, a chunk has equal steps."""
    chunk, sent_before = run.chunks[row], run.chunk_turns[row].sent_before
    program, steps = run.plan.programs[chunk.program], chunk.sent - sent_before
    if steps <= 0:
        return NEVER
    alike = _alike(run.alike_steps, program.step_first, program.step_period, sent_before)
    before = chunk.transfers - steps
    alike = min(alike, _alike(run.alike_transfers, program.transfer_first, program.transfer_period, before))
    last = program.step_period if run.plan.settings[ENDS_WHEN_SENT] else 1
    return min(alike // steps - 1, (program.sends - last - chunk.sent) // steps)


@works_on_tables
def _alike(alike: Any, first: int, period: int, passed: int) -> int:
    """Return how many rows in a row equal the next one, of a list that is repeated."""
    return NEVER if alike[first] >= period else alike[first + passed % period]
