"""Skipping of periods, all at once."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import move_bucket, shift_times
from et_sim.engine.collectives.matching import chunk_in
from et_sim.engine.collectives.unexpected import rename_unexpected
from et_sim.engine.repeats.description import not_described
from et_sim.engine.repeats.turns import ENTRIES_OF_A_CHUNK, comes_to
from et_sim.engine.state import kinds
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
    if periods <= 0:
        return
    time = periods * period
    repeats.periods = periods
    repeats.comparison += 1
    _pass_slot(run, clock.slot, periods, time)
    for at in range(clock.times):
        if run.heap_time[at] <= repeats.last_ns:
            _pass_slot(run, run.heap_slot[at], periods, time)
    for row in range(len(run.unexpected)):
        message = run.unexpected[row]
        if message.is_here:
            chunk_row = chunk_in(run, message.member, message.phase_key)
            if chunk_row != NONE:
                rename_unexpected(run, row, _steps_passed(run, chunk_row, periods))
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        _pass_chunk(run, run.picture[at], periods)
        at += ENTRIES_OF_A_CHUNK
    pass_counted(run, periods)
    shift_times(run, time, repeats.last_ns)
    messages = periods * (clock.delivered - repeats.picture_delivered)
    clock.delivered += messages
    repeats.skipped += messages


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
            event.a = comes_to(run, run.chunk_turns, event.a)
            if kind >= kinds.OPENS_BUCKET:
                _pass_bucket(run, row, time)
        row = event.next


@works_on_tables
def pass_step(run: Run, step: Any, periods: int) -> None:
    """Advance a message of a step, with the fields `a`, `b` and `c`, by the periods."""
    chunk_row = chunk_in(run, step.a, step.c)
    if chunk_row != NONE:
        step.b += _steps_passed(run, chunk_row, periods)
        turned = run.chunks[comes_to(run, run.chunk_turns, chunk_row)]
        step.a, step.c = turned.member, turned.phase_key


@works_on_tables
def _steps_passed(run: Run, chunk_row: int, periods: int) -> int:
    """Return by how much keys of steps grow."""
    return 2 * periods * (run.chunks[chunk_row].sent - run.chunk_turns[chunk_row].sent_before)


@works_on_tables
def _pass_bucket(run: Run, row: int, time: int) -> None:
    """Move the bucket that an event opens to its chunk's actor."""
    entry = run.buckets[row].head
    while entry != NONE:
        run.events[entry].a = comes_to(run, run.chunk_turns, run.events[entry].a)
        entry = run.events[entry].next
    move_bucket(run, row, run.chunks[run.events[row].a].actor, time)


@works_on_tables
def _pass_chunk(run: Run, chunk_row: int, periods: int) -> None:
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    steps = periods * (chunk.sent - run.chunk_turns[chunk_row].sent_before)
    chunk.sent += steps
    chunk.received += steps
    chunk.transfers += steps
    chunk.step = chunk.sent % program.step_period
    chunk.transfer = chunk.transfers % program.transfer_period
    if len(run.phase_log) > 0:
        times = run.chunk_times[chunk_row]
        times.waited_ns += periods * (times.waited_ns - times.waited_before)
