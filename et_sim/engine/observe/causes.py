"""Causes of events: a record of which causal event led to which.

A *causal event* is a point of the run. A duration leads from one to the next; a causal event that needs two
earlier ones names the later of them (its critical parent) and the other one. So a causal event ends at the
later end of the two that it needs, plus its own duration: all times of a run follow from its first one by
nothing but sums and maxima. Walking back from the last one along critical parents visits everything that
determined the length of the run.

The functions here record three things: durations (`event_scheduled`, by the kind of the event), other causes
than the event under way (`join_cause`, and all functions that call it), and the node that the work belongs to
(`works_for`). Anything that waits keeps the cause that it had when it began to wait.

All of this is idle unless causes are recorded.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.observers import observes
from et_sim.engine.state import kinds
from et_sim.engine.state.cause_tables import CauseKind
from et_sim.engine.state.lanes import lane_row
from et_sim.engine.state.run import NONE, RUNNING_LIMIT, Run

BEGINNING = 0
NOTHING, LATE_START, NODE = int(CauseKind.BEGIN), int(CauseKind.LATE_START), int(CauseKind.NODE)
LATENCY, SERIALISATION, ENDPOINT = (
    int(CauseKind.LATENCY),
    int(CauseKind.SERIALISATION),
    int(CauseKind.ENDPOINT),
)
REDUCTION, BUS = int(CauseKind.REDUCTION), int(CauseKind.BUS)
LIBRARY = int(CauseKind.LIBRARY)
SWITCH, SWITCH_RATE = int(CauseKind.SWITCH), int(CauseKind.SWITCH_RATE)
NODE_START, NODE_END = int(CauseKind.NODE_START), int(CauseKind.NODE_END)
CHUNK_QUEUED, CHUNK_START = int(CauseKind.CHUNK_QUEUED), int(CauseKind.CHUNK_START)
PARENTS, LANE, QUEUE_SLOT = int(CauseKind.PARENTS), int(CauseKind.LANE), int(CauseKind.QUEUE_SLOT)
LINK, LINK_QUEUE = int(CauseKind.LINK), int(CauseKind.LINK_QUEUE)
SERVER, SERVER_QUEUE = int(CauseKind.SERVER), int(CauseKind.SERVER_QUEUE)
BUS_SIDE, BUS_QUEUE = int(CauseKind.BUS_SIDE), int(CauseKind.BUS_QUEUE)
RECEIVE, REQUEST = int(CauseKind.RECEIVE), int(CauseKind.REQUEST)
ENDPOINT_TRANSFERS, HALF, CHUNKS = (
    int(CauseKind.ENDPOINT_TRANSFERS),
    int(CauseKind.HALF),
    int(CauseKind.CHUNKS),
)
BARRIER, BOUND, CONTENTION = int(CauseKind.BARRIER), int(CauseKind.BOUND), int(CauseKind.CONTENTION)


@works_on_tables
def describes_causes(run: Run) -> bool:
    """Return whether causes are recorded at all."""
    return len(run.recording) > 0 and run.causes.on[0] == 1


when_recorded = observes(describes_causes)


@works_on_tables
def new_causal_event(run: Run, critical: int, other: int, kind: int, start_ns: int, end_ns: int) -> int:
    """Return a new causal event, which needs up to two others."""
    now = run.causes.now[0]
    event = run.causes.causal_events[now.made - now.flushed]
    event.critical_parent, event.other_parent = critical, other
    event.start_ns, event.end_ns = start_ns, end_ns
    event.node, event.kind = now.node, kind
    event.link, event.resource = now.link, now.resource
    now.made += 1
    return now.made - 1


@works_on_tables
def _comes(run: Run, other: int, kind: int, resource: int) -> None:
    """Make the present a causal event of its own, which may need another one, too."""
    now, time = run.causes.now[0], run.clock[0].now
    now.resource = resource
    now.cause = new_causal_event(run, now.cause, other if other != now.cause else NONE, kind, time, time)
    now.resource = NONE


@when_recorded
def actor_starts(run: Run, actor_row: int) -> None:
    """Begin with the first causal event of the run."""
    run.causes.now[0].cause, run.causes.now[0].node = BEGINNING, NONE


@when_recorded
def event_taken(run: Run, event_row: int) -> None:
    """Restore the cause and the node of an event."""
    now, kept = run.causes.now[0], run.causes.events[event_row]
    now.cause, now.node = kept.cause, kept.node


@when_recorded
def event_made(run: Run, event_row: int) -> None:
    """Store the present cause and node with an event, which may have to wait."""
    now, kept = run.causes.now[0], run.causes.events[event_row]
    kept.cause, kept.node = now.cause, now.node


@when_recorded
def event_scheduled(run: Run, event_row: int, time: int, event_kind: int) -> None:
    """Record the causal event of a scheduled event: it follows the present, or the described causes."""
    run.causes.events[event_row].cause = causal_event_at(run, time, event_kind)


@when_recorded
def library_paces(run: Run) -> None:
    """Charge the time until the next event to a collective library."""
    run.causes.now[0].kind = LIBRARY


@works_on_tables
def causal_event_at(run: Run, time: int, event_kind: int) -> int:
    """Return the causal event of a future event that follows from the present."""
    now = run.causes.now[0]
    base = now.cause if now.after == NONE else now.after
    base_ns = run.clock[0].now if now.after == NONE else now.after_ns
    kind = _time_of(event_kind) if now.kind == NONE else now.kind
    if time > base_ns or kind == REDUCTION:  # a reduction may take no time after rounding
        base = new_causal_event(run, base, NONE, kind, base_ns, time)
    now.after = now.kind = now.link = now.resource = NONE
    return base


@works_on_tables
def _time_of(event_kind: int) -> int:
    """Return the kind of the time until an event."""
    if event_kind == kinds.TRANSFER_AT_ENDPOINT:
        return ENDPOINT
    if event_kind == kinds.TRANSFER_READY:
        return REDUCTION
    if event_kind in (kinds.BUS_SENT, kinds.BUS_RECEIVED, kinds.BUS_PROCESSED):
        return BUS
    if event_kind == kinds.SWITCH_DONE:
        return SWITCH
    return LATE_START if event_kind == kinds.START else NODE


@observes(describes_causes, otherwise=NONE)
def current_cause(run: Run) -> int:
    """Return the present cause, for `join_cause` or `restore_cause` later."""
    return run.causes.now[0].cause


@when_recorded
def restore_cause(run: Run, cause: int) -> None:
    """Restore a cause for the rest of the event."""
    run.causes.now[0].cause = cause


@when_recorded
def join_cause(run: Run, cause: int, kind: int, resource: int) -> None:
    """Add another cause of what follows."""
    if cause != NONE and cause != current_cause(run):
        _comes(run, cause, kind, resource)


@when_recorded
def works_for(run: Run, chunk_row: int) -> None:
    """Charge the following work to the collective of a chunk."""
    running = run.running[run.visits[chunk_row].running]
    run.causes.now[0].node = run.plan.actors[running.actor].node_first + running.node


@when_recorded
def node_without_parents(run: Run, node_row: int) -> None:
    """Add the start, or a finished parent, to the causes of a node."""
    join_cause(run, run.causes.nodes[node_row], PARENTS, NONE)
    run.causes.nodes[node_row] = current_cause(run)


@works_on_tables
def parent_done(run: Run, node_row: int, is_deferred: int) -> None:
    """Add a finished parent to the causes of a node."""
    node_without_parents(run, node_row)


@when_recorded
def node_starts(run: Run, actor_row: int, node: int, lane: int, is_limited: int) -> None:
    """Record that a node is issued after its parents and, in a limited lane, after a place became free."""
    resource, row = lane_row(run, actor_row, lane), run.plan.actors[actor_row].node_first + node
    run.causes.now[0].node = row
    if is_limited:
        _needs_place(run, resource, lane)
    _comes(run, run.causes.nodes[row], NODE_START, resource if is_limited else NONE)


@works_on_tables
def _needs_place(run: Run, resource: int, lane: int) -> None:
    """Add the node that left the place in the lane as a cause."""
    uses, places = run.causes.lane_uses[resource], run.causes.lanes
    needed = uses.starts - run.plan.lane_limits[lane]
    uses.starts += 1
    if 0 <= needed < uses.leaves:
        needed = max(needed, uses.leaves - places.shape[1])
        join_cause(run, places[resource, needed % places.shape[1]], LANE, resource)


@when_recorded
def node_ends(run: Run, actor_row: int, node: int, lane: int) -> None:
    """Record the end of a node, which frees a place in its lane."""
    resource = lane_row(run, actor_row, lane)
    run.causes.now[0].node = run.plan.actors[actor_row].node_first + node
    _comes(run, NONE, NODE_END, resource)
    uses, places = run.causes.lane_uses[resource], run.causes.lanes
    places[resource, uses.leaves % places.shape[1]] = current_cause(run)
    uses.leaves += 1


@when_recorded
def slowed_starts(run: Run, node: int) -> None:
    """Keep the cause of a node that takes longer beside communication."""
    run.causes.nodes[node] = current_cause(run)


@when_recorded
def slowed_end_planned(run: Run, node: int, ends_ns: int) -> None:
    """Describe the planned end of a slowed node; the use of its time is recorded at the end."""
    now = run.causes.now[0]
    now.after, now.after_ns, now.node = run.causes.nodes[node], ends_ns, node


@when_recorded
def slowed_ends(run: Run, node: int, start_ns: int, alone_ns: int) -> None:
    """Record the time of a slowed node: its time alone, then its loss to communication."""
    now, alone_until = run.causes.now[0], start_ns + alone_ns
    now.node = node
    now.cause = run.causes.nodes[node]
    if alone_ns > 0:
        now.cause = new_causal_event(run, now.cause, NONE, NODE, start_ns, alone_until)
    if run.clock[0].now > alone_until:
        now.cause = new_causal_event(run, now.cause, NONE, CONTENTION, alone_until, run.clock[0].now)


@when_recorded
def chunk_queued(run: Run, chunk_row: int) -> None:
    """Record that a chunk joins a queue, and reset the causes of its phase."""
    cause, chunk = current_cause(run), run.causes.chunks[chunk_row]
    works_for(run, chunk_row)
    _comes(run, NONE, CHUNK_QUEUED, run.visits[chunk_row].queue)
    chunk.queued = current_cause(run)
    restore_cause(run, cause)
    chunk.ready = chunk.half = chunk.ended = NONE
    for resource in range(run.causes.posted.shape[1]):
        run.causes.posted[chunk_row, resource] = NONE


@when_recorded
def chunk_starts(run: Run, chunk_row: int) -> None:
    """Record that a chunk starts, after the chunk that left its place in the queue."""
    works_for(run, chunk_row)
    queue_row = run.visits[chunk_row].queue
    queue, slots = run.causes.queues[queue_row], run.causes.queue_slots
    needed = queue.starts - run.plan.settings[RUNNING_LIMIT]
    queue.starts += 1
    if 0 <= needed < queue.leaves:
        needed = max(needed, queue.leaves - slots.shape[1])
        join_cause(run, slots[queue_row, needed % slots.shape[1]], QUEUE_SLOT, queue_row)
    _comes(run, run.causes.chunks[chunk_row].queued, CHUNK_START, queue_row)


@when_recorded
def chunk_leaves(run: Run, queue_row: int) -> None:
    """Record that a chunk leaves a queue."""
    queue, slots = run.causes.queues[queue_row], run.causes.queue_slots
    slots[queue_row, queue.leaves % slots.shape[1]] = current_cause(run)
    queue.leaves += 1


@when_recorded
def transfer_done(run: Run, chunk_row: int) -> None:
    """Add a finished transfer to the causes of what follows in its phase."""
    works_for(run, chunk_row)
    chunk = run.causes.chunks[chunk_row]
    is_tree = run.plan.programs[run.chunks[chunk_row].program].tree_first != NONE
    join_cause(run, chunk.ready, PARENTS if is_tree else ENDPOINT_TRANSFERS, NONE)
    chunk.ready = current_cause(run)


@when_recorded
def part_joined(run: Run, join_row: int, is_first: bool) -> None:
    """Add a part of a chunk at a switch to the causes of what follows."""
    if not is_first:
        join_cause(run, run.causes.joins[join_row], PARENTS, NONE)
    run.causes.joins[join_row] = current_cause(run)


@when_recorded
def branch_freed(run: Run, branch_row: int) -> None:
    """Keep the cause by which a member's part has left for its switch."""
    run.causes.branches[branch_row] = current_cause(run)


