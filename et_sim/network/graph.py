"""The graph: devices and directed links, on which a message has one leg, from its source to its target.

It pays the latencies of all links on its way (`routes`), and serialisation on the slowest, once. Links of one
class have the same figures and lie between the same rows of devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_bytes, format_ns
from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import NOBODY, SENDING, ResourceTable, sendings
from et_sim.engine.state.run import Run
from et_sim.fold.path_keys import SharedLinks
from et_sim.machine.graph import link_classes, link_tiers
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.topology.reach import longest_way
from et_sim.network.fabric import NONE, Leg
from et_sim.network.route_tables import FAR, RouteTables, route_tables
from et_sim.network.routes import FIRST_PORTS, MASK, mixed, next_link, stop_after
from et_sim.plan.splitmix import splitmix64
from et_sim.plan.tables import record, table

SPEED = record(("bytes_per_ns", "f8"), ("latency_ns", "f8"))


@dataclass(frozen=True, slots=True)
class GraphTables(Tables):
    """What compiled code knows of a graph."""

    routes: RouteTables
    speeds: Any  # by class of links
    speed_of: Any  # the class, by link
    tier_of: Any  # by link
    tiers: Any  # how many


def wired(network: Network) -> GraphFabric:
    """The network's fabric, which is a graph."""
    assert isinstance(network.fabric, GraphFabric)
    return network.fabric


def tables(network: Network) -> GraphTables:
    """Routes and classes of links."""
    graph = wired(network).graph
    (of_link, classes), (of_tier, names) = link_classes(graph), link_tiers(graph)
    speeds, units = table(SPEED, len(classes)), 1 << network.fraction_bits
    speeds["bytes_per_ns"] = np.array([one.bytes_per_ns for one in classes]) / units
    speeds["latency_ns"] = np.array([one.latency_ns for one in classes]) * units
    return GraphTables(route_tables(network), speeds, of_link, of_tier, np.array([len(names)]))


def flights_along(_network: Network, _along: int, _distance: Any, _size: Any) -> None:
    """Times depend on who sends."""
    return


def check_reach(network: Network, most_bytes: int) -> None:
    """Refuse a network on which a message of the run would take longer than any run may."""
    graph = wired(network).graph
    slowest = float((graph.latency_ns + most_bytes / graph.bytes_per_ns).max()) * most_links(network)
    if not slowest <= LONGEST_NS:
        raise MachineError(
            f"a message of {format_bytes(most_bytes)} could take longer than {format_ns(LONGEST_NS)}",
            place="network configuration",
            remedy="correct the latencies or bandwidths of its links",
        )


def most_links(network: Network) -> int:
    """No way has more links."""
    fabric = wired(network)
    if fabric.grid:
        return sum(npus for npus, _ in fabric.grid)
    longest = longest_way(fabric.graph, fabric.npus_forward) or FAR
    longest *= 3 if fabric.groups else len(network.grid.dimensions)  # from stop to stop
    return max([longest, *(len(way) for way in fabric.routes)])


def causal_events_of_message(network: Network) -> int:
    """The most causal events that a message may need: each link may be of another class.

    These are its latency, its serialisation until the message has left, and again until it arrives, and what
    joins those.
    """
    return 5 * most_links(network) + 2


def path_keys(network: Network, **_: bool) -> GraphPaths:
    """What folding must tell apart, where messages wait for nothing."""
    return GraphPaths(tables(network))


def sending_resources(network: Network, actors: int) -> ResourceTable:
    """All that an actor sends over each tier of links, and then what switches that reduce send each other."""
    graph = wired(network).graph
    of_link, names = link_tiers(graph)
    rows = np.zeros(len(names), np.int32)
    rows[of_link] = np.minimum(graph.tiers[graph.sources], graph.tiers[graph.targets])
    senders = actors + bool(network.reducers)
    found = sendings(len(names), senders, class_names(network), names)
    return replace(
        found,
        actor=np.where(found.actor < actors, found.actor, NOBODY).astype(np.int32),
        dimension=np.tile(rows, senders),
        port=found.tier,
        port_names=tuple(f"{SENDING}, {name}" for name in names),
        are_tiers=True,
    )


def causal_classes(network: Network) -> int:
    """How many classes of links there are."""
    return len(link_classes(wired(network).graph)[1])


def class_names(network: Network) -> tuple[str, ...]:
    """What the classes of links are called."""
    return tuple(one.name for one in link_classes(wired(network).graph)[1])


class GraphPaths:
    """Paths by the classes of the links on them, one after the other."""

    differ_along_axes = True
    messages_queue = False
    shared_links: SharedLinks | None = None

    def __init__(self, fabric: GraphTables) -> None:
        self._fabric = fabric

    def codes(self, source: Any, target: Any) -> Any:
        """A number for the path of each pair, there and back."""
        source, target = np.broadcast_arrays(source, target)
        there, back = np.zeros((2, source.size), np.int64)
        ends = np.ascontiguousarray(source).reshape(-1), np.ascontiguousarray(target).reshape(-1)
        _path_codes(self._fabric, ends[0].astype(np.int64), ends[1].astype(np.int64), there)
        _path_codes(self._fabric, ends[1].astype(np.int64), ends[0].astype(np.int64), back)
        with np.errstate(over="ignore"):
            return splitmix64(splitmix64(there, 0) + back.astype(np.uint64), 0).reshape(source.shape)

    def costs(self, source: Any, target: Any) -> Any:
        """The same: the codes say nothing of which links of a class are taken."""
        return self.codes(source, target)

    def can_be_folded(self, _source: Any, _target: Any) -> bool:
        """The codes say all."""
        return True


