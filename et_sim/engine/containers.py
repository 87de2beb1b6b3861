"""Containers that compiled code fills, and how they grow between events: pools, queues, heaps, hash indexes.

A pool is an array of records; unused rows are a linked list, by their field `next`, that begins at a FREE.
The field holds the distance from the row after this one to the next free row: so rows that were never used
are linked while they are zero, and take no memory. Queues (first in, first out) are any records with `head`
and `tail`; a row's `next` is the following row. A hash index holds the first row of every chain, which is
linked by the field `chain`. A heap holds rows of a pool by their keys, and the place of each row, so that
keys may change.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_bytes
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.plan.records import record, table, zeros

NONE = -1  # no row
SMALLEST_POOL, LARGE_POOL = 1 << 10, 1 << 16
LARGEST_POOL = 2**31 - 1
LARGE_BYTES = 1 << 30  # of an array: the system may promise more memory than it has
QUEUE = record(("head", "i4"), ("tail", "i4"))
FREE = record(("head", "i4"), ("rows", "i4"))  # the first unused row of a pool, and the number of unused rows


@works_on_tables
def join(pool: Any, queue: Any, row: int) -> None:
    pool[row].next = NONE
    if queue.tail == NONE:
        queue.head = row
    else:
        pool[queue.tail].next = row
    queue.tail = row


@works_on_tables
def join_after(pool: Any, queue: Any, before: int, row: int) -> None:
    """Put a row behind another one; NONE: in front of all."""
    pool[row].next = queue.head if before == NONE else pool[before].next
    if before == NONE:
        queue.head = row
    else:
        pool[before].next = row
    if pool[row].next == NONE:
        queue.tail = row


@works_on_tables
def leave(pool: Any, queue: Any) -> int:
    """Take the first row out; NONE if there is none."""
    row = queue.head
    if row != NONE:
        queue.head = pool[row].next
        if queue.head == NONE:
            queue.tail = NONE
    return row


@works_on_tables
def leave_from(pool: Any, queue: Any, before: int, row: int) -> None:
    """Take out a row that is behind another one; NONE: it is the first."""
    after = pool[row].next
    if before == NONE:
        queue.head = after
    else:
        pool[before].next = after
    if after == NONE:
        queue.tail = before


@works_on_tables
def chain(pool: Any, index: Any, home: int, row: int) -> None:
    """Put a row in front of the chain that begins at `home`."""
    pool[row].chain = index[home]
    index[home] = row


@works_on_tables
def unchain(pool: Any, index: Any, home: int, row: int) -> None:
    """Remove a row, which must be in it, from the chain that begins at `home`."""
    at = index[home]
    if at == row:
        index[home] = pool[row].chain
        return
    while pool[at].chain != row:
        at = pool[at].chain
    pool[at].chain = pool[row].chain


@works_on_tables
def unchain_all(pool: Any, index: Any, places: int) -> int:
    """Empty the first places of an index; return the first of their rows, which are in one chain."""
    first = NONE
    for home in range(places):
        row = index[home]
        index[home] = NONE
        while row != NONE:
            after = pool[row].chain
            pool[row].chain = first
            first, row = row, after
    return int(first)


@works_on_tables
def take_row(pool: Any, free: Any) -> int:
    """Take an unused row out of a pool."""
    row = free.head
    free.head = row + 1 + pool[row].next
    free.rows -= 1
    return row


@works_on_tables
def give_row(pool: Any, free: Any, row: int) -> None:
    """Return a row to the unused ones of a pool."""
    pool[row].next = free.head - row - 1
    free.head = row
    free.rows += 1


def free_rows(pool: Any, free: Any) -> list[int]:
    """Return the rows that are not in use."""
    rows: list[int] = []
    row = int(free.head)
    while row != NONE:
        rows.append(row)
        row += 1 + int(pool["next"][row])
    return rows


class Heap(Tables, Struct, frozen=True):
    """Rows by their keys; of equal keys, the one with the smaller `tie` comes first."""

    entries: Any  # key, tie, row
    place: Any  # among the entries, by row; NONE: no entry
    size: Any  # one number


def heap_for(rows: int, before: Heap | None = None, key: str = "f8") -> Heap:
    """Return a heap for a pool of this many rows, with the content of a heap for a smaller pool."""
    if before is None:
        entries = table(record(("key", key), ("tie", "i8"), ("row", "i4")), rows)
        return Heap(entries, np.full(rows, NONE, np.int32), np.zeros(1, np.int64))
    return Heap(longer(before.entries, rows), longer(before.place, rows, NONE), before.size)


@works_on_tables
def first_of(heap: Heap) -> int:
    """Return the row with the smallest key; NONE if there is none."""
    return heap.entries[0].row if heap.size[0] > 0 else NONE


@works_on_tables
def put(heap: Heap, row: int, key: float, tie: int) -> None:
    """Set the key of a row, which is added if it is missing."""
    at = heap.place[row]
    if at == NONE:
        at = heap.size[0]
        heap.size[0] += 1
    _settle(heap, at, row, key, tie)


@works_on_tables
def take_out(heap: Heap, row: int) -> None:
    """Remove a row if it is in the heap."""
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
    """Find the place of an entry, from a place that is to be filled.

    Each entry has up to four below. Unless the entry is due to rise, all entries below are moved up first,
    down to a leaf, from where the entry rises: most new entries belong there. So each step down only compares
    the four, without a branch.
    """
    entries, size = heap.entries, heap.size[0]
    if at == 0 or _precedes(entries[(at - 1) >> 2], key, tie):
        child = 4 * at + 1
        while child + 3 < size:
            first, other = _first_of_two(entries, child), _first_of_two(entries, child + 2)
            before, least = entries[other], entries[first]
            first += (other - first) * int(_precedes(before, least.key, least.tie))
            _move(heap, first, at)
            at, child = first, 4 * first + 1
        if child < size:
            first = child
            for other in range(child + 1, size):
                if _precedes(entries[other], entries[first].key, entries[first].tie):
                    first = other
            _move(heap, first, at)
            at = first
    while at > 0 and not _precedes(entries[(at - 1) >> 2], key, tie):
        _move(heap, (at - 1) >> 2, at)
        at = (at - 1) >> 2
    entry = entries[at]
    entry.key, entry.tie, entry.row = key, tie, row
    heap.place[row] = at


@works_on_tables(forceinline=True)
def _first_of_two(entries: Any, at: int) -> int:
    """Return the place of the smaller of two entries, `at` and the next."""
    return at + int(_precedes(entries[at + 1], entries[at].key, entries[at].tie))


@works_on_tables(forceinline=True)
def _precedes(entry: Any, key: float, tie: int) -> bool:
    return (entry.key < key) | ((entry.key == key) & (entry.tie < tie))


@works_on_tables(forceinline=True)
def _move(heap: Heap, before: int, now: int) -> None:
    """Move an entry to another place."""
    moved, entry = heap.entries[before], heap.entries[now]
    entry.key, entry.tie, entry.row = moved.key, moved.tie, moved.row
    heap.place[moved.row] = now


def available_bytes() -> int:
    """Return the bytes of memory that can be allocated."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))


