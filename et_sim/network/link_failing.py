"""Link network whose links fail within a run (`Network.failures`).

As on the link network, messages take turns on links as wholes. A link that slows down goes on with its
message at the new rate. A link that dies cuts its message and loses those that wait for it. A message that is
lost is whole packets to its sender: it is sent again from the source, as a whole, when a try finds a path
(`senders`). A message that has left a link arrives.

Messages follow the routes of the time at which they reach a device. Where these lead nowhere from there, the
message is stranded, and lost when it has arrived. Events of links are planned as on the link network, and a
change withdraws those of messages that it cuts or delays; so times are the same without failures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import NONE, join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.records import MARK, MESSAGE_FIELDS, MOMENT
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.engine.transport.network_seam import Needs, end_sending, new_message
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Network
from et_sim.network import link
from et_sim.network.fabric import WAY_FIELDS, is_wired_to_itself, next_ports, set_out, take_hop
from et_sim.network.fabrics import fabric_of
from et_sim.network.link import HOP_DONE, LINK_FREE, arrive_at_once, enter_block, go_round, is_there, row_of
from et_sim.network.link import carried as carried
from et_sim.network.link import check as check
from et_sim.network.link import rows_left as rows_left
from et_sim.network.link_changes import changed as changed
from et_sim.network.link_changes import events_of_change as events_of_change
from et_sim.network.link_changes import in_state, left_of_rows, marks_over_time, merged, ways_around
from et_sim.network.link_changes import link_states as link_states
from et_sim.network.link_changes import longest_waits as longest_waits
from et_sim.network.link_changes import lost_messages as lost_messages
from et_sim.network.senders import is_late, next_try_ns, recovery_row, sends_again
from et_sim.plan.records import LoweredPlan, lines, record, table

HAS_CONTENTION = True
HAS_FAILURES = True
REACHES_SWITCHES = True
PORT_BANDWIDTH = setting_of(Correction.PORT_BANDWIDTH)
TRY = 2  # a sender looks for a path; argument: the message
MESSAGE = lines(
    *MESSAGE_FIELDS,
    *WAY_FIELDS,
    ("is_lost", "i4"),
    ("lost_on", "i4"),  # the link; this and the next two are about that
    ("is_stranded", "i4"),  # no route leads on from the end of its link, since links are missing
    ("missing", "i4"),  # the first of these
    ("tries", "i4"),  # since it was lost
    ("lost_ns", "i8"),
    ("due_ns", "i8"),  # when it reaches the end of its link
    ("leaving", "i8"),  # its `done` while its first link carries it
)
LINK = lines(
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("serves", "i4"),  # the message that it carries
    ("left", "f8"),  # share of its bandwidth; 0: it is dead
    ("bytes", "i8"),  # carried so far
    ("free_ns", "i8"),  # when its last message has left it
    ("free_rest", "f8"),  # and the fraction of a nanosecond
    ("waited_ns", "i8"),  # longest wait of messages that were lost on it
    ("home", "i4"),  # this and the next fields as on the link network
    ("sources", "i4"),
    ("joined", MOMENT),
    ("mark", MARK),
    ("joined_root", "i4"),
    ("joined_turn", "i8"),
)
STATE = record(("dead", "i8"))  # number of dead links


class FailingLinkTables(Tables, Struct, frozen=True):
    """Tables of the link network with failures for compiled code."""

    fabric: Any  # this and the next four as in `Wires`
    home: Any
    first: Any
    tier: Any
    sent: Any
    links: Any
    class_of: Any  # this and the next two as in `LinkTables`
    blocks: Any
    circle: Any
    recovery: Any  # one row
    state: Any  # one row


def tables(network: Network, plan: LoweredPlan) -> FailingLinkTables:
    """Return the tables of idle links in their first state."""
    made = link.tables(merged(network), plan)
    links = table(LINK, len(made.links))
    links["serves"] = NONE
    for name in set(links.dtype.names) & set(made.links.dtype.names):
        links[name] = made.links[name]
    others = made.class_of, made.blocks, made.circle, recovery_row(network), table(STATE, 1)
    ready = FailingLinkTables(made.fabric, made.home, made.first, made.tier, made.sent, links, *others)
    first = link_states(network)[0]
    ready = in_state(ready, network, first)
    links["left"], ready.state["dead"] = left_of_rows(ready, first), np.count_nonzero(first.left == 0)
    return ready


def resources(network: Network, plan: LoweredPlan) -> ResourceTable:
    """Return every link, or every trunk."""
    return link.resources(merged(network), plan)


def path_keys(network: Network, **_: bool) -> PathKeys | None:
    """Return keys that cover the links of all ranks and their states; None: paths differ by message."""
    whole, states = merged(network), link_states(network)
    if link.differs_by_message(whole):
        return None
    return link.links_in_turn(whole, marks_over_time(states), lambda wires: ways_around(whole, states, wires))


def needs(network: Network) -> Needs:
    """Return the needs: a row of the message pool for each message; a lost one is sent again."""
    return Needs(fabric_of(network).causal_events_of_message(network), MESSAGE, events=2)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Start a message: it takes its first link, or queues for it; on a dead path, it is lost."""
    if source == target and not is_wired_to_itself(run.network):
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    row = new_message(run, target, size, kind, a, b, c, done)
    message = run.messages[row]
    message.source, message.is_lost, message.is_stranded = source, 0, 0
    message.ports = next_ports(run.network, source, target)
    dead = _dead_link_ahead(run, row)
    if dead != NONE:
        lose(run, row, dead)
    else:
        _set_out(run, row)


