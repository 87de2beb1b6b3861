"""Point-to-point messages: sends and receives that match on a channel.

The k-th send of a channel matches its k-th receive. A message that arrives before its receive is posted waits
at the channel, and the receive then completes as a new event: at the time it is posted, or when the message
is copied out of its buffer. A send is complete when its message has arrived, or, if it is eager, when its
last byte has left.

With rendezvous, a receive first requests its message from the source, and is posted when the request is
there; until then, the source holds back its next message between the two ranks with this tag, of any size.
Where receivers have finite buffers, messages of up to `room` bytes between two ranks may start before their
receives are posted, with any tags; the source holds further messages, and no request crosses the network.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import new_event, schedule
from et_sim.engine.containers import give_row, join, leave, leave_from
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import (
    CUSTOM_DONE,
    EXCEED,
    HELD_MESSAGE,
    INJECT_CUSTOM,
    INJECT_MESSAGE,
    LATE_RECEIVE,
    MESSAGE,
    NODE_DONE,
    REQUESTED_CUSTOM,
    REQUESTED_MESSAGE,
)
from et_sim.engine.state.run import NEVER, NONE, RENDEZVOUS, Run
from et_sim.engine.transport.network_seam import inject, is_eager, receive_posted
from et_sim.plan.records import NO_LIMIT, REQUEST_BYTES


@works_on_tables
def send(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Send on a channel; (kind, channel, b, c) happens on arrival."""
    if not run.plan.settings[RENDEZVOUS]:
        if run.plan.channels[channel_row].room != NO_LIMIT and kind == MESSAGE:
            _send_into_buffer(run, channel_row, b, c)
        else:
            send_now(run, channel_row, kind, b, c)
        return
    handshake_row = run.plan.channels[channel_row].handshake
    handshake = run.handshakes[handshake_row]
    observe.joins_fifo(run, handshake)
    if handshake.arrived > 0:
        handshake.arrived -= 1
        thread = observe.pause(run)
        observe.send_meets_early(run, handshake_row)
        asked = INJECT_MESSAGE if kind == MESSAGE else INJECT_CUSTOM
        schedule(run, run.clock[0].now, asked, channel_row, b, c)
        observe.resume(run, thread)
    else:
        held_row = new_event(run, kind, channel_row, b, c)
        observe.send_held(run, held_row)
        join(run.events, handshake, held_row)


@works_on_tables
def _send_into_buffer(run: Run, channel_row: int, b: int, c: int) -> None:
    """Send a message if its receive is posted or its buffer has room; else hold it.

    If receives of the same nanosecond matter, a new event decides, so that the order of the two does not.
    """
    plan, state = run.plan.channels[channel_row], run.channels[channel_row]
    pair, now = run.handshakes[plan.handshake], run.clock[0].now
    observe.joins_fifo(run, pair)
    posted_now = state.last if state.last_ns == now else 0
    freed_now = pair.last if pair.last_ns == now else 0
    has_room = pair.head == NONE and pair.ahead + freed_now + _buffered(plan.bytes) <= plan.room
    if state.balance > posted_now or has_room:
        if state.balance <= 0:
            pair.ahead += _buffered(plan.bytes)
        state.balance -= 1
        send_now(run, channel_row, MESSAGE, b, c)
        return
    held_row = new_event(run, MESSAGE, channel_row, b, c)
    observe.send_held(run, held_row)
    run.nodes[run.plan.actors[c].node_first + b].admitted_ns = NEVER
    _hold_sender(run, c)
    if state.balance > 0:
        state.balance -= 1
        _start(run, channel_row, held_row)
    else:
        state.held += 1
        run.actors[run.plan.actor_of_rank[plan.target]].awaited += 1
        join(run.events, pair, held_row)
        _start_first_held(run, pair)


@works_on_tables
def _hold_sender(run: Run, actor_row: int) -> None:
    """Count a send of an actor that finds no room, and start held messages to the actor.

    A library carries out sends and receives of a group together, and traces do not record these groups: a
    rank that is in a send receives messages of others, too.
    """
    actor = run.actors[actor_row]
    actor.held_sends += 1
    if actor.held_sends > 1 or actor.awaited == 0:
        return
    for row in range(len(run.handshakes)):
        pair = run.handshakes[row]
        if pair.head != NONE and _target_of(run, run.events[pair.head].a) == actor_row:
            _start_first_held(run, pair)


