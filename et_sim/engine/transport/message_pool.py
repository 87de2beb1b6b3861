"""Messages under way, on network models that keep them: what happens when they arrive.

Not here: where they are (the network model).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import NONE, give_row, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import Run

LOWEST_31_BITS = (1 << 31) - 1


@works_on_tables
def new_message(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> int:
    """A message that sets out; the model's own fields are not yet set."""
    row = take_row(run.messages, run.clock[0].free_messages)
    message = run.messages[row]
    message.target, message.bytes = target, size
    message.kind, message.a, message.b, message.c = kind, a, b, c
    message.done = done
    observe.message_sets_out(run, row)
    return row


@works_on_tables
def message_leaves_at(run: Run, message: Any, time: int, cause: int, caused_ns: int) -> None:
    """The engine hears, once and if it wants to, when the last byte of a message has left its source."""
    if message.done != NONE:
        observe.next_event_follows(run, cause, caused_ns)
        schedule(run, time, message.done, message.c & LOWEST_31_BITS, message.b, 0)
        message.done = NONE


@works_on_tables
def release_message(run: Run, row: int) -> None:
    """Give back a message that has arrived."""
    give_row(run.messages, run.clock[0].free_messages, row)