def longer(array: Any, rows: int, empty: int = 0) -> Any:
    """Return an array with this many rows and the same content."""
    if rows == len(array):
        return array
    size = rows * array.nbytes // max(len(array), 1)
    if size > LARGE_BYTES and size > available_bytes():
        raise MemoryError(f"Unable to allocate {format_bytes(size)}")
    larger = zeros((rows, *array.shape[1:]), array.dtype)
    if empty:
        larger[...] = empty
    larger[: len(array)] = array
    return larger.view(np.recarray) if array.dtype.names else larger


def spare(reserve: int) -> int:
    """Return the number of rows to add, enough for many events but limited."""
    return max(2 * reserve, min(64 * reserve, 1 << 17))


def grow_pool(pool: Any, free: Any, reserve: int, beyond: int = 0, *, is_ample: bool = True) -> Any:
    """Return a larger pool, whose new rows are free: enough for many events if it `is_ample`, and others
    `beyond` these.
    """
    old, fewest = len(pool), SMALLEST_POOL if is_ample else 0
    more = beyond + (spare(reserve) if is_ample else 2 * reserve)
    new = max((4 if old < LARGE_POOL else 2) * old, old + more, fewest)
    if new > LARGEST_POOL:
        raise MemoryError(f"the simulation needs a pool of {new} rows")
    larger = longer(pool, new)
    larger["next"][new - 1] = free.head - new
    free.head = old
    free.rows += new - old
    return larger


def empty_index(rows: int) -> Any:
    """Return a hash index for a pool of this many rows; it may have slightly fewer places than rows."""
    return np.full(1 << max(rows - 1 - rows // 8, 0).bit_length(), NONE, np.int32)


def chained_rows(pool: Any, index: Any) -> Any:
    """Return the rows of a pool that are in an index, in ascending order."""
    chained, rows = [], index[index != NONE]
    while len(rows):
        chained.append(rows)
        rows = pool["chain"][rows]
        rows = rows[rows != NONE]
    return np.sort(np.concatenate(chained)) if chained else rows


def chain_rows(pool: Any, index: Any, rows: Any, homes: Any) -> None:
    """Put rows of a pool into an empty index, in which their chains begin at these homes."""
    order = np.argsort(homes, kind="stable")
    rows, homes = rows[order], homes[order]
    same_home = np.concatenate((homes[1:] == homes[:-1], [False]))[: len(rows)]
    pool["chain"][rows] = np.where(same_home, np.concatenate((rows[1:], [NONE]))[: len(rows)], NONE)
    first = np.concatenate(([True], homes[1:] != homes[:-1]))[: len(rows)]
    index[homes[first]] = rows[first]
