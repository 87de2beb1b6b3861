"""Link network: whole messages, stored and forwarded over directed links that carry one at a time.

A busy link queues messages in the order they came. NPUs that behave alike share their links' records, as they
share an actor. A message to oneself arrives at once, unless there is a switch to pass (in the first
dimension, as in the reference). On a graph, every link is a link of its own, and nothing is folded.

A link passes a message on when it has all of it, or, where tables say that it cuts through, from the first
byte on: then the message is through when its last byte is over the slowest link on its way, and each link is
taken only as long as its own serialisation. So the analytical network is where ports carry no more than they
can (with the correction PORT_BANDWIDTH): every port, which is an end of a link, carries the messages of one
direction one after the other, and a message alone takes what it takes on the flow model. What a link carries
one after the other is then cut to whole nanoseconds together; else each message is.

Not here: routes and speeds (the fabrics), each with functions for the way of a message, link by link:
`set_out`, `take_hop`, and maybe `next_ports`, `is_wired_to_itself`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError, UsageError
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import format_bytes
from et_sim.compiled.decorators import Later
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import NONE, join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.records import MARK, MESSAGE_FIELDS, MOMENT
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.engine.transport.network_seam import Needs, end_sending, message_leaves_at, new_message
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GraphFabric, LevelFabric, Network, Routing
from et_sim.network.fabric import WAY_FIELDS, is_wired_to_itself, next_ports, set_out, take_hop
from et_sim.network.fabrics import fabric_of
from et_sim.network.route_tables import MOST_BYTES_OF_TABLE
from et_sim.plan.records import Plan, lines, table

HAS_CONTENTION = True
REACHES_SWITCHES = True
DIFFERS_BY_MESSAGE = (Routing.ECMP_NS3, Routing.VALIANT)  # which way a message takes between two ranks
PORT_BANDWIDTH = setting_of(Correction.PORT_BANDWIDTH)
MESSAGE = lines(  # what all messages need comes first, and is a line of the cache
    *MESSAGE_FIELDS,
    *WAY_FIELDS,
    ("first_ns", "i8"),  # when its first byte reached the link it is at, where links cut through
    ("first_rest", "f8"),  # and the fraction of a nanosecond besides
    ("last_later", "f8"),  # how much later its last byte comes
    ("slowest", "i4"),  # the class of the links that decide this
)
LINK = lines(  # what all messages need comes first, and is a line of the cache
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("home", "i4"),  # the NPU it belongs to
    ("bytes", "i8"),  # that it has carried
    ("free_ns", "i8"),  # when it is through with its last message
    ("free_rest", "f8"),  # and the fraction of a nanosecond besides
    ("turned", "i4"),  # on the last picture of what may repeat itself (`REPEATS`): this and
    ("taken", "i4"),  # the next three as of chunks
    ("turns_to", "i4"),
    ("comes_to", "i4"),
    ("bytes_before", "i8"),  # that it had carried then
    ("joined", MOMENT),  # this and what follows: to notice ties
    ("mark", MARK),
)
HOP_DONE = 0  # a message reached the end of a link: a message
LINK_FREE = 1  # a link may carry its next message: a link

# What machine code is made of, and Python has no use for.
describe_event, may_repeat, note_counted, pass_counted, pass_event, ways_turn = (
    Later("et_sim.network.link_repeats", name)
    for name in ("describe_event", "may_repeat", "note_counted", "pass_counted", "pass_event", "ways_turn")
)


@quick_dataclass(frozen=True)
class LinkTables(Tables):
    """What compiled code knows."""

    fabric: Any  # this and the next four as in `Wires`
    home: Any
    first: Any
    tier: Any
    sent: Any
    links: Any
    cuts_through: Any  # one row: whether links pass messages on from the first byte on


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without single links, messages that would take too long, and too many ranks."""
    if isinstance(network.fabric, LevelFabric):
        raise UsageError(
            "only the analytical model can do with a network file of 1.0, which has bundles of links",
            remedy="leave out --network-model, or describe the network in the form of 2.x",
        )
    fabric_of(network).check_reach(network, most_bytes)
    size = 2 * _counted(network) ** 2
    if size > MOST_BYTES_OF_TABLE:
        raise MachineError(
            f"the ports of messages among {network.ranks} NPUs would need a table of {format_bytes(size)}",
            place="network configuration",
            remedy="give routing: ecmp, or take the analytical model",
        )


