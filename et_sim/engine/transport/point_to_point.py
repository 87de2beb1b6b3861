"""Point-to-point messages: sends and receives that meet on a channel.

The k-th send of a channel meets its k-th receive. A message that arrives before its receive is posted
waits at the channel, and the receive then completes as a new event: at the time it is posted, or when the
message is copied out of its buffer. A send is complete when its message has arrived, or, if it is eager, when
its last byte has left.

With rendezvous, a receive first asks its source for a message, and is posted when the request is there; the
source holds its next message between the two ranks and with this tag, whatever its size, back until then.
Where receivers have finite buffers, so many messages between two ranks with one tag may start before their
receives are posted (`window`); the source holds further ones, and no request crosses the network.

Not here: what completes (`nodes`), and how messages travel (the network model).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import new_event, schedule
from et_sim.engine.containers import give_row, join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import (
    ASKED_CUSTOM,
    ASKED_MESSAGE,
    CUSTOM_DONE,
    HELD_MESSAGE,
    INJECT_CUSTOM,
    INJECT_MESSAGE,
    LATE_RECEIVE,
    MESSAGE,
    NODE_DONE,
)
from et_sim.engine.state.run import NONE, RENDEZVOUS, Run
from et_sim.engine.transport.network_seam import inject, is_eager, receive_posted
from et_sim.plan.records import NO_LIMIT, REQUEST_BYTES


@works_on_tables
def send(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Send on a channel; (kind, channel, b, c) happens on arrival."""
    limited = run.plan.channels[channel_row].window != NO_LIMIT and kind == MESSAGE
    if not run.plan.settings[RENDEZVOUS] and not limited:
        send_now(run, channel_row, kind, b, c)
        return
    handshake_row = run.plan.channels[channel_row].handshake
    handshake = run.handshakes[handshake_row]
    observe.joins_fifo(run, handshake)
    if not run.plan.settings[RENDEZVOUS] and _starts_at_once(run, channel_row, handshake):
        if handshake.arrived > 0:
            observe.send_meets_early(run, handshake_row)
        handshake.arrived -= 1
        send_now(run, channel_row, kind, b, c)
    elif handshake.arrived > 0:
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
def _starts_at_once(run: Run, channel_row: int, handshake: Any) -> bool:
    """Return whether a message has room at its receiver, whatever happens in this nanosecond."""
    posted_now = handshake.last if handshake.last_ns == run.clock[0].now else 0
    room = handshake.arrived - posted_now + run.plan.channels[channel_row].window
    return bool(handshake.head == NONE and room > 0)


@works_on_tables
def _free_room(run: Run, channel_row: int) -> None:
    """A receive is posted: the first message that is held starts if there is room for it now."""
    handshake_row, now = run.plan.channels[channel_row].handshake, run.clock[0].now
    handshake = run.handshakes[handshake_row]
    handshake.last = handshake.last + 1 if handshake.last_ns == now else 1
    handshake.last_ns = now
    handshake.arrived += 1
    held_row = handshake.head
    if held_row != NONE and handshake.arrived + run.plan.channels[run.events[held_row].a].window > 0:
        leave(run.events, handshake)
        handshake.arrived -= 1
        schedule(run, now, HELD_MESSAGE, channel_row, held_row, 0)
    elif handshake.arrived > 0:
        observe.request_early(run, handshake_row)


@works_on_tables
def send_held(run: Run, held_row: int) -> None:
    """Send a message that was held until there was room for it."""
    held = run.events[held_row]
    kind, channel_row, b, c = held.kind, held.a, held.b, held.c
    observe.held_send_starts(run, held_row)
    give_row(run.events, run.clock[0].free_events, held_row)
    _inject(run, channel_row, kind, b, c)


@works_on_tables
def send_now(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Put a message on the network that waits for nothing."""
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
    """Post a receive, or with rendezvous ask for its message; (kind, a, b) happens when this is here."""
    if not run.plan.settings[RENDEZVOUS]:
        _await_message(run, channel_row, kind, a, b)
        receive_posted(run, channel_row, kind, a, b)
        if run.plan.channels[channel_row].window != NO_LIMIT and kind == LATE_RECEIVE:
            thread = observe.pause(run)
            _free_room(run, channel_row)
            observe.resume(run, thread)
        return
    channel = run.plan.channels[channel_row]
    observe.message_asked_for(run, kind, a, b)
    asked = ASKED_MESSAGE if kind == LATE_RECEIVE else ASKED_CUSTOM
    inject(run, channel.target, channel.source, REQUEST_BYTES, asked, channel_row, a, b, NONE)


@works_on_tables
def message_asked(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """A request is at its source: the receive (kind, a, b) is posted, and the first message held back starts.

    That may be a message of another size, on another channel.
    """
    thread = observe.pause(run)
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
    """From now on, a message on a channel meets this receive; one that came before does so in an event."""
    state = run.channels[channel_row]
    observe.joins_fifo(run, state)
    if state.arrived > 0:
        state.arrived -= 1
        thread = observe.pause(run)
        observe.receive_meets_early(run, channel_row)
        now, waited_ns = run.clock[0].now, run.clock[0].now - state.last_ns
        schedule(run, now + min(run.plan.channels[channel_row].copy_ns, waited_ns), kind, a, b, 0)
        observe.resume(run, thread)
    else:
        join(run.events, state, new_event(run, kind, a, b, 0))


@works_on_tables
def match(run: Run, channel_row: int) -> int:
    """A message arrived: the receive it meets, as an event to read at once; NONE: it waits."""
    state = run.channels[channel_row]
    observe.message_at_target(run, channel_row)
    if state.head == NONE:
        state.arrived += 1
        state.last_ns = run.clock[0].now
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
