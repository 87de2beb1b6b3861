"""The network file that describes a graph: generated, listed or imported, with changes and settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.patterns import fits_pattern
from et_sim.basics.units import plural
from et_sim.documents.keys import LinedSection, Remarks, Section, inline, key, read, show
from et_sim.documents.kinds import ANYTHING, BANDWIDTH_WITH_UNIT, choice, count, flag, sections, text, time
from et_sim.documents.kinds import section as part
from et_sim.machine.credits import read_credits
from et_sim.machine.failures import read_failures
from et_sim.machine.graph import (
    KINDS,
    NPU,
    SWITCH,
    Change,
    Graph,
    GraphBuilder,
    switches_suffice,
    unreachable_pair,
)
from et_sim.machine.model import GIB, DimensionShape, GraphFabric, LogicalDimension, Network, Reducer, Routing
from et_sim.machine.node_cards import cards_of
from et_sim.machine.protocol_keys import read_protocol
from et_sim.machine.recognise import FORMATS
from et_sim.machine.sources import Source
from et_sim.machine.topology.generators import generate
from et_sim.machine.topology.keys import (
    MOST,
    NAME_OR_NAMES,
    NAMES,
    OtherLinks,
    like,
    whole,
    wholes,
)
from et_sim.machine.topology.listed import ListedNetwork, add_devices, add_links, devices_meant, set_tiers
from et_sim.machine.topology.shapes import PartPlace

_AS_ABOVE = "an object, as in networks without a graph"
AUTO, SWITCHES, ALL = "auto", "switches", "all"


class _Made(Struct, frozen=True):
    """The properties of the whole that a generator or an import implies."""

    dimensions: tuple[int, ...] = ()
    grid: tuple[tuple[int, bool], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    routing: Routing = Routing.SHORTEST


def read_graph(source: Source, remarks: Remarks, alike: Change | None = None) -> Network:
    """Read the network of the graph that a file or dict describes; `alike` may change it to an equal one."""
    build = GraphBuilder()
    for notice in source.imported.notices if source.imported is not None else ():
        remarks.warn(source.place, *notice)
    try:
        return _read(source, build, remarks, alike)
    except MachineError as error:
        if error.place:
            raise
        raise MachineError(error.cause, place=source.place, remedy=error.remedy) from None  # too large


class Override(Struct, frozen=True):
    """Links by name, by their ends (`from`, `to`; `between`: either way), or all of a device."""

    section: Section
    link: str | None = text("Name of a link, or a pattern.", None)
    device: str | None = text("All links of a device.", None)
    between: tuple[str, ...] = key(NAMES, "The ends of links, either way.", ())
    sources: tuple[str, ...] = key(NAME_OR_NAMES, "Devices at which links begin.", (), name="from")
    targets: tuple[str, ...] = key(NAME_OR_NAMES, "Devices at which links end.", (), name="to")
    bandwidth: float | None = key(BANDWIDTH_WITH_UNIT, "New bandwidth of the links.", None)
    latency_ns: float | None = time("New latency of the links.", None)
    has_failed: bool = flag("The links are removed.", False, name="failed")


class MessagePath(Struct, frozen=True):
    """A path of messages."""

    section: Section
    path: tuple[str, ...] = key(NAMES, "Devices on the path, the two NPUs first and last.", required=True)


class Reduction(Struct, frozen=True):
    """Switches that reduce."""

    section: Section
    tier: int | None = whole("All switches of a tier, counted from 1.", None)
    switches: str | None = text("The name of a switch, or a pattern.", None)
    dimension: None = key(ANYTHING, "Only in networks of dimensions.", None, form="nothing")
    rate: float = key(BANDWIDTH_WITH_UNIT, "Rate of reduced or copied data.", math.inf)
    latency_ns: float = time("Additional time of a switch for a chunk.", 0.0)


class Import(Struct, frozen=True):
    """The topology of another tool."""

    path: str = text("File of the topology.", name="import", required=True)
    format: str | None = choice("Format, if the content does not show it.", None, choices=tuple(FORMATS))


class GraphFile(Struct, frozen=True):
    """The whole file."""

    section: Section
    graph: dict[str, Any] | None = part(
        "Source of devices and links.", None, form="a generator and its numbers, or import: FILE"
    )
    lists: ListedNetwork = inline(ListedNetwork)
    overrides: tuple[Override, ...] = sections("Changes of links.", (), of=Override, may_be_empty=True)
    ranks: tuple[str, ...] | None = key(NAMES, "The NPU of each rank, also by patterns.", None)
    routing: Routing | None = choice(
        "Paths of messages. Without the key: those of the generator, or `shortest`.",
        None,
        choices=Routing,
    )
    seed: int = count("Seed of random paths.", 0, maximum=MOST)
    sizes: tuple[int, ...] | None = wholes(
        "Dimensions along which collectives run, innermost first.", None, name="logical-dimensions"
    )
    forwarding: str = choice(
        "Devices that forward messages; `auto`: also NPUs if switches do not suffice.",
        AUTO,
        choices=(AUTO, SWITCHES, ALL),
    )
    routes: tuple[MessagePath, ...] = sections(
        "Paths between two NPUs.", (), of=MessagePath, may_be_empty=True
    )
    in_network: tuple[Reduction, ...] = sections("Switches that reduce.", (), of=Reduction, may_be_empty=True)
    protocol: Any = key(
        ANYTHING, "The transport of packets.", None, form=_AS_ABOVE
    )  # checked by its reader, as the next one
    credits: Any = key(ANYTHING, "Flits with credits.", None, form=_AS_ABOVE)
    failures: Any = key(ANYTHING, "Parts that fail during the run.", None, form=_AS_ABOVE)
    recovery: Any = key(ANYTHING, "Time-outs and fail-over of senders.", None, form=_AS_ABOVE)


def _read(source: Source, build: GraphBuilder, remarks: Remarks, alike: Change | None) -> Network:
    is_import = source.imported is not None and not source.imports  # then the file has other keys
    section = Section(source.place, source.content) if is_import else source.lined
    spec = read(GraphFile, section, remarks)
    made = _make(source, build, spec)
    kept = _overridden(build, spec)
    ranks = _placed(build, spec)
    graph = build.built(kept, ranks)
    _refuse_nothing(section, graph)
    graph = graph if alike is None else alike(graph)
    is_whole = len(kept) == len(build.sources) and ranks is None and not spec.lists.links
    grid = made.grid if is_whole else ()
    routing = spec.routing or _default_routing(section, made)
    if routing is Routing.VALIANT and not made.groups:
        cause = "valiant sends messages by way of another group, and this network is not a dragonfly"
        raise section.fault(cause, "give shortest or ecmp, or generate a dragonfly", key="routing")
    sizes = _dimensions(spec, made.dimensions, len(graph.npus))
    forwards = _forwarding(spec, graph)
    routes = _routes(build, spec, graph)
    protocol = read_protocol(source, remarks) if "protocol" in section.content else None
    credits = None
    if "credits" in section.content:
        credits = read_credits(source, graph.bytes_per_ns, graph.latency_ns, remarks)
    reducers = _reducers(build, spec)
    if routing is Routing.ECMP_NS3 and spec.seed:
        remarks.warn(source.place, "seed", "no effect: ns-3's hash takes the number of a switch as its seed")
    groups = made.groups if routing is Routing.VALIANT else ()
    cards = cards_of(graph, sizes, npus_forward=forwards)
    is_named = spec.routing is not None
    fabric = GraphFabric(graph, routing, spec.seed, forwards, grid, routes, reducers, groups, cards, is_named)
    network = Network.of_graph(fabric, _logical(sizes, graph, made))
    network = read_failures(section, replace(network, protocol=protocol, credits=credits), remarks)
    failing = tuple(failure.links for failure in network.failures)
    return replace(network, fabric=replace(fabric, failing=failing)) if failing else network


def _default_routing(section: Section, made: _Made) -> Routing:
    """Return the routing of the generator; with packets or flits, that of Ethernet or InfiniBand.

    Ethernet hashes flows; networks with credits, such as InfiniBand, have static tables.
    """
    if made.routing is not Routing.SPREAD:
        return made.routing
    if "protocol" in section.content:
        return Routing.ECMP
    return Routing.DESTINATION if "credits" in section.content else Routing.SPREAD


def _make(source: Source, build: GraphBuilder, spec: GraphFile) -> _Made:
    made, is_import = _Made(), False
    if spec.graph is not None:
        section, is_import = spec.section.entry("graph", spec.graph), "import" in spec.graph
        if is_import:
            made = _imported(source, build, section)
        else:
            generated = generate(build, section, PartPlace())
            made = _Made(generated.dimensions, generated.grid, generated.groups, generated.routing)
    add_devices(build, spec.lists)
    add_links(build, spec.lists)
    if spec.graph is None or is_import:
        set_tiers(build)
    return made


def _imported(source: Source, build: GraphBuilder, section: Section) -> _Made:
    read(Import, section, Remarks())
    assert source.imported is not None
    imported, place = source.imported, source.imports[0][0] if source.imports else source.place
    listed = _ImportedSection(place, imported.content, link_lines=imported.link_lines)
    lists = read(ListedNetwork, listed, Remarks())
    add_devices(build, lists)
    add_links(build, lists)
    return _Made(imported.dimensions)


class _ImportedSection(LinedSection, frozen=True):
    """The section of an imported file, with the lines of links."""

    link_lines: Sequence[int] = ()

    def at(self, *path: str | int) -> str:
        """Return the line of the link, or the path to the key."""
        path = (*self.path, *path)
        match path:
            case ("links", int(row), *_) if row < len(self.link_lines):
                return f"{self.place}: line {self.link_lines[row]}"
        return f"{self.place}: {'.'.join(map(str, path))}" if path else self.place


def _refuse_nothing(section: Section, graph: Graph) -> None:
    if len(graph.npus) < 2:
        cause = f"the graph has {plural(len(graph.npus), 'NPU')}"
        raise section.fault(cause, "describe two or more, and their links")
    if not len(graph.sources):
        raise section.fault("the graph has no links", 'list them under "links", or name a generator')


def _overridden(build: GraphBuilder, spec: GraphFile) -> list[int]:
    """Change the figures of links, and return the links that are left."""
    failed: set[int] = set()
    for entry in spec.overrides:
        chosen = _chosen(build, entry)
        if not chosen:
            raise entry.section.fault(
                "the entry matches no link", "et-sim network FILE --json lists all names"
            )
        if entry.has_failed:
            failed.update(chosen)
        elif entry.bandwidth is None and entry.latency_ns is None:
            cause = "the entry has no effect"
            raise entry.section.fault(cause, "give a bandwidth, a latency, or failed: true")
        other = OtherLinks(entry.bandwidth, entry.latency_ns)
        for link in chosen:
            build.figures[link] = like(other, build.figures[link])
    return [link for link in range(len(build.sources)) if link not in failed]


def _chosen(build: GraphBuilder, entry: Override) -> list[int]:
    if entry.link is not None:
        fits = fits_pattern(entry.link)
        return [row for name, row in build.link_names.items() if name == entry.link or fits(name)]
    ends = list(enumerate(zip(build.sources, build.targets, strict=True)))
    if entry.device is not None:
        mean = set(devices_meant(build, entry.section, "device", (entry.device,)))
        return [row for row, (source, target) in ends if source in mean or target in mean]
    is_both = bool(entry.between)
    given = [(name,) for name in entry.between] if is_both else [entry.sources, entry.targets]
    if len(given) != 2 or () in given:
        cause = "the entry names no links"
        remedy = 'give "link", "device", "between" with two names, or "from" and "to"'
        raise entry.section.fault(cause, remedy)
    keys = ("between", "between") if is_both else ("from", "to")
    meant = (devices_meant(build, entry.section, key, names) for key, names in zip(keys, given, strict=True))
    first, second = map(set, meant)
    return [
        row
        for row, (source, target) in ends
        if (source in first and target in second) or (is_both and source in second and target in first)
    ]


def _placed(build: GraphBuilder, spec: GraphFile) -> list[int] | None:
    """Return the device of each rank, or None for the order of the NPUs."""
    if spec.ranks is None:
        return None
    npus = [number for number, kind in enumerate(build.kinds) if kind == NPU]
    devices = []
    for name in spec.ranks:
        devices += devices_meant(build, spec.section, "ranks", (name,))
    if sorted(devices) != npus:
        wrong = next(
            (device for device in devices if build.kinds[device] != NPU or devices.count(device) > 1), None
        )
        listed, existing = plural(len(devices), "device"), plural(len(npus), "NPU")
        cause = f'"ranks" lists {listed}, and the graph has {existing}'
        if wrong is not None:
            cause = f"{build.names[wrong]} is not an NPU, or is listed twice"
        remedy = "list every NPU once, rank 0 first; patterns stand for several"
        raise spec.section.fault(cause, remedy, key="ranks")
    return devices


def _dimensions(spec: GraphFile, implied: tuple[int, ...], npus: int) -> tuple[int, ...]:
    if spec.sizes is not None:
        product = math.prod(spec.sizes)
        if product != npus:
            sizes = " x ".join(map(str, spec.sizes))
            cause = f"logical dimensions of {sizes} = {product} do not make {npus} NPUs"
            remedy = f"give numbers whose product is {npus}"
            raise spec.section.fault(cause, remedy, key="logical-dimensions")
        return spec.sizes
    return implied if math.prod(implied) == npus and implied else (npus,)


def _forwarding(spec: GraphFile, graph: Graph) -> bool:
    """Check whether NPUs forward messages; refuse pairs that cannot reach each other."""
    forwards = spec.forwarding == ALL or (spec.forwarding == AUTO and not graph.derived(switches_suffice))
    pair = graph.derived(unreachable_pair, forwards)
    if pair is not None:
        source, target = pair
        names = [f"rank {rank} ({graph.names[graph.npus[rank]]})" for rank in (source, target)]
        remedy = "link them" if forwards else "link them through switches, or give forwarding: all"
        raise spec.section.fault(f"no path leads from {names[0]} to {names[1]}", remedy)
    return forwards


def _routes(build: GraphBuilder, spec: GraphFile, graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Return the links of each given path, from NPU to NPU."""
    link_of: dict[tuple[int, int], int] = {}
    for row, ends in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        link_of.setdefault(ends, row)
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for entry in spec.routes:
        names, fault = entry.path, entry.section.fault
        way = [devices_meant(build, entry.section, "path", (name,))[0] for name in names]
        if (
            len(way) < 2
            or len(set(way)) < len(way)
            or any(build.kinds[at] != NPU for at in (way[0], way[-1]))
        ):
            cause = f"{show(names)} is not a path from one NPU to another"
            raise fault(cause, "list each device once, the two NPUs first and last")
        links = []
        for source, target in pairwise(way):
            if (source, target) not in link_of:
                cause = f"no link leads from {build.names[source]} to {build.names[target]}"
                raise fault(cause, "list every device on the path", key="path")
            links.append(link_of[source, target])
        if (way[0], way[-1]) in routes:
            raise fault(f"a path from {names[0]} to {names[-1]} is already given", "keep one of them")
        routes[way[0], way[-1]] = tuple(links)
    return tuple(routes.values())


