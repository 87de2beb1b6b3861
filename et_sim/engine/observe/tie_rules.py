"""Rules for ties, mechanism by mechanism, where events whose order may differ meet.

A tie is counted where their order has an effect, and the folded run is abandoned. `docs/folding.md` has the
table of mechanisms.
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
    begin_arrival,
    begin_own,
    contribute,
    flow_of,
    has_origins,
    in_group,
    mark_now,
    may_change_places,
    mixed,
    note_moment,
    note_turn,
    pair_of,
    take_turn,
    when_watched,
)
from et_sim.engine.state.chunks import priority_of
from et_sim.engine.state.lanes import can_issue, lane_row
from et_sim.engine.state.run import LANES_IN_USE, NONE, QUEUE_ORDER, RUNNING_LIMIT, Run
from et_sim.fold.path_keys import FROM_ONE, FROM_SEVERAL
from et_sim.plan.records import UNLIMITED, Action, Lane

COLLECTIVE, COLLECTIVE_LANE = int(Action.COLLECTIVE), int(Lane.COLLECTIVE)


@when_watched
def parent_done(run: Run, node_row: int, is_deferred: int) -> None:
    """Check a finished parent; `is_deferred`: nodes are being issued, so that the node has to wait."""
    clock, mark = run.clock[0], run.node_marks[node_row]
    if not in_group(clock, mark.mark):
        mark.deferred = 0
    mark.deferred |= int(is_deferred)  # the last parent may be among these, by the order
    clock.ties += mark.deferred and may_change_places(clock, mark.mark)
    contribute(run, mark.mark, OF_NODE)


@when_watched
def came_first(run: Run, mark: Any) -> None:
    """Mark the first half of a pair, which waits for the other half."""
    mark_now(run.clock[0], mark)


@when_watched
def met(run: Run, mark: Any) -> None:
    """Check the second half of a pair, which may be first on other ranks."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, mark)


@when_watched
def met_waiting(run: Run, event_row: int) -> None:
    """Check the second half of a pair whose first half is an event that waits."""
    run.clock[0].ties += may_change_places(run.clock[0], run.stamps[event_row])


@when_watched
def message_unexpected(run: Run, row: int) -> None:
    """Mark a step's message, its offer or its request, which waits for its counterpart."""
    came_first(run, run.unexpected[row].mark)


@when_watched
def send_meets_early(run: Run, handshake_row: int) -> None:
    """Check a message whose request came before."""
    met(run, run.handshakes[handshake_row].mark)


@when_watched
def receive_meets_early(run: Run, channel_row: int) -> None:
    """Check a receive whose message came before."""
    met(run, run.channels[channel_row].mark)


@when_watched
def message_at_target(run: Run, channel_row: int) -> None:
    """Begin the group of a message at its target: another rank, perhaps of the same actor."""
    target = run.plan.actor_of_rank[run.plan.channels[channel_row].target]
    begin_arrival(run, target, pair_of(run, channel_row))
    met(run, run.channels[channel_row].mark)
    came_first(run, run.channels[channel_row].mark)


@when_watched
def request_at_source(run: Run, channel_row: int, handshake_row: int) -> None:
    """Begin the group of a request at the source of its message."""
    source = run.plan.actor_of_rank[run.plan.channels[channel_row].source]
    begin_arrival(run, source, pair_of(run, channel_row))
    met(run, run.handshakes[handshake_row].mark)
    came_first(run, run.handshakes[handshake_row].mark)


@when_watched
def receive_posted(run: Run, chunk_row: int, step_key: int) -> None:
    """Mark a posted receive."""
    clock, marks = run.clock[0], run.chunk_marks[chunk_row]
    if not in_group(clock, marks.posted):
        note_moment(clock, marks.posted)
        marks.posted_from = run.chunks[chunk_row].sent
    elif marks.posted.origin != clock.origin:
        marks.posted.origin = NONE  # of several origins, so different from any one


@when_watched
def receive_met(run: Run, chunk_row: int, step_key: int) -> None:
    """Check a message that meets its posted receive."""
    clock, marks = run.clock[0], run.chunk_marks[chunk_row]
    clock.ties += (step_key >> 1) >= marks.posted_from and may_change_places(clock, marks.posted)


@when_watched
def node_ready(run: Run, row: int, lane_number: int, node: int) -> None:
    """Check a node that becomes ready on a limited lane."""
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


