"""Where things that may change places meet: what the engine says there, mechanism by mechanism.

A tie is noted where their order decides something, and the folded run is given up. `docs/folding.md` has the
table of mechanisms. Not here: who may change places with whom (`ties`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.ties import (
    KINDS,
    OF_CHUNK,
    OF_LANE,
    OF_LINK,
    OF_NODE,
    OF_QUEUE,
    OF_TRANSFER,
    begin_own,
    contribute,
    in_group,
    is_watched,
    mark_now,
    may_change_places,
    mixed,
    note_moment,
    note_turn,
    take_turn,
)
from et_sim.engine.state.chunks import priority_of
from et_sim.engine.state.lanes import can_issue, lane_row
from et_sim.engine.state.run import LANES_IN_USE, NONE, QUEUE_ORDER, RUNNING_LIMIT, Run
from et_sim.plan.records import UNLIMITED, Action, Lane

COLLECTIVE, COLLECTIVE_LANE = int(Action.COLLECTIVE), int(Lane.COLLECTIVE)


@works_on_tables
def parent_done(run: Run, node_row: int, is_deferred: int) -> None:
    """A parent of a node is done; `is_deferred`: while nodes are issued, so that the node has to wait."""
    if not is_watched(run):
        return
    clock, mark = run.clock[0], run.node_marks[node_row]
    if not in_group(clock, mark.mark):
        mark.deferred = 0
    mark.deferred |= int(is_deferred)  # whether the last parent is among these depends on the order
    clock.ties += mark.deferred and may_change_places(clock, mark.mark)
    contribute(run, mark.mark, OF_NODE)


@works_on_tables
def came_first(run: Run, mark: Any) -> None:
    """One half of a meeting came first, and waits for the other."""
    if is_watched(run):
        mark_now(run.clock[0], mark)


@works_on_tables
def met(run: Run, mark: Any) -> None:
    """The other half came; if it comes first, the meeting may be an event of its own."""
    if is_watched(run):
        clock = run.clock[0]
        clock.ties += may_change_places(clock, mark)


@works_on_tables
def met_waiting(run: Run, event_row: int) -> None:
    """The same where the first half is an event that waits."""
    if is_watched(run):
        run.clock[0].ties += may_change_places(run.clock[0], run.stamps[event_row])


@works_on_tables
def receive_posted(run: Run, chunk_row: int, _step_key: int) -> None:
    """A chunk posts a receive."""
    if not is_watched(run):
        return
    clock, marks = run.clock[0], run.chunk_marks[chunk_row]
    if not in_group(clock, marks.posted):
        note_moment(clock, marks.posted)
        marks.posted_from = run.chunks[chunk_row].sent
    elif marks.posted.origin != clock.origin:
        marks.posted.origin = NONE  # of several origins, and so different from any


@works_on_tables
def receive_met(run: Run, chunk_row: int, step_key: int) -> None:
    """A message meets its posted receive."""
    if is_watched(run):
        clock, marks = run.clock[0], run.chunk_marks[chunk_row]
        clock.ties += (step_key >> 1) >= marks.posted_from and may_change_places(clock, marks.posted)


@works_on_tables
def node_ready(run: Run, row: int, lane_number: int, node: int) -> None:
    """A node becomes ready on a lane, of that row, that holds few nodes at a time."""
    if not is_watched(run):
        return
    clock, lane = run.clock[0], run.lane_marks[row]
    if may_change_places(clock, lane.issued):
        is_full = run.plan.lane_limits[lane_number] == 1 and run.lanes[row].busy
        came_later_anyway = is_full and lane.issued_freed and node > lane.issued_node
        clock.ties += not came_later_anyway
    if not in_group(clock, lane.readied):
        note_moment(clock, lane.readied)
        lane.readied_apart = 0
    elif lane.readied.origin != clock.origin:
        lane.readied_apart = 1


@works_on_tables
def node_starts(run: Run, actor_row: int, node: int, lane: int, is_limited: int) -> None:
    """A node is issued; it has been taken from the heap of its lane, which may hold few nodes at a time."""
    if not is_watched(run):
        return
    actor, row = run.plan.actors[actor_row], lane_row(run, actor_row, lane)
    if is_limited:
        if run.plan.lane_limits[lane] > 1:
            _note_others(run, run.lane_marks[row])
        _note_issue(run, row, node, run.nodes[actor.node_first + node].ready_ns)
    _needs_lane(run, row, run.node_marks[actor.node_first + node], is_limited)
    if run.plan.nodes[run.plan.templates[actor.template].node_first + node].action == COLLECTIVE:
        _note_beside(run, run.lane_marks[lane_row(run, actor_row, COLLECTIVE_LANE)])  # on whichever lane


@works_on_tables
def _note_others(run: Run, lane: Any) -> None:
    """Of several places in a lane, who gets which follows from the order in which they become free."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, lane.issued)


