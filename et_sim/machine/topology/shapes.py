"""Generators of networks: rings, meshes, tori; a switch, leaves and spines, fat trees, rails, a dragonfly.

Each adds a part to a graph, at a given place of the whole.
"""

from __future__ import annotations

import math
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.documents.keys import inline, key
from et_sim.documents.kinds import choice
from et_sim.documents.kinds import section as part
from et_sim.machine.graph import NIC, GraphBuilder, LinkFigures
from et_sim.machine.model import Routing
from et_sim.machine.topology.keys import RATIO, Common, LinkKeys, OtherLinks, like, others, whole, wholes


class PartPlace(Struct, frozen=True):
    """The place of a part in the whole."""

    prefix: str = ""  # prefix of the names of its switches
    tier: int = 1  # tier of its lowest devices besides NPUs
    given: tuple[int, ...] | None = None  # devices that it connects; None: it makes NPUs


class GeneratorEnds(Struct, frozen=True):
    """The devices that a generator connects, and the ports for its links, which may be NICs."""

    devices: list[int]
    ports: list[int]
    tier: int  # tier of the lowest switches


class NetworkPart(Struct, frozen=True):
    """The part of a network that a generator made."""

    devices: list[int]  # devices that it connects, in the order of ranks
    dimensions: tuple[int, ...]  # logical dimensions, innermost first
    gateway: int  # device by which an outer network reaches all of it
    grid: tuple[tuple[int, bool], ...] = ()  # (NPUs, wraps round) by dimension; meshes and tori only
    groups: tuple[tuple[int, ...], ...] = ()  # devices of each group of a dragonfly
    routing: Routing = Routing.SHORTEST  # default of the file


def endpoints(build: GraphBuilder, common: Common, place: PartPlace, count: int) -> GeneratorEnds:
    """Return new NPUs or the given devices, each with a NIC if the object has one."""
    return behind_nics(build, common, place, devices_of(build, common, place, count))


def devices_of(build: GraphBuilder, common: Common, place: PartPlace, count: int) -> list[int]:
    """Return new NPUs or the given devices."""
    if place.given is None:
        return build.npus(count)
    if len(place.given) != count:
        raise common.section.fault(
            f"it connects {count} devices, and there are {len(place.given)} to connect",
            "make the numbers of the inner and the outer network agree",
            key="generator",
        )
    return list(place.given)


def behind_nics(
    build: GraphBuilder, common: Common, place: PartPlace, devices: list[int], sharers: int = 1
) -> GeneratorEnds:
    """Return devices with a NIC for each `sharers` of them, if the object has NICs."""
    if common.nic is None:
        return GeneratorEnds(devices, devices, place.tier)
    nics = [
        build.device(f"{place.prefix}nic{number}", NIC, place.tier)
        for number in range(len(devices) // sharers)
    ]
    for number, device in enumerate(devices):
        build.cable(device, nics[number // sharers], common.nic.figures)
    return GeneratorEnds(devices, nics, place.tier + 1)


# NVLinks of a DGX-1 with V100: pairs of NPUs, and their number of parallel links.
CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1)),
    *((3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)),
)


class Ring(Struct, frozen=True):
    """NPUs in a circle."""

    common: Common = inline(Common)
    npus: int = whole("NPUs in the circle.", minimum=2, required=True)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        return _grid(build, self.common, place, (self.npus,), wraps=True)


class Mesh(Struct, frozen=True):
    """NPUs in rows along every dimension, or in circles for a torus."""

    common: Common = inline(Common)
    sizes: tuple[int, ...] = wholes("NPUs by dimension.", required=True)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        return _grid(build, self.common, place, self.sizes, wraps=self.common.generator == "torus")


def _grid(
    build: GraphBuilder, common: Common, place: PartPlace, sizes: tuple[int, ...], *, wraps: bool
) -> NetworkPart:
    """Add a mesh or torus; links to higher coordinates come first, so that they win ties."""
    figures, count = common.links.figures, math.prod(sizes)
    build.expect(devices=count, links=count * len(sizes))
    ends = endpoints(build, common, place, count)
    stride = 1
    for size in sizes:
        for towards in (1,) if wraps and size == 2 else (1, -1):
            for number in range(count):
                here = number // stride % size
                after = (here + towards) % size if wraps else here + towards
                if 0 <= after < size and after != here:
                    build.link(ends.ports[number], ends.ports[number + (after - here) * stride], figures)
        stride *= size
    if ends.ports != ends.devices:
        return NetworkPart(ends.devices, sizes, ends.ports[0])
    grid = tuple((size, wraps) for size in sizes)
    return NetworkPart(ends.devices, sizes, ends.ports[0], grid, routing=Routing.DIMENSION_ORDER)