@entry(what="the routes", seconds=lambda _, sources, *__: len(sources) * 1e-4)
def _path_codes(fabric: GraphTables, sources: Any, targets: Any, codes: Any) -> None:
    """A number for the classes of the links of each way."""
    for row in range(len(sources)):
        leg = next_leg(fabric, sources[row], targets[row])
        device, stop, one, other = leg.here, leg.at, 1, 2
        while device != leg.there:
            stop = _stop_after(fabric, leg, device, stop)
            link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
            one = mixed(one, int(fabric.speed_of[link]))
            other = mixed(other, int(fabric.speed_of[link]) + 1)
            device = fabric.routes.target[link]
        codes[row] = ((one & (MASK >> 1)) << 32) | other


@works_on_tables
def next_leg(fabric: GraphTables, at: int, target: int) -> Leg:
    """All the way; the places are the devices of its ends."""
    here, there = fabric.routes.device_of[at], fabric.routes.device_of[target]
    return Leg(NONE if at == target else 0, at, here, there, target)


@works_on_tables
def _stop_after(fabric: GraphTables, leg: Leg, device: int, stop: int) -> int:
    """Where a message goes next that is on its way to a stop, or there."""
    return stop_after(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)


@works_on_tables
def note_leg(fabric: GraphTables, run: Run, leg: Leg, begin: int, size: int) -> None:
    """A message passes all links on its way, each as soon as the latencies before it are over.

    Where ranks are folded, the links of a tier are not told apart.
    """
    if not observe.notes_traffic(run):
        return
    device, stop, time = leg.here, leg.at, float(begin)
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        speed = fabric.speeds[fabric.speed_of[link]]
        length = int(size / speed.bytes_per_ns)
        if observe.is_watched(run):
            observe.actor_sends(run, fabric.tier_of[link], fabric.tiers[0], int(time), length, size)
        else:
            observe.link_passed(run, link, int(time), length, size)
        time += speed.latency_ns
        device = fabric.routes.target[link]


@works_on_tables
def leg_ns(fabric: GraphTables, leg: Leg, size: int) -> int:
    """The latencies of all links, and serialisation on the slowest; equal latencies are multiplied."""
    device, stop = leg.here, leg.at
    latency, count, last, slowest = 0.0, 0, 0.0, np.inf
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        speed = fabric.speeds[fabric.speed_of[link]]
        if speed.latency_ns != last:
            latency, count, last = latency + count * last, 0, speed.latency_ns
        count += 1
        slowest = min(slowest, speed.bytes_per_ns)
        device = fabric.routes.target[link]
    return int(latency + count * last + size / slowest)


@works_on_tables
def leaving_ns(fabric: GraphTables, leg: Leg, size: int) -> int:
    """The serialisation alone."""
    return int(size / fabric.speeds[leaving_class(fabric, leg)].bytes_per_ns)


@works_on_tables
def leaving_class(fabric: GraphTables, leg: Leg) -> int:
    """The class of the slowest link on the way: the first such one."""
    device, stop, slowest = leg.here, leg.at, NONE
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        speed = fabric.speed_of[link]
        if slowest == NONE or fabric.speeds[speed].bytes_per_ns < fabric.speeds[slowest].bytes_per_ns:
            slowest = speed
        device = fabric.routes.target[link]
    return slowest


@works_on_tables
def describe_leg(fabric: GraphTables, run: Run, leg: Leg, size: int) -> None:
    """The latencies of the links on the way, class by class, and then the slowest one's serialisation."""
    if not observe.describes_causes(run):
        return
    begin, latency, count, last = observe.described_until(run), 0.0, 0, NONE
    device, stop = leg.here, leg.at
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        if fabric.speed_of[link] != last:
            if count > 0:
                latency += count * fabric.speeds[last].latency_ns
                observe.describe_latency(run, last, begin + int(latency))
            count, last = 0, fabric.speed_of[link]
        count += 1
        device = fabric.routes.target[link]
    latency += count * fabric.speeds[last].latency_ns
    observe.describe_latency(run, last, begin + int(latency))
    _describe_serialisation(fabric, run, leg, size, begin, latency)


@works_on_tables
def describe_leaving(fabric: GraphTables, run: Run, leg: Leg, size: int) -> None:
    """The serialisation alone."""
    if observe.describes_causes(run):
        _describe_serialisation(fabric, run, leg, size, observe.described_until(run), 0.0)


@works_on_tables
def _describe_serialisation(
    fabric: GraphTables, run: Run, leg: Leg, size: int, begin: int, latency: float
) -> None:
    """That of the slowest link, and beside it that of each other class, which may become the slowest."""
    sent, sent_ns = observe.described_so_far(run), observe.described_until(run)
    slowest = leaving_class(fabric, leg)
    time = latency + size / fabric.speeds[slowest].bytes_per_ns
    observe.describe_serialisation(run, slowest, begin + int(time))
    device, stop, last = leg.here, leg.at, slowest
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        speed = fabric.speed_of[link]
        if speed not in (last, slowest):
            time = latency + size / fabric.speeds[speed].bytes_per_ns
            observe.describe_beside(run, speed, sent, sent_ns, begin + int(time))
        last, device = speed, fabric.routes.target[link]


@works_on_tables
def add_serialisation(fabric: GraphTables, leg: Leg, size: int, longest: Any) -> None:
    """What each class of links on the way takes for so many bytes, if that is longer than what is noted."""
    device, stop = leg.here, leg.at
    while device != leg.there:
        stop = _stop_after(fabric, leg, device, stop)
        link = next_link(fabric.routes, device, stop, leg.at, leg.end, FIRST_PORTS)
        speed = fabric.speed_of[link]
        longest[speed] = max(longest[speed], int(size / fabric.speeds[speed].bytes_per_ns))
        device = fabric.routes.target[link]
