"""Link network: whole messages, stored and forwarded over directed links that carry one at a time.

A busy link queues messages in the order they came. A link belongs to the NPU it leaves (or, behind a switch,
reaches): a ring dimension has two per NPU, a fully connected one has one per pair, a switch dimension has one
up and one down per NPU. NPUs that behave alike share their links' records, as they share an actor. A message
to oneself arrives at once, unless there is a switch to pass.

Not here: routes and speeds (`grid`, `speeds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.lists import join, leave
from et_sim.engine.state.records import MARK_FIELDS, MESSAGE_FIELDS
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.message_pool import new_message
from et_sim.engine.transport.network_seam import Needs
from et_sim.errors import UsageError
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.model import GridFabric, Network
from et_sim.network import grid
from et_sim.network.fabric import Leg, next_leg
from et_sim.network.grid import GridTables, places_ahead, way_round
from et_sim.network.speeds import (
    CLOCKWISE,
    DOWN,
    FULLY_CONNECTED,
    LINKS_PER_NPU,
    RING,
    SWITCH,
    UP,
    npu_and_port,
    ports_of,
)
from et_sim.plan.tables import Plan, record, table

HAS_CONTENTION = True
HOP_DONE = 0  # a message reached the end of a link: a message
LINK_FREE = 1  # a link may carry its next message: a link
LINK = record(
    ("busy", "i4"),
    ("head", "i4"),  # messages that wait for the link
    ("tail", "i4"),
    ("speed", "i4"),
    ("home", "i4"),  # the NPU it belongs to
    ("joined_ns", "i8"),  # this and what follows: to notice ties
    ("joined_group", "i8"),
    ("joined_origin", "i8"),
    *MARK_FIELDS,
)
MESSAGE = record(
    ("at", "i4"),  # the rank it has reached, or will when it leaves the switch it is in
    ("via_switch", "i4"),
    ("dimension", "i4"),  # of its last hop
    *MESSAGE_FIELDS,
)


@dataclass(frozen=True, slots=True)
class LinkTables(Tables):
    """What compiled code knows."""

    fabric: GridTables
    links: Any
    first_link: Any  # per dimension
    home: Any  # per rank, the NPU whose links stand for its own


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without single links, and messages that would take too long."""
    if not isinstance(network.fabric, GridFabric):
        raise UsageError(
            "the link model needs to know every link, and a network file of 1.0 has bundles",
            remedy="leave out --model, or describe the network in the form of 2.x",
        )
    grid.check_reach(network, most_bytes)


def tables(network: Network, plan: Plan) -> LinkTables:
    """All links, idle; actors share theirs."""
    wired, fabric, home = grid.wired(network), grid.tables(network), plan.actor_of_rank
    homes = int(home.max()) + 1
    counts = np.array([homes * ports_of(dimension) for dimension in wired.dimensions])
    links, first = table(LINK, int(counts.sum())), np.cumsum(counts) - counts
    links["head"] = links["tail"] = links["joined_ns"] = links["mark_ns"] = NONE
    links["speed"] = np.repeat(np.arange(len(counts)), counts)
    for link in wired.links:
        npu, port = npu_and_port(wired, link)
        of = fabric.dimensions[link.dimension]
        own = fabric.speeds[of.uneven_first : of.uneven_end]["link"]
        speed = of.uneven_first + np.searchsorted(own, npu * of.ports + port)
        links["speed"][first[link.dimension] + home[npu] * of.ports + port] = speed
    links["home"] = np.concatenate([np.repeat(np.arange(homes), count // homes) for count in counts])
    return LinkTables(fabric, links, first, home)


def resources(network: Network, plan: Plan) -> ResourceTable:
    """Every link of every actor."""
    return grid.link_resources(network, len(plan.actors))


def path_keys(network: Network, *, whole: bool) -> PathKeys:
    """Messages differ by their direction, too."""
    return grid.path_keys(network, on_links=True, whole=whole)


def needs(network: Network) -> Needs:
    """A row of the message pool for each message."""
    return Needs(causal_events=grid.causal_events_of_message(network), record=MESSAGE)


@works_on_tables
def rows_left(run: Run) -> int:
    """Messages are kept in their pool."""
    return run.clock[0].free_messages


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """It takes its first link, or queues for it."""
    if source == target and run.network.fabric.dimensions[0].wiring != SWITCH:
        now = run.clock[0].now
        if done != NONE:
            schedule(run, now, done, c, b, 0)
        observe.message_flies(run, target, size, now, 0, NONE)
        schedule(run, now, kind, a, b, c)
        return
    row = new_message(run, target, size, kind, a, b, c, done)
    message = run.messages[row]
    message.at = source
    message.via_switch = 0
    _enter_link(run, row)


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
    link_row = _take_hop(run.network, run.messages[row])
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
    link.busy = 1
    now = run.clock[0].now
    through = observe.link_taken(run, row, link_row, link.speed, message.dimension, int(serial))
    observe.next_event_flies(run, through, now + int(serial), link.speed)
    schedule(run, now + int(speed.latency_ns + serial), NETWORK + HOP_DONE, row, 0, 0)
    observe.next_event_follows(run, through, now + int(serial))
    schedule(run, now + int(serial), NETWORK + LINK_FREE, link_row, 0, 0)
    if message.done != NONE:
        observe.next_event_follows(run, through, now + int(serial))
        schedule(run, now + int(serial), message.done, message.c, message.b, 0)
        message.done = NONE


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


@works_on_tables
def _take_hop(network: LinkTables, message: Any) -> int:
    """The next link of a message; moves the message to the link's far end.

    A message inside a switch has `via_switch` set, and `at` is the NPU it will come out at.
    """
    if message.via_switch:
        message.via_switch = 0
        return network.first_link[message.dimension] + network.home[message.at] * LINKS_PER_NPU + DOWN
    leg = next_leg(network.fabric, message.at, message.target)
    if leg.row == NONE:  # a message to oneself goes through the switch and back
        message.dimension = 0
        message.via_switch = 1
        return network.first_link[0] + network.home[message.at] * LINKS_PER_NPU + UP
    message.dimension = leg.row
    return _leave(network, leg, message)


@works_on_tables
def _leave(network: LinkTables, leg: Leg, message: Any) -> int:
    """The link along a dimension."""
    dimension, home = network.fabric.dimensions[leg.row], network.home[leg.at]
    first = network.first_link[leg.row]
    if dimension.wiring == FULLY_CONNECTED:
        message.at = leg.end
        return first + home * dimension.npus + places_ahead(network.fabric, leg)
    if dimension.wiring == RING:
        way = way_round(network.fabric, leg)
        after = leg.here + 1 if way == CLOCKWISE else leg.here - 1
        if after == dimension.npus:
            after = 0
        elif after < 0:
            after = dimension.npus - 1
        message.at = leg.at + (after - leg.here) * dimension.stride
        return first + home * LINKS_PER_NPU + way
    message.at = leg.end
    message.via_switch = 1
    return first + home * LINKS_PER_NPU + UP