def _reducers(build: GraphBuilder, spec: GraphFile) -> tuple[tuple[int, Reducer], ...]:
    """Return the switches that reduce, given by name or by tier."""
    reducers: dict[int, Reducer] = {}
    for entry in spec.in_network:
        for device in _switches_meant(build, entry):
            if device in reducers:
                cause = f"{build.names[device]} matches two entries"
                raise entry.section.fault(cause, "name each switch in one entry")
            reducers[device] = Reducer(entry.rate, entry.latency_ns)
    return tuple(sorted(reducers.items()))


def _switches_meant(build: GraphBuilder, entry: Reduction) -> list[int]:
    tier, name, fault = entry.tier, entry.switches, entry.section.fault
    form = 'give "switches", a name or pattern, or "tier", counted from 1'
    if tier is not None and name is not None:
        cause = '"tier" and "switches" both select switches'
        raise fault(cause, "leave one of them out, or make two entries", key="switches")
    if "dimension" in entry.section.content:
        cause = 'key "dimension" is for networks with a list per property, and this one is a graph'
        raise fault(cause, form, key="dimension")
    if tier is not None:
        switches = [
            row for row, kind in enumerate(build.kinds) if kind == SWITCH and build.tiers[row] == tier
        ]
        if not switches:
            raise fault(f"no switch is in tier {tier}", "tier 1 is nearest to the NPUs", key="tier")
        return switches
    if name is None:
        raise fault("the entry selects no switches", form)
    means = devices_meant(build, entry.section, "switches", (name,))
    switches = [row for row in means if build.kinds[row] == SWITCH]
    if not switches or (name in build.number and len(switches) < len(means)):
        cause = f"{build.names[means[0]]} is a {KINDS[build.kinds[means[0]]]}, and only switches reduce"
        raise fault(cause, "name switches", key="switches")
    return switches


def _logical(sizes: tuple[int, ...], graph: Graph, made: _Made) -> tuple[LogicalDimension, ...]:
    """Return the logical dimensions; their bandwidth is that of the links of an NPU."""
    first = graph.npus[0]
    bandwidth = float(graph.bytes_per_ns[graph.sources == first].max(initial=0.0)) / GIB
    wraps = [wraps for _, wraps in made.grid] if len(made.grid) == len(sizes) else [False] * len(sizes)
    shapes = [DimensionShape.RING if is_wrapped else DimensionShape.SWITCH for is_wrapped in wraps]
    return tuple(LogicalDimension(n, shape, bandwidth) for n, shape in zip(sizes, shapes, strict=True))