@works_on_tables
def _set_out(run: Run, row: int) -> None:
    """Put a message on its first link."""
    message = run.messages[row]
    set_out(run.network, message, message.source, message.ports)
    _enter_link(run, row)


@works_on_tables
def _dead_link_ahead(run: Run, row: int) -> int:
    """Return the first dead link on the path from a message's source; NONE if there is none."""
    network, message = run.network, run.messages[row]
    if network.state[0].dead == 0:
        return NONE
    set_out(network, message, message.source, message.ports)
    while True:
        link_row = row_of(network, take_hop(network, message))
        if network.links[link_row].left == 0.0:
            return link_row
        if is_there(run, row):
            return NONE


@works_on_tables
def network_event(run: Run, kind: int, row: int, _version: int) -> int:
    """Handle the end of a hop, a link that is free again, or a try; return a message that is at its
    target, or NONE.
    """
    network = run.network
    if kind == LINK_FREE:
        observe.link_freed(run, network.links[row], row, network.links[row].home)
        free_link(run, row)
    elif kind == TRY:
        if len(network.blocks) > 0:  # in other runs, a source may be a switch
            observe.begin_own(run, run.plan.actor_of_rank[run.messages[row].source])
        _try_again(run, row)
    elif is_there(run, row):
        go_round(run, row, 1)
        return row
    else:
        observe.message_passes_on(run)
        _enter_link(run, row)
    return NONE


@works_on_tables
def _enter_link(run: Run, row: int) -> None:
    """Put a message on its next link, or queue it there."""
    message = run.messages[row]
    if message.is_stranded:
        lose(run, row, message.missing)
        return
    link_row = row_of(run.network, take_hop(run.network, message))
    this = run.network.links[link_row]
    if this.left == 0.0:
        lose(run, row, link_row)
        return
    thread, group = observe.pause(run), observe.current_group(run)
    enter_block(run, this, row, 1)
    observe.link_reached(run, this, link_row, row)
    enter_block(run, this, row, -1)
    if not this.busy:
        _occupy(run, link_row, row)
    else:
        observe.message_queues(run, row, link_row)
        join(run.messages, this, row)
    observe.resume(run, thread)
    observe.restore_group(run, group)


@works_on_tables
def _occupy(run: Run, link_row: int, row: int) -> None:
    """Start a message on a free link."""
    this, message, now = run.network.links[link_row], run.messages[row], run.clock[0].now
    speed = run.network.fabric.speeds[this.speed]
    rest = 0.0
    if run.plan.settings[PORT_BANDWIDTH] and this.free_ns == now:
        rest = this.free_rest
    serial = message.bytes / (speed.bytes_per_ns * this.left)
    this.busy, this.serves = 1, row
    this.bytes += message.bytes
    message.leaving, message.done = message.done, NONE
    observe.link_taken(run, row, link_row, this.speed, message.dimension, int(rest + serial))
    plan_events(run, link_row, row, rest + serial, int(rest + speed.latency_ns + serial))


@works_on_tables
def plan_events(run: Run, link_row: int, row: int, serial: float, hop_ns: int) -> None:
    """Schedule the arrival of a message, the release of its link, and the end of its sending."""
    this, message, now = run.network.links[link_row], run.messages[row], run.clock[0].now
    length = int(serial)
    this.free_ns, this.free_rest = now + length, serial - length
    message.due_ns = now + hop_ns
    schedule(run, message.due_ns, NETWORK + HOP_DONE, row, 0, 0)
    enter_block(run, this, row, 1)
    schedule(run, this.free_ns, NETWORK + LINK_FREE, link_row, 0, 0)
    enter_block(run, this, row, -1)
    if message.leaving != NONE:
        end_sending(run, this.free_ns, message.leaving, message.b, message.c)


@works_on_tables
def free_link(run: Run, link_row: int) -> None:
    """Free a link, and start the first message in its queue."""
    this = run.network.links[link_row]
    this.busy = 0
    row = leave(run.messages, this)
    if row != NONE:
        observe.message_dequeued(run, row, link_row)
        enter_block(run, this, row, -1)
        _occupy(run, link_row, row)


@works_on_tables
def lose(run: Run, row: int, link_row: int) -> None:
    """Let the sender of a message miss its acknowledgement."""
    message = run.messages[row]
    message.is_lost, message.is_stranded, message.tries = 1, 0, 0
    message.lost_on, message.lost_ns = link_row, run.clock[0].now
    _plan_try(run, row)


@works_on_tables
def _plan_try(run: Run, row: int) -> None:
    message = run.messages[row]
    time = next_try_ns(run.network.recovery[0], message.lost_ns, message.tries)
    if time != NONE:
        schedule(run, time, NETWORK + TRY, row, 0, 0)


@works_on_tables
def _try_again(run: Run, row: int) -> None:
    """Send a lost message again if its path is not dead; else plan the next try."""
    message, recovery, now = run.messages[row], run.network.recovery[0], run.clock[0].now
    message.tries += 1
    if sends_again(recovery, message.lost_ns, message.tries, now) and _dead_link_ahead(run, row) == NONE:
        lost_on = run.network.links[message.lost_on]
        lost_on.waited_ns = max(lost_on.waited_ns, now - message.lost_ns)
        message.is_lost = 0
        _set_out(run, row)
    elif not is_late(recovery, message.lost_ns, now):
        _plan_try(run, row)
