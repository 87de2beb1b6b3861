"""Ties: does the order of two events at the same time and actor decide anything?

Ranks of one actor see the same messages at the same times, but where several things happen to a rank within
one nanosecond, the order among them follows from rank numbers and may differ between these ranks. As long as
it decides nothing, one actor stands for all of them exactly. Where it would decide something, the functions
here note a tie, the run of actors is given up, and every rank is simulated by itself.

A tie is noted when, within one nanosecond and through different events,
- a lane gets a node ready that competed, or could have competed, with the node issued there;
- two collectives are issued that run side by side;
- a queue gets a chunk while others wait or all its places are taken, or by priority ahead of one started;
- a link gets a second message;
- a channel gets a second receive, or a pair of ranks a second message held back by rendezvous;
- the second half of a direct exchange is tried, and its first half completes.
All other pairs of events commute. Not here: which ranks share an actor (`fold`).
"""

from __future__ import annotations

from typing import Any

from et_sim.engine.state import FOLDED, Run
from et_sim.tables_by_reference import works_on_tables


@works_on_tables
def next_event(run: Run) -> None:
    """What follows belongs to another event than what came before."""
    run.clock[0].event += 1


@works_on_tables
def note_ready(run: Run, lane: Any, node: int) -> None:
    """A node becomes ready on a lane that holds one node at a time."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    if lane.issued_ns == clock.now and lane.issued_event != clock.event:
        came_later_anyway = lane.issued_freed and lane.busy and node > lane.issued_node
        clock.ties += not came_later_anyway
    if lane.readied_ns != clock.now:
        lane.readied_ns = clock.now
        lane.readied_event = clock.event
        lane.readied_twice = 0
    elif lane.readied_event != clock.event:
        lane.readied_twice = 1


@works_on_tables
def note_issue(run: Run, lane: Any, node: int, ready_ns: int) -> None:
    """A node is issued on such a lane; it has been taken from the lane's heap."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    readied_apart = lane.readied_ns == clock.now and (lane.readied_twice or lane.readied_event != clock.event)
    clock.ties += readied_apart and ready_ns == clock.now and lane.ready > 0
    lane.issued_ns = clock.now
    lane.issued_event = clock.event
    lane.issued_node = node
    lane.issued_freed = lane.freed_ns == clock.now and lane.freed_event == clock.event


@works_on_tables
def note_beside(run: Run, lane: Any) -> None:
    """A node is issued on a lane without a limit, where the order of issue still decides."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    clock.ties += lane.issued_ns == clock.now and lane.issued_event != clock.event
    lane.issued_ns = clock.now
    lane.issued_event = clock.event


@works_on_tables
def note_freed(run: Run, lane: Any) -> None:
    """A lane becomes free."""
    lane.freed_ns = run.clock[0].now
    lane.freed_event = run.clock[0].event


@works_on_tables
def note_queued(run: Run, queue: Any, priority: int, limit: int) -> None:
    """A chunk is about to join a queue."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    second = queue.joined_ns == clock.now and queue.joined_event != clock.event
    clock.ties += second and queue.running >= limit
    overtakes = (
        queue.started_ns == clock.now
        and queue.started_event != clock.event
        and queue.started_priority < priority
    )
    clock.ties += overtakes
    queue.joined_ns = clock.now
    queue.joined_event = clock.event


@works_on_tables
def note_started(run: Run, queue: Any, priority: int, next_priority: int) -> None:
    """A chunk of a queue starts; `next_priority` is that of the one behind it, or its own."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    joined_apart = queue.joined_ns == clock.now and queue.joined_event != clock.event
    clock.ties += joined_apart and next_priority != priority
    queue.started_ns = clock.now
    queue.started_event = clock.event
    queue.started_priority = priority


@works_on_tables
def note_second(run: Run, line: Any) -> None:
    """Something joins a line in which order matters: a link's, a channel's."""
    clock = run.clock[0]
    if not run.plan.settings[FOLDED]:
        return
    clock.ties += line.joined_ns == clock.now and line.joined_event != clock.event
    line.joined_ns = clock.now
    line.joined_event = clock.event