@works_on_tables
def _note_issue(run: Run, row: int, node: int, ready_ns: int) -> None:
    """A node is issued on a lane that holds few nodes at a time."""
    clock, lane = run.clock[0], run.lane_marks[row]
    apart = in_group(clock, lane.readied) and (lane.readied_apart or lane.readied.origin != clock.origin)
    clock.ties += apart and ready_ns == clock.now and run.lanes[row].ready > 0
    note_moment(clock, lane.issued)
    lane.issued_node = node
    lane.issued_freed = lane.freed.ns == clock.now and not may_change_places(clock, lane.freed)


@works_on_tables
def _needs_lane(run: Run, row: int, mark: Any, is_limited: int) -> None:
    """A node that was ready is issued on a lane that has room: what it does needs both, where it may lack."""
    clock, lane, kind = run.clock[0], run.lane_marks[row], KINDS * row + OF_LANE
    if is_limited and may_change_places(clock, lane.freed):
        clock.origin = mixed(mixed(lane.freed.origin, clock.origin), kind)
    if may_change_places(clock, mark.mark):
        clock.origin = mixed(mixed(mark.mark.origin, clock.origin), kind)


@works_on_tables
def _note_beside(run: Run, lane: Any) -> None:
    """A collective is issued: its number, queues and priority follow from the order of issue."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, lane.issued)
    note_moment(clock, lane.issued)


@works_on_tables
def node_ends(run: Run, actor_row: int, _node: int, lane: int) -> None:
    """A node is done: its lane has room, and another part of the event begins."""
    if is_watched(run):
        clock, freed = run.clock[0], run.lane_marks[lane_row(run, actor_row, lane)]
        if 1 < run.plan.lane_limits[lane] < UNLIMITED:  # which of its places is free follows from the order
            clock.ties += may_change_places(clock, freed.freed)
        note_moment(clock, freed.freed)
        clock.part += 1


@works_on_tables
def issue_pass_ends(run: Run, actor_row: int) -> None:
    """An actor has issued what it could; nodes that became ready meanwhile may be left.

    These are issued by whichever completion comes next, in this nanosecond or a later one.
    """
    if not is_watched(run):
        return
    clock, actor, leaves = run.clock[0], run.actor_marks[actor_row], 0
    for lane in range(run.plan.settings[LANES_IN_USE]):
        leaves |= int(can_issue(run, actor_row, lane))
    if not in_group(clock, actor.passed):
        actor.passed_apart = 0
        actor.passed_leaving = actor.passed_left
    elif actor.passed.origin != clock.origin:
        actor.passed_apart = 1
    note_moment(clock, actor.passed)
    actor.passed_left = leaves
    actor.passed_leaving |= leaves
    clock.ties += actor.passed_apart and actor.passed_leaving


@works_on_tables
def slowing_changes(run: Run, actor_row: int) -> None:
    """Something begins or ends that slows others, or something begins that is slowed."""
    if is_watched(run):
        clock, mark = run.clock[0], run.slowed_actors[actor_row].mark
        clock.ties += may_change_places(clock, mark)
        mark_now(clock, mark)


@works_on_tables
def chunk_queued(run: Run, chunk_row: int) -> None:
    """A chunk is about to join a queue; nothing has happened in this phase of it yet."""
    if not is_watched(run):
        return
    clock, queue_row, marks = run.clock[0], run.visits[chunk_row].queue, run.chunk_marks[chunk_row]
    queue, is_full = run.queue_marks[queue_row], _is_full(run, queue_row)
    marks.queued_ns = clock.now
    marks.half_tried_ns = marks.half_done_ns = NONE
    marks.mark.ns = marks.turn_ns = marks.posted.ns = NONE
    second = may_change_places(clock, queue.joined)
    if not in_group(clock, queue.joined):
        queue.joined_apart = 0
    queue.joined_apart |= second
    overtakes = may_change_places(clock, queue.started) and (
        queue.started_priority < priority_of(run, chunk_row) or run.plan.settings[QUEUE_ORDER] != 0
    )
    clock.ties += (queue.joined_apart and is_full) or overtakes
    note_moment(clock, queue.joined)


@works_on_tables
def queue_considered(run: Run, queue_row: int) -> None:
    """A queue may start chunks: which ones needs all that has happened to it."""
    if is_watched(run):
        contribute(run, run.queue_marks[queue_row].mark, KINDS * queue_row + OF_QUEUE)


@works_on_tables
def _is_full(run: Run, queue_row: int) -> bool:
    return run.queues[queue_row].running >= run.plan.settings[RUNNING_LIMIT]


@works_on_tables
def chunk_starts(run: Run, chunk_row: int) -> None:
    """The first waiting chunk of a queue starts."""
    if not is_watched(run):
        return
    clock, visit = run.clock[0], run.visits[chunk_row]
    queue, priority = run.queue_marks[visit.queue], priority_of(run, chunk_row)
    next_priority = priority if visit.next == NONE else priority_of(run, visit.next)
    second = may_change_places(clock, queue.started)
    clock.ties += second and run.chunk_marks[chunk_row].queued_ns < clock.now
    apart = may_change_places(clock, queue.joined)
    clock.ties += apart and (next_priority != priority or run.plan.settings[QUEUE_ORDER] != 0)
    note_moment(clock, queue.started)
    queue.started_priority = priority


@works_on_tables
def queue_deadlock(run: Run) -> None:
    """Blocked queues are about to let chunks in, one queue after the other."""
    if is_watched(run):
        run.clock[0].ties += 1


@works_on_tables
def second_half_tried(run: Run, chunk_row: int) -> None:
    """The second half of a direct exchange is tried, whether or not its first half has arrived."""
    if is_watched(run):
        marks = run.chunk_marks[chunk_row]
        marks.half_tried_ns = run.clock[0].now
        run.clock[0].ties += marks.half_done_ns == marks.half_tried_ns


@works_on_tables
def step_received(run: Run, chunk_row: int) -> None:
    """A chunk received a message, perhaps the last of the first half of a direct exchange."""
    if not is_watched(run):
        return
    chunk, marks = run.chunks[chunk_row], run.chunk_marks[chunk_row]
    program = run.plan.programs[chunk.program]
    if chunk.received == program.half:
        marks.half_done_ns = run.clock[0].now
        run.clock[0].ties += marks.half_done_ns == marks.half_tried_ns
    if program.start_transfers > 1:
        take_turn(run, chunk.actor, chunk_row)
        note_turn(run, chunk_row)


@works_on_tables
def transfer_done(run: Run, chunk_row: int) -> None:
    """A transfer of a chunk is through."""
    if not is_watched(run):
        return
    if run.plan.programs[run.chunks[chunk_row].program].start_transfers > 1:
        note_turn(run, chunk_row)
    else:
        contribute(run, run.chunk_marks[chunk_row].mark, OF_TRANSFER)


@works_on_tables
def step_left(run: Run, chunk_row: int) -> None:
    """A message of a chunk has left its port."""
    if is_watched(run):
        contribute(run, run.chunk_marks[chunk_row].mark, OF_TRANSFER)


@works_on_tables
def collective_starts(run: Run, running_row: int) -> None:
    """A collective is issued; none of its chunks is done."""
    if is_watched(run):
        run.running_marks[running_row].mark.ns = NONE


@works_on_tables
def chunk_done(run: Run, running_row: int) -> None:
    """A chunk of a collective is done."""
    if is_watched(run):
        contribute(run, run.running_marks[running_row].mark, OF_CHUNK)


@works_on_tables
def joins_fifo(run: Run, fifo: Any) -> None:
    """Something joins a fifo: a link's, a channel's."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    clock.ties += may_change_places(clock, fifo.joined)
    note_moment(clock, fifo.joined)


@works_on_tables
def link_reached(run: Run, link: Any, link_row: int) -> None:
    """A message is at a link, which it takes or queues for."""
    joins_fifo(run, link)
    contribute(run, link.mark, KINDS * link_row + OF_LINK)


@works_on_tables
def link_freed(run: Run, link: Any, link_row: int, actor_row: int) -> None:
    """A link of an actor is free."""
    begin_own(run, actor_row)
    contribute(run, link.mark, KINDS * link_row + OF_LINK)
