"""The events of a run that observers receive: one function for each place of the mechanism.

Observers are causes (`causes` and its siblings), the network's traffic (`traffic`), packets at ports
(`queues`), the log of phases (`phases`) and ties (`ties` and its siblings). All their tables are empty in a
run that does not need them, and then the functions here do nothing; none of them changes the run.

An event of one observer is that observer's own function, imported from its module; an event of several is
defined here, and calls the functions of its name in their modules in turn.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import (
    causes,
    memory_causes,
    message_causes,
    ordering,
    phases,
    tie_rules,
    ties,
    traffic,
)
from et_sim.engine.observe.causes import *
from et_sim.engine.observe.memory_causes import *
from et_sim.engine.observe.message_causes import *
from et_sim.engine.observe.observers import together
from et_sim.engine.observe.phases import *
from et_sim.engine.observe.queues import *
from et_sim.engine.observe.tie_rules import *
from et_sim.engine.observe.ties import *
from et_sim.engine.observe.traffic import *
from et_sim.engine.state.run import Run

Thread = tuple[int, int, int]  # the cause, the origin and the root of the present
PLENTY = 1 << 40

is_ordered, order_fails, marks_of = ordering.is_ordered, ordering.order_fails, ordering.marks_of
OF_EVALUATED = ordering.OF_EVALUATED

# Events of several observers
actor_starts = together(ties.actor_starts, causes.actor_starts)
event_made = together(ties.event_made, causes.event_made, ordering.event_made)
event_taken = together(ties.event_taken, causes.event_taken, ordering.event_taken)
event_happens = together(ties.event_happens, ordering.event_happens)
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
parent_done = together(causes.parent_done, tie_rules.parent_done)
unit_taken = together(memory_causes.unit_taken, traffic.unit_taken)
step_received = together(phases.step_received, tie_rules.step_received, causes.step_received)
message_unexpected = together(message_causes.message_unexpected, tie_rules.message_unexpected)
send_meets_early = together(tie_rules.send_meets_early, message_causes.send_meets_early)
receive_meets_early = together(tie_rules.receive_meets_early, message_causes.receive_meets_early)
branch_freed = together(tie_rules.branch_freed, causes.branch_freed)
message_shares = together(message_causes.message_shares, ties.message_shares)


@works_on_tables
def is_recording(run: Run) -> bool:
    """Return whether causes, messages or links are recorded."""
    return len(run.recording) > 0


@works_on_tables
def is_tied(run: Run) -> bool:
    """Return whether a tie has occurred, whose order may differ between the ranks of an actor."""
    return (ties.is_watched(run) or ordering.is_ordered(run)) and run.clock[0].ties > 0


@works_on_tables
def rows_left(run: Run, reserve: int) -> int:
    """Return the number of rows left to record in; one event takes up to `reserve`."""
    rows = PLENTY
    if causes.describes_causes(run):
        left = len(run.causes.causal_events) - (run.causes.now[0].made - run.causes.now[0].flushed)
        rows = left // run.causes.reserve[0] * reserve
    if phases.logs_phases(run):
        rows = min(rows, len(run.phase_log) - run.clock[0].phases_logged)
    if traffic.notes_traffic(run) and len(run.traffic.log) > 0:
        rows = min(rows, len(run.traffic.log) - run.traffic.logged[0])
    return rows


@works_on_tables
def pause(run: Run) -> Thread:
    """Return the cause and the origin of the present, for `resume` after a part of the event."""
    return causes.current_cause(run), ties.current_origin(run), ties.current_root(run)


@works_on_tables
def resume(run: Run, thread: Thread) -> None:
    """Restore the cause and the origin for the rest of the event."""
    causes.restore_cause(run, thread[0])
    ties.restore_origin(run, thread[1], thread[2])


@works_on_tables
def link_taken(run: Run, row: int, link_row: int, link_class: int, dimension: int, serial_ns: int) -> int:
    """Record that a link serialises a message; return the cause of the message's end."""
    traffic.message_takes_link(run, row, link_row, dimension, serial_ns)
    return message_causes.link_serialises(run, link_row, link_class, serial_ns)


@works_on_tables
def message_shared(
    run: Run, row: int, link_row: int, link_class: int, dimension: int, begin: int, end: int, alone_ns: int
) -> int:
    """Record the end of a message that shared links, limited by one of them; return the cause of the end."""
    traffic.message_waited(run, row, link_row, dimension, begin, end, alone_ns)
    return message_causes.message_limited(run, row, link_row, link_class, begin, end)
