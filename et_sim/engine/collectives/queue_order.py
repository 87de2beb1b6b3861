"""Where in its queue a chunk waits: by priority, or in one of the orders chosen in its place.

Started chunks always stand in front. The other orders are for reduce-scatter and all-gather phases; all
other phases go by priority whatever is chosen. Chunks that no rule tells apart keep the order in which they
came only where they go by priority.

Not here: the queues themselves (`queues`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, QUEUE_ORDER, Run
from et_sim.plan.tables import WaitingOrder
from et_sim.trace.columns import CollectiveKind

PRIORITY, ALTERNATING = int(WaitingOrder.PRIORITY), int(WaitingOrder.ALTERNATING)
SMALLEST_FIRST = int(WaitingOrder.SMALLEST_FIRST)
SMALLEST_INPUT_FIRST = int(WaitingOrder.SMALLEST_INPUT_FIRST)
REDUCE_SCATTER, ALL_GATHER = int(CollectiveKind.REDUCE_SCATTER), int(CollectiveKind.ALL_GATHER)


@works_on_tables
def place_in_queue(run: Run, chunk_row: int) -> int:
    """The chunk in front of which a new one waits; NONE: it waits last."""
    order = run.plan.settings[QUEUE_ORDER]
    if order == PRIORITY:
        return _by_priority(run, chunk_row)
    operation = _operation(run, run.chunks[chunk_row])
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
    """Behind those of at least its priority."""
    chunk = run.chunks[chunk_row]
    queue = run.queues[chunk.queue]
    last = queue.tail
    if last == NONE or run.chunks[last].started or run.chunks[last].priority >= chunk.priority:
        return NONE
    behind = queue.waiting
    while run.chunks[behind].priority >= chunk.priority:
        behind = run.chunks[behind].next
    return behind


@works_on_tables
def _alternating(run: Run, chunk_row: int) -> int:
    """RG: reduce-scatters and all-gathers in turn.

    The walk begins at the front. It passes each started chunk and the one behind that, then chunks of higher
    priority, and goes on while the last two it passed were one of each kind.
    """
    priority = run.chunks[chunk_row].priority
    at = run.queues[run.chunks[chunk_row].queue].head
    last = before = NONE
    while at != NONE:
        before, last = last, _operation(run, run.chunks[at])
        if run.chunks[at].started:
            at = run.chunks[at].next
            if at != NONE and not run.chunks[at].started:
                before, last = last, _operation(run, run.chunks[at])
                at = run.chunks[at].next
        elif run.chunks[at].priority > priority or _is_pair(before, last):
            at = run.chunks[at].next
        else:
            break
    return at


@works_on_tables
def _is_pair(one: int, other: int) -> bool:
    return (one == REDUCE_SCATTER and other == ALL_GATHER) or (one == ALL_GATHER and other == REDUCE_SCATTER)


@works_on_tables
def _smallest_first(run: Run, chunk_row: int) -> int:
    """Behind smaller ones. (2.x lets a chunk that has but one phase left after this one wait last.)"""
    own = _bytes(run, chunk_row)
    at = run.queues[run.chunks[chunk_row].queue].waiting
    while at != NONE and _bytes(run, at) < own:
        at = run.chunks[at].next
    return at


@works_on_tables
def _fewest_phases_first(run: Run, chunk_row: int) -> int:
    """Behind those that have fewer phases left."""
    own = _phases_left(run, chunk_row)
    at = run.queues[run.chunks[chunk_row].queue].waiting
    while at != NONE and _phases_left(run, at) < own:
        at = run.chunks[at].next
    return at


@works_on_tables
def _operation(run: Run, chunk: Any) -> int:
    return run.plan.phases[chunk.phase_first + chunk.phase].operation


@works_on_tables
def _bytes(run: Run, chunk_row: int) -> int:
    chunk = run.chunks[chunk_row]
    return run.plan.phases[chunk.phase_first + chunk.phase].bytes


@works_on_tables
def _phases_left(run: Run, chunk_row: int) -> int:
    """Phases after the present one."""
    chunk = run.chunks[chunk_row]
    return run.plan.collectives[run.running[chunk.running].collective].phases - 1 - chunk.phase
