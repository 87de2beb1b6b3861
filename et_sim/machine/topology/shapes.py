"""Generators of networks: rings, meshes, tori; a switch, leaves and spines, fat trees, rails, a dragonfly.

Each leaves a part of a graph, and is told where that part stands in the whole.
"""

from __future__ import annotations

import math
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from et_sim.machine.graph import NIC, Figures, GraphBuilder
from et_sim.machine.model import Rails, Shape
from et_sim.machine.topology.fields import Fields


class Place(Struct, frozen=True):
    """Where a part stands in the whole."""

    prefix: str = ""  # of the names of its switches
    tier: int = 1  # of its lowest devices besides NPUs
    given: tuple[int, ...] | None = None  # what it connects; None: NPUs that it makes


class Ends(Struct, frozen=True):
    """What a generator connects: devices, and where it links to them, which may be NICs before them."""

    devices: list[int]
    ports: list[int]
    tier: int  # of the lowest switches


class NetworkPart(Struct, frozen=True):
    """What a generator has made."""

    devices: list[int]  # that it connects, in the order of ranks
    dimensions: tuple[int, ...]  # that it implies, innermost first
    gateway: int  # by which a network around it can reach all of it
    grid: tuple[tuple[int, bool], ...] = ()  # (NPUs, whether it wraps round) by dimension, of meshes and tori
    rails: Rails | None = None
    groups: tuple[tuple[int, ...], ...] = ()  # devices of each, of a dragonfly


def endpoints(build: GraphBuilder, fields: Fields, place: Place, count: int) -> Ends:
    """NPUs of the generator's own, or what it was given; with a NIC for each, if that is asked for."""
    return behind_nics(build, fields, place, devices_of(build, fields, place, count))


def devices_of(build: GraphBuilder, fields: Fields, place: Place, count: int) -> list[int]:
    """NPUs of the generator's own, or what it was given."""
    if place.given is None:
        return build.npus(count)
    if len(place.given) != count:
        raise fields.fault(
            "generator",
            f"it connects {count} devices, and there are {len(place.given)} to connect",
            "make the numbers of the inner and the outer network agree",
        )
    return list(place.given)


def behind_nics(
    build: GraphBuilder, fields: Fields, place: Place, devices: list[int], sharers: int = 1
) -> Ends:
    """Devices with a NIC for each `sharers` of them, if NICs are asked for."""
    if "nic" not in fields:
        return Ends(devices, devices, place.tier)
    part = fields.part("nic")
    figures = part.figures()
    part.done()
    nics = [
        build.device(f"{place.prefix}nic{number}", NIC, place.tier)
        for number in range(len(devices) // sharers)
    ]
    for number, device in enumerate(devices):
        build.cable(device, nics[number // sharers], figures)
    return Ends(devices, nics, place.tier + 1)


# NVLinks of a DGX-1 with V100: pairs of NPUs, and how many links stand side by side.
CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1)),
    *((3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)),
)


