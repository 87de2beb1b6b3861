"""Traffic on the network: a record of every message, and of busy times of links.

The sender describes the next message; the network model then reports when it sets out, takes links and
arrives. Where a message waits for its request (rendezvous), its description is kept with the offer. A message
that waits for no link is logged when it sets out: its times are known.

All of this is idle unless it is recorded.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.link_slices import (
    note_begun,
    note_busy,
    note_carried,
    note_wait,
    note_waited,
    note_waiting,
)
from et_sim.engine.observe.observers import observes
from et_sim.engine.observe.ties import is_watched
from et_sim.engine.state.kinds import LATE_RECEIVE, MESSAGE
from et_sim.engine.state.records import PHASE_BITS
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.state.traffic_tables import Sent

SEND, COLLECTIVE, CUSTOM, REQUEST, TO_SWITCH, FROM_SWITCH, BETWEEN_SWITCHES = (int(sent) for sent in Sent)


@works_on_tables
def notes_traffic(run: Run) -> bool:
    """Return whether messages or links are recorded at all."""
    return len(run.recording) > 0 and run.traffic.on[0] == 1


when_noted = observes(notes_traffic)


@works_on_tables
def step_sent(run: Run, chunk_row: int, step_key: int) -> None:
    """Describe a step's message that a chunk sends or offers."""
    _describe_step(run, chunk_row, step_key >> 1, COLLECTIVE)


@works_on_tables
def sent_to_switch(run: Run, chunk_row: int) -> None:
    """Describe the part that a chunk sends to a switch that reduces."""
    _describe_step(run, chunk_row, 0, TO_SWITCH)


@when_noted
def sent_by_switch(run: Run, actor_row: int, phase_key: int) -> None:
    """Describe the part that a switch sends to an actor, whose collective may not have begun."""
    now = run.traffic.now[0]
    now.kind, now.actor, now.node = FROM_SWITCH, actor_row, NONE
    now.chunk, now.phase, now.step = NONE, phase_key & ((1 << PHASE_BITS) - 1), NONE
    now.ready_ns = run.clock[0].now


@when_noted
def sent_between_switches(run: Run, branch_row: int, phase_key: int) -> None:
    """Describe a message between switches; the record names an actor below both.

    Where ranks are folded, switches of a level are, too.
    """
    branch = run.plan.branches[branch_row]
    if is_watched(run):
        root = run.plan.switches[branch.switch].first_of_tree
        run.traffic.copies[0] = run.plan.switches[root].members // branch.members
    while branch.below != NONE:
        branch = run.plan.branches[run.plan.switches[branch.below].first_branch]
    sent_by_switch(run, branch.actor, phase_key)
    run.traffic.now[0].kind = BETWEEN_SWITCHES


@works_on_tables
def step_requested(run: Run, chunk_row: int, step_key: int) -> None:
    """Describe the request for a step's message."""
    _describe_step(run, chunk_row, step_key >> 1, REQUEST)


@when_noted
def _describe_step(run: Run, chunk_row: int, step: int, kind: int) -> None:
    """Describe the next message as one of a phase."""
    chunk, now = run.chunks[chunk_row], run.traffic.now[0]
    running = run.running[run.visits[chunk_row].running]
    now.kind, now.actor, now.node = kind, running.actor, running.node
    now.chunk, now.phase, now.step = chunk_row - running.chunks_first, chunk.phase, step
    now.ready_ns = run.clock[0].now


@when_noted
def send_starts(run: Run, kind: int, node: int, whose: int) -> None:
    """Describe the next message as one of a trace, or of a custom program."""
    if kind == MESSAGE:
        _describe_node(run, whose, node, SEND)
    else:
        _describe_step(run, whose, node, CUSTOM)


@when_noted
def held_send_starts(run: Run, event_row: int) -> None:
    """Describe the next message as one that was held back, ready since then."""
    held = run.events[event_row]
    send_starts(run, held.kind, held.b, held.c)
    run.traffic.now[0].ready_ns = run.traffic.held[event_row]


