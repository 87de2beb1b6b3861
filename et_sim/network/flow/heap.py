"""A heap of rows of a pool: which one has the smallest key. Rows know their places, so that keys may change.

Of equal keys, the smaller `tie` comes first, so that the order does not depend on how it came about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.plan.tables import record, table

ENTRY = record(("key", "f8"), ("tie", "i8"), ("row", "i4"))


@dataclass(frozen=True, slots=True)
class Heap(Tables):
    """What compiled code knows."""

    entries: Any
    place: Any  # among them, by row of the pool; NONE: not there
    size: Any  # one number


def heap_for(rows: int, before: Heap | None = None) -> Heap:
    """A heap for a pool of so many rows, with what was in the one for its shorter predecessor."""
    entries, place, size = table(ENTRY, rows), np.full(rows, NONE, np.int32), np.zeros(1, np.int64)
    if before is not None:
        entries[: len(before.entries)] = before.entries
        place[: len(before.place)] = before.place
        size = before.size
    return Heap(entries, place, size)


@works_on_tables
def first_of(heap: Heap) -> int:
    """The row with the smallest key; NONE if there is none."""
    return heap.entries[0].row if heap.size[0] > 0 else NONE


@works_on_tables
def put(heap: Heap, row: int, key: float, tie: int) -> None:
    """A row has this key from now on."""
    at = heap.place[row]
    if at == NONE:
        at = heap.size[0]
        heap.size[0] += 1
    _settle(heap, at, row, key, tie)


@works_on_tables
def take_out(heap: Heap, row: int) -> None:
    """A row, which need not be there, is not there any more."""
    at = heap.place[row]
    if at == NONE:
        return
    heap.place[row] = NONE
    heap.size[0] -= 1
    last = heap.entries[heap.size[0]]
    if last.row != row:
        _settle(heap, at, last.row, last.key, last.tie)


@works_on_tables
def _settle(heap: Heap, at: int, row: int, key: float, tie: int) -> None:
    """Find the place of an entry, from a place that is to be filled."""
    while at > 0:
        above = heap.entries[(at - 1) >> 1]
        if above.key < key or (above.key == key and above.tie < tie):
            break
        _move(heap, above, at)
        at = (at - 1) >> 1
    size = heap.size[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_before(heap.entries[child + 1], heap.entries[child]):
            child += 1
        below = heap.entries[child]
        if key < below.key or (key == below.key and tie < below.tie):
            break
        _move(heap, below, at)
        at = child
    entry = heap.entries[at]
    entry.row, entry.key, entry.tie = row, key, tie
    heap.place[row] = at


@works_on_tables
def _move(heap: Heap, entry: Any, at: int) -> None:
    to = heap.entries[at]
    to.row, to.key, to.tie = entry.row, entry.key, entry.tie
    heap.place[entry.row] = at


@works_on_tables
def _is_before(one: Any, other: Any) -> bool:
    return bool(one.key < other.key or (one.key == other.key and one.tie < other.tie))
