"""The order of operations: earliest first; of several at one time, the one a binary heap has on top.

Whichever that is decides how long a run takes, as LogGOPS has no fair way to share a processor. LogGOPSim
leaves it to the priority queue of C++, whose usual implementation is a binary heap that goes down to the
bottom and up again when its top is taken. This one does the same, so that ties are decided as there.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run


@works_on_tables
def put(run: Run, row: int, time: int) -> None:
    """An operation goes on at that time, or when what it needs is free."""
    state = run.network.state[0]
    state.waiting += 1
    _rise(run.network.heap, state.waiting - 1, row, time)


@works_on_tables
def take_first(run: Run) -> int:
    """Take the first operation out of the heap, which must have one."""
    state, heap = run.network.state[0], run.network.heap
    state.waiting -= 1
    size = state.waiting
    first, last, time = heap[0].operation, heap[size].operation, heap[size].goes_on_ns
    hole = 0
    while 2 * hole + 2 < size:
        below = 2 * hole + 2
        if heap[below].goes_on_ns > heap[below - 1].goes_on_ns:
            below -= 1
        _move(heap, below, hole)
        hole = below
    if 2 * hole + 2 == size:
        _move(heap, size - 1, hole)
        hole = size - 1
    if size > 0:
        _rise(heap, hole, last, time)
    return first


@works_on_tables
def first_ns(run: Run) -> int:
    """When the first operation goes on, if there is one."""
    return run.network.heap[0].goes_on_ns


@works_on_tables
def _rise(heap: Any, hole: int, row: int, time: int) -> None:
    while hole > 0:
        above = (hole - 1) >> 1
        if heap[above].goes_on_ns <= time:
            break
        _move(heap, above, hole)
        hole = above
    heap[hole].operation, heap[hole].goes_on_ns = row, time


@works_on_tables
def _move(heap: Any, place: int, to: int) -> None:
    heap[to].operation, heap[to].goes_on_ns = heap[place].operation, heap[place].goes_on_ns
