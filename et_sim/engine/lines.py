"""Waiting lines: first-in-first-out lists threaded through a pool by its `next` field.

A line is any record with `head` and `tail`; a pool is any record array with `next`.
"""

from __future__ import annotations

from typing import Any

from et_sim.engine.state import NONE
from et_sim.tables_by_reference import works_on_tables


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
def leave(pool: Any, line: Any) -> int:
    """Take the first row out of the line; NONE if the line is empty."""
    row = line.head
    if row != NONE:
        line.head = pool[row].next
        if line.head == NONE:
            line.tail = NONE
    return row