def _counted(network: Network) -> int:
    """Ranks, and switches that reduce, if messages between any two of them may go different ways."""
    fabric = network.fabric
    differs = isinstance(fabric, GraphFabric) and fabric.routing in DIFFERS_BY_MESSAGE
    return network.ranks + len(network.reducers) if differs else 0


def tables_of(network: Network, home: Any) -> LinkTables:
    """Return all links, idle, of NPUs that stand for all ranks with this home."""
    fabric: Any = fabric_of(network)
    wires, speed, owner = fabric.wires(network, home)
    links = table(LINK, len(speed))
    links["head"] = links["tail"] = links["joined"]["ns"] = links["mark"]["ns"] = NONE
    links["speed"], links["home"] = speed, owner
    sent = np.zeros(_counted(network) ** 2, np.uint16)
    return LinkTables(
        wires.fabric,
        wires.home.astype(np.int32),
        wires.first,
        wires.tier,
        sent,
        links,
        cuts_through=np.zeros(1, np.int8),
    )


def tables(network: Network, plan: Plan) -> LinkTables:
    """Return all links, idle; actors share theirs."""
    made = tables_of(network, plan.actor_of_rank)
    return replace(made, fabric=replace(made.fabric, is_grid=(1,) * len(made.fabric.is_grid)))


def tables_with_ports(network: Network, plan: Plan) -> LinkTables:
    """Return the same for the analytical network whose ports carry no more than they can."""
    return replace(tables(network, plan), cuts_through=np.ones(1, np.int8))


def resources_of(network: Network, actor_of_rank: Any) -> ResourceTable:
    """Return every link of every actor."""
    fabric: Any = fabric_of(network)
    links: ResourceTable = fabric.link_resources(network, actor_of_rank)
    return links


def resources(network: Network, plan: Plan) -> ResourceTable:
    """Return every link of every actor."""
    return resources_of(network, plan.actor_of_rank)


def carried(tables: Any) -> Any:
    """Bytes, by link."""
    return tables.links["bytes"]


def path_keys(network: Network, *, whole: bool) -> PathKeys | None:
    """Return messages differ by their direction, too; those on graphs meet on links of third ranks."""
    if isinstance(network.fabric, GraphFabric):
        return None
    return fabric_of(network).path_keys(network, on_links=True, whole=whole)


def needs(network: Network) -> Needs:
    """Return a row of the message pool for each message."""
    return Needs(fabric_of(network).causal_events_of_message(network), MESSAGE)


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
    if run.network.cuts_through[0]:
        message.first_ns, message.first_rest, message.last_later = run.clock[0].now, 0.0, 0.0
    set_out(run.network, message, source, next_ports(run.network, source, target))
    _enter_link(run, row)


@works_on_tables
def arrive_at_once(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> None:
    """A message to oneself crosses no link."""
    now = run.clock[0].now
    if done != NONE:
        end_sending(run, now, done, b, c)
    observe.message_flies(run, target, size, now, 0, NONE)
    schedule(run, now, kind, a, b, c)


@works_on_tables
def is_there(run: Run, row: int) -> bool:
    """Return whether a message is at its target, or will be at the end of the link that it is on."""
    message = run.messages[row]
    return bool(message.at == message.target and not message.via_switch)


@works_on_tables
def network_event(run: Run, kind: int, row: int, _version: int) -> int:
    """The end of a hop, or of a link's work; returns a message that is at its target."""
    if kind == LINK_FREE:
        _free_link(run, row)
        return NONE
    message = run.messages[row]
    if is_there(run, row):
        return row
    is_end = message.at != NONE  # otherwise it is at another device of a graph; the last row stands for these
    observe.message_hops(run, row, run.network.home[message.at if is_end else len(run.network.home) - 1])
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
    message_leaves_at(run, message, now + length, through, now + length)


@works_on_tables
def _rest(run: Run, link: Any, message: Any) -> float:
    """Return the fraction of a nanosecond that is over when a message starts on a link that is free now."""
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
