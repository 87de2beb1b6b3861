"""The events of a run that observers receive: one function for each place of the mechanism.

Observers are causes (`causes` and its siblings), the network's traffic (`traffic`), packets at ports
(`queues`), the log of phases (`phases`) and ties (`ties` and its siblings). All their tables are empty in a
run that does not need them, and then the functions here do nothing; none of them changes the run.

An event of one observer is that observer's own function; the functions of several observers are called in
turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import (
    causes,
    memory_causes,
    message_causes,
    phases,
    queues,
    tie_rules,
    ties,
    traffic,
)
from et_sim.engine.state.run import NONE, Run

Thread = tuple[int, int]  # the cause and the origin of the present
PLENTY = 1 << 40

Place = ParamSpec("Place")


def together(*functions: Callable[Place, None]) -> Callable[Place, None]:
    """Return a function that calls those of several observers, one after the other."""
    first: Any = functions[0]
    if len(functions) == 1:
        return first
    rest: Any = together(*functions[1:])

    @works_on_tables
    def both(run: Run, *about: Any) -> None:
        first(run, *about)
        rest(run, *about)

    all_of_them: Any = both
    return all_of_them


# Events
event_scheduled = causes.event_scheduled
bucket_taken = ties.bucket_taken
event_happens = ties.event_happens

# Nodes
node_without_parents = causes.parent_done
node_ready = tie_rules.node_ready
issue_pass_ends = tie_rules.issue_pass_ends
slowing_changes = tie_rules.slowing_changes
slowed_starts = causes.slowed_starts
slowed_end_planned = causes.slowed_end_planned
slowed_ends = causes.slowed_ends
server_taken = causes.server_taken
server_freed = causes.server_freed
request_served = causes.request_served
request_joins = memory_causes.request_joins
request_sets_out = memory_causes.request_sets_out
stage_passed = memory_causes.stage_passed
request_ends = memory_causes.request_ends
transfer_shared = memory_causes.transfer_shared

# Collectives
collective_issued = causes.collective_issued
chunk_leaves = causes.chunk_leaves
queue_considered = tie_rules.queue_considered
queue_deadlock = tie_rules.queue_deadlock
phase_done = phases.phase_done
phase_done_by_actor = causes.phase_done_by_actor
step_sent = traffic.step_sent
sent_to_switch = traffic.sent_to_switch
sent_by_switch = traffic.sent_by_switch
sent_between_switches = traffic.sent_between_switches
part_joined = causes.part_joined
joins_fifo = tie_rules.joins_fifo
counterpart_comes = tie_rules.met
branch_was_free = causes.branch_was_free
library_paces = causes.library_paces
switch_taken = message_causes.switch_taken
switch_delays = message_causes.switch_delays
step_requested = traffic.step_requested
step_offered = traffic.step_offered
offer_was_requested = message_causes.offer_was_requested
unexpected_on_its_way = message_causes.unexpected_on_its_way
early_step_scheduled = message_causes.early_step_scheduled
early_step_received = causes.early_step_received
custom_node_waits = causes.custom_node_waits
custom_parent_done = causes.custom_parent_done
custom_node_done = causes.custom_node_done
custom_program_done = causes.custom_program_done
bus_request_queued = memory_causes.bus_request_queued
bus_sends = memory_causes.bus_sends
bus_processes = memory_causes.bus_processes
bus_side_freed = memory_causes.bus_side_freed
bus_side_processed = memory_causes.bus_side_processed

# Messages
message_delivered = ties.message_delivered
send_starts = traffic.send_starts
send_held = traffic.send_held
message_requested = traffic.message_requested
message_early = message_causes.message_early
request_early = message_causes.request_early

# The network
message_sets_out = traffic.message_sets_out
message_takes_link = traffic.message_takes_link
message_flies = traffic.message_flies
message_arrives = traffic.message_arrives
message_hops = ties.message_hops
notes_traffic = traffic.is_noted
is_watched = ties.is_watched
actor_sends = traffic.actor_sends
link_passed = traffic.link_passed
message_through = ties.message_through
links_differ = ties.links_differ
messages_join_link = traffic.messages_join_link
messages_leave_link = traffic.messages_leave_link
link_carries = traffic.link_carries
link_reached = tie_rules.link_reached
link_was_free = message_causes.link_was_free
describes_causes = causes.is_recorded
describe_latency = message_causes.describe_latency
describe_serialisation = message_causes.describe_serialisation
describe_beside = message_causes.describe_beside
describe_rate_beside = message_causes.describe_rate_beside
describe_from = message_causes.describe_from
describe_bound = message_causes.describe_bound
described_so_far = message_causes.described_so_far
described_until = message_causes.described_until

# Ports, of network models with packets
records_queues = queues.records_queues
bytes_wait = queues.bytes_wait
bytes_go_on = queues.bytes_go_on
packet_lost = queues.packet_lost
packet_marked = queues.packet_marked
messages_cross = queues.messages_cross
pause_requested = queues.pause_requested
pause_begins = queues.pause_begins
pause_ends = queues.pause_ends
flow_ends = queues.flow_ends
queue_rows_left = queues.queue_rows_left
queues_at_end = queues.queues_at_end

# Causes of the next event
message_cause = message_causes.message_cause
message_part = message_causes.message_part
message_waited = traffic.message_shared
link_held_up = traffic.link_held_up
next_event_is_serialised = message_causes.next_event_is_serialised
next_event_follows = message_causes.next_event_follows
next_event_flies = message_causes.next_event_flies
next_event_ends_transfer = memory_causes.next_event_ends_transfer

# Events of several observers
actor_starts = together(ties.actor_starts, causes.actor_starts)
event_made = together(ties.event_made, causes.event_made)
event_taken = together(ties.event_taken, causes.event_taken)
node_starts = together(causes.node_starts, tie_rules.node_starts)
node_ends = together(causes.node_ends, tie_rules.node_ends)
collective_starts = together(tie_rules.collective_starts, causes.collective_starts)
chunk_queued = together(phases.chunk_queued, tie_rules.chunk_queued, causes.chunk_queued)
chunk_starts = together(tie_rules.chunk_starts, causes.chunk_starts, phases.chunk_starts)
receive_posted = together(tie_rules.receive_posted, phases.receive_posted, causes.receive_posted)
receive_met = together(tie_rules.receive_met, causes.receive_met)
second_half_tried = together(tie_rules.second_half_tried, causes.second_half_tried)
transfer_done = together(causes.transfer_done, tie_rules.transfer_done)
step_left = together(causes.transfer_done, tie_rules.step_left)
chunk_done = together(tie_rules.chunk_done, causes.chunk_done)
offer_sent = together(message_causes.offer_sent, traffic.offer_sent)
held_send_starts = together(tie_rules.met_waiting, message_causes.held_send_starts, traffic.held_send_starts)
held_part_starts = together(tie_rules.met_waiting, causes.held_part_starts)
message_met = together(tie_rules.met_waiting, message_causes.message_met)
message_queues = together(message_causes.message_queues, traffic.message_queues)
message_dequeued = together(message_causes.message_dequeued, traffic.message_dequeued)
link_freed = together(tie_rules.link_freed, message_causes.link_freed)


@works_on_tables
def is_recording(run: Run) -> bool:
    """Return whether causes, messages or links are recorded."""
    return len(run.recording) > 0


@works_on_tables
def is_tied(run: Run) -> bool:
    """Return whether a tie has occurred, whose order may differ between the ranks of an actor."""
    return ties.is_watched(run) and run.clock[0].ties > 0


@works_on_tables
def rows_left(run: Run, reserve: int) -> int:
    """Return the number of rows left to record in; one event takes up to `reserve`."""
    rows = PLENTY
    if causes.is_recorded(run):
        left = len(run.causes.causal_events) - (run.causes.now[0].made - run.causes.now[0].flushed)
        rows = left // run.causes.reserve[0] * reserve
    if len(run.phase_log) > 0:
        rows = min(rows, len(run.phase_log) - run.clock[0].phases_logged)
    if traffic.is_noted(run) and len(run.traffic.log) > 0:
        rows = min(rows, len(run.traffic.log) - run.traffic.logged[0])
    return rows


@works_on_tables
def pause(run: Run) -> Thread:
    """Return the cause and the origin of the present, for `resume` after a part of the event."""
    return causes.current_cause(run), ties.current_origin(run)


@works_on_tables
def resume(run: Run, thread: Thread) -> None:
    """Restore the cause and the origin for the rest of the event."""
    causes.restore_cause(run, thread[0])
    ties.restore_origin(run, thread[1])


@works_on_tables
def parent_done(run: Run, node_row: int, is_deferred: int) -> None:
    """Record a finished parent; `is_deferred`: nodes are being issued, so that the node has to wait."""
    causes.parent_done(run, node_row)
    tie_rules.parent_done(run, node_row, is_deferred)


@works_on_tables
def unit_taken(
    run: Run,
    row: int,
    unit_row: int,
    link: int,
    begin: int,
    held: int,
    piece_ns: int,
    whole_ns: int,
    size: int,
) -> None:
    """Record that a unit of a memory pool passes `size` bytes in `whole_ns`, a piece in `piece_ns`."""
    memory_causes.unit_taken(run, row, unit_row, link, begin, held, piece_ns, whole_ns)
    traffic.unit_taken(run, run.units[unit_row].resource, begin, held + whole_ns, size)


@works_on_tables
def step_received(run: Run, chunk_row: int) -> None:
    """Record that a chunk has received and counted a message."""
    phases.step_received(run, chunk_row)
    if run.plan.programs[run.chunks[chunk_row].program].tree_first == NONE:
        tie_rules.step_received(run, chunk_row)
        causes.step_received(run, chunk_row)


@works_on_tables
def phase_ends_for(run: Run, chunk_row: int, thread: Thread) -> None:
    """Record that a phase that ends for all actors together ends for one of them."""
    causes.restore_cause(run, thread[0])
    causes.works_for(run, chunk_row)


@works_on_tables
def message_unexpected(run: Run, row: int) -> None:
    """Record that a step's message, its offer or its request waits for its counterpart."""
    message_causes.message_unexpected(run, row)
    tie_rules.came_first(run, run.unexpected[row].mark)


