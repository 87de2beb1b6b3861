"""Link network: whole messages, stored and forwarded over directed links that carry one at a time.

A busy link queues messages in the order they came. A link belongs to the NPU it leaves (or, behind a switch,
reaches): a ring dimension has two per NPU, a fully connected one has one per pair, a switch dimension has one
up and one down per NPU. NPUs that behave alike share their links' records, as they share an actor. A message
to oneself arrives at once, unless there is a switch to pass (in the first dimension, as in the reference).

On a graph, every link is a link of its own, and nothing is folded.

Not here: what queueing means (`link_queues`), routes and speeds (`grid`, `speeds`; `graph_links`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE
from et_sim.engine.transport.network_seam import Needs
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.model import GraphFabric, GridFabric, Network
from et_sim.network import graph, graph_links, grid, link_queues
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
REACHES_SWITCHES = True
MESSAGE = record(
    ("at", "i4"),  # the rank it has reached, or will when it leaves the switch it is in
    ("via_switch", "i4"),
    ("dimension", "i4"),  # of its last hop
    *link_queues.CUT_THROUGH_FIELDS,
    *MESSAGE_FIELDS,
)


@dataclass(frozen=True, slots=True)
class LinkTables(Tables):
    """What compiled code knows."""

    fabric: GridTables
    links: Any
    first_link: Any  # per dimension
    home: Any  # per rank, the NPU whose links stand for its own
    cuts_through: Any  # one row: whether links pass messages on from the first byte on


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without single links, and messages that would take too long."""
    if isinstance(network.fabric, GraphFabric):
        graph.check_reach(network, most_bytes)
        graph_links.check_ports(network)
        return
    if not isinstance(network.fabric, GridFabric):
        raise UsageError(
            "only the analytical model can do with a network file of 1.0, which has bundles of links",
            remedy="leave out --network-model, or describe the network in the form of 2.x",
        )
    grid.check_reach(network, most_bytes)


def tables(network: Network, plan: Plan) -> Tables:
    """All links, idle; actors share theirs."""
    if isinstance(network.fabric, GraphFabric):
        return graph_links.link_tables(network)
    return _tables_of(network, plan.actor_of_rank)


def tables_of_ranks(network: Network) -> Tables:
    """All links, idle; every rank has its own."""
    if isinstance(network.fabric, GraphFabric):
        return graph_links.link_tables(network)
    return _tables_of(network, np.arange(network.ranks))


def _tables_of(network: Network, home: Any) -> LinkTables:
    wired, fabric = grid.wired(network), grid.tables(network)
    homes = int(home.max()) + 1
    counts = np.array([homes * ports_of(dimension) for dimension in wired.dimensions])
    links, first = table(link_queues.LINK, int(counts.sum())), np.cumsum(counts) - counts
    links["head"] = links["tail"] = links["joined"]["ns"] = links["mark"]["ns"] = NONE
    links["speed"] = np.repeat(np.arange(len(counts)), counts)
    for link in wired.links:
        npu, port = npu_and_port(wired, link)
        of = fabric.dimensions[link.dimension]
        own = fabric.speeds[of.uneven_first : of.uneven_end]["link"]
        speed = of.uneven_first + np.searchsorted(own, npu * of.ports + port)
        links["speed"][first[link.dimension] + home[npu] * of.ports + port] = speed
    links["home"] = np.concatenate([np.repeat(np.arange(homes), count // homes) for count in counts])
    return LinkTables(fabric, links, first, home, np.zeros(1, np.int8))


def resources_of_ranks(network: Network) -> ResourceTable:
    """Every link of every rank."""
    if isinstance(network.fabric, GraphFabric):
        return graph_links.link_resources(network)
    return grid.link_resources(network, np.arange(network.ranks))


def resources(network: Network, plan: Plan) -> ResourceTable:
    """Every link of every actor."""
    if isinstance(network.fabric, GraphFabric):
        return graph_links.link_resources(network)
    return grid.link_resources(network, plan.actor_of_rank)


def carried(tables: Any) -> Any:
    """Bytes, by link."""
    return tables.links["bytes"]


def path_keys(network: Network, *, whole: bool) -> PathKeys | None:
    """Messages differ by their direction, too; those on graphs meet on links of third ranks."""
    if isinstance(network.fabric, GraphFabric):
        return None
    return grid.path_keys(network, on_links=True, whole=whole)


def needs(network: Network) -> Needs:
    """A row of the message pool for each message."""
    if isinstance(network.fabric, GraphFabric):
        return Needs(graph.causal_events_of_message(network), graph_links.MESSAGE)
    return Needs(causal_events=grid.causal_events_of_message(network), record=MESSAGE)


inject, network_event, rows_left = link_queues.inject, link_queues.network_event, link_queues.rows_left


@works_on_tables
def is_wired_to_itself(network: LinkTables) -> bool:
    """Whether messages to oneself pass a switch."""
    return bool(network.fabric.dimensions[0].wiring == SWITCH)


@works_on_tables
def next_ports(_network: LinkTables, _source: int, _target: int) -> int:
    """No way depends on ports."""
    return 0


@works_on_tables
def set_out(_network: LinkTables, message: Any, source: int, _ports: int) -> None:
    """A message is at a rank."""
    message.at = source
    message.via_switch = 0


@works_on_tables
def take_hop(network: LinkTables, message: Any) -> int:
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
    first = network.first_link[leg.row]
    if leg.here == NONE:  # a switch that reduces sends
        message.at = leg.end
        return first + network.home[leg.end] * LINKS_PER_NPU + DOWN
    dimension, home = network.fabric.dimensions[leg.row], network.home[leg.at]
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
    message.via_switch = int(leg.there != NONE)
    return first + home * LINKS_PER_NPU + UP
