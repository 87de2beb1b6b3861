"""What is on the network: a record of every message, and of how busy links are.

Whoever sends says what the next message is about; the network model then says when it sets out, takes links
and arrives. Where a message waits to be asked for (rendezvous), what was said of it is kept beside the offer.
A message that waits for no link is logged when it sets out: its times are known.

All of this is idle unless it is recorded. Not here: slices of time (`link_slices`), and tables
(`state.traffic_tables`).
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
from et_sim.engine.observe.ties import is_watched
from et_sim.engine.state.kinds import LATE_RECEIVE, MESSAGE
from et_sim.engine.state.records import PHASE_BITS
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.state.traffic_tables import Sent

SEND, COLLECTIVE, CUSTOM, REQUEST, TO_SWITCH, FROM_SWITCH, BETWEEN_SWITCHES = (int(sent) for sent in Sent)


@works_on_tables
def is_noted(run: Run) -> bool:
    """Return whether messages or links are recorded at all."""
    return len(run.recording) > 0 and run.traffic.on[0] == 1


@works_on_tables
def step_sent(run: Run, chunk_row: int, step_key: int) -> None:
    """A chunk sends a step's message, or offers it."""
    _describe_step(run, chunk_row, step_key >> 1, COLLECTIVE)


@works_on_tables
def sent_to_switch(run: Run, chunk_row: int) -> None:
    """A chunk sends its part to a switch that reduces."""
    _describe_step(run, chunk_row, 0, TO_SWITCH)


@works_on_tables
def sent_by_switch(run: Run, actor_row: int, phase_key: int) -> None:
    """A switch sends an actor what it needs; the actor's collective may not have begun."""
    if is_noted(run):
        now = run.traffic.now[0]
        now.kind, now.actor, now.node = FROM_SWITCH, actor_row, NONE
        now.chunk, now.phase, now.step = NONE, phase_key & ((1 << PHASE_BITS) - 1), NONE
        now.ready_ns = run.clock[0].now


@works_on_tables
def sent_between_switches(run: Run, branch_row: int, phase_key: int) -> None:
    """A switch sends to the next one above or below; the record names an actor below both.

    Where ranks are folded, switches of a level are, too.
    """
    if is_noted(run):
        branch = run.plan.branches[branch_row]
        if is_watched(run):
            root = run.plan.switches[branch.switch].first_of_tree
            run.traffic.copies[0] = run.plan.switches[root].members // branch.members
        while branch.below != NONE:
            branch = run.plan.branches[run.plan.switches[branch.below].first_branch]
        sent_by_switch(run, branch.actor, phase_key)
        run.traffic.now[0].kind = BETWEEN_SWITCHES


@works_on_tables
def step_asked_for(run: Run, chunk_row: int, step_key: int) -> None:
    """A chunk asks for a step's message."""
    _describe_step(run, chunk_row, step_key >> 1, REQUEST)


@works_on_tables
def _describe_step(run: Run, chunk_row: int, step: int, kind: int) -> None:
    """The next message is one of a phase."""
    if is_noted(run):
        chunk, now = run.chunks[chunk_row], run.traffic.now[0]
        running = run.running[run.visits[chunk_row].running]
        now.kind, now.actor, now.node = kind, running.actor, running.node
        now.chunk, now.phase, now.step = chunk_row - running.chunks_first, chunk.phase, step
        now.ready_ns = run.clock[0].now


@works_on_tables
def send_starts(run: Run, kind: int, node: int, whose: int) -> None:
    """The next message is one of a trace, or of a custom program."""
    if is_noted(run):
        if kind == MESSAGE:
            _describe_node(run, whose, node, SEND)
        else:
            _describe_step(run, whose, node, CUSTOM)


@works_on_tables
def held_send_starts(run: Run, event_row: int) -> None:
    """The same for one that was held back; its sender has been ready since then."""
    if is_noted(run):
        held = run.events[event_row]
        send_starts(run, held.kind, held.b, held.c)
        run.traffic.now[0].ready_ns = run.traffic.held[event_row]


@works_on_tables
def message_asked_for(run: Run, kind: int, whose: int, node: int) -> None:
    """The next message asks for another one: a receive is posted."""
    if is_noted(run):
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


@works_on_tables
def step_offered(run: Run, chunk_row: int, step_key: int, unexpected_row: int) -> None:
    """A chunk offers a step's message: keep what is said of it."""
    if is_noted(run):
        step_sent(run, chunk_row, step_key)
        _copy_description(run.traffic.unexpected[unexpected_row], run.traffic.now[0])


@works_on_tables
def offer_sent(run: Run, unexpected_row: int) -> None:
    """The next message is one that was offered."""
    if is_noted(run):
        _copy_description(run.traffic.now[0], run.traffic.unexpected[unexpected_row])


@works_on_tables
def send_held(run: Run, event_row: int) -> None:
    """A send waits to be asked for."""
    if is_noted(run):
        run.traffic.held[event_row] = run.clock[0].now


