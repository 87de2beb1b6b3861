"""Rows of events, handed out and given back.

Not here: when events happen (`calendar`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import give_row, take_row
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def new_event_row(run: Run) -> int:
    """A row that stands nowhere yet."""
    row = take_row(run.events, run.clock[0].free_events)
    run.events[row].next = NONE
    return row


@works_on_tables
def release_event(run: Run, event: int) -> None:
    """Give an event's row back."""
    give_row(run.events, run.clock[0].free_events, event)
