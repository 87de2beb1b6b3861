"""Queues: a limited number of chunks runs in each at a time; those that wait stand behind them.

Queues of several ranks can wait for each other for ever. `break_standstill` is the way out where it is
wanted: when nothing else is left to happen, every blocked queue lets its oldest chunk in over the limit. A
run whose collectives all meet their members then always goes on, as every chunk gets in some time.

Not here: the order of those that wait (`queue_order`), and what a started chunk does (`steps`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.queue_order import place_in_queue
from et_sim.engine.collectives.steps import start_phase
from et_sim.engine.observe.causes import chunk_starts, now_of, resume
from et_sim.engine.observe.tie_rules import note_queued, note_standstill, note_started
from et_sim.engine.observe.ties import OF_QUEUE, contribute_to, origin_now, restore_origin
from et_sim.engine.state.kinds import LET_IN
from et_sim.engine.state.run import NONE, RUNNING_LIMIT, Run, setting_of
from et_sim.machine.corrections import Correction

TWO_WAY_QUEUES = setting_of(Correction.TWO_WAY_QUEUES)


@works_on_tables
def insert(run: Run, stream_row: int) -> None:
    """Join the stream's queue at its place among those that wait."""
    stream = run.streams[stream_row]
    stream.queued_ns = run.clock[0].now
    note_queued(run, run.queues[stream.queue], stream.priority, run.plan.settings[RUNNING_LIMIT])
    _link(run, stream_row, place_in_queue(run, stream_row))


@works_on_tables
def _link(run: Run, stream_row: int, behind: int) -> None:
    """Put a stream in front of a waiting one; NONE: at the end."""
    stream = run.streams[stream_row]
    queue = run.queues[stream.queue]
    stream.next = behind
    stream.previous = queue.tail if behind == NONE else run.streams[behind].previous
    if stream.previous == NONE:
        queue.head = stream_row
    else:
        run.streams[stream.previous].next = stream_row
    if behind == NONE:
        queue.tail = stream_row
    else:
        run.streams[behind].previous = stream_row
    if queue.waiting == behind:
        queue.waiting = stream_row


@works_on_tables
def remove(run: Run, stream_row: int) -> None:
    """Take a stream that is not the first of those that wait out of its queue."""
    stream = run.streams[stream_row]
    queue = run.queues[stream.queue]
    if stream.previous == NONE:
        queue.head = stream.next
    else:
        run.streams[stream.previous].next = stream.next
    if stream.next == NONE:
        queue.tail = stream.previous
    else:
        run.streams[stream.next].previous = stream.previous


@works_on_tables
def pump(run: Run, queue_row: int) -> None:
    """Start waiting streams while the queue may run more."""
    queue, origin = run.queues[queue_row], origin_now(run)
    contribute_to(run, queue, OF_QUEUE, queue_row)
    while queue.waiting != NONE and queue.running < run.plan.settings[RUNNING_LIMIT]:
        _start_first(run, queue_row)
    restore_origin(run, origin)


@works_on_tables
def _start_first(run: Run, queue_row: int) -> None:
    queue = run.queues[queue_row]
    stream_row = queue.waiting
    queue.waiting = run.streams[stream_row].next
    after = stream_row if queue.waiting == NONE else queue.waiting
    note_started(run, queue, run.streams[stream_row], run.streams[after].priority)
    queue.running += 1
    moment = now_of(run)
    chunk_starts(run, stream_row, queue_row)
    start_phase(run, stream_row)
    resume(run, moment)


@works_on_tables
def break_standstill(run: Run) -> bool:
    """Nothing is left to happen: see to it that all blocked queues let one in. False: nothing can be done."""
    return run.plan.settings[TWO_WAY_QUEUES] != 0 and _let_in_from(run, 0)


@works_on_tables
def let_in(run: Run, queue_row: int) -> None:
    """Start the oldest waiting stream of a queue whatever its limit, then see to the next blocked queue."""
    queue = run.queues[queue_row]
    note_standstill(run)
    if queue.waiting != NONE:
        oldest = at = queue.waiting
        while at != NONE:
            if run.streams[at].sequence < run.streams[oldest].sequence:
                oldest = at
            at = run.streams[at].next
        if oldest != queue.waiting:
            remove(run, oldest)
            _link(run, oldest, queue.waiting)
        _start_first(run, queue_row)
    _let_in_from(run, queue_row + 1)


@works_on_tables
def _let_in_from(run: Run, queue_row: int) -> bool:
    """One queue an event, so that no event uses up more than its share of the pools."""
    for row in range(queue_row, len(run.queues)):
        if run.queues[row].waiting != NONE:
            schedule(run, run.clock[0].now, LET_IN, row, 0, 0)
            return True
    return False