@when_recorded
def branch_was_free(run: Run, branch_row: int) -> None:
    """Add the departure of the part before as a cause."""
    if run.causes.branches[branch_row] != NONE:
        join_cause(run, run.causes.branches[branch_row], BOUND, NONE)


@works_on_tables
def held_part_starts(run: Run, event_row: int) -> None:
    """Record that a part starts that waited for the one before."""
    needs_waiting(run, event_row, BOUND, NONE)


@when_recorded
def custom_node_done(run: Run, chunk_row: int) -> None:
    """Add a finished node of a custom program to the causes of the end of the phase, not of its children."""
    before = current_cause(run)
    works_for(run, chunk_row)
    join_cause(run, run.causes.chunks[chunk_row].ready, PARENTS, NONE)
    run.causes.chunks[chunk_row].ready = current_cause(run)
    restore_cause(run, before)


@when_recorded
def custom_program_done(run: Run, chunk_row: int) -> None:
    """Continue with the causes of all nodes of a custom program."""
    restore_cause(run, run.causes.chunks[chunk_row].ready)


@when_recorded
def second_half_tried(run: Run, chunk_row: int) -> None:
    """Add the last message of the first half of a direct exchange as a cause of the second."""
    chunk = run.chunks[chunk_row]
    if chunk.received >= run.plan.programs[chunk.program].half:
        join_cause(run, run.causes.chunks[chunk_row].half, HALF, NONE)