@when_noted
def message_requested(run: Run, kind: int, whose: int, node: int) -> None:
    """Describe the next message as the request of a posted receive."""
    if kind == LATE_RECEIVE:
        _describe_node(run, whose, node, REQUEST)
    else:
        _describe_step(run, whose, node, REQUEST)


@works_on_tables
def _describe_node(run: Run, actor_row: int, node: int, kind: int) -> None:
    now = run.traffic.now[0]
    now.kind, now.actor, now.node = kind, actor_row, node
    now.chunk = now.phase = now.step = NONE
    now.ready_ns = run.clock[0].now


@when_noted
def step_offered(run: Run, chunk_row: int, step_key: int, unexpected_row: int) -> None:
    """Keep the description of a step's message that a chunk offers."""
    step_sent(run, chunk_row, step_key)
    _copy_description(run.traffic.unexpected[unexpected_row], run.traffic.now[0])


@when_noted
def offer_sent(run: Run, row: int) -> None:
    """Describe the next message as one that was offered."""
    _copy_description(run.traffic.now[0], run.traffic.unexpected[row])


@when_noted
def send_held(run: Run, event_row: int) -> None:
    """Note when a send begins to wait for its request."""
    run.traffic.held[event_row] = run.clock[0].now


@when_noted
def actor_sends(run: Run, tier: int, tiers: int, begin: int, length: int, size: int) -> None:
    """Add the next message to all links that its sender has in one of the network's tiers.

    Messages between switches belong to no rank: they have a row behind those of all actors.
    """
    now = run.traffic.now[0]
    if now.kind == BETWEEN_SWITCHES:
        note_busy(run, len(run.actors) * tiers + tier, begin, length, size, run.traffic.copies[0])
    else:
        note_busy(run, now.actor * tiers + tier, begin, length, size, 1)


@when_noted
def link_passed(run: Run, link_row: int, begin: int, length: int, size: int) -> None:
    """Add the next message to a link that it does not wait for."""
    note_busy(run, link_row, begin, length, size, 1)


@when_noted
def message_flies(run: Run, target: int, size: int, left: int, flight: int, dimension: int) -> None:
    """Log a message that waits for nothing: its times at source and target are known."""
    message, now = run.traffic.now[0], run.clock[0].now
    message.peer, message.bytes = run.plan.actor_of_rank[target], size
    message.sent_ns = message.start_ns = now
    message.left_ns, message.arrived_ns = left, now + flight
    message.waited_ns, message.dimension = 0, dimension
    _log(run, message)


@when_noted
def message_sets_out(run: Run, row: int) -> None:
    """Begin the record of a message that is about to take its first link, or to wait for it."""
    message, sent = run.traffic.messages[row], run.messages[row]
    _copy_description(message, run.traffic.now[0])
    message.peer, message.bytes = run.plan.actor_of_rank[sent.target], sent.bytes
    message.sent_ns, message.start_ns, message.waited_ns = run.clock[0].now, NONE, 0


@when_noted
def message_queues(run: Run, row: int, link_row: int) -> None:
    """Note that a message begins to wait for a link."""
    run.traffic.joined[row] = run.clock[0].now
    note_waiting(run, link_row, 1)


@when_noted
def message_dequeued(run: Run, row: int, link_row: int) -> None:
    """Record the wait of a message that takes a link."""
    wait = run.clock[0].now - run.traffic.joined[row]
    run.traffic.messages[row].waited_ns += wait
    note_waiting(run, link_row, -1)
    note_wait(run, link_row, wait)


@when_noted
def message_takes_link(run: Run, row: int, link_row: int, dimension: int, length: int) -> None:
    """Record that a link serialises a message for `length` from now on."""
    message, now = run.traffic.messages[row], run.clock[0].now
    note_busy(run, link_row, now, length, message.bytes, 1)
    if message.start_ns == NONE:
        message.start_ns, message.left_ns = now, now + length
        message.dimension = dimension


