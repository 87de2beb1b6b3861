"""Link network: messages are stored and forwarded over directed links that carry one message at a time.

A busy link queues messages in the order of arrival. NPUs that share an actor share the records of their
links. A message to its own rank arrives at once unless it passes a switch (in the first dimension, as in the
reference). Where ranks share other links, the record of one link represents its class (`links_in_turn`).

A link passes a message on when it has received all of it. With cut-through tables it does so from the first
byte on: the message arrives when its last byte has left the slowest link of its path, and each link is busy
only for its own serialisation. The correction PORT_BANDWIDTH puts the analytical network on such tables: each
port, an end of a link, then carries the messages of one direction one after the other, and a lone message
takes as long as on the flow model. The serialisation of consecutive messages is then rounded to whole
nanoseconds as a sum; otherwise each message is rounded.

The fabrics supply routes and speeds, and the functions that move a message link by link: `set_out`,
`take_hop`, and optionally `next_ports` and `is_wired_to_itself`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError, UsageError
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
from et_sim.fold.path_keys import TO_BLOCK, PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GraphFabric, LevelFabric, Network, Routing
from et_sim.network.fabric import WAY_FIELDS, Wires, is_wired_to_itself, next_ports, set_out, take_hop
from et_sim.network.fabrics import fabric_of
from et_sim.network.grid import wired
from et_sim.network.link_classes import classes_of_links, first_of_classes, kinds_of_links
from et_sim.network.links_in_turn import LinksInTurn
from et_sim.network.paths import GridPaths, Routed
from et_sim.network.route_tables import MOST_BYTES_OF_TABLE
from et_sim.plan.records import LoweredPlan, lines, table

HAS_CONTENTION = True
FOLDS_GRAPHS = True
REACHES_SWITCHES = True
WITH_FAILURES = "et_sim.network.link_failing"
DIFFERS_BY_MESSAGE = (Routing.ECMP_NS3, Routing.VALIANT)  # the path between two ranks differs by message
PORT_BANDWIDTH = setting_of(Correction.PORT_BANDWIDTH)
MESSAGE = lines(  # the fields that every message needs come first and fill a cache line
    *MESSAGE_FIELDS,
    *WAY_FIELDS,
    ("first_ns", "i8"),  # when its first byte reached its present link, where links cut through
    ("first_rest", "f8"),  # and the fraction of a nanosecond
    ("last_later", "f8"),  # the delay of its last byte after the first
    ("slowest", "i4"),  # the class of links that sets this delay
)
LINK = lines(  # the fields that every message needs come first and fill a cache line
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("home", "i4"),  # the NPU, or actor, that owns it
    ("bytes", "i8"),  # carried so far
    ("free_ns", "i8"),  # when its last message has left it
    ("free_rest", "f8"),  # and the fraction of a nanosecond
    ("turned", "i4"),  # in the last snapshot of repeats (`REPEATS`); this and
    ("taken", "i4"),  # the next three as of chunks
    ("turns_to", "i4"),
    ("comes_to", "i4"),
    ("bytes_before", "i8"),  # carried until that snapshot
    ("joined", MOMENT),  # this and the next fields serve to detect ties
    ("mark", MARK),
    ("sources", "i4"),  # whose messages it carries (`LinkTurns`)
    ("joined_root", "i4"),
    ("joined_turn", "i8"),
)
HOP_DONE = 0  # a message reached the end of a link; argument: the message
LINK_FREE = 1  # a link may carry its next message; argument: the link

# These functions belong to compiled code and are imported when that is built.
describe_event, may_repeat, note_counted, pass_counted, pass_event, ways_turn = (
    Later("et_sim.network.link_repeats", name)
    for name in ("describe_event", "may_repeat", "note_counted", "pass_counted", "pass_event", "ways_turn")
)


class LinkTables(Tables, Struct, frozen=True):
    """Tables of the link network for compiled code."""

    fabric: Any  # this and the next four as in `Wires`
    home: Any
    first: Any
    tier: Any
    sent: Any
    links: Any
    cuts_through: Any  # one row: whether links pass messages on from the first byte
    class_of: Any  # by link: the row that represents its class; empty: every row is a link
    blocks: Any  # by rank (`LinkTurns`); empty likewise
    circle: Any  # one row: the number of blocks, as in `LinkTurns`


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks of levels, messages that would take too long, and tables of ports that are
    too large.
    """
    if isinstance(network.fabric, LevelFabric):
        raise UsageError(
            "a network file of 1.0 describes bundles of links, which only the analytical model supports",
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
    """Return the number of ranks and reducing switches if messages between two of them may take different
    paths.
    """
    fabric = network.fabric
    differs = isinstance(fabric, GraphFabric) and fabric.routing in DIFFERS_BY_MESSAGE
    return network.ranks + len(network.reducers) if differs else 0


def tables_of(network: Network, home: Any) -> LinkTables:
    """Return the tables of idle links; each NPU stands for all ranks whose `home` it is."""
    fabric: Any = fabric_of(network)
    wires, speed, owner = fabric.wires(network, home)
    links = table(LINK, len(speed))
    links["head"] = links["tail"] = links["joined"]["ns"] = links["mark"]["ns"] = NONE
    links["speed"], links["home"] = speed, owner
    sent, nothing = np.zeros(_counted(network) ** 2, np.uint16), np.zeros(0, np.int32)
    return LinkTables(
        wires.fabric,
        wires.home.astype(np.int32),
        wires.first,
        wires.tier,
        sent,
        links,
        cuts_through=np.zeros(1, np.int8),
        class_of=nothing,
        blocks=nothing,
        circle=np.zeros(1, np.int32),
    )


def tables(network: Network, plan: LoweredPlan) -> LinkTables:
    """Return the tables of idle links; ranks of one actor share their links."""
    made = tables_of(network, plan.actor_of_rank if plan.link_turns is None else np.arange(network.ranks))
    made = replace(made, fabric=replace(made.fabric, is_grid=(1,) * len(made.fabric.is_grid)))
    if plan.link_turns is None:
        return made
    class_of, first = classes_of_links(plan, len(made.links))
    links = made.links[first]
    links["home"], links["sources"] = plan.actor_of_rank[links["home"]], plan.link_turns.sources
    blocks, circle = plan.link_turns.block_of_rank, np.full(1, plan.link_turns.circle, np.int32)
    return replace(made, links=links, class_of=class_of, blocks=blocks, circle=circle)


def tables_with_ports(network: Network, plan: LoweredPlan) -> LinkTables:
    """Return the tables of the analytical network with limited port bandwidth."""
    return replace(tables(network, plan), cuts_through=np.ones(1, np.int8))


def resources_of(network: Network, actor_of_rank: Any) -> ResourceTable:
    """Return every link of every actor."""
    fabric: Any = fabric_of(network)
    links: ResourceTable = fabric.link_resources(network, actor_of_rank)
    return links


def resources(network: Network, plan: LoweredPlan) -> ResourceTable:
    """Return every link of every actor, or the first link of each class, with the names of all."""
    if plan.link_turns is None:
        return resources_of(network, plan.actor_of_rank)
    return first_of_classes(resources_of(network, np.arange(network.ranks)), plan)


def carried(tables: Any) -> Any:
    """Return the bytes that each link has carried."""
    return tables.links["bytes"]


def path_keys(network: Network, *, whole: bool) -> PathKeys | None:
    """Return keys that separate messages by direction too; None: paths differ by message."""
    if not isinstance(network.fabric, GraphFabric):
        return GridPaths(
            wired(network), on_links=True, whole=whole, over_links=partial(links_in_turn, network)
        )
    return None if differs_by_message(network) else links_in_turn(network)


def differs_by_message(network: Network) -> bool:
    """Return whether messages between two ranks may take different paths."""
    return _counted(network) > 0


def links_in_turn(
    network: Network, fails: Any = None, later: Callable[[Wires], tuple[Routed, ...]] = lambda _: ()
) -> LinksInTurn:
    """Return keys that cover the links of all ranks; `later` returns the tables of other paths over time."""
    ranks = np.arange(network.ranks)
    made, links = tables_of(network, ranks), resources_of(network, ranks)
    wires = Wires(made.fabric, made.home, made.first, made.tier, made.sent)
    return LinksInTurn(
        wires,
        kinds_of_links(network, links, made.links["speed"], fails),
        fabric_of(network).most_links(network),
        network.ranks,
        later(wires),
    )


def needs(network: Network) -> Needs:
    """Return what the engine must provide: causal events, and a row of the message pool for each message."""
    return Needs(fabric_of(network).causal_events_of_message(network), MESSAGE)


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the free rows of the message pool."""
    return run.clock[0].free_messages.rows


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Start a message: it takes its first link, or queues for it."""
    if source == target and not is_wired_to_itself(run.network):
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    row = new_message(run, target, size, kind, a, b, c, done)
    message = run.messages[row]
    message.source = source
    if run.network.cuts_through[0]:
        message.first_ns, message.first_rest, message.last_later = run.clock[0].now, 0.0, 0.0
    set_out(run.network, message, source, next_ports(run.network, source, target))
    _enter_link(run, row)


@works_on_tables
def arrive_at_once(run: Run, target: int, size: int, kind: int, a: int, b: int, c: int, done: int) -> None:
    """Deliver a message to its own rank, which crosses no link."""
    now = run.clock[0].now
    if done != NONE:
        end_sending(run, now, done, b, c)
    observe.message_flies(run, target, size, now, 0, NONE)
    schedule(run, now, kind, a, b, c)


@works_on_tables
def is_there(run: Run, row: int) -> bool:
    """Return whether a message is at its target, or will be at the end of its present link."""
    message = run.messages[row]
    return bool(message.at == message.target and not message.via_switch)


@works_on_tables
def network_event(run: Run, kind: int, row: int, _version: int) -> int:
    """Handle the end of a hop or a link that is free again; return a message that is at its
    target, or NONE.
    """
    if kind == LINK_FREE:
        _free_link(run, row)
        return NONE
    message, network = run.messages[row], run.network
    if is_there(run, row):
        go_round(run, row, 1)
        return row
    is_end = message.at != NONE
    if len(network.class_of) > 0:
        observe.message_passes_on(run)
    else:  # devices of a graph that are not ends share the last row
        observe.message_hops(run, row, network.home[message.at if is_end else len(network.home) - 1])
    _enter_link(run, row)
    return NONE


@works_on_tables
def go_round(run: Run, row: int, way: int) -> None:
    """Go from the block of a message's source to that of its target, or back."""
    network, message = run.network, run.messages[row]
    if len(network.blocks) > 0 and network.blocks[message.source] != network.blocks[message.target]:
        ahead = network.blocks[message.target] - network.blocks[message.source]
        observe.message_goes_round(run, way * ahead, network.circle[0])


@works_on_tables
def enter_block(run: Run, link: Any, row: int, way: int) -> None:
    """Go round as a message does before it takes a link at the block of its target, or back."""
    if link.sources == TO_BLOCK:
        go_round(run, row, way)


@works_on_tables
def row_of(network: Any, link_row: int) -> int:
    """Return the row that represents a link."""
    return int(network.class_of[link_row]) if len(network.class_of) > 0 else link_row


@works_on_tables
def _enter_link(run: Run, row: int) -> None:
    """Put a message on its next link, or queue it there."""
    link_row = row_of(run.network, take_hop(run.network, run.messages[row]))
    link = run.network.links[link_row]
    thread, group = observe.pause(run), observe.current_group(run)
    enter_block(run, link, row, 1)
    observe.link_reached(run, link, link_row, row)
    enter_block(run, link, row, -1)
    if not link.busy:
        observe.link_was_free(run, link_row)
        _occupy(run, link_row, row)
    else:
        observe.message_queues(run, row, link_row)
        join(run.messages, link, row)
    observe.resume(run, thread)
    observe.restore_group(run, group)


@works_on_tables
def _occupy(run: Run, link_row: int, row: int) -> None:
    """Start a message on a free link: schedule its arrival, then the release of the link (in this order)."""
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
    enter_block(run, link, row, 1)
    schedule(run, now + length, NETWORK + LINK_FREE, link_row, 0, 0)
    enter_block(run, link, row, -1)
    message_leaves_at(run, message, now + length, through, now + length)


@works_on_tables
def _rest(run: Run, link: Any, message: Any) -> float:
    """Return the fraction of a nanosecond that has passed when a message starts on a free link."""
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
    """Schedule the first byte of a message at the next link, or its last byte at the target."""
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
    """Free a link, and start the first message in its queue."""
    link = run.network.links[link_row]
    link.busy = 0
    observe.link_freed(run, link, link_row, link.home)
    row = leave(run.messages, link)
    if row != NONE:
        observe.message_dequeued(run, row, link_row)
        enter_block(run, link, row, -1)
        _occupy(run, link_row, row)