class FullyConnected(Struct, frozen=True):
    """A link between any two NPUs."""

    common: Common = inline(Common)
    npus: int = whole("NPUs.", minimum=2, required=True)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        build.expect(devices=self.npus, links=self.npus * (self.npus - 1))
        ends = endpoints(build, self.common, place, self.npus)
        for port in ends.ports:
            for other in ends.ports:
                if port != other:
                    build.link(port, other, self.common.links.figures)
        return NetworkPart(ends.devices, (self.npus,), ends.ports[0])


class HybridCubeMesh(Struct, frozen=True):
    """The eight NPUs of a DGX-1: two groups of four, and each NPU linked to its counterpart."""

    common: Common = inline(Common)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        figures = self.common.links.figures
        ends = endpoints(build, self.common, place, 8)
        for first, second, count in CUBE_MESH:
            of = replace(figures, bytes_per_ns=figures.bytes_per_ns * count)
            build.cable(ends.ports[first], ends.ports[second], of)
        return NetworkPart(ends.devices, (8,), ends.ports[0])


MESH, BEHIND_NICS = "fully-connected", "behind-nics"  # insides of a node, besides a switch


class Switch(Struct, frozen=True):
    """NPUs behind one switch."""

    common: Common = inline(Common)
    npus: int = whole("NPUs.", required=True)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        ends = endpoints(build, self.common, place, self.npus)
        (hub,) = build.switches(1, f"{place.prefix}switch", ends.tier)
        for port in ends.ports:
            build.cable(port, hub, self.common.links.figures)
        return NetworkPart(ends.devices, (self.npus,), hub)


class LeafSpine(Struct, frozen=True):
    """Leaves with NPUs, each linked to every spine."""

    common: Common = inline(Common)
    leaves: int = whole("Switches with NPUs.", required=True)
    spines: int = whole("Switches above them.", required=True)
    npus_per_leaf: int = whole("NPUs of a leaf.", required=True)
    uplinks: OtherLinks | None = others("Links of leaves to spines, if unlike those of NPUs.")

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        counts = self.npus_per_leaf, self.leaves
        return _two_tiers(build, self.common, self.uplinks, place, counts, self.spines)


