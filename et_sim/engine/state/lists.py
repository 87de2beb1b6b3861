"""Lists threaded through pools: waiting lines, and the chains of hash indexes.

A line is any record with `head` and `tail`, first in, first out; its pool has a field `next`. An index holds
the first row of every chain; its pool has a field `chain`.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE


@works_on_tables
def join(pool: Any, line: Any, row: int) -> None:
    """Append a row to the line."""
    pool[row].next = NONE
    if line.tail == NONE:
        line.head = row
    else:
        pool[line.tail].next = row
    line.tail = row


@works_on_tables
def join_after(pool: Any, line: Any, before: int, row: int) -> None:
    """Put a row behind another one of the line; NONE: in front of all."""
    pool[row].next = line.head if before == NONE else pool[before].next
    if before == NONE:
        line.head = row
    else:
        pool[before].next = row
    if pool[row].next == NONE:
        line.tail = row


@works_on_tables
def leave(pool: Any, line: Any) -> int:
    """Take the first row out of the line; NONE if the line is empty."""
    row = line.head
    if row != NONE:
        line.head = pool[row].next
        if line.head == NONE:
            line.tail = NONE
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
