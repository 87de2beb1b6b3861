"""Chunks and queues after the periods that are skipped.

The picture has the queues of a period ago. A chunk is now as far as the one on the picture that it follows,
and the chunk as many advances further as there are periods will be as far after them.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.collectives.chunks import enter_phase
from et_sim.engine.repeats.advance import ALL, ENTRIES_OF_WAITING, STARTED, TAIL, WAITING, started_in_front
from et_sim.engine.repeats.queues import COUNTER_BITS, ENTRIES_OF_A_CHUNK, STARTED_BITS
from et_sim.engine.state.records import NO_PHASE, PHASE_BITS
from et_sim.engine.state.run import NONE, Run

PHASE_MASK, STARTED_MASK = (1 << PHASE_BITS) - 1, (1 << STARTED_BITS) - 1


@works_on_tables
def places_passed(run: Run, row: int, periods: int) -> int:
    """Return by how many chunks the collective of a chunk advances within periods."""
    repeats = run.repeats[0]
    return periods * run.running_turns[run.visits[row].running].advance if repeats.advances else 0


@works_on_tables
def waiting_of(run: Run, first: int) -> int:
    """Return the entry of the waiting chunks of a queue, whose running ones begin at entry `first`."""
    at = first
    while run.picture[at] != NONE:
        at += ENTRIES_OF_A_CHUNK
    return at + 1


@works_on_tables
def note_waiting(run: Run) -> None:
    """Replace waiting chunks on the picture by those that wait after the periods.

    These are all of them, each with its phase, or the first one that already waits now.
    """
    periods, at = run.repeats[0].periods, run.repeats[0].first_queue
    while run.repeats[0].advances and run.picture[at] != NONE:
        queue = run.queues[run.picture[at]]
        at = waiting_of(run, at + 1)
        started = started_in_front(run, at, queue)
        run.picture[at + STARTED] = started
        row = queue.waiting
        for place in range(WAITING if started == ALL else 0):
            if row != NONE:
                run.picture[at + place] = (row + places_passed(run, row, periods)) << PHASE_BITS
                run.picture[at + place] += run.chunks[row].phase
                row = run.visits[row].next
        if started != ALL:
            for _ in range(started * periods):
                row = run.visits[row].next
            run.picture[at] = row
        at += ENTRIES_OF_WAITING


@works_on_tables
def end_chunks(run: Run) -> None:
    """End the chunks that end within the periods."""
    for running_row in range(len(run.running) if run.repeats[0].advances else 0):
        running, turns = run.running[running_row], run.running_turns[running_row]
        if running.chunks == 0 or turns.advance == 0:
            continue
        phases = run.plan.collectives[running.collective].phases
        ahead = run.repeats[0].periods * turns.advance
        for number in range(running.chunks - 1, ahead - 1, -1):
            row = running.chunks_first + number
            if run.chunks[row - ahead].phase >= phases and run.chunks[row].phase < phases:
                run.chunks[row].phase = phases
                run.chunks[row].phase_key |= NO_PHASE
        running.remaining -= run.repeats[0].periods * (turns.remaining_before - running.remaining)


@works_on_tables
def pass_queues(run: Run) -> None:
    """Advance all running chunks, and put chunks into the queues in which they are after the periods."""
    at = run.repeats[0].first_queue
    while run.picture[at] != NONE:
        queue, first = run.queues[run.picture[at]], at + 1
        at = waiting_of(run, first)
        for entry in range(first, at - 1, ENTRIES_OF_A_CHUNK):
            _pass_chunk(run, entry)
        if run.repeats[0].advances:
            _fill_queue(run, queue, first, at)
            run.visits[queue.tail].next = NONE
        at += ENTRIES_OF_WAITING


@works_on_tables
def _pass_chunk(run: Run, at: int) -> None:
    """Let a chunk be as far after the periods as the one on the picture that it follows."""
    before, state, periods = run.picture[at], run.picture[at + 1], run.repeats[0].periods
    row = before + places_passed(run, before, periods + 1)
    chunk, sent = run.chunks[row], run.sent_before[before]
    if row == before:
        sent = chunk.sent + periods * (chunk.sent - sent)
        if len(run.phase_log) > 0:
            times = run.chunk_times[row]
            times.waited_ns += periods * (times.waited_ns - times.waited_before)
    else:
        enter_phase(run, row, (state >> STARTED_BITS) & PHASE_MASK)
        chunk.started = state & STARTED_MASK
        run.visits[row].leaving = state >> STARTED_BITS + PHASE_BITS
    ahead, behind, credit = _counters(run.picture[at + 2])
    chunk.sent, chunk.received, chunk.transfers, chunk.credit = sent, sent + behind, sent + ahead, credit
    program = run.plan.programs[chunk.program]
    chunk.step = chunk.sent % program.step_period
    chunk.transfer = chunk.transfers % program.transfer_period


@works_on_tables
def _counters(entry: int) -> tuple[int, int, int]:
    """Return the three differences of counters that are one entry."""
    half, mask = 1 << COUNTER_BITS - 1, (1 << COUNTER_BITS) - 1
    credit = ((entry + half) & mask) - half
    entry = (entry - credit) >> COUNTER_BITS
    behind = ((entry + half) & mask) - half
    return (entry - behind) >> COUNTER_BITS, behind, credit


@works_on_tables
def _fill_queue(run: Run, queue: Any, first: int, at: int) -> None:
    """Put the chunks of a queue one behind the other: running ones, and those that wait."""
    periods, last, tail = run.repeats[0].periods, run.picture[at + TAIL], queue.tail
    queue.head = queue.tail = queue.waiting = NONE
    for entry in range(first, at - 1, ENTRIES_OF_A_CHUNK):
        before = run.picture[entry]
        _append(run, queue, before + places_passed(run, before, periods + 1))
    if run.picture[at + STARTED] == ALL:
        for place in range(WAITING):
            if run.picture[at + place] != NONE:
                row = run.picture[at + place] >> PHASE_BITS
                enter_phase(run, row, run.picture[at + place] & PHASE_MASK)
                _append(run, queue, row)
                queue.waiting = row if queue.waiting == NONE else queue.waiting
        return
    row = run.picture[at]
    if row != NONE:
        _append(run, queue, row)
        queue.waiting, queue.tail = row, tail
        if last != tail:
            _append_new(run, queue, last, tail)


@works_on_tables
def _append_new(run: Run, queue: Any, last: int, tail: int) -> None:
    """Put chunks into a queue that come in each period, as those between two of its chunks have come."""
    for period in range(1, run.repeats[0].periods + 1):
        row = last
        while row != tail:
            row = run.visits[row].next
            after = row + places_passed(run, row, period)
            enter_phase(run, after, run.chunks[row].phase)
            _append(run, queue, after)


@works_on_tables
def _append(run: Run, queue: Any, row: int) -> None:
    """Put a chunk at the end of a queue; the field `next` of the last one is set when the queue is full."""
    run.visits[row].previous = queue.tail
    if queue.tail == NONE:
        queue.head = row
    else:
        run.visits[queue.tail].next = row
    queue.tail = row
