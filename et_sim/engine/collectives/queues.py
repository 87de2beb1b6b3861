"""Queues: a limited number of chunks runs in each at a time; the waiting ones follow behind.

Queues of several ranks can wait for each other for ever. `break_queue_deadlock` resolves this where it is
enabled: when nothing else is left to happen, every blocked queue admits its oldest chunk over the limit. A
run whose collectives all match then always completes, as every chunk is admitted eventually.

A chunk waits by priority, or in one of the configured orders. Started chunks are always in front. The other
orders are for reduce-scatter and all-gather phases; all other phases go by priority in any configuration.
Chunks that rank equally keep their order of arrival only when they go by priority.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.steps import start_phase
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.chunks import priority_of, sequence_of
from et_sim.engine.state.kinds import ADMIT
from et_sim.engine.state.run import NONE, QUEUE_ORDER, RUNNING_LIMIT, Run, setting_of
from et_sim.machine.corrections import Correction
from et_sim.plan.records import WaitingOrder
from et_sim.trace.columns import CollectiveKind

PRIORITY, ALTERNATING = int(WaitingOrder.PRIORITY), int(WaitingOrder.ALTERNATING)
SMALLEST_FIRST = int(WaitingOrder.SMALLEST_FIRST)
SMALLEST_INPUT_FIRST = int(WaitingOrder.SMALLEST_INPUT_FIRST)
REDUCE_SCATTER, ALL_GATHER = int(CollectiveKind.REDUCE_SCATTER), int(CollectiveKind.ALL_GATHER)


@works_on_tables
def place_in_queue(run: Run, chunk_row: int) -> int:
    """Return the chunk that a new one waits in front of; NONE: it waits last."""
    order = run.plan.settings[QUEUE_ORDER]
    if order == PRIORITY:
        return _by_priority(run, chunk_row)
    operation = _operation(run, chunk_row)
    if operation != REDUCE_SCATTER and operation != ALL_GATHER:
        return _by_priority(run, chunk_row)
    if order == ALTERNATING:
        return _alternating(run, chunk_row)
    if order == SMALLEST_FIRST:
        return NONE if _phases_left(run, chunk_row) == 1 else _smallest_first(run, chunk_row)
    if order == SMALLEST_INPUT_FIRST:
        return _smallest_first(run, chunk_row)
    return _fewest_phases_first(run, chunk_row)


@works_on_tables
def _by_priority(run: Run, chunk_row: int) -> int:
    """Return the first chunk of lower priority."""
    queue, priority = run.queues[run.visits[chunk_row].queue], priority_of(run, chunk_row)
    last = queue.tail
    if last == NONE or run.chunks[last].started or priority_of(run, last) >= priority:
        return NONE
    behind = queue.waiting
    while priority_of(run, behind) >= priority:
        behind = run.visits[behind].next
    return behind


@works_on_tables
def _alternating(run: Run, chunk_row: int) -> int:
    """Return the place of a chunk when reduce-scatters and all-gathers take turns (RG).

    The walk begins at the front. It passes each started chunk and the one behind that, then chunks of higher
    priority, and goes on while the last two it passed were one of each kind.
    """
    priority = priority_of(run, chunk_row)
    at = run.queues[run.visits[chunk_row].queue].head
    last = before = NONE
    while at != NONE:
        before, last = last, _operation(run, at)
        if run.chunks[at].started:
            at = run.visits[at].next
            if at != NONE and not run.chunks[at].started:
                before, last = last, _operation(run, at)
                at = run.visits[at].next
        elif priority_of(run, at) > priority or _is_pair(before, last):
            at = run.visits[at].next
        else:
            break
    return at


@works_on_tables
def _is_pair(first: int, second: int) -> bool:
    return (first == REDUCE_SCATTER and second == ALL_GATHER) or (
        first == ALL_GATHER and second == REDUCE_SCATTER
    )


@works_on_tables
def _smallest_first(run: Run, chunk_row: int) -> int:
    """Return the first chunk that is not smaller. (In 2.x, a chunk with one phase left after this one waits
    last.)
    """
    size = _bytes(run, chunk_row)
    at = run.queues[run.visits[chunk_row].queue].waiting
    while at != NONE and _bytes(run, at) < size:
        at = run.visits[at].next
    return at


@works_on_tables
def _fewest_phases_first(run: Run, chunk_row: int) -> int:
    """Return the first chunk that does not have fewer phases left."""
    left = _phases_left(run, chunk_row)
    at = run.queues[run.visits[chunk_row].queue].waiting
    while at != NONE and _phases_left(run, at) < left:
        at = run.visits[at].next
    return at


@works_on_tables
def _operation(run: Run, chunk_row: int) -> int:
    return _phase_of(run, chunk_row).operation


@works_on_tables
def _bytes(run: Run, chunk_row: int) -> int:
    return _phase_of(run, chunk_row).bytes


@works_on_tables
def _phase_of(run: Run, chunk_row: int) -> Any:
    return run.plan.phases[run.visits[chunk_row].phase_first + run.chunks[chunk_row].phase]


@works_on_tables
def _phases_left(run: Run, chunk_row: int) -> int:
    """Return the number of phases after the present one."""
    running = run.running[run.visits[chunk_row].running]
    return run.plan.collectives[running.collective].phases - 1 - run.chunks[chunk_row].phase


TWO_WAY_QUEUES = setting_of(Correction.TWO_WAY_QUEUES)


@works_on_tables
def insert(run: Run, chunk_row: int) -> None:
    """Insert a chunk at its place among the waiting ones of its queue."""
    observe.chunk_queued(run, chunk_row)
    _link(run, chunk_row, place_in_queue(run, chunk_row))


@works_on_tables
def _link(run: Run, chunk_row: int, behind: int) -> None:
    """Put a chunk in front of a waiting one; NONE: at the end."""
    visit = run.visits[chunk_row]
    queue = run.queues[visit.queue]
    visit.next = behind
    visit.previous = queue.tail if behind == NONE else run.visits[behind].previous
    if visit.previous == NONE:
        queue.head = chunk_row
    else:
        run.visits[visit.previous].next = chunk_row
    if behind == NONE:
        queue.tail = chunk_row
    else:
        run.visits[behind].previous = chunk_row
    if queue.waiting == behind:
        queue.waiting = chunk_row


@works_on_tables
def remove(run: Run, chunk_row: int) -> None:
    """Take a chunk out of its queue; it must not be the first of those that wait."""
    visit = run.visits[chunk_row]
    queue = run.queues[visit.queue]
    if visit.previous == NONE:
        queue.head = visit.next
    else:
        run.visits[visit.previous].next = visit.next
    if visit.next == NONE:
        queue.tail = visit.previous
    else:
        run.visits[visit.next].previous = visit.previous


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
    queue.waiting = run.visits[chunk_row].next
    queue.running += 1
    queue.started += 1
    thread = observe.pause(run)
    observe.chunk_starts(run, chunk_row)
    start_phase(run, chunk_row)
    observe.resume(run, thread)


@works_on_tables
def are_queues_blocked(run: Run) -> bool:
    """Return whether queues wait for each other, if nothing else is left, and may go over their limits."""
    return run.plan.settings[TWO_WAY_QUEUES] != 0 and _first_blocked(run, 0) != NONE


@works_on_tables
def break_queue_deadlock(run: Run) -> bool:
    """Admit a chunk over the limit to every blocked queue when nothing else is left; return False if none is
    blocked.
    """
    return run.plan.settings[TWO_WAY_QUEUES] != 0 and _admit_from(run, 0)


@works_on_tables
def admit_over_limit(run: Run, queue_row: int) -> None:
    """Start the oldest waiting chunk of a queue over its limit, then go on to the next blocked queue."""
    queue = run.queues[queue_row]
    observe.queue_deadlock(run)
    if queue.waiting != NONE:
        oldest = at = queue.waiting
        while at != NONE:
            if sequence_of(run.chunks[at]) < sequence_of(run.chunks[oldest]):
                oldest = at
            at = run.visits[at].next
        if oldest != queue.waiting:
            remove(run, oldest)
            _link(run, oldest, queue.waiting)
        _start_first(run, queue_row)
    _admit_from(run, queue_row + 1)


@works_on_tables
def _admit_from(run: Run, queue_row: int) -> bool:
    """Schedule the admission for one queue; one per event keeps within the reserve of the pools."""
    row = _first_blocked(run, queue_row)
    if row == NONE:
        return False
    schedule(run, run.clock[0].now, ADMIT, row, 0, 0)
    return True


@works_on_tables
def _first_blocked(run: Run, queue_row: int) -> int:
    """Return the first queue from a row on in which a chunk waits; NONE if there is none."""
    for row in range(queue_row, len(run.queues)):
        if run.queues[row].waiting != NONE:
            return row
    return NONE