@when_watched
def node_starts(run: Run, actor_row: int, node: int, lane: int, is_limited: int) -> None:
    """Check a node that is issued from the heap of its lane."""
    actor, row = run.plan.actors[actor_row], lane_row(run, actor_row, lane)
    if is_limited:
        if run.plan.lane_limits[lane] > 1:
            _note_others(run, run.lane_marks[row])
        _note_issue(run, row, node, run.nodes[actor.node_first + node].admitted_ns)
    _needs_lane(run, row, run.node_marks[actor.node_first + node], is_limited)
    if run.plan.nodes[run.plan.templates[actor.template].node_first + node].action == COLLECTIVE:
        _note_beside(run, run.lane_marks[lane_row(run, actor_row, COLLECTIVE_LANE)])  # of all lanes


@works_on_tables
def _note_others(run: Run, lane: Any) -> None:
    """Check a lane of several places, which nodes get in the order in which the places become free."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, lane.issued)


@works_on_tables
def _note_issue(run: Run, row: int, node: int, ready_ns: int) -> None:
    """Check the issue of a node on a limited lane."""
    clock, lane = run.clock[0], run.lane_marks[row]
    apart = in_group(clock, lane.readied) and (lane.readied_apart or lane.readied.origin != clock.origin)
    clock.ties += apart and ready_ns == clock.now and run.lanes[row].ready > 0
    note_moment(clock, lane.issued)
    lane.issued_node = node
    lane.issued_freed = lane.freed.ns == clock.now and not may_change_places(clock, lane.freed)


@works_on_tables
def _needs_lane(run: Run, row: int, mark: Any, is_limited: int) -> None:
    """Set the origin of a node from its readiness and the free place in its lane, where they may differ."""
    clock, lane, kind = run.clock[0], run.lane_marks[row], KINDS * row + OF_LANE
    if is_limited and may_change_places(clock, lane.freed):
        has_origins(clock, mixed(mixed(lane.freed.origin, clock.origin), kind))
    if may_change_places(clock, mark.mark):
        has_origins(clock, mixed(mixed(mark.mark.origin, clock.origin), kind))


@works_on_tables
def _note_beside(run: Run, lane: Any) -> None:
    """Check the issue of a collective, whose number, queues and priority follow from the order of issue."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, lane.issued)
    note_moment(clock, lane.issued)


@when_watched
def node_ends(run: Run, actor_row: int, node: int, lane: int) -> None:
    """Check the end of a node, which frees a place in its lane and begins another part of the event."""
    clock, freed = run.clock[0], run.lane_marks[lane_row(run, actor_row, lane)]
    if 1 < run.plan.lane_limits[lane] < UNLIMITED:  # the order determines which of its places is free
        clock.ties += may_change_places(clock, freed.freed)
    note_moment(clock, freed.freed)
    clock.part += 1


@when_watched
def issue_pass_ends(run: Run, actor_row: int) -> None:
    """Check the end of an issue pass, which may leave nodes that became ready during it.

    The next completion issues them, in this nanosecond or a later one.
    """
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


@when_watched
def slowing_changes(run: Run, actor_row: int) -> None:
    """Check the begin or end of a node that slows others, or the begin of one that is slowed."""
    clock, mark = run.clock[0], run.slowed_actors[actor_row].mark
    clock.ties += may_change_places(clock, mark)
    mark_now(clock, mark)


@when_watched
def chunk_queued(run: Run, chunk_row: int) -> None:
    """Check a chunk that joins a queue, and reset the marks of its phase."""
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


@when_watched
def queue_considered(run: Run, queue_row: int) -> None:
    """Add the event to those that determine which chunks a queue starts."""
    contribute(run, run.queue_marks[queue_row].mark, KINDS * queue_row + OF_QUEUE)


@works_on_tables
def _is_full(run: Run, queue_row: int) -> bool:
    return run.queues[queue_row].running >= run.plan.settings[RUNNING_LIMIT]


@when_watched
def chunk_starts(run: Run, chunk_row: int) -> None:
    """Check the start of the first waiting chunk of a queue."""
    clock, visit = run.clock[0], run.visits[chunk_row]
    queue, priority = run.queue_marks[visit.queue], priority_of(run, chunk_row)
    next_priority = priority if visit.next == NONE else priority_of(run, visit.next)
    second = may_change_places(clock, queue.started)
    clock.ties += second and run.chunk_marks[chunk_row].queued_ns < clock.now
    apart = may_change_places(clock, queue.joined)
    clock.ties += apart and (next_priority != priority or run.plan.settings[QUEUE_ORDER] != 0)
    note_moment(clock, queue.started)
    queue.started_priority = priority


@when_watched
def queue_deadlock(run: Run) -> None:
    """Count a tie before blocked queues admit chunks, one queue after the other."""
    run.clock[0].ties += 1


@when_watched
def second_half_tried(run: Run, chunk_row: int) -> None:
    """Check the attempt of the second half of a direct exchange in the nanosecond that ends the first."""
    marks = run.chunk_marks[chunk_row]
    marks.half_tried_ns = run.clock[0].now
    run.clock[0].ties += marks.half_done_ns == marks.half_tried_ns


