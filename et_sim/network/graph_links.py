"""The link model on a graph: every directed link carries one message at a time.

Not here: what queueing means (`link_queues`), and which link comes next (`routes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_bytes
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import Ends, ResourceTable
from et_sim.engine.state.run import NONE
from et_sim.machine.graph import link_tiers
from et_sim.machine.model import Network, Routing
from et_sim.network import graph, link_queues
from et_sim.network.graph import GraphTables
from et_sim.network.route_tables import MOST_BYTES_OF_TABLE
from et_sim.network.routes import MOST_PORTS, next_link, ports_of_flow, stop_after
from et_sim.plan.tables import record, table

MESSAGE = record(
    ("at", "i4"),  # the rank it has reached; NONE: another device
    ("via_switch", "i4"),  # never set: a switch is a device
    ("dimension", "i4"),  # the tier of its last link
    ("device", "i4"),  # that it has reached
    ("stop", "i4"),  # the rank it is on its way to
    ("source", "i4"),
    ("ports", "i8"),  # both, if its way depends on them
    *link_queues.CUT_THROUGH_FIELDS,
    *MESSAGE_FIELDS,
)
DIFFERS_BY_MESSAGE = (Routing.ECMP_NS3, Routing.VALIANT)  # which way a message takes between two ranks
TO = "->"  # in the names of links
inject, network_event, rows_left = link_queues.inject, link_queues.network_event, link_queues.rows_left


@dataclass(frozen=True, slots=True)
class GraphLinkTables(Tables):
    """What compiled code knows."""

    fabric: GraphTables
    links: Any
    tier: Any  # per link
    home: Any  # per rank: itself; then for switches that reduce, and for all other devices
    cuts_through: Any  # one row: whether links pass messages on from the first byte on
    sent: Any  # messages by source and target, as a counter of 16 bits; empty: no way depends on it


def link_tables(network: Network) -> GraphLinkTables:
    """All links, idle."""
    fabric = graph.tables(network)
    links = table(link_queues.LINK, len(fabric.speed_of))
    links["head"] = links["tail"] = links["joined"]["ns"] = links["mark"]["ns"] = NONE
    links["speed"] = fabric.speed_of
    links["home"] = np.maximum(_owners(network), 0)
    stores = np.zeros(1, np.int8)
    return GraphLinkTables(fabric, links, _tiers(network), _homes(network), stores, _counters(network))


def check_ports(network: Network) -> None:
    """Refuse so many ranks that counting the messages between any two takes too much."""
    size = 2 * _ends(network) ** 2
    if graph.wired(network).routing in DIFFERS_BY_MESSAGE and size > MOST_BYTES_OF_TABLE:
        raise MachineError(
            f"the ports of messages among {network.ranks} NPUs would need a table of {format_bytes(size)}",
            place="network configuration",
            remedy="give routing: ecmp, or take the analytical model",
        )


def _counters(network: Network) -> Any:
    """Of the messages between any two ranks, where each may go another way."""
    if graph.wired(network).routing not in DIFFERS_BY_MESSAGE:
        return np.zeros(0, np.uint16)
    return np.zeros(_ends(network) ** 2, np.uint16)


def _ends(network: Network) -> int:
    """Ranks, and switches that reduce."""
    return network.ranks + len(network.reducers)


def _homes(network: Network) -> Any:
    return np.concatenate([np.arange(network.ranks), np.zeros(len(network.reducers) + 1, np.int64)])


def _tiers(network: Network) -> Any:
    """Of each link: 0 from NPUs upwards and back, 1 from the row above these, and so on."""
    wired = graph.wired(network).graph
    return np.minimum(wired.tiers[wired.sources], wired.tiers[wired.targets]).astype(np.int32)


def _owners(network: Network) -> Any:
    """Of each link the rank that it leaves, or else reaches; NONE if both ends are other devices."""
    wired = graph.wired(network).graph
    rank_of = np.full(len(wired), NONE)
    rank_of[wired.npus] = np.arange(len(wired.npus))
    leaves, reaches = rank_of[wired.sources], rank_of[wired.targets]
    return np.where(leaves != NONE, leaves, reaches).astype(np.int32)


def link_resources(network: Network) -> ResourceTable:
    """Every link by its name and its ends."""
    wired = graph.wired(network).graph
    ends = (
        f"{wired.names[one]}{TO}{wired.names[other]}"
        for one, other in zip(wired.sources.tolist(), wired.targets.tolist(), strict=True)
    )
    names = (
        name if TO in name else f"{name} ({way})" for name, way in zip(wired.link_names, ends, strict=True)
    )
    of_tier, tier_names = link_tiers(wired)
    return ResourceTable(
        actor=_owners(network),
        dimension=_tiers(network),
        port=np.arange(len(wired.sources), dtype=np.int32),
        port_names=tuple(names),
        tier=of_tier,
        tier_names=tier_names,
        bytes_per_ns=wired.bytes_per_ns,
        class_names=graph.class_names(network),
        are_links=True,
        are_owned=False,
        ends=Ends(
            wired.sources.astype(np.int32), wired.targets.astype(np.int32), tuple(wired.names), wired.tiers
        ),
        sizes=tuple(npus for npus, _ in graph.wired(network).grid),
    )


@works_on_tables
def is_wired_to_itself(_network: GraphLinkTables) -> bool:
    """A message to oneself arrives at once."""
    return False


@works_on_tables
def next_ports(network: GraphLinkTables, source: int, target: int) -> int:
    """Every message between two ranks has a source port of its own."""
    if len(network.sent) == 0:
        return 0
    at = source * (len(network.home) - 1) + target
    number = int(network.sent[at])
    network.sent[at] = (number + 1) & MOST_PORTS
    return ports_of_flow(number)


@works_on_tables
def set_out(network: GraphLinkTables, message: Any, source: int, ports: int) -> None:
    """A message is at a rank."""
    message.at = message.stop = message.source = source
    message.ports = ports
    message.via_switch = 0
    message.device = network.fabric.routes.device_of[source]


@works_on_tables
def take_hop(network: GraphLinkTables, message: Any) -> int:
    """The next link of a message; moves the message to the link's far end."""
    routes = network.fabric.routes
    message.stop = stop_after(
        routes, message.device, message.stop, message.source, message.target, message.ports
    )
    link = next_link(routes, message.device, message.stop, message.source, message.target, message.ports)
    message.device = routes.target[link]
    message.at = routes.rank_of[message.device]
    message.dimension = network.tier[link]
    return int(link)
