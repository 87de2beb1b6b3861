"""Point-to-point messages: sends and receives that meet on a channel.

The k-th send of a channel meets its k-th receive. A message that arrives before its receive is posted
waits at the channel, and the receive then completes as a new event at the time it is posted. With
rendezvous, a posted receive first asks its source for a message, and the source holds its next message
between the two ranks and with this tag, whatever its size, back until then. With EAGER_SENDS, a send is
complete when its last byte has left; without, when it has arrived.

Not here: what completes (`ranks`), and how messages travel (the network model).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.causes import NOTHING, RECEIVE, REQUEST, is_recorded, needs_waiting, now_of, resume
from et_sim.engine.clock import new_event, release_event, schedule
from et_sim.engine.kinds import ASKED_MESSAGE, CUSTOM_DONE, INJECT_MESSAGE, MESSAGE, NODE_DONE
from et_sim.engine.lines import join, leave
from et_sim.engine.network_seam import inject
from et_sim.engine.state import NONE, RENDEZVOUS, Run, setting_of
from et_sim.engine.tie_rules import note_came, note_met, note_met_waiting, note_second
from et_sim.engine.traffic import held_since, hold, tell_receive, tell_send
from et_sim.machine.corrections import Correction
from et_sim.plan.tables import REQUEST_BYTES

EAGER_SENDS = setting_of(Correction.EAGER_SENDS)


@works_on_tables
def send(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Send on a channel; (kind, channel, b, c) happens on arrival."""
    if not run.plan.settings[RENDEZVOUS]:
        tell_send(run, kind, b, c, run.clock[0].now)
        _inject(run, channel_row, kind, b, c)
        return
    handshake = run.handshakes[run.plan.channels[channel_row].handshake]
    note_second(run, handshake)
    held_row = new_event(run, kind, channel_row, b, c)
    hold(run, held_row)
    join(run.events, handshake, held_row)
    if handshake.arrived > 0:
        note_met(run, handshake)
        moment = now_of(run)
        _take_early(run, run.causes.handshakes, run.plan.channels[channel_row].handshake, REQUEST)
        schedule(run, run.clock[0].now, INJECT_MESSAGE, channel_row, 0, 0)
        resume(run, moment)


@works_on_tables
def _inject(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    channel = run.plan.channels[channel_row]
    done = NONE
    if run.plan.settings[EAGER_SENDS]:
        done = NODE_DONE if kind == MESSAGE else CUSTOM_DONE
    inject(run, channel.source, channel.target, channel.bytes, kind, channel_row, b, c, done)


@works_on_tables
def message_asked(run: Run, channel_row: int) -> None:
    """A source is asked for a message: the first one held back starts."""
    handshake = run.handshakes[run.plan.channels[channel_row].handshake]
    note_met(run, handshake)
    note_came(run, handshake)
    if handshake.head == NONE:
        handshake.arrived += 1
        _note_early(run, run.causes.handshakes, run.plan.channels[channel_row].handshake)
    else:
        inject_held(run, channel_row)


@works_on_tables
def inject_held(run: Run, channel_row: int) -> None:
    """The first message held back starts."""
    handshake = run.handshakes[run.plan.channels[channel_row].handshake]
    note_met_waiting(run, handshake.head)
    held_row = _leave(run, handshake)
    held = run.events[held_row]
    needs_waiting(run, held_row, REQUEST, NONE)
    tell_send(run, held.kind, held.b, held.c, held_since(run, held_row))
    _inject(run, held.a, held.kind, held.b, held.c)


@works_on_tables
def post_receive(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Post a receive; (kind, a, b) happens when its message is here."""
    channel = run.plan.channels[channel_row]
    if run.plan.settings[RENDEZVOUS]:
        tell_receive(run, kind, a, b)
        source, target = channel.target, channel.source
        inject(run, source, target, REQUEST_BYTES, ASKED_MESSAGE, channel_row, 0, 0, NONE)
    state = run.channels[channel_row]
    note_second(run, state)
    if state.arrived > 0:
        note_met(run, state)
        state.arrived -= 1
        moment = now_of(run)
        _take_early(run, run.causes.channels, channel_row, RECEIVE)
        schedule(run, run.clock[0].now, kind, a, b, 0)
        resume(run, moment)
    else:
        join(run.events, state, new_event(run, kind, a, b, 0))


@works_on_tables
def match(run: Run, channel_row: int) -> int:
    """A message arrived: the receive it meets, as an event to read at once; NONE: it waits."""
    state = run.channels[channel_row]
    note_met(run, state)
    note_came(run, state)
    if state.head == NONE:
        state.arrived += 1
        _note_early(run, run.causes.channels, channel_row)
        return NONE
    note_met_waiting(run, state.head)
    return _leave(run, state)


@works_on_tables
def _leave(run: Run, line: Any) -> int:
    """Take the first event out of a line; it may be read until the next event is made."""
    event = leave(run.events, line)
    release_event(run, event)
    return event


@works_on_tables
def _note_early(run: Run, lines: Any, row: int) -> None:
    """A message came before its receive, or a request before its message: of no account but for causes."""
    if is_recorded(run):
        join(run.events, lines[row], new_event(run, NOTHING, 0, 0, 0))


@works_on_tables
def _take_early(run: Run, lines: Any, row: int, what: int) -> None:
    """What happens next needs the first of those that came early."""
    if is_recorded(run):
        needs_waiting(run, _leave(run, lines[row]), what, NONE)