@when_noted
def link_stops(run: Run, link_row: int, length: int, size: int) -> None:
    """Take back what a link would have carried in `length` from now on."""
    note_busy(run, link_row, run.clock[0].now, length, size, -1)
    note_begun(run, link_row, 1)  # the message has begun there


@when_noted
def link_goes_on(run: Run, row: int, link_row: int, length: int, size: int) -> None:
    """Record that a link serialises the rest of a message at another rate."""
    message, now = run.traffic.messages[row], run.clock[0].now
    note_busy(run, link_row, now, length, size, 1)
    note_begun(run, link_row, -1)
    if message.left_ns > now:
        message.left_ns = now + length


@when_noted
def message_cut(run: Run, row: int) -> None:
    """Begin the record of a message anew if it had not left its source."""
    message = run.traffic.messages[row]
    if message.left_ns > run.clock[0].now:
        message.start_ns = NONE


@when_noted
def messages_join_link(run: Run, link_row: int, count: int, messages: int) -> None:
    """Count messages that join a link, under way or in line; all but one of the messages there wait."""
    note_begun(run, link_row, count)
    note_waiting(run, link_row, max(messages - 1, 0) - max(messages - count - 1, 0))


@when_noted
def messages_leave_link(run: Run, link_row: int, count: int, messages: int) -> None:
    """Count messages that leave a link, which the others share."""
    note_waiting(run, link_row, max(messages - 1, 0) - max(messages + count - 1, 0))


@when_noted
def unit_taken(
    run: Run, row: int, unit: int, link: int, begin: int, held: int, piece_ns: int, whole_ns: int, size: int
) -> None:
    """Record that a unit of a memory pool passes `size` bytes in `whole_ns`, from `begin` on."""
    resource = run.units[unit].resource
    note_waited(run, resource, begin)
    note_busy(run, resource, begin, held + whole_ns, size, 1)


@when_noted
def link_carries(run: Run, link_row: int, begin: float, end: float, before: float, after: float) -> None:
    """Add the bytes that a link has carried at one rate, from `before` to `after`."""
    note_carried(run, link_row, begin, end, before, after)


@when_noted
def message_waited(
    run: Run, row: int, link_row: int, dimension: int, begin: int, end: int, alone_ns: int
) -> None:
    """Record the end of a message that shared links, limited by one; `alone_ns` is its time alone."""
    message = run.traffic.messages[row]
    message.start_ns, message.left_ns, message.dimension = begin, end, dimension
    message.waited_ns = max(end - begin - alone_ns, 0)
    note_wait(run, link_row, message.waited_ns)


@when_noted
def link_held_up(run: Run, row: int, link_row: int) -> None:
    """Record the wait of a finished message at another link that it was on."""
    note_wait(run, link_row, run.traffic.messages[row].waited_ns)


@when_noted
def message_arrives(run: Run, row: int) -> None:
    """Log a message that has reached its target."""
    run.traffic.messages[row].arrived_ns = run.clock[0].now
    _log(run, run.traffic.messages[row])


@works_on_tables
def _log(run: Run, message: Any) -> None:
    traffic = run.traffic
    if len(traffic.log) > 0:
        entry = traffic.log[traffic.logged[0]]
        traffic.logged[0] += 1
        _copy_description(entry, message)
        entry.peer, entry.dimension, entry.bytes = message.peer, message.dimension, message.bytes
        entry.sent_ns, entry.start_ns = message.sent_ns, message.start_ns
        entry.left_ns, entry.arrived_ns = message.left_ns, message.arrived_ns
        entry.waited_ns = message.waited_ns


@works_on_tables
def _copy_description(into: Any, message: Any) -> None:
    """Copy the description of a message."""
    into.kind, into.actor, into.node = message.kind, message.actor, message.node
    into.chunk, into.phase, into.step = message.chunk, message.phase, message.step
    into.ready_ns = message.ready_ns