@works_on_tables
def send_meets_early(run: Run, handshake_row: int) -> None:
    """Record that a message starts whose request came before."""
    tie_rules.met(run, run.handshakes[handshake_row].mark)
    message_causes.send_meets_early(run, handshake_row)


@works_on_tables
def request_at_source(run: Run, channel_row: int, handshake_row: int) -> None:
    """Record that the request for a message reached its source."""
    ties.request_at_source(run, channel_row)
    tie_rules.met(run, run.handshakes[handshake_row].mark)
    tie_rules.came_first(run, run.handshakes[handshake_row].mark)


@works_on_tables
def branch_freed(run: Run, branch_row: int) -> None:
    """Record that a member's part has left for its switch."""
    ties.begin_own(run, run.plan.branches[branch_row].actor)
    causes.branch_freed(run, branch_row)


@works_on_tables
def receive_meets_early(run: Run, channel_row: int) -> None:
    """Record that a receive is posted whose message came before."""
    tie_rules.met(run, run.channels[channel_row].mark)
    message_causes.receive_meets_early(run, channel_row)


@works_on_tables
def message_at_target(run: Run, channel_row: int) -> None:
    """Record that a message reached its target."""
    ties.message_at_target(run, channel_row)
    tie_rules.met(run, run.channels[channel_row].mark)
    tie_rules.came_first(run, run.channels[channel_row].mark)


@works_on_tables
def link_taken(run: Run, row: int, link_row: int, link_class: int, dimension: int, serial_ns: int) -> int:
    """Record that a link serialises a message; return the cause of the message's end."""
    traffic.message_takes_link(run, row, link_row, dimension, serial_ns)
    return message_causes.link_taken(run, link_row, link_class, serial_ns)


@works_on_tables
def message_shares(run: Run, row: int) -> None:
    """Record that a message starts to share links with others."""
    message_causes.message_shares(run, row)
    ties.message_sent(run, run.messages[row])


@works_on_tables
def message_shared(
    run: Run, row: int, link_row: int, link_class: int, dimension: int, begin: int, end: int, alone_ns: int
) -> int:
    """Record the end of a message that shared links, limited by one of them; return the cause of the end."""
    traffic.message_shared(run, row, link_row, dimension, begin, end, alone_ns)
    return message_causes.message_shared(run, row, link_row, link_class, begin, end)
