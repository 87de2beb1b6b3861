"""Rows of events, handed out and given back.

Not here: when events happen (`calendar`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def new_event_row(run: Run) -> int:
    """A row that stands nowhere yet."""
    clock = run.clock[0]
    row = clock.free_event
    clock.free_event = run.events[row].next
    clock.free_events -= 1
    run.events[row].next = NONE
    return row


@works_on_tables
def release_event(run: Run, event: int) -> None:
    """Give an event's row back."""
    clock = run.clock[0]
    run.events[event].next = clock.free_event
    clock.free_event = event
    clock.free_events += 1