@when_recorded
def receive_posted(run: Run, chunk_row: int, step_key: int) -> None:
    """Keep the cause of a posted receive."""
    posted = run.causes.posted
    posted[chunk_row, (step_key >> 1) % posted.shape[1]] = current_cause(run)


@when_recorded
def receive_met(run: Run, chunk_row: int, step_key: int) -> None:
    """Add the posted receive of a message as a cause."""
    works_for(run, chunk_row)
    posted, resource = run.causes.posted, _place_of_receives(run, chunk_row)
    join_cause(run, posted[chunk_row, (step_key >> 1) % posted.shape[1]], RECEIVE, resource)


@when_recorded
def early_step_received(run: Run, chunk_row: int, unexpected_row: int) -> None:
    """Add the arrival of an unexpected message as a cause."""
    message = run.causes.unexpected[unexpected_row]
    join_cause(run, message.cause, RECEIVE, _place_of_receives(run, chunk_row))


@works_on_tables
def _place_of_receives(run: Run, chunk_row: int) -> int:
    """Return the chunk if its transfers depend on the order of messages of several peers, else NONE."""
    program = run.plan.programs[run.chunks[chunk_row].program]
    has_one_peer = program.step_period == 1 and program.own_steps == 0
    is_by_order = program.tree_first == NONE and program.transfer_period > 1 and not has_one_peer
    return chunk_row if is_by_order and not _has_equal_pauses(run, program) else NONE


