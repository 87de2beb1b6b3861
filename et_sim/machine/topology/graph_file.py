"""The network file that describes a graph: generated, listed or imported, and what is said on top of it.

Not here: the ways of messages (`et_sim.network.routes`).
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.documents.keys import LinedSection, Remarks, Section, show
from et_sim.machine.credits import read_credits
from et_sim.machine.graph import (
    KINDS,
    NPU,
    SWITCH,
    Figures,
    Graph,
    GraphBuilder,
    switches_suffice,
    unreachable_pair,
)
from et_sim.machine.model import GIB, GraphFabric, LogicalDimension, Network, Rails, Reducer, Routing, Shape
from et_sim.machine.protocol_keys import read_protocol
from et_sim.machine.recognise import FORMATS
from et_sim.machine.sources import Source
from et_sim.machine.topology.fields import Fields
from et_sim.machine.topology.generators import generate
from et_sim.machine.topology.listed import add_devices, add_links, devices_named, set_tiers
from et_sim.machine.topology.shapes import Place

AUTO, SWITCHES, ALL = "auto", "switches", "all"


class _Made(Struct, frozen=True):
    """What a generator or an import implies about the whole."""

    dimensions: tuple[int, ...] = ()
    grid: tuple[tuple[int, bool], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    rails: Rails | None = None


def read_graph(source: Source, remarks: Remarks) -> Network:
    """The network of the graph that a file or dict describes."""
    build = GraphBuilder()
    for key, text in source.imported.notices if source.imported is not None else ():
        remarks.warn(source.place, key, text)
    try:
        return _read(source, build, remarks)
    except MachineError as error:
        if error.place:
            raise
        raise MachineError(error.cause, place=source.place, remedy=error.remedy) from None  # too large


def _read(source: Source, build: GraphBuilder, remarks: Remarks) -> Network:
    is_import = source.imported is not None and not source.imports  # then the file has other keys
    fields = Fields(Section(source.place, source.content) if is_import else source.lined)
    made = _make(source, build, fields)
    kept = _overridden(build, fields)
    ranks = _placed(build, fields)
    graph = build.built(kept, ranks)
    _refuse_nothing(fields, graph)
    is_whole = len(kept) == len(build.sources) and ranks is None and not fields.entries("links")
    grid = made.grid if is_whole else ()
    default = Routing.DIMENSION_ORDER if made.grid else Routing.SHORTEST
    routing = Routing(fields.choice("routing", [routing.value for routing in Routing], default.value))
    if routing is Routing.VALIANT and not made.groups:
        cause = "valiant sends messages by way of another group, and this network is no dragonfly"
        raise fields.fault("routing", cause, "give shortest or ecmp, or generate a dragonfly")
    seed = fields.whole("seed", 0, least=0)
    sizes = _dimensions(fields, made.dimensions, len(graph.npus))
    forwards = _forwarding(fields, graph)
    routes = _routes(build, fields, graph)
    protocol = read_protocol(source, remarks) if "protocol" in fields else None
    credits = None
    if "credits" in fields:
        credits = read_credits(source, graph.bytes_per_ns, graph.latency_ns, remarks)
    reducers = _reducers(build, fields)
    fields.done()
    if routing is Routing.ECMP_NS3 and seed:
        remarks.warn(
            source.place, "seed", "no effect: the hash of ns-3 is seeded with the number of a switch"
        )
    groups = made.groups if routing is Routing.VALIANT else ()
    rails = made.rails if is_whole and sizes == made.dimensions and not routes else None
    fabric = GraphFabric(graph, routing, seed, forwards, grid, routes, reducers, groups, rails)
    network = Network.of_graph(fabric, _logical(sizes, graph, made))
    return replace(network, protocol=protocol, credits=credits)


def _make(source: Source, build: GraphBuilder, fields: Fields) -> _Made:
    made = _Made()
    if "graph" in fields:
        part = fields.part("graph")
        if "import" in part:
            made = _imported(source, build, part)
        else:
            generated = generate(build, part, Place())
            made = _Made(generated.dimensions, generated.grid, generated.groups, generated.rails)
    add_devices(build, fields)
    add_links(build, fields)
    if "graph" not in fields or "import" in fields.part("graph"):
        set_tiers(build)
    return made


def _imported(source: Source, build: GraphBuilder, part: Fields) -> _Made:
    part.text("import")
    part.choice("format", ("", *FORMATS), "")
    part.done()
    assert source.imported is not None
    imported, place = source.imported, source.imports[0][0] if source.imports else source.place
    inner = Fields(_ImportedSection(place, imported.content, link_lines=imported.link_lines))
    add_devices(build, inner)
    add_links(build, inner)
    return _Made(imported.dimensions)


class _ImportedSection(LinedSection, frozen=True):
    """What an importer made of a file, of which it knows the lines of links."""

    link_lines: Sequence[int] = ()

    def at(self, *path: str | int) -> str:
        """The line of the link, or the path to the key."""
        path = (*self.path, *path)
        match path:
            case ("links", int(row), *_) if row < len(self.link_lines):
                return f"{self.place}: line {self.link_lines[row]}"
        return f"{self.place}: {'.'.join(map(str, path))}" if path else self.place


def _refuse_nothing(fields: Fields, graph: Graph) -> None:
    if len(graph.npus) < 2:
        raise fields.fault(
            "", f"the graph has {len(graph.npus)} NPUs", "describe two or more, and what links them"
        )
    if not len(graph.sources):
        raise fields.fault("", "the graph has no links", 'list them under "links", or name a generator')


def _overridden(build: GraphBuilder, fields: Fields) -> list[int]:
    """Change the figures of links that are named, and say which links are left."""
    failed: set[int] = set()
    for entry in fields.parts("overrides"):
        chosen = _chosen(build, entry)
        if not chosen:
            raise entry.fault("", "no link is meant by this", "et-sim network FILE --json has all names")
        if entry.switch("failed"):
            failed.update(chosen)
        elif "bandwidth" not in entry and "latency" not in entry:
            cause = "the entry does not say how its links differ"
            raise entry.fault("", cause, "give a bandwidth, a latency, or failed: true")
        for link in chosen:
            build.figures[link] = _changed(entry, build.figures[link])
        entry.done()
    return [link for link in range(len(build.sources)) if link not in failed]


def _changed(entry: Fields, figures: Figures) -> Figures:
    return Figures(entry.bandwidth(figures.bytes_per_ns), entry.latency(figures.latency_ns))


def _chosen(build: GraphBuilder, entry: Fields) -> list[int]:
    """Links by name, by their ends (`from`, `to`; `between`: either way), or all of a device."""
    if "link" in entry:
        match = re.compile(fnmatch.translate(entry.text("link"))).match
        name_given = entry.text("link")
        return [row for name, row in build.link_names.items() if name == name_given or match(name)]
    if "device" in entry:
        mean = set(devices_named(build, entry, "device", entry.text("device")))
        ends = zip(build.sources, build.targets, strict=True)
        return [row for row, (source, target) in enumerate(ends) if source in mean or target in mean]
    is_both = "between" in entry
    given = entry.entries("between") if is_both else [entry.value("from"), entry.value("to")]
    if len(given) != 2 or None in given:
        cause = "the entry does not say which links it is about"
        raise entry.fault("", cause, 'give "link", "device", "between" with two names, or "from" and "to"')
    first, second = (set(devices_named(build, entry, "between", str(name))) for name in given)
    rows = []
    for row, (source, target) in enumerate(zip(build.sources, build.targets, strict=True)):
        if (source in first and target in second) or (is_both and source in second and target in first):
            rows.append(row)
    return rows


def _placed(build: GraphBuilder, fields: Fields) -> list[int] | None:
    """The device of each rank; None: in the order in which the NPUs were made."""
    if "ranks" not in fields:
        return None
    npus = [number for number, kind in enumerate(build.kinds) if kind == NPU]
    devices = []
    for name in map(str, fields.entries("ranks")):
        devices += devices_named(build, fields, "ranks", name)
    if sorted(devices) != npus:
        wrong = next(
            (device for device in devices if build.kinds[device] != NPU or devices.count(device) > 1), None
        )
        cause = f"{len(devices)} devices are placed, and there are {len(npus)} NPUs"
        if wrong is not None:
            cause = f"{build.names[wrong]} is no NPU, or stands there twice"
        raise fields.fault("ranks", cause, "list every NPU once, rank 0 first; patterns stand for several")
    return devices


def _dimensions(fields: Fields, implied: tuple[int, ...], npus: int) -> tuple[int, ...]:
    if "logical-dimensions" in fields:
        sizes = fields.wholes("logical-dimensions")
        if math.prod(sizes) != npus:
            product = " x ".join(map(str, sizes))
            cause = f"logical dimensions of {product} = {math.prod(sizes)} do not make {npus} NPUs"
            raise fields.fault("logical-dimensions", cause, f"give numbers whose product is {npus}")
        return sizes
    return implied if math.prod(implied) == npus and implied else (npus,)


def _forwarding(fields: Fields, graph: Graph) -> bool:
    """Whether NPUs forward messages of others; refuses pairs that cannot reach each other."""
    wanted = fields.choice("forwarding", (AUTO, SWITCHES, ALL), AUTO)
    forwards = wanted == ALL or (wanted == AUTO and not switches_suffice(graph))
    pair = unreachable_pair(graph, forwards)
    if pair is not None:
        source, target = pair
        names = [f"rank {rank} ({graph.names[graph.npus[rank]]})" for rank in (source, target)]
        remedy = "link them" if forwards else "link them through switches, or give forwarding: all"
        raise fields.fault("", f"no way leads from {names[0]} to {names[1]}", remedy)
    return forwards


def _routes(build: GraphBuilder, fields: Fields, graph: Graph) -> tuple[tuple[int, ...], ...]:
    """The links of each way that is given, from NPU to NPU."""
    link_of: dict[tuple[int, int], int] = {}
    for row, ends in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        link_of.setdefault(ends, row)
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for entry in fields.parts("routes"):
        names = [str(name) for name in entry.entries("path")]
        entry.done()
        way = [devices_named(build, entry, "path", name)[0] for name in names]
        if (
            len(way) < 2
            or len(set(way)) < len(way)
            or any(build.kinds[at] != NPU for at in (way[0], way[-1]))
        ):
            cause = f"{show(names)} is no way from an NPU to another"
            raise entry.fault("", cause, "list each device on it once, the two NPUs first and last")
        links = []
        for source, target in pairwise(way):
            if (source, target) not in link_of:
                cause = f"no link leads from {build.names[source]} to {build.names[target]}"
                raise entry.fault("path", cause, "list every device on the way")
            links.append(link_of[source, target])
        if (way[0], way[-1]) in routes:
            raise entry.fault(
                "", f"a way from {names[0]} to {names[-1]} is already given", "keep one of them"
            )
        routes[way[0], way[-1]] = tuple(links)
    return tuple(routes.values())


def _reducers(build: GraphBuilder, fields: Fields) -> tuple[tuple[int, Reducer], ...]:
    """The switches that reduce, by name or by the row in which they stand."""
    reducers: dict[int, Reducer] = {}
    for entry in fields.parts("in-network"):
        for device in _switches_meant(build, entry):
            if device in reducers:
                cause = f"{build.names[device]} is meant by two entries"
                raise entry.fault("", cause, "let each switch be meant by one")
            reducers[device] = Reducer(entry.rate("rate", math.inf), entry.latency(0.0))
        entry.done()
    return tuple(sorted(reducers.items()))


def _switches_meant(build: GraphBuilder, entry: Fields) -> list[int]:
    if "tier" in entry and "switches" in entry:
        cause = '"tier" and "switches" both say which switches reduce'
        raise entry.fault("switches", cause, "leave one of them out, or make two entries")
    if "dimension" in entry:
        cause = 'key "dimension" is for networks with a list per property, and this one is a graph'
        raise entry.fault("dimension", cause, 'give "switches", a name or pattern, or "tier", counted from 1')
    if "tier" in entry:
        tier = entry.whole("tier")
        switches = [
            row for row, kind in enumerate(build.kinds) if kind == SWITCH and build.tiers[row] == tier
        ]
        if not switches:
            raise entry.fault("tier", f"no switch stands in tier {tier}", "tier 1 is nearest to the NPUs")
        return switches
    if "switches" not in entry:
        remedy = 'give "switches", a name or pattern, or "tier", counted from 1'
        raise entry.fault("", "the entry does not say which switches reduce", remedy)
    name = entry.text("switches")
    means = devices_named(build, entry, "switches", name)
    switches = [row for row in means if build.kinds[row] == SWITCH]
    if not switches or (name in build.number and len(switches) < len(means)):
        cause = f"{build.names[means[0]]} is a {KINDS[build.kinds[means[0]]]}, and only switches reduce"
        raise entry.fault("switches", cause, "name switches")
    return switches


def _logical(sizes: tuple[int, ...], graph: Graph, made: _Made) -> tuple[LogicalDimension, ...]:
    """The bandwidth by which orders of dimensions weigh them is that of the links of an NPU."""
    first = graph.npus[0]
    bandwidth = float(graph.bytes_per_ns[graph.sources == first].max(initial=0.0)) / GIB
    wraps = [wraps for _, wraps in made.grid] if len(made.grid) == len(sizes) else [False] * len(sizes)
    shapes = [Shape.RING if is_wrapped else Shape.SWITCH for is_wrapped in wraps]
    return tuple(LogicalDimension(n, shape, bandwidth) for n, shape in zip(sizes, shapes, strict=True))
