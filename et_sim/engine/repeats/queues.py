"""Queues on a picture: the chunks that run, and the first ones that wait.

Started chunks are in front in their queues. A picture has all of them, and the first few and the last one of
those that wait. The present queues are compared with them: no chunk has moved, or each has the place that an
earlier one of its collective had.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.repeats.advance import (
    ENTRIES_OF_WAITING,
    WAITING,
    follows_in_queue,
    limit_by_queue,
    started_in_front,
)
from et_sim.engine.repeats.alike import is_one_list
from et_sim.engine.repeats.description import put
from et_sim.engine.state.records import PHASE_BITS
from et_sim.engine.state.run import NEVER, NONE, Run, setting_of
from et_sim.machine.corrections import Correction

COUNTER_BITS = 21  # three are one entry
STARTED_BITS = 2  # of an entry with the phase
ENTRIES_OF_A_CHUNK = 3
ENDS_WHEN_SENT = setting_of(Correction.ENDS_WHEN_SENT)


@works_on_tables
def describe_queues(run: Run, at: int) -> int:
    """Describe all queues that are not empty; the description ends with NONE."""
    run.repeats[0].first_queue = at
    for queue_row in range(len(run.queues)):
        if run.queues[queue_row].head != NONE and at != NONE:
            at = _describe_queue(run, put(run, at, queue_row), run.queues[queue_row])
    return put(run, at, NONE)


@works_on_tables
def _describe_queue(run: Run, at: int, queue: Any) -> int:
    row = queue.head
    while row != NONE and row != queue.waiting and at != NONE:
        at = _describe_chunk(run, at, row)
        row = run.visits[row].next
    at = put(run, at, NONE)
    if run.repeats[0].compares:
        if at == NONE or started_in_front(run, at, queue) == NONE:
            return NONE
        return at + ENTRIES_OF_WAITING
    row = queue.waiting
    for _ in range(WAITING):
        at = put(run, at, row)
        row = NONE if row == NONE else run.visits[row].next
    return put(run, at, NONE if queue.waiting == NONE else queue.tail, queue.started)


@works_on_tables
def limit_by_queues(run: Run) -> bool:
    """Limit the periods by the chunks that wait; return False if a queue has changed otherwise."""
    at = run.repeats[0].first_queue
    while run.picture[at] != NONE:
        queue_row, at = run.picture[at], at + 1
        while run.picture[at] != NONE:
            at += ENTRIES_OF_A_CHUNK
        if not limit_by_queue(run, at + 1, run.queues[queue_row]):
            return False
        at += 1 + ENTRIES_OF_WAITING
    return True


@works_on_tables
def _describe_chunk(run: Run, at: int, row: int) -> int:
    """Describe a running chunk whose members all follow one list of steps; return NONE for other chunks."""
    repeats, chunk = run.repeats[0], run.chunks[row]
    if at == NONE or not is_one_list(run.plan.programs[chunk.program]):
        return NONE
    if repeats.compares:
        before = run.picture[at]
        if before == NONE or not follows_in_queue(run, before, row) or not _repeats_steps(run, before, row):
            return NONE
        at += 1
    else:
        at = put(run, at, row)
        run.sent_before[row] = chunk.sent
        if len(run.phase_log) > 0:
            run.chunk_times[row].waited_before = run.chunk_times[row].waited_ns
    state = (((run.visits[row].leaving << PHASE_BITS) + chunk.phase) << STARTED_BITS) + chunk.started
    return _put_counters(run, put(run, at, state), chunk)


@works_on_tables
def _put_counters(run: Run, at: int, chunk: Any) -> int:
    """Put the differences of a chunk's counters into one entry."""
    ahead, behind, credit = chunk.transfers - chunk.sent, chunk.received - chunk.sent, chunk.credit
    if max(abs(ahead), abs(behind), abs(credit)) >= 1 << COUNTER_BITS - 1:
        return NONE
    return put(run, at, ((ahead << COUNTER_BITS) + behind << COUNTER_BITS) + credit)


@works_on_tables
def _repeats_steps(run: Run, before: int, row: int) -> bool:
    """Limit the periods of a chunk that goes on with equal steps; return whether a later one is as far."""
    repeats = run.repeats[0]
    if row != before:
        return bool(run.chunks[row].sent == run.sent_before[before])
    periods = _periods_left(run, row)
    if periods < NEVER:
        repeats.periods = min(repeats.periods, periods)
        repeats.chunks_left = max(repeats.chunks_left, run.running[run.visits[row].running].remaining)
    return True


@works_on_tables
def _periods_left(run: Run, row: int) -> int:
    """Return for how many periods, after that of the picture, a chunk has equal steps."""
    chunk, sent_before = run.chunks[row], run.sent_before[row]
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