@works_on_tables
def _target_of(run: Run, channel_row: int) -> int:
    """Return the actor that receives the messages of a channel."""
    return run.plan.actor_of_rank[run.plan.channels[channel_row].target]


@works_on_tables
def held_send_done(run: Run, actor_row: int) -> None:
    """Count a send of an actor that had found no room as done."""
    run.actors[actor_row].held_sends -= 1
    run.actors[actor_row].freed_ns = run.clock[0].now


@works_on_tables
def _is_in_send(run: Run, actor_row: int) -> bool:
    """Return whether an actor is in a send that found no room, or was in this nanosecond."""
    actor = run.actors[actor_row]
    return bool(actor.held_sends > 0 or actor.freed_ns == run.clock[0].now)


@works_on_tables
def _buffered(size: int) -> int:
    """Return the bytes that a message takes in a buffer."""
    return max(size, 1)


@works_on_tables
def _free_room(run: Run, channel_row: int) -> None:
    """Free the buffer of a message whose receive is posted, or start the message if it is held."""
    plan, state = run.plan.channels[channel_row], run.channels[channel_row]
    pair, now = run.handshakes[plan.handshake], run.clock[0].now
    state.last = state.last + 1 if state.last_ns == now else 1
    state.last_ns = now
    if state.balance < 0:
        state.balance += 1
        size = _buffered(plan.bytes)
        pair.ahead -= size
        pair.last = pair.last + size if pair.last_ns == now else size
        pair.last_ns = now
    elif state.held > 0:
        _note_start(run, channel_row)
        _start(run, channel_row, _leave_held(run, pair, channel_row))
    else:
        state.balance += 1
        return
    _start_first_held(run, pair)


@works_on_tables
def _leave_held(run: Run, pair: Any, channel_row: int) -> int:
    """Remove the first message of a channel from those that are held between two ranks."""
    before, row = NONE, pair.head
    while run.events[row].a != channel_row:
        before, row = row, run.events[row].next
    leave_from(run.events, pair, before, row)
    return row


@works_on_tables
def _start_first_held(run: Run, pair: Any) -> None:
    """Start the first message held between two ranks if it finds room, or a receiver that is in a send.

    The next one follows it.
    """
    if pair.head == NONE:
        return
    channel_row = run.events[pair.head].a
    plan, state = run.plan.channels[channel_row], run.channels[channel_row]
    if pair.ahead + _buffered(plan.bytes) <= plan.room or _is_in_send(run, _target_of(run, channel_row)):
        pair.ahead += _buffered(plan.bytes)
        _note_start(run, channel_row)
        state.balance -= 1
        _start(run, channel_row, leave(run.events, pair))


@works_on_tables
def _note_start(run: Run, channel_row: int) -> None:
    """Count a held message of a channel that starts."""
    run.channels[channel_row].held -= 1
    run.actors[_target_of(run, channel_row)].awaited -= 1


@works_on_tables
def break_full_buffers(run: Run) -> bool:
    """Start held messages if nothing else is left to happen; return whether any is held."""
    return run.plan.settings[RENDEZVOUS] == 0 and _exceed_from(run, 0)


@works_on_tables
def exceed_buffer(run: Run, pair_row: int) -> None:
    """Start the first message held between two ranks without room for it, then go on to the next pair."""
    pair = run.handshakes[pair_row]
    observe.queue_deadlock(run)
    if pair.head != NONE:  # else it has started in this nanosecond
        channel_row = run.events[pair.head].a
        pair.ahead += _buffered(run.plan.channels[channel_row].bytes)
        _note_start(run, channel_row)
        run.channels[channel_row].balance -= 1
        _start(run, channel_row, leave(run.events, pair))
    _exceed_from(run, pair_row + 1)


@works_on_tables
def _exceed_from(run: Run, pair_row: int) -> bool:
    """Schedule the start for one pair of ranks; one per event keeps within the reserve of the pools."""
    for row in range(pair_row, len(run.handshakes)):
        if run.handshakes[row].head != NONE and run.events[run.handshakes[row].head].kind == MESSAGE:
            schedule(run, run.clock[0].now, EXCEED, row, 0, 0)
            return True
    return False