def _leaves(
    build: GraphBuilder, ports: list[int], each: int, figures: LinkFigures, prefix: str, tier: int
) -> list[int]:
    rows = build.switches(len(ports) // each, f"{prefix}leaf", tier)
    for number, port in enumerate(ports):
        build.cable(port, rows[number // each], figures)
    return rows


class FatTree(Struct, frozen=True):
    """A fat tree by k: k pods of k/2 leaves and k/2 aggregation switches; or by radix and NPUs."""

    common: Common = inline(Common)
    k: int | None = whole(
        "Ports of every switch; three tiers. It replaces the next four keys.", None, minimum=2
    )
    radix: int | None = whole("Ports of every switch.", None, minimum=2)
    tiers: int = whole("Tiers of switches, 2 or 3.", 2, form="2 or 3", minimum=2, maximum=3)
    oversubscription: Fraction = key(RATIO, "Bandwidth of a leaf downwards by upwards.", Fraction(1))
    npus: int | None = whole("NPUs. Without the key: as many as possible.", None)
    uplinks: OtherLinks | None = others("Links of leaves upwards, if unlike those of NPUs.")
    core_links: OtherLinks | None = others("Links to the core, if unlike `uplinks`.")

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        if self.k is not None:
            half = self.k // 2
            if self.k % 2:
                raise self._fault("k", f"k is {self.k}", "give an even number: half of the ports go up")
            return self._three_tiers(build, place, (half, half, self.k), half, half**2)
        if self.radix is None:
            raise self._fault("", 'keys "k" and "radix" are missing', "give one of them, an integer >= 2")
        radix, (down, up) = self.radix, self._split(self.radix)
        if self.tiers == 2:
            leaves = self._divided(radix * down, down, "NPUs by those of a leaf")
            if leaves > radix:
                raise self._fault(
                    "npus", f"two tiers reach {radix * down} NPUs", "give 3 tiers, or fewer NPUs"
                )
            return _two_tiers(build, self.common, self.uplinks, place, (down, leaves), up)
        middle = radix - radix // 2  # ports down of an aggregation switch
        most = radix * down * middle
        pods = self._divided(most, down * middle, "NPUs by those of a pod")
        if pods > radix:
            raise self._fault("npus", f"three tiers of this radix reach {most} NPUs", "give fewer NPUs")
        return self._three_tiers(build, place, (down, middle, pods), up, up * (radix // 2))

    def _fault(self, key: str, cause: str, remedy: str) -> InputError:
        return self.common.section.fault(cause, remedy, key=key)

    def _split(self, radix: int) -> tuple[int, int]:
        """Return the number of ports of a leaf that go down and up."""
        ratio = self.oversubscription
        up = Fraction(radix) / (1 + ratio)
        if up.denominator != 1 or up < 1:
            raise self._fault(
                "oversubscription" if "oversubscription" in self.common.section.content else "radix",
                f"{radix} ports cannot be split {ratio.numerator}:{ratio.denominator} between down and up",
                "choose a radix that is a multiple of their sum",
            )
        return radix - int(up), int(up)

    def _divided(self, most: int, by: int, noun: str) -> int:
        whole = most if self.npus is None else self.npus
        if whole % by:
            raise self._fault("npus", f"{whole} {noun}, {by}, do not divide", f"give a multiple of {by}")
        return whole // by

    def _three_tiers(
        self,
        build: GraphBuilder,
        place: PartPlace,
        counts: tuple[int, int, int],
        aggregations: int,
        cores: int,
    ) -> NetworkPart:
        """Add three tiers; core switches are dealt to the aggregation switches alike in every pod."""
        each, leaves, pods = counts
        figures = self.common.links.figures
        above = like(self.uplinks, figures)
        top = like(self.core_links, above)
        links = 2 * pods * (leaves * (each + aggregations) + cores)
        build.expect(devices=each * leaves * pods + cores, links=links)
        ends = endpoints(build, self.common, place, each * leaves * pods)
        rows = _leaves(build, ends.ports, each, figures, place.prefix, ends.tier)
        middle = build.switches(aggregations * pods, f"{place.prefix}agg", ends.tier + 1)
        tops = build.switches(cores, f"{place.prefix}core", ends.tier + 2)
        share = cores // aggregations
        for pod in range(pods):
            for leaf in rows[pod * leaves : (pod + 1) * leaves]:
                for agg in middle[pod * aggregations : (pod + 1) * aggregations]:
                    build.cable(leaf, agg, above)
            for number in range(aggregations):
                for core in tops[number * share : (number + 1) * share]:
                    build.cable(middle[pod * aggregations + number], core, top)
        return NetworkPart(ends.devices, (each, leaves, pods), tops[0], routing=Routing.SPREAD)


def _two_tiers(
    build: GraphBuilder,
    common: Common,
    uplinks: OtherLinks | None,
    place: PartPlace,
    counts: tuple[int, int],
    up: int,
) -> NetworkPart:
    each, leaves = counts
    figures = common.links.figures
    build.expect(devices=each * leaves + up, links=2 * leaves * (each + up))
    ends = endpoints(build, common, place, each * leaves)
    rows = _leaves(build, ends.ports, each, figures, place.prefix, ends.tier)
    tops = build.switches(up, f"{place.prefix}spine", ends.tier + 1)
    for leaf in rows:
        for spine in tops:
            build.cable(leaf, spine, like(uplinks, figures))
    return NetworkPart(ends.devices, (each, leaves), tops[0], routing=Routing.SPREAD)


class Inside(Struct, frozen=True):
    """The network within a node."""

    links: LinkKeys = inline(LinkKeys)
    generator: str = choice("Kind of the network.", "switch", choices=("switch", MESH, BEHIND_NICS))


class Railed(Struct, frozen=True):
    """Nodes with a switch or a full mesh inside; NPUs of the same position in their nodes share rails.

    Several NPUs of a node may share a NIC, and then a rail. `behind-nics`: a node's switch is reached by NICs
    only, as when a card and its NPUs are on one PCIe switch. Without spines, rails meet only within the
    nodes, and NPUs forward messages.
    """

    inside: Inside = part("Network of the NPUs of a node.", of=Inside, required=True)
    common: Common = inline(Common)
    nodes: int = whole("Number of nodes.", required=True)
    npus_per_node: int = whole("NPUs of a node.", required=True)
    npus_per_nic: int = whole("NPUs that share a NIC, and a rail.", 1)
    nodes_per_leaf: int | None = whole("Nodes that share the switch of a rail. Without the key: all.", None)
    spines: int = whole("Switches that connect the rails.", 0, minimum=0)
    uplinks: OtherLinks | None = others("Links to spines, if unlike those of NPUs.")

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        nodes, each, sharers, spines = self.nodes, self.npus_per_node, self.npus_per_nic, self.spines
        within, kind = self.inside.links.figures, self.inside.generator
        figures, per_leaf = self.common.links.figures, self.nodes_per_leaf or nodes
        up = like(self.uplinks, figures)
        self._check(per_leaf)
        groups = nodes // per_leaf
        devices = devices_of(build, self.common, place, nodes * each)
        tier = place.tier + (self.common.nic is not None)
        if kind == MESH:
            for number, device in enumerate(devices):
                for other in devices[number + 1 : (number // each + 1) * each]:
                    build.cable(device, other, within)
        else:  # added before NICs, so that paths through the node's switch win ties
            hubs = build.switches(nodes, f"{place.prefix}node-switch", tier)
        if kind == "switch":
            for number, device in enumerate(devices):
                build.cable(device, hubs[number // each], within)
        ends = behind_nics(build, self.common, place, devices, sharers)
        ports = each // sharers
        if kind == BEHIND_NICS:
            for number, port in enumerate(ends.ports):
                build.cable(port, hubs[number // ports], within)
        rails = [
            build.switches(groups, f"{place.prefix}rail{rail}-leaf", ends.tier + 1) for rail in range(ports)
        ]
        for number, port in enumerate(ends.ports):
            build.cable(port, rails[number % ports][number // ports // per_leaf], figures)
        for spine in build.switches(spines, f"{place.prefix}spine", ends.tier + 2):
            for rail in rails:
                for leaf in rail:
                    build.cable(leaf, spine, up)
        routing = Routing.SPREAD if spines else Routing.SHORTEST
        return NetworkPart(ends.devices, (each, nodes), len(build.names) - 1, routing=routing)

    def _check(self, per_leaf: int) -> None:
        nodes, each, sharers = self.nodes, self.npus_per_node, self.npus_per_nic
        is_behind = self.inside.generator == BEHIND_NICS
        key, cause, remedy = "npus-per-nic", "", ""
        if (sharers > 1 or is_behind) and self.common.nic is None:
            cause, remedy = "the network has no NICs", "give the figures of `nic`"
        elif each % sharers:
            cause = f"{each} NPUs of a node cannot be divided among NICs of {sharers}"
            remedy = f"give a divisor of {each}"
        elif nodes % per_leaf:
            key, remedy = "nodes-per-leaf", f"give a divisor of {nodes}"
            cause = f"{nodes} nodes cannot be divided among rail switches of {per_leaf}"
        elif nodes > per_leaf and not self.spines:
            key, remedy = "nodes-per-leaf", "give spines, or one switch for a whole rail"
            cause = f"each rail has {nodes // per_leaf} switches and no spines above them"
        if cause:
            raise self.common.section.fault(cause, remedy, key=key)


class Dragonfly(Struct, frozen=True):
    """Groups of routers, all linked within a group, and every group to every other.

    The global links of a group are dealt to its routers in turn: the link to the group at distance d belongs
    to router (d - 1) mod routers.
    """

    common: Common = inline(Common)
    groups: int = whole("Number of groups.", minimum=2, required=True)
    routers_per_group: int = whole("Routers of a group.", required=True)
    npus_per_router: int = whole("NPUs of a router.", required=True)
    local_links: OtherLinks | None = others("Links within a group, if unlike those of NPUs.")
    global_links: OtherLinks | None = others("Links between groups, if unlike those within one.")

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        groups, routers, each = self.groups, self.routers_per_group, self.npus_per_router
        figures = self.common.links.figures
        local = like(self.local_links, figures)
        between = like(self.global_links, local)
        ends = endpoints(build, self.common, place, groups * routers * each)
        rows = build.switches(groups * routers, f"{place.prefix}router", ends.tier)
        for number, port in enumerate(ends.ports):
            build.cable(port, rows[number // each], figures)
        for group in range(groups):
            first = group * routers
            for router in range(routers):
                for other in range(router + 1, routers):
                    build.cable(rows[first + router], rows[first + other], local)
        for group in range(groups):
            for other in range(group + 1, groups):
                ahead = other - group
                near = group * routers + (ahead - 1) % routers
                far = other * routers + (groups - ahead - 1) % routers
                build.cable(rows[near], rows[far], between)
        of_group = [{*rows[group * routers : (group + 1) * routers]} for group in range(groups)]
        for number, both in enumerate(zip(ends.devices, ends.ports, strict=True)):
            of_group[number // (each * routers)].update(both)
        members = tuple(tuple(sorted(devices)) for devices in of_group)
        dimensions = (each, routers, groups)
        return NetworkPart(ends.devices, dimensions, rows[0], groups=members, routing=Routing.SPREAD)
