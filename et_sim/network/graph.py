"""Graphs: devices and directed links, on which a message has one leg, from its source to its target.

A message pays the latencies of all links of its path (`routes`), and serialisation on the slowest, once.
Links of a class have the same figures and lie between the same rows of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.unique import groups_of
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import NO_OWNER, SENDING, LinkEnds, ResourceTable, sendings
from et_sim.engine.state.run import Run
from et_sim.machine.graph import Graph, LinkClass, link_classes, link_tiers, longest_way
from et_sim.machine.model import GraphFabric, Network, Routing
from et_sim.network import routes
from et_sim.network.fabric import NONE, SPEED, Hop, Leg, Wires, fabric_tables, refuse_slow
from et_sim.network.outages import graph_without
from et_sim.network.paths import LinkPaths
from et_sim.network.route_tables import FAR, RouteTables, no_routes, route_tables
from et_sim.network.routes import MOST_PORTS, ports_of_flow, stop_after
from et_sim.network.ways import FIRST_PORTS
from et_sim.plan.records import table

TO = "->"  # in the names of links


class GraphTables(Tables, Struct, frozen=True):
    """Tables of a graph for compiled code."""

    routes: RouteTables
    speeds: Any  # by class of links
    speed_of: Any  # the class, by link
    tier_of: Any  # by link
    tiers: Any  # their number


NO_LINKS = np.zeros(0, np.int32)
NOTHING = GraphTables(no_routes(), table(SPEED, 0), NO_LINKS, NO_LINKS, np.zeros(0, np.int64))  # no graph


def wired(network: Network) -> GraphFabric:
    """Return the graph of the network as messages cross it."""
    assert isinstance(network.fabric, GraphFabric)
    return network.fabric.routed


def tables(network: Network) -> GraphTables:
    """Return the tables of routes and classes of links."""
    graph = wired(network).graph
    (of_link, classes), (of_tier, names) = link_classes(graph), link_tiers(graph)
    speeds = table(SPEED, len(classes))
    _set_speeds(speeds, classes, 1 << network.fraction_bits)
    return GraphTables(route_tables(network), speeds, of_link, of_tier, np.array([len(names)]))


def _set_speeds(speeds: Any, classes: Sequence[LinkClass], units: int) -> None:
    speeds["bytes_per_ns"] = np.array([link_class.bytes_per_ns for link_class in classes]) / units
    speeds["latency_ns"] = np.array([link_class.latency_ns for link_class in classes]) * units


def rewritten(made: Any, before: Network, network: Network) -> bool:
    """Write the figures of a network into the tables of the one before; return False if more differs."""
    fabric, former = network.fabric, before.fabric
    if not isinstance(fabric, GraphFabric) or not isinstance(former, GraphFabric):
        return False
    sizes = ([each.npus for each in one.grid.dimensions] for one in (before, network))
    if next(sizes) != next(sizes) or before.fraction_bits != network.fraction_bits:
        return False
    graph, other = fabric.routed.graph, former.routed.graph
    if not fabric.has_shape_of(former) or not np.array_equal(graph.numbers, other.numbers):
        return False
    _set_speeds(made.speeds, link_classes(graph)[1], 1 << network.fraction_bits)
    if fabric.routing is Routing.SPREAD:
        made.graph.routes.bytes_per_ns[:] = graph.bytes_per_ns
    return True


def flights_along(_network: Network, _along: int, _distance: Any, _size: Any) -> None:
    """Return None: times depend on the sender."""
    return


def check_reach(network: Network, most_bytes: int) -> None:
    """Refuse a network on which a message would take longer than any run may."""
    graph = wired(network).graph
    slowest = float((graph.latency_ns + most_bytes / graph.bytes_per_ns).max()) * most_links(network)
    refuse_slow(slowest, most_bytes, "", "the latencies or bandwidths of its links")


def most_links(network: Network, avoided: Any = None) -> int:
    """Return the largest number of links of a path; `avoided`: links that no message takes."""
    fabric, dimensions = wired(network), len(network.grid.dimensions)
    if avoided is None:
        return fabric.derived(_most_links, dimensions)
    return _most_links(replace(fabric, grid=(), graph=graph_without(fabric.graph, avoided)), dimensions)


def _most_links(fabric: GraphFabric, dimensions: int) -> int:
    if fabric.grid:
        return sum(npus for npus, _ in fabric.grid)
    longest = longest_way(fabric.graph, fabric.npus_forward) or FAR
    longest *= 3 if fabric.groups else dimensions  # from stop to stop
    return max([longest, *(len(way) for way in fabric.routes)])


def causal_events_of_message(network: Network) -> int:
    """Return the most causal events of a message; each link may have a class of its own.

    These are its latency, its serialisation until the message has left and until it arrives, and the events
    that join them.
    """
    return 5 * most_links(network) + 2


def path_keys(network: Network, **_: bool) -> LinkPaths:
    """Return the keys for folding without contention: the classes of links of paths."""
    (hops, speeds, _), members = wires(network), wired(network).graph.members
    kinds = speeds if members is None else groups_of(speeds, members).of_row
    return LinkPaths(hops, kinds, most_links(network))


def sending_resources(network: Network, actors: int) -> ResourceTable:
    """Return the resources of what actors send over each tier of links, and of what reducing switches send.

    The capacity is that of the fastest link of the tier.
    """
    graph = wired(network).graph
    of_link, names = link_tiers(graph)
    rows = np.zeros(len(names), np.int32)
    rows[of_link] = np.minimum(graph.tiers[graph.sources], graph.tiers[graph.targets])
    fastest = np.zeros(len(names))
    np.maximum.at(fastest, of_link, graph.bytes_per_ns)
    senders = actors + bool(network.reducers)
    links = sendings(len(names), senders, class_names(network), names)
    return replace(
        links,
        actor=np.where(links.actor < actors, links.actor, NO_OWNER).astype(np.int32),
        dimension=np.tile(rows, senders),
        port=links.tier,
        port_names=tuple(f"{SENDING}, {name}" for name in names),
        bytes_per_ns=np.tile(fastest, senders),
    )


def causal_classes(network: Network) -> int:
    """Return the number of classes of links."""
    return len(link_classes(wired(network).graph)[1])


def class_names(network: Network) -> tuple[str, ...]:
    """Return the names of the classes of links."""
    return tuple(link_class.name for link_class in link_classes(wired(network).graph)[1])


@works_on_tables
def next_leg(fabric: GraphTables, at: int, target: int) -> Leg:
    """Return a leg to the target; its places are the devices of its ends."""
    here, there = fabric.routes.device_of[at], fabric.routes.device_of[target]
    return Leg(NONE if at == target else 0, at, here, there, target)


@works_on_tables
def ends_of_leg(_fabric: GraphTables, leg: Leg) -> tuple[int, int]:
    """Return the first and last device of a leg."""
    return int(leg.here), int(leg.there)


@works_on_tables
def next_link(fabric: GraphTables, leg: Leg, at: int, stop: int) -> Hop:
    """Return the next link of a leg by the routing rule."""
    stop = stop_after(fabric.routes, at, stop, leg.at, leg.end, FIRST_PORTS)
    link = routes.next_link(fabric.routes, at, stop, leg.at, leg.end, FIRST_PORTS)
    return Hop(int(link), int(fabric.speed_of[link]), int(fabric.routes.target[link]), int(stop))


@works_on_tables
def note_leg(fabric: GraphTables, run: Run, leg: Leg, begin: int, size: int) -> None:
    """Record a message on all links of its path, each after the latencies before it.

    Where ranks are folded, the links of a tier are not separated.
    """
    if not observe.notes_traffic(run):
        return
    at, stop, time = leg.here, leg.at, float(begin)
    while at != leg.there:
        hop = next_link(fabric, leg, at, stop)
        speed = fabric.speeds[hop.link_class]
        length = int(size / speed.bytes_per_ns)
        if observe.is_watched(run):
            observe.actor_sends(run, fabric.tier_of[hop.link], fabric.tiers[0], int(time), length, size)
        else:
            observe.link_passed(run, hop.link, int(time), length, size)
        time += speed.latency_ns
        at, stop = hop.at, hop.stop


def wires(network: Network, _home: Any = None) -> tuple[Wires, Any, Any]:
    """Return the tables of paths, the speed of every link, and its rank."""
    part, graph = tables(network), wired(network).graph
    others = np.zeros(len(network.reducers) + 1, np.int64)  # switches that reduce, and all other devices
    home = np.concatenate([np.arange(network.ranks), others]).astype(np.int32)
    nothing = np.zeros(0, np.int64)
    ways = Wires(fabric_tables(part), home, nothing, graph.derived(_tiers), nothing.astype(np.uint16))
    return ways, part.speed_of, np.maximum(graph.derived(_owners), 0)


def _tiers(wires_of: Graph) -> Any:
    """Return the tier of each link: 0 from NPUs upwards and back, 1 from the row above, and so on."""
    return np.minimum(wires_of.tiers[wires_of.sources], wires_of.tiers[wires_of.targets]).astype(np.int32)


def _owners(wires_of: Graph) -> Any:
    """Return for each link the rank that it leaves, or else reaches; NONE if both ends are other devices."""
    rank_of = np.full(len(wires_of), NONE)
    rank_of[wires_of.npus] = np.arange(len(wires_of.npus))
    leaves, reaches = rank_of[wires_of.sources], rank_of[wires_of.targets]
    return np.where(leaves != NONE, leaves, reaches).astype(np.int32)


def link_resources(network: Network, _actor_of_rank: Any = None) -> ResourceTable:
    """Return every link by name and ends."""
    fabric = wired(network)
    members = 1 if fabric.graph.members is None else fabric.graph.members
    links, speeds = fabric.derived(_links_without_speeds), fabric.graph.bytes_per_ns / members
    shape = None if fabric.graph.kept is None else links
    return replace(links, bytes_per_ns=speeds, class_names=class_names(network), shape=shape)


def _links_without_speeds(fabric: GraphFabric) -> ResourceTable:
    graph = fabric.graph
    ends = (
        f"{graph.names[source]}{TO}{graph.names[target]}"
        for source, target in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    )
    names = (
        name if TO in name else f"{name} ({way})" for name, way in zip(graph.link_names, ends, strict=True)
    )
    of_tier, tier_names = link_tiers(graph)
    return ResourceTable(
        actor=graph.derived(_owners),
        dimension=graph.derived(_tiers),
        port=np.arange(len(graph.sources), dtype=np.int32),
        port_names=tuple(names),
        tier=of_tier,
        tier_names=tier_names,
        bytes_per_ns=np.zeros(len(graph.sources)),
        class_names=(),
        are_links=True,
        are_owned=False,
        links=graph.members,
        members=graph.members,
        ends=LinkEnds(
            graph.sources.astype(np.int32), graph.targets.astype(np.int32), tuple(graph.names), graph.tiers
        ),
        sizes=tuple(npus for npus, _ in fabric.grid),
    )


@works_on_tables
def next_ports(network: Any, source: int, target: int) -> int:
    """Return the ports of the next message; each message between two ranks has its own source port."""
    if len(network.sent) == 0:
        return 0
    at = source * (len(network.home) - 1) + target
    number = int(network.sent[at])
    network.sent[at] = (number + 1) & MOST_PORTS
    return ports_of_flow(number)


@works_on_tables
def set_out(network: Any, message: Any, source: int, ports: int) -> None:
    """Put a message at a rank."""
    message.at = message.stop = message.source = source
    message.ports = ports
    message.via_switch = 0
    message.device = network.fabric.graph.routes.device_of[source]


@works_on_tables
def take_hop(network: Any, message: Any) -> int:
    """Return the next link of a message, and move the message to its far end."""
    tables, ends = network.fabric.graph.routes, (message.source, message.target, message.ports)
    message.stop = stop_after(tables, message.device, message.stop, *ends)
    row = routes.next_link(tables, message.device, message.stop, *ends)
    message.device = tables.target[row]
    message.at = tables.rank_of[message.device]
    message.dimension = network.tier[row]
    return int(row)