@works_on_tables
def _has_equal_pauses(run: Run, program: Any) -> bool:
    """Return whether the transfers of a program are equal pauses.

    Where all members send alike, the longer pauses come first, or one last.
    """
    first, count = program.transfer_first, program.transfer_period
    each = 1 if program.own_steps > 0 else count - 1
    for row in range(first, first + count, each):
        transfer = run.plan.transfers[row]
        if transfer.bytes > 0 or transfer.reduction_ns != run.plan.transfers[first].reduction_ns:
            return False
    return True


@when_recorded
def collective_starts(run: Run, running_row: int) -> None:
    """Reset the causes of a collective, none of whose chunks is done."""
    run.causes.running[running_row] = NONE


@when_recorded
def chunk_done(run: Run, running_row: int) -> None:
    """Add a finished chunk to the causes of its collective."""
    join_cause(run, run.causes.running[running_row], CHUNKS, NONE)
    run.causes.running[running_row] = current_cause(run)


@when_recorded
def collective_issued(run: Run, issued: int) -> None:
    """Add the issue by an actor to the causes of a collective that starts on all actors together."""
    join_cause(run, run.causes.issuers[issued], BARRIER, NONE)
    run.causes.issuers[issued] = current_cause(run)


@when_recorded
def phase_done_by_actor(run: Run, first_chunk: int) -> None:
    """Add an actor's end of a phase to the causes of its end on all actors."""
    join_cause(run, run.causes.chunks[first_chunk].ended, BARRIER, NONE)
    run.causes.chunks[first_chunk].ended = current_cause(run)


@when_recorded
def phase_ends_for(run: Run, chunk_row: int, thread: tuple[int, int, int]) -> None:
    """Record that a phase that ends for all actors together ends for one of them."""
    restore_cause(run, thread[0])
    works_for(run, chunk_row)


@when_recorded
def server_freed(run: Run, server_row: int) -> None:
    """Keep the cause by which a remote memory became free."""
    run.causes.servers[server_row] = current_cause(run)


@when_recorded
def server_taken(run: Run, server_row: int) -> None:
    """Add the end of the request before as a cause of the use of a remote memory."""
    join_cause(run, run.causes.servers[server_row], SERVER, server_row)


@works_on_tables
def request_served(run: Run, event_row: int, server_row: int) -> None:
    """Record that a remote memory serves a request that has waited for it."""
    needs_waiting(run, event_row, SERVER_QUEUE, server_row)


@when_recorded
def needs_waiting(run: Run, event_row: int, kind: int, resource: int) -> None:
    """Continue an event that has waited, and add the cause it had when it began to wait."""
    kept = run.causes.events[event_row]
    run.causes.now[0].node = kept.node
    join_cause(run, kept.cause, kind, resource)


@when_recorded
def step_received(run: Run, chunk_row: int) -> None:
    """Keep the cause of the last message of the first half of a direct exchange."""
    chunk = run.chunks[chunk_row]
    if chunk.received == run.plan.programs[chunk.program].half:
        run.causes.chunks[chunk_row].half = current_cause(run)


@when_recorded
def custom_node_waits(run: Run, chunk_row: int, node: int) -> None:
    """Reset the causes of a node of a custom program."""
    run.causes.custom[chunk_row, node] = NONE


@when_recorded
def custom_parent_done(run: Run, chunk_row: int, node: int) -> None:
    """Add a finished parent to the causes of a node of a custom program."""
    join_cause(run, run.causes.custom[chunk_row, node], PARENTS, NONE)
    run.causes.custom[chunk_row, node] = current_cause(run)
