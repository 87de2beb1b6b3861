"""Order of events: whether two events of an actor in one nanosecond come in the order in which they would
come if every message was simulated.

A network model may evaluate messages of collectives at once (`goes_round`), and puts on the calendar what
follows from them. Then the calendar has other events than with every message, and the order of two events of
an actor in one nanosecond may differ. It does not differ if they were put there in different nanoseconds,
which are the same in both ways; nor if the actor put both there itself, in an order that is the same by this
argument; nor if messages that end did, which do so in the order of their ends. For any other pair a tie is
counted, and the run is made again with every message.

Events of other actors do not change an actor within the nanosecond in which they happen, but by events of
its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.observers import observes
from et_sim.engine.state import kinds
from et_sim.engine.state.chunks import ONLY_SENDS
from et_sim.engine.state.run import NONE, Run

# Events by who put them on the calendar: the actor, ends of messages, or others. A message that leaves and
# ends no phase changes nothing that a received step does; both have kinds of their own.
OWN, OF_NETWORK, OF_OTHERS, LEFT, RECEIVED = range(5)
KIND_BITS = 3
NOTED = 6  # events of an actor in one nanosecond that are compared
MARK_NS, MARK_COUNT, FIRST_MARK = range(3)  # columns of an actor's mark
MARKS = FIRST_MARK + NOTED
OF_EVALUATED = NONE - 1  # in place of a step key: the event follows from messages evaluated at once


@works_on_tables
def is_ordered(run: Run) -> bool:
    """Return whether the order of events may differ from that with every message."""
    return len(run.order_marks) > 0


when_ordered = observes(is_ordered)


@when_ordered
def event_made(run: Run, event_row: int) -> None:
    """Store when an event is put on the calendar."""
    run.order_stamps[event_row] = run.clock[0].now


@when_ordered
def event_taken(run: Run, event_row: int) -> None:
    """Restore when the event was put on the calendar."""
    run.clock[0].posted.ns = run.order_stamps[event_row]


@when_ordered
def order_fails(run: Run) -> None:
    """Count a tie where messages that were evaluated at once would have met others."""
    run.clock[0].ties = 1


@when_ordered
def event_happens(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """Compare an event with the others of its actors in this nanosecond."""
    if kind in (kinds.TRANSFER_AT_ENDPOINT, kinds.TRANSFER_READY):
        _compare(run, run.chunks[a].actor, OWN)
    elif kind == kinds.STEP:
        _compare(run, run.plan.members[a].actor, OF_NETWORK)
    elif kind == kinds.LATE_STEP:
        _compare(run, run.chunks[a].actor, OF_OTHERS if b == OF_EVALUATED else RECEIVED)
    elif kind == kinds.STEP_LEFT:
        _compare(run, run.chunks[a].actor, _kind_of_left(run, a, b))
    elif kind in (kinds.NODE_DONE, kinds.SLOWED_DONE):  # outside of buckets, a send whose bytes have left
        _compare(run, a, OF_NETWORK if run.clock[0].bucket == NONE else OWN)
    elif kind in (kinds.LATE_RECEIVE, kinds.START):
        _compare(run, a, OWN)
    elif kind == kinds.MESSAGE:
        _compare(run, c, OF_NETWORK)
        _compare(run, run.plan.actor_of_rank[run.plan.channels[a].target], OF_NETWORK)
    elif kind in (kinds.REQUESTED_STEP, kinds.INJECT_STEP):
        _compare(run, run.plan.members[a].actor, OF_OTHERS)
    elif kind in (kinds.REQUESTED_MESSAGE, kinds.INJECT_MESSAGE, kinds.HELD_MESSAGE):
        _compare(run, run.plan.actor_of_rank[run.plan.channels[a].source], OF_OTHERS)
        _compare(run, run.plan.actor_of_rank[run.plan.channels[a].target], OF_OTHERS)
    elif kind != kinds.EVALUATED:
        run.clock[0].ties = 1


@works_on_tables
def _compare(run: Run, actor_row: int, put_by: int) -> None:
    """Count a tie if an event of the actor may change places with another one."""
    clock, marks = run.clock[0], run.order_marks
    if marks[actor_row, MARK_NS] != clock.now:
        marks[actor_row, MARK_NS] = clock.now
        marks[actor_row, MARK_COUNT] = 0
    count = marks[actor_row, MARK_COUNT]
    mark = (clock.posted.ns << KIND_BITS) + put_by
    for at in range(FIRST_MARK, FIRST_MARK + min(count, NOTED)):
        other = marks[actor_row, at]
        if other >> KIND_BITS == clock.posted.ns:
            clock.ties |= not _is_certain(put_by, other & ((1 << KIND_BITS) - 1))
    if count < NOTED:
        marks[actor_row, FIRST_MARK + count] = mark
    elif put_by != OWN and put_by != RECEIVED:
        clock.ties = 1
    marks[actor_row, MARK_COUNT] = count + 1


@works_on_tables
def _kind_of_left(run: Run, chunk_row: int, step_key: int) -> int:
    """Return the kind of the event that a message of a chunk has left."""
    if run.chunks[chunk_row].started != ONLY_SENDS or run.visits[chunk_row].leaving > 1:
        return LEFT
    return OF_OTHERS if step_key == OF_EVALUATED else OF_NETWORK


@works_on_tables
def _is_certain(one: int, other: int) -> bool:
    """Return whether two events that were put on the calendar in one nanosecond come in one order, or in any
    order with the same effect.
    """
    if one == OF_OTHERS or other == OF_OTHERS:
        return False
    if one == LEFT or other == LEFT:
        return one != OWN and other != OWN
    return (one == OF_NETWORK) == (other == OF_NETWORK)


def marks_of(actors: int) -> Any:
    """Return the marks of actors before the first event."""
    marks = np.zeros((actors, MARKS), np.int64)
    marks[:, MARK_NS] = NONE
    return marks
