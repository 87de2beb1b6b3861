"""The mechanism of the link model: a busy link queues messages in the order they came.

A link passes a message on when it has all of it, or, where tables say that it cuts through, from the first
byte on: then the message is through when its last byte is over the slowest link on its way, and each link is
taken only as long as its own serialisation.

With the correction PORT_BANDWIDTH, what a link carries one after the other is cut to whole nanoseconds
together; else each message is.

What is particular to a fabric stands in the module of its tables: `next_ports`, `set_out`, `take_hop`,
`is_wired_to_itself`.
Messages have the fields `at`, the rank that they have reached, or will when they leave the switch they are in
(`via_switch`), and `dimension`; tables have `links`, `home`, `fabric.speeds` and `cuts_through`.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.records import MARK, MOMENT
from et_sim.engine.state.run import NONE, Run, setting_of
from et_sim.engine.transport.message_pool import LOWEST_31_BITS, new_message
from et_sim.machine.corrections import Correction
from et_sim.plan.tables import record

HOP_DONE = 0  # a message reached the end of a link: a message
LINK_FREE = 1  # a link may carry its next message: a link
PORT_BANDWIDTH = setting_of(Correction.PORT_BANDWIDTH)
CUT_THROUGH_FIELDS = (  # of a message
    ("first_ns", "i8"),  # when its first byte reached the link it is at
    ("first_rest", "f8"),  # and the fraction of a nanosecond besides
    ("last_later", "f8"),  # how much later its last byte comes
    ("slowest", "i4"),  # the class of the links that decide this
)
LINK = record(
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("home", "i4"),  # the NPU it belongs to
    ("bytes", "i8"),  # that it has carried
    ("free_ns", "i8"),  # when it is through with its last message
    ("free_rest", "f8"),  # and the fraction of a nanosecond besides
    ("joined", MOMENT),  # this and what follows: to notice ties
    ("mark", MARK),
)

# (network, source, target): the ports of a new message between two ranks, if its way depends on them.
next_ports = chosen_by_tables("next_ports")
set_out = chosen_by_tables("set_out")  # (network, message, source, ports): one is at a rank
take_hop = chosen_by_tables("take_hop")  # (network, message): its next link; moves it to the far end
is_wired_to_itself = chosen_by_tables("is_wired_to_itself")  # (network): for messages to oneself


@works_on_tables
def rows_left(run: Run) -> int:
    """Messages are kept in their pool."""
    return run.clock[0].free_messages.rows


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """It takes its first link, or queues for it."""
    if source == target and not is_wired_to_itself(run.network):
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    row = new_message(run, target, size, kind, a, b, c, done)
    message = run.messages[row]
    message.first_ns, message.first_rest, message.last_later = run.clock[0].now, 0.0, 0.0
    set_out(run.network, message, source, next_ports(run.network, source, target))
    _enter_link(run, row)


@works_on_tables
def arrive_at_once(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> None:
    """A message to oneself crosses no link."""
    now = run.clock[0].now
    if done != NONE:
        schedule(run, now, done, c, b, 0)
    observe.message_flies(run, target, size, now, 0, NONE)
    schedule(run, now, kind, a, b, c)


@works_on_tables
def network_event(run: Run, kind: int, row: int, _version: int) -> int:
    """The end of a hop, or of a link's work; returns a message that is at its target."""
    if kind == LINK_FREE:
        _free_link(run, row)
        return NONE
    message = run.messages[row]
    if message.at == message.target and not message.via_switch:
        return row
    observe.message_hops(run, row, run.network.home[message.at])
    _enter_link(run, row)
    return NONE


@works_on_tables
def _enter_link(run: Run, row: int) -> None:
    """Take the next link, or queue for it."""
    link_row = take_hop(run.network, run.messages[row])
    link = run.network.links[link_row]
    thread = observe.pause(run)
    observe.link_reached(run, link, link_row)
    if not link.busy:
        observe.link_was_free(run, link_row)
        _occupy(run, link_row, row)
    else:
        observe.message_queues(run, row, link_row)
        join(run.messages, link, row)
    observe.resume(run, thread)


@works_on_tables
def _occupy(run: Run, link_row: int, row: int) -> None:
    """Start a message on a free link: it arrives, and then the link is free (in this order)."""
    link = run.network.links[link_row]
    speed = run.network.fabric.speeds[link.speed]
    message = run.messages[row]
    serial = message.bytes / speed.bytes_per_ns
    now, rest = run.clock[0].now, _rest(run, link, message)
    length = int(rest + serial)
    link.busy = 1
    link.bytes += message.bytes
    link.free_ns, link.free_rest = now + length, rest + serial - length
    cause = observe.described_so_far(run)
    through = observe.link_taken(run, row, link_row, link.speed, message.dimension, length)
    if run.network.cuts_through[0]:
        _pass_on(run, row, link, rest, serial, cause)
    else:
        observe.next_event_flies(run, through, now + length, link.speed)
        schedule(run, now + int(rest + speed.latency_ns + serial), NETWORK + HOP_DONE, row, 0, 0)
    observe.next_event_follows(run, through, now + length)
    schedule(run, now + length, NETWORK + LINK_FREE, link_row, 0, 0)
    if message.done != NONE:
        observe.next_event_follows(run, through, now + length)
        schedule(run, now + length, message.done, message.c & LOWEST_31_BITS, message.b, 0)
        message.done = NONE


@works_on_tables
def _rest(run: Run, link: Any, message: Any) -> float:
    """The fraction of a nanosecond that is over when a message starts on a link that is free now."""
    if not run.plan.settings[PORT_BANDWIDTH]:
        return 0.0
    now, rest = run.clock[0].now, 0.0
    if link.free_ns == now:
        rest = link.free_rest
    if run.network.cuts_through[0] and message.first_ns == now:
        rest = max(rest, message.first_rest)
    return float(rest)


@works_on_tables
def _pass_on(run: Run, row: int, link: Any, rest: float, serial: float, cause: int) -> None:
    """The first byte of a message reaches the next link, or the last one its target."""
    message, now = run.messages[row], run.clock[0].now
    waited = now - message.first_ns + rest - message.first_rest
    later = message.last_later - waited
    if serial >= later:
        later, message.slowest = serial, link.speed
    message.last_later = later
    first = rest + run.network.fabric.speeds[link.speed].latency_ns
    if message.at == message.target and not message.via_switch:
        through, left = cause, now + int(rest + later)
        if observe.describes_causes(run):
            observe.describe_from(run, cause, now)
            observe.describe_serialisation(run, message.slowest, left)
            through = observe.described_so_far(run)
        observe.next_event_flies(run, through, left, link.speed)
        schedule(run, now + int(first + later), NETWORK + HOP_DONE, row, 0, 0)
    else:
        message.first_ns, message.first_rest = now + int(first), first - int(first)
        observe.next_event_flies(run, cause, now, link.speed)
        schedule(run, message.first_ns, NETWORK + HOP_DONE, row, 0, 0)


@works_on_tables
def _free_link(run: Run, link_row: int) -> None:
    """A link is free again: the first message in its queue starts."""
    link = run.network.links[link_row]
    link.busy = 0
    observe.link_freed(run, link, link_row, link.home)
    row = leave(run.messages, link)
    if row != NONE:
        observe.message_dequeued(run, row, link_row)
        _occupy(run, link_row, row)