@when_watched
def step_received(run: Run, chunk_row: int) -> None:
    """Check a received message, perhaps the last of the first half of a direct exchange."""
    chunk, marks = run.chunks[chunk_row], run.chunk_marks[chunk_row]
    program = run.plan.programs[chunk.program]
    if program.tree_first != NONE:
        return
    if chunk.received == program.half:
        marks.half_done_ns = run.clock[0].now
        run.clock[0].ties += marks.half_done_ns == marks.half_tried_ns
    if program.start_transfers > 1:
        take_turn(run, chunk.actor, chunk_row)
        note_turn(run, chunk_row)


@when_watched
def transfer_done(run: Run, chunk_row: int) -> None:
    """Check a finished transfer of a chunk."""
    if run.plan.programs[run.chunks[chunk_row].program].start_transfers > 1:
        note_turn(run, chunk_row)
    else:
        contribute(run, run.chunk_marks[chunk_row].mark, OF_TRANSFER)


@when_watched
def step_left(run: Run, chunk_row: int) -> None:
    """Check a message of a chunk that has left its port."""
    contribute(run, run.chunk_marks[chunk_row].mark, OF_TRANSFER)


@when_watched
def branch_freed(run: Run, branch_row: int) -> None:
    """Begin the group of a member's part that has left for its switch."""
    begin_own(run, run.plan.branches[branch_row].actor)


@when_watched
def collective_starts(run: Run, running_row: int) -> None:
    """Reset the mark of a collective, none of whose chunks is done."""
    run.running_marks[running_row].mark.ns = NONE


@when_watched
def chunk_done(run: Run, running_row: int) -> None:
    """Check a finished chunk of a collective."""
    contribute(run, run.running_marks[running_row].mark, OF_CHUNK)


@when_watched
def joins_fifo(run: Run, fifo: Any) -> None:
    """Check an entry of a queue: a link's, a channel's."""
    clock = run.clock[0]
    clock.ties += may_change_places(clock, fifo.joined)
    note_moment(clock, fifo.joined)


@when_watched
def link_reached(run: Run, link: Any, link_row: int, message_row: int) -> None:
    """Check a message that reaches a link, which it takes or queues for."""
    clock = run.clock[0]
    if link.sources == FROM_ONE:
        clock.ties += may_change_places(clock, link.joined) and link.joined_turn == clock.turn
        note_moment(clock, link.joined)
        link.joined_turn = clock.turn
    else:
        _joins_with_others(run, link, flow_of(run, run.messages[message_row]))
    contribute(run, link.mark, KINDS * link_row + OF_LINK)
    if link.sources == FROM_SEVERAL:
        link.mark.root = NONE


@works_on_tables
def _joins_with_others(run: Run, link: Any, flow: int) -> None:
    """Check a message that joins a link of several ranks, whose groups do not compare.

    Events have turns there. Messages of one turn come in the order of the ranks at whose start their events
    began. This is the same order at all links of the class if all of these ranks are in one block, which they
    are if the roots are the same.
    """
    clock = run.clock[0]
    clock.origin = mixed(mixed(clock.origin, clock.group), flow)
    clock.group = clock.turn
    is_first = not in_group(clock, link.joined)
    is_ordered = link.sources != FROM_SEVERAL and clock.root != NONE and link.joined_root == clock.root
    clock.ties += may_change_places(clock, link.joined) and not is_ordered
    link.joined_root = clock.root if is_first or is_ordered else NONE
    note_moment(clock, link.joined)


@when_watched
def link_changes(run: Run, link: Any, link_row: int, message_row: int) -> None:
    """Begin what a change of the network does to a message on a link.

    Changes come before all events of their nanosecond. Messages on one link come in the order of the link;
    those on links of one class, and links, in an order that may differ between ranks.
    """
    clock = run.clock[0]
    clock.turn_ns, clock.turn, clock.root = clock.now, 0, NONE
    clock.turn_posted_ns = NONE - 1
    clock.group = 0
    clock.part += 1
    has_origins(clock, mixed(clock.now, link_row))
    if link.sources != FROM_ONE:
        clock.origin = mixed(clock.origin, flow_of(run, run.messages[message_row]))


@when_watched
def link_freed(run: Run, link: Any, link_row: int, actor_row: int) -> None:
    """Check a link that becomes free: of an actor, or of several."""
    clock = run.clock[0]
    if link.sources == FROM_ONE:
        begin_own(run, actor_row)
    else:
        clock.origin, clock.group = mixed(clock.posted.origin, link_row), clock.turn
        clock.part += 1
        if link.sources == FROM_SEVERAL:
            clock.root = NONE
    contribute(run, link.mark, KINDS * link_row + OF_LINK)
