"""Where things that may change places meet: what the engine says there, mechanism by mechanism.

A tie is noted where their order decides something, and the folded run is given up. `docs/folding.md` has the
table of mechanisms. Not here: who may change places with whom (`ties`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.ties import (
    KINDS,
    OF_LANE,
    OF_NODE,
    contribute,
    is_watched,
    mark_now,
    may_change_places,
    mixed,
)
from et_sim.engine.state.run import NONE, QUEUE_ORDER, Run


@works_on_tables
def note_parent(run: Run, mark: Any, is_deferred: int) -> None:
    """A parent of a node is done; `is_deferred`: while nodes are issued, so that the node has to wait."""
    clock = run.clock[0]
    if mark.mark_ns != clock.now or mark.mark_group != clock.group:
        mark.deferred = 0
    mark.deferred |= int(is_deferred)  # whether the last parent is among these depends on the order
    clock.ties += mark.deferred and may_change_places(clock, mark.mark_ns, mark.mark_group, mark.mark_origin)
    contribute(run, mark, OF_NODE)


@works_on_tables
def note_came(run: Run, mark: Any) -> None:
    """One half of a meeting came first, and waits for the other."""
    if is_watched(run):
        mark_now(run.clock[0], mark)


@works_on_tables
def note_met(run: Run, mark: Any) -> None:
    """The other half came; if it comes first, the meeting may be an event of its own."""
    if is_watched(run):
        clock = run.clock[0]
        clock.ties += may_change_places(clock, mark.mark_ns, mark.mark_group, mark.mark_origin)


@works_on_tables
def note_met_waiting(run: Run, event_row: int) -> None:
    """The same where the first half is an event that waits in a line."""
    if is_watched(run):
        stamp_of = run.stamps[event_row]
        run.clock[0].ties += may_change_places(
            run.clock[0], stamp_of.posted_ns, stamp_of.group, stamp_of.origin
        )


@works_on_tables
def note_posted(run: Run, chunk: Any) -> None:
    """A chunk posts a receive."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    if chunk.posted_ns != clock.now or chunk.posted_group != clock.group:
        chunk.posted_ns = clock.now
        chunk.posted_group = clock.group
        chunk.posted_from = chunk.sent
        chunk.posted_origin = clock.origin
    elif chunk.posted_origin != clock.origin:
        chunk.posted_origin = NONE  # of several origins, and so different from any


@works_on_tables
def note_expected(run: Run, chunk: Any, step: int) -> None:
    """A message meets its posted receive."""
    if is_watched(run):
        clock = run.clock[0]
        clock.ties += step >= chunk.posted_from and may_change_places(
            clock, chunk.posted_ns, chunk.posted_group, chunk.posted_origin
        )


@works_on_tables
def note_ready(run: Run, lane: Any, node: int) -> None:
    """A node becomes ready on a lane that holds one node at a time."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    if may_change_places(clock, lane.issued_ns, lane.issued_group, lane.issued_origin):
        came_later_anyway = lane.issued_freed and lane.busy and node > lane.issued_node
        clock.ties += not came_later_anyway
    if lane.readied_ns != clock.now or lane.readied_group != clock.group:
        lane.readied_ns = clock.now
        lane.readied_group = clock.group
        lane.readied_origin = clock.origin
        lane.readied_apart = 0
    elif lane.readied_origin != clock.origin:
        lane.readied_apart = 1


@works_on_tables
def note_issue(run: Run, lane: Any, node: int, ready_ns: int) -> None:
    """A node is issued on such a lane; it has been taken from the lane's heap."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    in_group = lane.readied_ns == clock.now and lane.readied_group == clock.group
    apart = in_group and (lane.readied_apart or lane.readied_origin != clock.origin)
    clock.ties += apart and ready_ns == clock.now and lane.ready > 0
    lane.issued_ns = clock.now
    lane.issued_group = clock.group
    lane.issued_origin = clock.origin
    lane.issued_node = node
    lane.issued_freed = lane.freed_ns == clock.now and not may_change_places(
        clock, lane.freed_ns, lane.freed_group, lane.freed_origin
    )


@works_on_tables
def needs_lane(run: Run, lane_row: int, mark: Any) -> None:
    """A node that was ready is issued on a lane that is free: what it does needs both."""
    if not is_watched(run):
        return
    clock, lane, kind = run.clock[0], run.lanes[lane_row], KINDS * lane_row + OF_LANE
    if may_change_places(clock, lane.freed_ns, lane.freed_group, lane.freed_origin):
        clock.origin = mixed(mixed(lane.freed_origin, clock.origin), kind)
    if may_change_places(clock, mark.mark_ns, mark.mark_group, mark.mark_origin):
        clock.origin = mixed(mixed(mark.mark_origin, clock.origin), kind)


