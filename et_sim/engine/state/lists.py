"""Lists threaded through pools: queues, and the chains of hash indexes.

A fifo (first in, first out) is any record with `head` and `tail`; its pool has a field `next`. An index holds
the first row of every chain; its pool has a field `chain`.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE


@works_on_tables
def join(pool: Any, fifo: Any, row: int) -> None:
    """Append a row."""
    pool[row].next = NONE
    if fifo.tail == NONE:
        fifo.head = row
    else:
        pool[fifo.tail].next = row
    fifo.tail = row


@works_on_tables
def join_after(pool: Any, fifo: Any, before: int, row: int) -> None:
    """Put a row behind another one; NONE: in front of all."""
    pool[row].next = fifo.head if before == NONE else pool[before].next
    if before == NONE:
        fifo.head = row
    else:
        pool[before].next = row
    if pool[row].next == NONE:
        fifo.tail = row


@works_on_tables
def leave(pool: Any, fifo: Any) -> int:
    """Take the first row out; NONE if there is none."""
    row = fifo.head
    if row != NONE:
        fifo.head = pool[row].next
        if fifo.head == NONE:
            fifo.tail = NONE
    return row


@works_on_tables
def unchain(pool: Any, index: Any, home: int, row: int) -> None:
    """Take a row, which must be in it, out of the chain that begins at `home`."""
    at = index[home]
    if at == row:
        index[home] = pool[row].chain
        return
    while pool[at].chain != row:
        at = pool[at].chain
    pool[at].chain = pool[row].chain