@works_on_tables
def _start(run: Run, channel_row: int, held_row: int) -> None:
    """Start a held message in an event at the present time."""
    thread = observe.pause(run)
    schedule(run, run.clock[0].now, HELD_MESSAGE, channel_row, held_row, 0)
    observe.resume(run, thread)


@works_on_tables
def send_held(run: Run, held_row: int) -> None:
    """Send a message that was held until there was room for it, and the next one if it finds room."""
    held = run.events[held_row]
    kind, channel_row, b, c = held.kind, held.a, held.b, held.c
    _start_first_held(run, run.handshakes[run.plan.channels[channel_row].handshake])
    observe.held_send_starts(run, held_row)
    give_row(run.events, run.clock[0].free_events, held_row)
    run.nodes[run.plan.actors[c].node_first + b].admitted_ns = run.clock[0].now
    _inject(run, channel_row, kind, b, c)


@works_on_tables
def send_now(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Send a message that waits for nothing."""
    observe.send_starts(run, kind, b, c)
    _inject(run, channel_row, kind, b, c)


@works_on_tables
def _inject(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    channel = run.plan.channels[channel_row]
    done = NONE
    if is_eager(run, channel.bytes):
        done = NODE_DONE if kind == MESSAGE else CUSTOM_DONE
    inject(run, channel.source, channel.target, channel.bytes, kind, channel_row, b, c, done)


@works_on_tables
def post_receive(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Post a receive, or with rendezvous request its message; (kind, a, b) happens when this is here."""
    if not run.plan.settings[RENDEZVOUS]:
        _await_message(run, channel_row, kind, a, b)
        receive_posted(run, channel_row, kind, a, b)
        if run.plan.channels[channel_row].room != NO_LIMIT and kind == LATE_RECEIVE:
            thread = observe.pause(run)
            _free_room(run, channel_row)
            observe.resume(run, thread)
        return
    channel = run.plan.channels[channel_row]
    observe.message_requested(run, kind, a, b)
    asked = REQUESTED_MESSAGE if kind == LATE_RECEIVE else REQUESTED_CUSTOM
    inject(run, channel.target, channel.source, REQUEST_BYTES, asked, channel_row, a, b, NONE)


@works_on_tables
def message_requested(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Post the receive (kind, a, b) of a request at its source, and start the first message held back.

    That may be a message of another size, on another channel.
    """
    thread = observe.pause(run)
    observe.leaves_rank(run)
    _await_message(run, channel_row, kind, a, b)
    observe.resume(run, thread)
    handshake_row = run.plan.channels[channel_row].handshake
    handshake = run.handshakes[handshake_row]
    observe.request_at_source(run, channel_row, handshake_row)
    if handshake.head == NONE:
        handshake.arrived += 1
        observe.request_early(run, handshake_row)
        return
    held_row = _leave(run, handshake)
    held = run.events[held_row]
    observe.held_send_starts(run, held_row)
    _inject(run, held.a, held.kind, held.b, held.c)


@works_on_tables
def _await_message(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Post a receive on a channel; a message that came before completes it in an event."""
    state = run.channels[channel_row]
    observe.joins_fifo(run, state)
    if state.arrived > 0:
        state.arrived -= 1
        thread = observe.pause(run)
        observe.receive_meets_early(run, channel_row)
        now, copy_ns = run.clock[0].now, run.plan.channels[channel_row].copy_ns
        if state.arrived == 0:  # it is the one that came last
            copy_ns = min(copy_ns, now - state.arrived_ns)
        schedule(run, now + copy_ns, kind, a, b, 0)
        observe.resume(run, thread)
    else:
        join(run.events, state, new_event(run, kind, a, b, 0))


@works_on_tables
def match(run: Run, channel_row: int) -> int:
    """Match a message that arrived; return its receive, as an event to read at once, or NONE if it waits."""
    state = run.channels[channel_row]
    observe.message_at_target(run, channel_row)
    if state.head == NONE:
        state.arrived += 1
        state.arrived_ns = run.clock[0].now
        observe.message_early(run, channel_row)
        return NONE
    met = _leave(run, state)
    observe.message_met(run, met)
    return met


@works_on_tables
def _leave(run: Run, fifo: Any) -> int:
    """Take the first event out of a fifo; it may be read until the next event is made."""
    event = leave(run.events, fifo)
    give_row(run.events, run.clock[0].free_events, event)
    return event