@works_on_tables
def note_beside(run: Run, lane: Any) -> None:
    """A collective is issued: its number, queues and priority follow from the order of issue."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    clock.ties += may_change_places(clock, lane.issued_ns, lane.issued_group, lane.issued_origin)
    lane.issued_ns = clock.now
    lane.issued_group = clock.group
    lane.issued_origin = clock.origin


@works_on_tables
def note_freed(run: Run, lane: Any) -> None:
    """A lane becomes free."""
    if is_watched(run):
        lane.freed_ns = run.clock[0].now
        lane.freed_group = run.clock[0].group
        lane.freed_origin = run.clock[0].origin


@works_on_tables
def note_pass(run: Run, actor_row: int, leaves: bool) -> None:
    """An actor has issued what it could, but for nodes that became ready meanwhile if it `leaves` some.

    These are issued by whichever completion comes next, in this nanosecond or a later one.
    """
    clock, actor = run.clock[0], run.actors[actor_row]
    if actor.passed_ns != clock.now or actor.passed_group != clock.group:
        actor.passed_ns = clock.now
        actor.passed_group = clock.group
        actor.passed_apart = 0
        actor.passed_leaving = actor.passed_left
    elif actor.passed_origin != clock.origin:
        actor.passed_apart = 1
    actor.passed_origin = clock.origin
    actor.passed_left = leaves
    actor.passed_leaving |= leaves
    clock.ties += actor.passed_apart and actor.passed_leaving


@works_on_tables
def note_queued(run: Run, queue: Any, priority: int, limit: int) -> None:
    """A chunk is about to join a queue."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    second = may_change_places(clock, queue.joined_ns, queue.joined_group, queue.joined_origin)
    if queue.joined_ns != clock.now or queue.joined_group != clock.group:
        queue.joined_apart = 0
    queue.joined_apart |= second
    overtakes = may_change_places(clock, queue.started_ns, queue.started_group, queue.started_origin) and (
        queue.started_priority < priority or run.plan.settings[QUEUE_ORDER] != 0
    )
    clock.ties += (queue.joined_apart and queue.running >= limit) or overtakes
    queue.joined_ns = clock.now
    queue.joined_group = clock.group
    queue.joined_origin = clock.origin


@works_on_tables
def note_started(run: Run, queue: Any, chunk: Any, next_priority: int) -> None:
    """A chunk of a queue starts; `next_priority` is that of the one behind it, or its own."""
    if not is_watched(run):
        return
    clock, priority = run.clock[0], chunk.priority
    second = may_change_places(clock, queue.started_ns, queue.started_group, queue.started_origin)
    clock.ties += second and chunk.queued_ns < clock.now
    apart = may_change_places(clock, queue.joined_ns, queue.joined_group, queue.joined_origin)
    clock.ties += apart and (next_priority != priority or run.plan.settings[QUEUE_ORDER] != 0)
    queue.started_ns = clock.now
    queue.started_group = clock.group
    queue.started_origin = clock.origin
    queue.started_priority = priority


@works_on_tables
def note_queue_deadlock(run: Run) -> None:
    """Blocked queues are about to let chunks in, one queue after the other."""
    run.clock[0].ties += 1


@works_on_tables
def note_half_tried(run: Run, chunk: Any) -> None:
    """The second half of a direct exchange is tried, whether or not its first half has arrived."""
    if is_watched(run):
        chunk.half_tried_ns = run.clock[0].now
        run.clock[0].ties += chunk.half_done_ns == chunk.half_tried_ns


@works_on_tables
def note_received(run: Run, chunk: Any) -> None:
    """A chunk received a message, perhaps the last of the first half of a direct exchange."""
    if is_watched(run) and chunk.received == run.plan.programs[chunk.program].half:
        chunk.half_done_ns = run.clock[0].now
        run.clock[0].ties += chunk.half_done_ns == chunk.half_tried_ns


@works_on_tables
def note_second(run: Run, line: Any) -> None:
    """Something joins a line in which order matters: a link's, a channel's."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    clock.ties += may_change_places(clock, line.joined_ns, line.joined_group, line.joined_origin)
    line.joined_ns = clock.now
    line.joined_group = clock.group
    line.joined_origin = clock.origin
