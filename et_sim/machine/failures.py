"""Failures within a run: the keys `failures` and `recovery` of the network file.

A failure takes links for a time: they are dead, or slower. A port is a link with both directions; a NIC, a
switch, a GPU, a node or a rack takes all links that begin or end in it. GPUs that fail lose their state, so a
run in which one fails does not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.documents.keys import Key, Remarks, Section, Slot, inner_section, key, keys_of, read
from et_sim.documents.kinds import OBJECT, OBJECTS, count
from et_sim.machine.failure_effects import check_recovery, check_shares
from et_sim.machine.failure_times import (
    AT,
    PLACE,
    RATE,
    SEED,
    check_times,
    first_failure,
    length,
    no_repair,
    share_left,
)
from et_sim.machine.graph import KINDS, NIC, NPU, SWITCH, Graph
from et_sim.machine.networks import (
    AT_SWITCH,
    LINK_END,
    DimensionShape,
    Failure,
    GraphFabric,
    GridFabric,
    LinkOfGrid,
    Network,
)
from et_sim.machine.transports import Recovery

LOSES_STATE = ("gpu", "node", "rack")
PLACES = ("link", "port", "nic", "switch", *LOSES_STATE)


class FailureKeys(Struct, frozen=True):
    """A part that fails, its time and its length."""

    section: Section
    link: str | None = key(PLACE, "Links of a graph, in one direction.", None)
    port: str | None = key(
        PLACE,
        "Links of a graph with the opposite direction; of dimensions: the links of an NPU in one.",
        None,
    )
    nic: str | None = key(PLACE, "NICs of a graph.", None)
    switch: str | None = key(PLACE, "Switches of a graph.", None)
    gpu: str | None = key(PLACE, "NPUs: a name or pattern in a graph; in dimensions, the number.", None)
    node: str | None = key(
        PLACE, "A node: the number of a line of NPUs in dimension 0, or the name of a part of a graph.", None
    )
    rack: str | None = key(PLACE, "A part of a graph, with all devices in it.", None)
    dimension: int | None = count("The dimension of the link or port; only without a graph.", None)
    source: int | None = key(LINK_END, "Start of the link; only without a graph.", None, name="from")
    target: int | None = key(LINK_END, "End of the link; only without a graph.", None, name="to")
    at_ns: float | None = AT
    rate: float | None = RATE
    seed: int = SEED
    for_ns: float | None = length("Its length.")
    slower: float | None = share_left("The share of the bandwidth that is left. Without the key, it is dead.")


FAILURES_KEY = Key(
    "failures",
    OBJECTS,
    "Parts that [fail during the run](failures.md).",
    "Not known there.",
    choices=tuple(each.name for each in keys_of(FailureKeys)),
)
RECOVERY_KEY = Key(
    "recovery",
    OBJECT,
    "Time-outs and [fail-over of senders](failures.md#detection).",
    "Not known there.",
    choices=tuple(each.name for each in keys_of(Recovery)),
)


def read_failures(source: Section, network: Network, remarks: Remarks) -> Network:
    """Return the network with the failures that its file describes."""
    failures: list[Failure] = []
    if FAILURES_KEY.name in source.content:
        entries = Slot(FAILURES_KEY, source, remarks).value(source.content[FAILURES_KEY.name])
        for index, entry in enumerate(entries):
            given = read(FailureKeys, source.entry(FAILURES_KEY.name, entry, index), remarks)
            failures += _failures(given, network)
        check_shares(source, failures)
        network = replace(network, failures=tuple(failures))
    inner = inner_section(source, RECOVERY_KEY, remarks)
    if inner is None:
        return network
    if not failures:
        raise source.fault('key "recovery" has no effect without "failures"', "leave it out")
    recovery = read(Recovery, inner, remarks)
    check_recovery(inner, recovery, network, remarks)
    return replace(network, recovery=recovery)


def _failures(given: FailureKeys, network: Network) -> list[Failure]:
    """Return the failures of an entry: one, or one for each part if times are drawn."""
    what, name = _part(given, network)
    _check_times(given, what)
    if isinstance(network.fabric, GraphFabric):
        parts = _of_graph(given, what, name, network.fabric, network)
    else:
        parts = _of_grid(given, what, name, network)
    if not any(links or (ranks and what in LOSES_STATE) for _, links, ranks in parts):
        raise given.section.fault(f"the {what} has no link", "leave the entry out", key=what)
    if given.rate is None:
        _, every, ranks = _joined(parts)
        name = parts[0][0] if len(parts) == 1 else name
        return [_failure(given, what, name, given.at_ns or 0.0, every, ranks)]
    return [
        _failure(given, what, part, first_failure(given.rate, given.seed, part), links, ranks)
        for part, links, ranks in parts
    ]


def _failure(
    given: FailureKeys, what: str, name: str, at_ns: float, links: Sequence[Any], ranks: Sequence[int]
) -> Failure:
    begins = int(at_ns)
    until = None if given.for_ns is None else begins + int(given.for_ns)
    lost = tuple(sorted(set(ranks))) if what in LOSES_STATE else ()
    return Failure(what, name, begins, until, given.slower or 0.0, tuple(dict.fromkeys(links)), lost)


def _part(given: FailureKeys, network: Network) -> tuple[str, str]:
    """Return the kind of part that an entry names, and its name."""
    section = given.section
    named = [(what, getattr(given, what)) for what in PLACES if getattr(given, what) is not None]
    if given.source is not None or given.target is not None:
        if isinstance(network.fabric, GraphFabric):
            cause = 'keys "from" and "to" are for dimensions, and this network is a graph'
            raise section.fault(cause, 'name the "link" (et-sim network FILE --json lists all)')
        named.append(("link", ""))
    if len(named) != 1:
        cause = f"the entry names {len(named)} parts" if named else "the entry names no part"
        raise section.fault(cause, f"give one of {', '.join(PLACES)}")
    return named[0]


def _check_times(given: FailureKeys, what: str) -> None:
    section = given.section
    check_times(section, given.at_ns, given.rate, given.for_ns)
    if what in LOSES_STATE and given.slower is not None:
        cause = f'"slower" describes links, and a {what} computes'
        raise section.fault(cause, 'give its links, or "failures" in the system file', key="slower")
    if what in LOSES_STATE and given.for_ns is not None:
        raise no_repair(section, what)


Part = tuple[str, list[Any], list[int]]  # name, links, ranks


def _joined(parts: list[Part]) -> Part:
    return (
        "",
        [link for _, links, _ in parts for link in links],
        [rank for _, _, ranks in parts for rank in ranks],
    )


def _matching(names: Sequence[str], wanted: str) -> list[int]:
    """Return the rows with a name, or else those that fit it as a pattern."""
    from et_sim.basics.patterns import fits_pattern

    if wanted in names:
        return [names.index(wanted)]
    fits = fits_pattern(wanted)
    return [row for row, name in enumerate(names) if fits(name)]


def _of_graph(given: FailureKeys, what: str, name: str, fabric: GraphFabric, network: Network) -> list[Part]:
    """Return the parts of a graph that an entry names."""
    graph, section = fabric.graph, given.section
    if given.dimension is not None:
        raise section.fault(
            'key "dimension" is for networks without a graph', "leave it out", key="dimension"
        )
    if what in ("link", "port"):
        rows = _matching(graph.link_names, name)
        if not rows:
            remedy = "et-sim network FILE --json lists all names"
            raise section.fault(f'no link has the name "{name}"', remedy, key=what)
        if what == "link":
            return [(graph.link_names[row], [row], []) for row in rows]
        return _ports(graph, rows)
    if what in ("node", "rack"):
        devices = _devices_of_part(graph, what, name, network)
        if not devices:
            remedy = f'give the name before the "." of its devices, such as in {graph.names[-1]}'
            raise section.fault(f'no {what} is called "{name}"', remedy, key=what)
        return [_part_of(graph, name, devices)]
    kind = {"nic": NIC, "switch": SWITCH, "gpu": NPU}[what]
    found = [row for row in _matching(graph.names, name) if graph.kinds[row] == kind]
    if not found:
        there = [graph.names[row] for row in np.flatnonzero(graph.kinds == kind).tolist()]
        more = ", …" if len(there) > 3 else ""
        remedy = f"there are {', '.join(there[:3])}{more}" if there else f"the graph has no {KINDS[kind]}"
        raise section.fault(f'no {KINDS[kind]} has the name "{name}"', remedy, key=what)
    return [_part_of(graph, graph.names[row], [row]) for row in found]


def _ports(graph: Graph, rows: list[int]) -> list[Part]:
    """Return links with those between the same devices in the other direction."""
    by_ends: dict[tuple[int, int], list[int]] = {}
    ends = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    for row, pair in enumerate(ends):
        by_ends.setdefault(pair, []).append(row)
    parts: list[Part] = []
    for row in rows:
        source, target = ends[row]
        place = by_ends[source, target].index(row)  # of several cables, the one with the same place
        back = by_ends.get((target, source), [])[place : place + 1]
        parts.append((graph.link_names[row], [row, *back], []))
    return parts


def _devices_of_part(graph: Graph, what: str, name: str, network: Network) -> list[int]:
    within = [row for row, device in enumerate(graph.names) if device.startswith(f"{name}.")]
    if within or what == "rack" or not name.isdigit():
        return within
    size = network.grid.dimensions[0].npus
    npus = graph.npus[int(name) * size : (int(name) + 1) * size].tolist()
    near = graph.targets[np.isin(graph.sources, npus) & (graph.kinds[graph.targets] == NIC)]
    return [*npus, *dict.fromkeys(near.tolist())]


def _part_of(graph: Graph, name: str, devices: list[int]) -> Part:
    """Return a part with the links that begin or end in some devices."""
    touched = np.isin(graph.sources, devices) | np.isin(graph.targets, devices)
    return name, np.flatnonzero(touched).tolist(), np.flatnonzero(np.isin(graph.npus, devices)).tolist()


def _of_grid(given: FailureKeys, what: str, name: str, network: Network) -> list[Part]:
    """Return the part of a network of dimensions that an entry names."""
    section, fabric = given.section, network.fabric
    assert isinstance(fabric, GridFabric)
    if what in ("nic", "switch", "rack") or (what == "link" and given.source is None):
        cause = f'a network of dimensions names no {what} "{name}"' if name else "the link has no start"
        remedy = 'give "port" and "dimension", or "dimension", "from" and "to"; or describe a graph'
        raise section.fault(cause, remedy)
    if what in ("link", "port"):
        _check_dimension(given, what, fabric)
    elif given.dimension is not None:
        raise section.fault(f'key "dimension" is not for a {what}', "leave it out", key="dimension")
    if what == "link":
        return [_link_of_grid(given, fabric)]
    number = int(name) if name.isdigit() else -1
    size = fabric.dimensions[0].npus if what == "node" else 1
    if not 0 <= number * size < fabric.ranks:
        most = (fabric.ranks - 1) // size
        raise section.fault(f'key "{what}" is {name}', f"allowed: 0 to {most}", key=what)
    ranks = list(range(number * size, min((number + 1) * size, fabric.ranks)))
    along = [given.dimension] if what == "port" else range(len(fabric.dimensions))
    links = [
        link for at in along if at is not None for rank in ranks for link in links_of_npu(fabric, at, rank)
    ]
    return [(name, links, ranks)]


def links_of_ranks(network: Network, ranks: Sequence[int]) -> tuple[Any, ...]:
    """Return all links that begin or end at some ranks."""
    fabric = network.fabric
    if isinstance(fabric, GraphFabric):
        return tuple(_part_of(fabric.graph, "", fabric.graph.npus[list(ranks)].tolist())[1])
    assert isinstance(fabric, GridFabric)
    along = range(len(fabric.dimensions))
    links = [link for at in along for rank in ranks for link in links_of_npu(fabric, at, rank)]
    return tuple(dict.fromkeys(links))


def _check_dimension(given: FailureKeys, what: str, fabric: GridFabric) -> None:
    most = len(fabric.dimensions) - 1
    if given.dimension is None or given.dimension > most:
        is_there = "missing" if given.dimension is None else given.dimension
        cause = f'key "dimension" of the {what} is {is_there}'
        raise given.section.fault(cause, f"allowed: 0 to {most}")


def _link_of_grid(given: FailureKeys, fabric: GridFabric) -> Part:
    assert given.dimension is not None
    source, target = given.source, given.target
    link = LinkOfGrid(given.dimension, source or 0, target or 0)
    npu = link.target if link.source == AT_SWITCH else link.source
    is_known = source is not None and target is not None and npu < fabric.ranks
    if not is_known or link not in links_of_npu(fabric, given.dimension, npu):
        shape = fabric.dimensions[given.dimension].shape.value
        cause = f"no such link is in dimension {given.dimension}, which is a {shape}"
        remedy = 'links join NPUs that differ in this dimension only, or an NPU and "switch"'
        raise given.section.fault(cause, remedy)
    return link.name, [link], []


def links_of_npu(fabric: GridFabric, number: int, npu: int) -> list[LinkOfGrid]:
    """Return the links that begin or end at an NPU in a dimension."""
    dimension, stride = fabric.dimensions[number], fabric.strides[number]
    here, size = npu // stride % dimension.npus, dimension.npus
    if dimension.shape is DimensionShape.SWITCH:
        others = [AT_SWITCH]
    else:
        is_ring = dimension.shape is DimensionShape.RING
        places = {(here + 1) % size, (here - 1) % size} if is_ring else set(range(size))
        others = [npu + (place - here) * stride for place in sorted(places - {here})]
    make: Callable[[int, int], LinkOfGrid] = lambda source, target: LinkOfGrid(number, source, target)  # noqa: E731
    return [link for other in others for link in (make(npu, other), make(other, npu))]