@works_on_tables
def actor_sends(run: Run, tier: int, tiers: int, begin: int, length: int, size: int) -> None:
    """The next message occupies all links that its sender has in one of the network's tiers.

    What goes between switches is no rank's: it stands behind what all actors send.
    """
    if not is_noted(run):
        return
    now = run.traffic.now[0]
    if now.kind == BETWEEN_SWITCHES:
        note_busy(run, len(run.actors) * tiers + tier, begin, length, size, run.traffic.copies[0])
    else:
        note_busy(run, now.actor * tiers + tier, begin, length, size, 1)


@works_on_tables
def link_passed(run: Run, link_row: int, begin: int, length: int, size: int) -> None:
    """A link that nothing waits for serialises the next message."""
    if is_noted(run):
        note_busy(run, link_row, begin, length, size, 1)


@works_on_tables
def message_flies(run: Run, target: int, size: int, left: int, flight: int, dimension: int) -> None:
    """A message that waits for nothing sets out; it has left its source, and arrives, at known times."""
    if is_noted(run):
        message, now = run.traffic.now[0], run.clock[0].now
        message.peer, message.bytes = run.plan.actor_of_rank[target], size
        message.sent_ns = message.start_ns = now
        message.left_ns, message.arrived_ns = left, now + flight
        message.waited_ns, message.dimension = 0, dimension
        _log(run, message)


@works_on_tables
def message_sets_out(run: Run, row: int) -> None:
    """A message is about to take its first link, or to wait for it."""
    if is_noted(run):
        message, sent = run.traffic.messages[row], run.messages[row]
        _copy_description(message, run.traffic.now[0])
        message.peer, message.bytes = run.plan.actor_of_rank[sent.target], sent.bytes
        message.sent_ns, message.start_ns, message.waited_ns = run.clock[0].now, NONE, 0


@works_on_tables
def message_queues(run: Run, row: int, link_row: int) -> None:
    """A message waits for a link from now on."""
    if is_noted(run):
        run.traffic.joined[row] = run.clock[0].now
        note_waiting(run, link_row, 1)


@works_on_tables
def message_dequeued(run: Run, row: int, link_row: int) -> None:
    """A message has waited for a link, and takes it."""
    if is_noted(run):
        wait = run.clock[0].now - run.traffic.joined[row]
        run.traffic.messages[row].waited_ns += wait
        note_waiting(run, link_row, -1)
        note_wait(run, link_row, wait)


@works_on_tables
def message_takes_link(run: Run, row: int, link_row: int, dimension: int, length: int) -> None:
    """A link serialises a message from now on, for so long."""
    if is_noted(run):
        message, now = run.traffic.messages[row], run.clock[0].now
        note_busy(run, link_row, now, length, message.bytes, 1)
        if message.start_ns == NONE:
            message.start_ns, message.left_ns = now, now + length
            message.dimension = dimension


@works_on_tables
def messages_join_link(run: Run, link_row: int, count: int, messages: int) -> None:
    """So many messages more are on a link from now on, under way or in line; all but one of these wait."""
    if is_noted(run):
        note_begun(run, link_row, count)
        note_waiting(run, link_row, max(messages - 1, 0) - max(messages - count - 1, 0))


@works_on_tables
def messages_leave_link(run: Run, link_row: int, count: int, messages: int) -> None:
    """So many messages are through, and those that are left share the link."""
    if is_noted(run):
        note_waiting(run, link_row, max(messages - 1, 0) - max(messages + count - 1, 0))


@works_on_tables
def unit_taken(run: Run, resource: int, begin: int, length: int, size: int) -> None:
    """A unit of a memory pool is to pass bytes, from then on."""
    if is_noted(run):
        note_waited(run, resource, begin)
        note_busy(run, resource, begin, length, size, 1)


@works_on_tables
def link_carries(run: Run, link_row: int, begin: float, end: float, before: float, after: float) -> None:
    """A link has carried bytes at one rate, some before that time and some after it."""
    if is_noted(run):
        note_carried(run, link_row, begin, end, before, after)


@works_on_tables
def message_shared(
    run: Run, row: int, link_row: int, dimension: int, begin: int, end: int, alone_ns: int
) -> None:
    """A message that shared links is through, held up by one of them; it would have taken so long alone."""
    if is_noted(run):
        message = run.traffic.messages[row]
        message.start_ns, message.left_ns, message.dimension = begin, end, dimension
        message.waited_ns = max(end - begin - alone_ns, 0)
        note_wait(run, link_row, message.waited_ns)


@works_on_tables
def link_held_up(run: Run, row: int, link_row: int) -> None:
    """Note that a message that is through was on this link, too, while it was held up."""
    if is_noted(run):
        note_wait(run, link_row, run.traffic.messages[row].waited_ns)


@works_on_tables
def message_arrives(run: Run, row: int) -> None:
    """A message is at its target."""
    if is_noted(run):
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
    """What is said of a message before it sets out."""
    into.kind, into.actor, into.node = message.kind, message.actor, message.node
    into.chunk, into.phase, into.step = message.chunk, message.phase, message.step
    into.ready_ns = message.ready_ns
