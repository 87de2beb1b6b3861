"""Point-to-point messages: sends and receives that meet on a channel.

The k-th send of a channel meets its k-th receive. A message that arrives before its receive is posted
waits at the channel, and the receive then completes as a new event at the time it is posted. A send
completes when its message arrives. With rendezvous, a posted receive first asks its source for the
message with a small one, and the source holds the message back until then.

Not here: what completes (`ranks`), and how messages travel (`transport`).
"""

from __future__ import annotations

from et_sim.engine.clock import release_event, schedule, waiting_event
from et_sim.engine.kinds import CLEAR, INJECT, LATE_RECEIVE, MESSAGE
from et_sim.engine.state import NONE, RENDEZVOUS, Run
from et_sim.engine.transport import carry
from et_sim.tables_by_reference import works_on_tables

REQUEST_BYTES = 8192  # of the message that asks for another


@works_on_tables
def send(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """Send on a channel; (kind, channel, b, c) happens on arrival."""
    if not run.plan.settings[RENDEZVOUS]:
        inject(run, channel_row, kind, b, c)
        return
    handshake = run.handshakes[run.plan.channels[channel_row].handshake]
    if handshake.arrived > 0:
        handshake.arrived -= 1
        schedule(run, run.clock[0].now, INJECT, channel_row, b, c)
    else:
        _join(run, handshake, waiting_event(run, kind, channel_row, b, c))


@works_on_tables
def inject(run: Run, channel_row: int, kind: int, b: int, c: int) -> None:
    """The message starts on its way."""
    channel = run.plan.channels[channel_row]
    carry(run, channel.source, channel.target, channel.bytes, kind, channel_row, b, c)


@works_on_tables
def ask(run: Run, channel_row: int) -> None:
    """With rendezvous, tell the source that the receive is posted."""
    channel = run.plan.channels[channel_row]
    carry(run, channel.target, channel.source, REQUEST_BYTES, CLEAR, channel_row, 0, 0)


@works_on_tables
def clear(run: Run, channel_row: int) -> None:
    """A source is asked for a message: the first one held back starts, whatever its size."""
    handshake = run.handshakes[run.plan.channels[channel_row].handshake]
    row = _first(run, handshake)
    if row == NONE:
        handshake.arrived += 1
        return
    held = run.events[row]
    kind, a, b, c = held.kind, held.a, held.b, held.c
    release_event(run, row)
    inject(run, a, kind, b, c)


@works_on_tables
def post_receive(run: Run, channel_row: int, kind: int, a: int, b: int) -> None:
    """Post a receive; (kind, a, b) happens when its message is here."""
    if run.plan.settings[RENDEZVOUS]:
        ask(run, channel_row)
    channel = run.channels[channel_row]
    if channel.arrived > 0:
        channel.arrived -= 1
        schedule(run, run.clock[0].now, kind, a, b, 0)
    else:
        _join(run, channel, waiting_event(run, kind, a, b, 0))
