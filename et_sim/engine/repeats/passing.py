"""Skipping of periods, all at once."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import move_bucket, shift_times
from et_sim.engine.collectives.matching import chunk_of, is_in_phase
from et_sim.engine.collectives.unexpected import rename_unexpected
from et_sim.engine.repeats.advance import number_of
from et_sim.engine.repeats.description import not_described
from et_sim.engine.repeats.moving import end_chunks, note_waiting, pass_queues, places_passed
from et_sim.engine.repeats.turns import comes_to
from et_sim.engine.state import kinds
from et_sim.engine.state.records import NO_PHASE, PHASE_KEY_BITS
from et_sim.engine.state.run import NONE, Run

# (run, periods): count everything again that was counted in a period.
pass_counted = chosen_by_tables("pass_counted", "network", not_described)
# (run, kind, row, periods, time): advance the row of an event of the network by the periods; return its row
# after them.
pass_event = chosen_by_tables("pass_event", "network", not_described)


@works_on_tables
def pass_periods(run: Run) -> None:
    """Skip as many periods as nothing else happens in; the present equals the picture."""
    repeats, clock = run.repeats[0], run.clock[0]
    period = clock.now - repeats.picture_ns
    periods = min(repeats.periods, (repeats.ends_ns - 1 - repeats.last_ns) // period)
    repeats.periods = max(periods, 0)
    if periods <= 0:
        return
    time = periods * period
    note_waiting(run)
    repeats.comparison += 1  # from here on, `turned` is that of `comes_to`
    _pass_slot(run, clock.slot, periods, time)
    for at in range(clock.times):
        if run.heap_time[at] <= repeats.last_ns:
            _pass_slot(run, run.heap_slot[at], periods, time)
    for row in range(len(run.unexpected)):
        if run.unexpected[row].is_here:
            _pass_unexpected(run, row, periods)
    end_chunks(run)
    pass_queues(run)
    pass_counted(run, periods)
    shift_times(run, time, repeats.last_ns)
    messages = periods * (clock.delivered - repeats.picture_delivered)
    clock.delivered += messages
    repeats.skipped += messages


@works_on_tables
def chunk_after(run: Run, row: int) -> int:
    """Return the chunk that has the place of another one after the periods."""
    running_row = run.visits[row].running
    number = number_of(run, row) + places_passed(run, row, run.repeats[0].periods)
    return run.running[comes_to(run, run.running_turns, running_row)].chunks_first + number


@works_on_tables
def _pass_slot(run: Run, slot_row: int, periods: int, time: int) -> None:
    """Advance the events of an instant; transfers are of chunks, whatever their step."""
    row = run.slots[slot_row].head
    while row != NONE:
        event = run.events[row]
        kind = event.kind
        if kinds.NETWORK <= kind < kinds.OPENS_BUCKET:
            event.a = pass_event(run, kind - kinds.NETWORK, event.a, periods, time)
        elif kind == kinds.STEP:
            pass_step(run, event, periods)
        else:
            event.a = chunk_after(run, event.a)
            if kind >= kinds.OPENS_BUCKET:
                _pass_bucket(run, row, time)
        row = event.next


@works_on_tables
def pass_step(run: Run, step: Any, periods: int) -> None:
    """Advance a message of a step, with the fields `a`, `b` and `c`, by the periods."""
    chunk_row = chunk_of(run, step.a, step.c >> PHASE_KEY_BITS)
    if chunk_row != NONE:
        step.b += _steps_passed(run, chunk_row, step.c, periods)
        chunk = run.chunks[chunk_after(run, chunk_row)]
        step.a, step.c = chunk.member, (chunk.phase_key & ~NO_PHASE) | (step.c & NO_PHASE)


@works_on_tables
def _steps_passed(run: Run, chunk_row: int, phase_key: int, periods: int) -> int:
    """Return by how much the key of a step grows; it does not where another chunk comes in the same step."""
    if places_passed(run, chunk_row, 1) > 0 or not is_in_phase(run, chunk_row, phase_key):
        return 0
    return 2 * periods * (run.chunks[chunk_row].sent - run.sent_before[chunk_row])


@works_on_tables
def _pass_unexpected(run: Run, row: int, periods: int) -> None:
    """Advance a message that came early."""
    message = run.unexpected[row]
    chunk_row = chunk_of(run, message.member, message.phase_key >> PHASE_KEY_BITS)
    if chunk_row != NONE:
        step_key = message.step_key + _steps_passed(run, chunk_row, message.phase_key, periods)
        chunk = run.chunks[chunk_after(run, chunk_row)]
        phase_key = (chunk.phase_key & ~NO_PHASE) | (message.phase_key & NO_PHASE)
        rename_unexpected(run, row, chunk.member, step_key, phase_key)


@works_on_tables
def _pass_bucket(run: Run, row: int, time: int) -> None:
    """Move the bucket that an event opens to its chunk's actor."""
    entry = run.buckets[row].head
    while entry != NONE:
        run.events[entry].a = chunk_after(run, run.events[entry].a)
        entry = run.events[entry].next
    move_bucket(run, row, run.chunks[run.events[row].a].actor, time)