def ring(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """NPUs in a circle."""
    return _grid(build, fields, place, (fields.whole("npus", least=2),), wraps=True)


def torus(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """NPUs in circles along every dimension."""
    return _grid(build, fields, place, fields.wholes("sizes"), wraps=True)


def mesh(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """NPUs in rows along every dimension."""
    return _grid(build, fields, place, fields.wholes("sizes"), wraps=False)


def _grid(
    build: GraphBuilder, fields: Fields, place: Place, sizes: tuple[int, ...], *, wraps: bool
) -> NetworkPart:
    """Links to higher coordinates come first: they win where both ways round are equally long."""
    figures, count = fields.figures(), math.prod(sizes)
    build.expect(devices=count, links=count * len(sizes))
    ends = endpoints(build, fields, place, count)
    stride = 1
    for size in sizes:
        for towards in (1,) if wraps and size == 2 else (1, -1):
            for number in range(count):
                here = number // stride % size
                after = (here + towards) % size if wraps else here + towards
                if 0 <= after < size and after != here:
                    build.link(ends.ports[number], ends.ports[number + (after - here) * stride], figures)
        stride *= size
    grid = tuple((size, wraps) for size in sizes) if ends.ports == ends.devices else ()
    return NetworkPart(ends.devices, sizes, ends.ports[0], grid)


def fully_connected(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """A link between any two NPUs."""
    count, figures = fields.whole("npus", least=2), fields.figures()
    build.expect(devices=count, links=count * (count - 1))
    ends = endpoints(build, fields, place, count)
    for port in ends.ports:
        for other in ends.ports:
            if port != other:
                build.link(port, other, figures)
    return NetworkPart(ends.devices, (count,), ends.ports[0])


def hybrid_cube_mesh(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """The eight NPUs of a DGX-1: two groups of four, and each NPU linked to its counterpart."""
    figures = fields.figures()
    ends = endpoints(build, fields, place, 8)
    for first, second, count in CUBE_MESH:
        of = replace(figures, bytes_per_ns=figures.bytes_per_ns * count)
        build.cable(ends.ports[first], ends.ports[second], of)
    return NetworkPart(ends.devices, (8,), ends.ports[0])


MESH, BEHIND_NICS = "fully-connected", "behind-nics"  # what a node is inside, besides a switch


def switch(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """All behind one switch."""
    count, figures = fields.whole("npus"), fields.figures()
    ends = endpoints(build, fields, place, count)
    (hub,) = build.switches(1, f"{place.prefix}switch", ends.tier)
    for port in ends.ports:
        build.cable(port, hub, figures)
    return NetworkPart(ends.devices, (count,), hub)


def leaf_spine(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """Leaves with NPUs, each linked to every spine."""
    leaves, spines = fields.whole("leaves"), fields.whole("spines")
    return _two_tiers(build, fields, place, (fields.whole("npus-per-leaf"), leaves), spines)


def _leaves(
    build: GraphBuilder, ports: list[int], each: int, figures: Figures, prefix: str, tier: int
) -> list[int]:
    rows = build.switches(len(ports) // each, f"{prefix}leaf", tier)
    for number, port in enumerate(ports):
        build.cable(port, rows[number // each], figures)
    return rows


def fat_tree(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """By k: k pods of k/2 leaves and k/2 aggregation switches. By radix: as many NPUs as are asked for."""
    if "k" in fields:
        k = fields.whole("k", least=2)
        if k % 2:
            raise fields.fault("k", f"k is {k}", "give an even number: half of the ports go up")
        return _three_tiers(build, fields, place, (k // 2, k // 2, k), k // 2, (k // 2) ** 2)
    radix, tiers = fields.whole("radix", least=2), fields.whole("tiers", 2)
    if tiers not in (2, 3):
        raise fields.fault("tiers", f"a fat tree of {tiers} tiers cannot be made", "allowed: 2 or 3")
    down, up = _split(fields, radix, fields.ratio("oversubscription"))
    npus = fields.whole("npus", radix * down if tiers == 2 else radix * down * (radix - radix // 2))
    if tiers == 2:
        leaves = _divided(fields, npus, down, "NPUs by those of a leaf")
        if leaves > radix:
            raise fields.fault("npus", f"two tiers reach {radix * down} NPUs", "give 3 tiers, or fewer NPUs")
        return _two_tiers(build, fields, place, (down, leaves), up)
    middle = radix - radix // 2  # ports down of an aggregation switch
    pods = _divided(fields, npus, down * middle, "NPUs by those of a pod")
    if pods > radix:
        most = radix * down * middle
        raise fields.fault("npus", f"three tiers of this radix reach {most} NPUs", "give fewer NPUs")
    return _three_tiers(build, fields, place, (down, middle, pods), up, up * (radix // 2))


def _split(fields: Fields, radix: int, ratio: Fraction) -> tuple[int, int]:
    """How many ports of a leaf go down and up."""
    up = Fraction(radix) / (1 + ratio)
    if up.denominator != 1 or up < 1:
        raise fields.fault(
            "oversubscription" if "oversubscription" in fields else "radix",
            f"{radix} ports cannot be split {ratio.numerator}:{ratio.denominator} between down and up",
            "choose a radix that is a multiple of the two added up",
        )
    return radix - int(up), int(up)


def _divided(fields: Fields, whole: int, by: int, noun: str) -> int:
    if whole % by:
        raise fields.fault("npus", f"{whole} {noun}, {by}, do not divide", f"give a multiple of {by}")
    return whole // by


def _two_tiers(
    build: GraphBuilder, fields: Fields, place: Place, counts: tuple[int, int], up: int
) -> NetworkPart:
    each, leaves = counts
    figures = fields.figures()
    above = fields.figures_of("uplinks", figures)
    build.expect(devices=each * leaves + up, links=2 * leaves * (each + up))
    ends = endpoints(build, fields, place, each * leaves)
    rows = _leaves(build, ends.ports, each, figures, place.prefix, ends.tier)
    tops = build.switches(up, f"{place.prefix}spine", ends.tier + 1)
    for leaf in rows:
        for spine in tops:
            build.cable(leaf, spine, above)
    return NetworkPart(ends.devices, (each, leaves), tops[0])


def _three_tiers(
    build: GraphBuilder,
    fields: Fields,
    place: Place,
    counts: tuple[int, int, int],
    aggregations: int,
    cores: int,
) -> NetworkPart:
    """Core switches are dealt to the aggregation switches of a pod: the same ones in every pod."""
    each, leaves, pods = counts
    figures = fields.figures()
    above = fields.figures_of("uplinks", figures)
    top = fields.figures_of("core-links", above)
    links = 2 * pods * (leaves * (each + aggregations) + cores)
    build.expect(devices=each * leaves * pods + cores, links=links)
    ends = endpoints(build, fields, place, each * leaves * pods)
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
    return NetworkPart(ends.devices, (each, leaves, pods), tops[0])


def rail_optimised(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """Nodes with a switch or links of all pairs inside; NPUs of the same place in their nodes share rails.

    Several NPUs of a node may share a NIC, and then a rail. `behind-nics`: a node's switch is reached by NICs
    only, as where a card and its NPUs are on one PCIe switch. Without spines, rails meet within the nodes
    only, and NPUs forward messages.
    """
    nodes, each = fields.whole("nodes"), fields.whole("npus-per-node")
    inside = fields.part("inside")
    within, kind = inside.figures(), inside.choice("generator", ("switch", MESH, BEHIND_NICS), "switch")
    inside.done()
    sharers = fields.whole("npus-per-nic", 1)
    if (sharers > 1 or kind == BEHIND_NICS) and "nic" not in fields:
        raise fields.fault("npus-per-nic", "there are no NICs to be behind", "give the figures of `nic`")
    if each % sharers:
        cause = f"{each} NPUs of a node cannot be divided among NICs of {sharers}"
        raise fields.fault("npus-per-nic", cause, f"give a divisor of {each}")
    figures = fields.figures()
    per_leaf = fields.whole("nodes-per-leaf", nodes)
    spines = fields.whole("spines", 0, least=0)
    up = fields.figures_of("uplinks", figures)
    if nodes % per_leaf:
        cause = f"{nodes} nodes cannot be divided among rail switches of {per_leaf}"
        raise fields.fault("nodes-per-leaf", cause, f"give a divisor of {nodes}")
    groups = nodes // per_leaf
    if groups > 1 and not spines:
        cause = f"each rail has {groups} switches and nothing above them"
        raise fields.fault("nodes-per-leaf", cause, "give spines, or one switch for a whole rail")
    devices = devices_of(build, fields, place, nodes * each)
    tier = place.tier + ("nic" in fields)
    if kind == MESH:
        for number, device in enumerate(devices):
            for other in devices[number + 1 : (number // each + 1) * each]:
                build.cable(device, other, within)
    else:  # before NICs: within a node, ways through its switch win ties
        hubs = build.switches(nodes, f"{place.prefix}node-switch", tier)
    if kind == "switch":
        for number, device in enumerate(devices):
            build.cable(device, hubs[number // each], within)
    ends = behind_nics(build, fields, place, devices, sharers)
    ports = each // sharers
    if kind == BEHIND_NICS:
        for number, port in enumerate(ends.ports):
            build.cable(port, hubs[number // ports], within)
    rails = [build.switches(groups, f"{place.prefix}rail{rail}-leaf", ends.tier + 1) for rail in range(ports)]
    for number, port in enumerate(ends.ports):
        build.cable(port, rails[number % ports][number // ports // per_leaf], figures)
    for spine in build.switches(spines, f"{place.prefix}spine", ends.tier + 2):
        for rail in rails:
            for leaf in rail:
                build.cable(leaf, spine, up)
    alike = None
    if not spines and place.given is None:
        alike = _alike(fields, (each, nodes), sharers, within, kind, figures)
    return NetworkPart(ends.devices, (each, nodes), len(build.names) - 1, rails=alike)


def _alike(
    fields: Fields, counts: tuple[int, int], sharers: int, within: Figures, kind: str, figures: Figures
) -> Rails:
    """The two dimensions that such a network is, but that NICs are shared."""
    to_nic = fields.part("nic").figures() if "nic" in fields else Figures(figures.bytes_per_ns, 0)
    shape = Shape.FULLY_CONNECTED if kind == MESH else Shape.SWITCH
    return Rails(counts, shape, sharers, within, to_nic, figures, kind == BEHIND_NICS)


def dragonfly(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """Groups of routers, all linked within a group, and every group to every other.

    The global links of a group are dealt to its routers in turn: the one to the group d further on belongs
    to router (d - 1) mod routers.
    """
    groups, routers = fields.whole("groups", least=2), fields.whole("routers-per-group")
    each, figures = fields.whole("npus-per-router"), fields.figures()
    local = fields.figures_of("local-links", figures)
    between = fields.figures_of("global-links", local)
    ends = endpoints(build, fields, place, groups * routers * each)
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
    return NetworkPart(ends.devices, (each, routers, groups), rows[0], groups=members)
