"""Queues: a limited number of chunks runs in each at a time; those that wait stand behind them.

Queues of several ranks can wait for each other for ever. `break_queue_deadlock` is the way out where it is
wanted: when nothing else is left to happen, every blocked queue lets its oldest chunk in over the limit. A
run whose collectives all meet their members then always goes on, as every chunk gets in some time.

Not here: the order of those that wait (`queue_order`), and what a started chunk does (`steps`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.queue_order import place_in_queue
from et_sim.engine.collectives.steps import start_phase
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import ADMIT
from et_sim.engine.state.run import NONE, RUNNING_LIMIT, Run, setting_of
from et_sim.machine.corrections import Correction

TWO_WAY_QUEUES = setting_of(Correction.TWO_WAY_QUEUES)


@works_on_tables
def insert(run: Run, chunk_row: int) -> None:
    """Join the chunk's queue at its place among those that wait."""
    observe.chunk_queued(run, chunk_row)
    _link(run, chunk_row, place_in_queue(run, chunk_row))


@works_on_tables
def _link(run: Run, chunk_row: int, behind: int) -> None:
    """Put a chunk in front of a waiting one; NONE: at the end."""
    chunk = run.chunks[chunk_row]
    queue = run.queues[chunk.queue]
    chunk.next = behind
    chunk.previous = queue.tail if behind == NONE else run.chunks[behind].previous
    if chunk.previous == NONE:
        queue.head = chunk_row
    else:
        run.chunks[chunk.previous].next = chunk_row
    if behind == NONE:
        queue.tail = chunk_row
    else:
        run.chunks[behind].previous = chunk_row
    if queue.waiting == behind:
        queue.waiting = chunk_row


@works_on_tables
def remove(run: Run, chunk_row: int) -> None:
    """Take a chunk that is not the first of those that wait out of its queue."""
    chunk = run.chunks[chunk_row]
    queue = run.queues[chunk.queue]
    if chunk.previous == NONE:
        queue.head = chunk.next
    else:
        run.chunks[chunk.previous].next = chunk.next
    if chunk.next == NONE:
        queue.tail = chunk.previous
    else:
        run.chunks[chunk.next].previous = chunk.previous


@works_on_tables
def pump(run: Run, queue_row: int) -> None:
    """Start waiting chunks while the queue may run more."""
    queue, thread = run.queues[queue_row], observe.pause(run)
    observe.queue_considered(run, queue_row)
    while queue.waiting != NONE and queue.running < run.plan.settings[RUNNING_LIMIT]:
        _start_first(run, queue_row)
    observe.resume(run, thread)


@works_on_tables
def _start_first(run: Run, queue_row: int) -> None:
    queue = run.queues[queue_row]
    chunk_row = queue.waiting
    queue.waiting = run.chunks[chunk_row].next
    queue.running += 1
    thread = observe.pause(run)
    observe.chunk_starts(run, chunk_row)
    start_phase(run, chunk_row)
    observe.resume(run, thread)


@works_on_tables
def break_queue_deadlock(run: Run) -> bool:
    """Nothing is left to happen: see to it that all blocked queues let one in. False: nothing can be done."""
    return run.plan.settings[TWO_WAY_QUEUES] != 0 and _admit_from(run, 0)


@works_on_tables
def admit_over_limit(run: Run, queue_row: int) -> None:
    """Start the oldest waiting chunk of a queue whatever its limit, then see to the next blocked queue."""
    queue = run.queues[queue_row]
    observe.queue_deadlock(run)
    if queue.waiting != NONE:
        oldest = at = queue.waiting
        while at != NONE:
            if run.chunks[at].sequence < run.chunks[oldest].sequence:
                oldest = at
            at = run.chunks[at].next
        if oldest != queue.waiting:
            remove(run, oldest)
            _link(run, oldest, queue.waiting)
        _start_first(run, queue_row)
    _admit_from(run, queue_row + 1)


@works_on_tables
def _admit_from(run: Run, queue_row: int) -> bool:
    """One queue an event, so that no event uses up more than its share of the pools."""
    for row in range(queue_row, len(run.queues)):
        if run.queues[row].waiting != NONE:
            schedule(run, run.clock[0].now, ADMIT, row, 0, 0)
            return True
    return False
