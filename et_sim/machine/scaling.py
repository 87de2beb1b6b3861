"""A machine with one of its figures multiplied.

Latencies and delays that are whole stay whole, so each function also says what they were multiplied by in
the end; None: the machine has no such figure. Classes of links are numbered as in the record of causes: the
dimensions, then links with figures of their own; of levels, four each (`Part`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any

from et_sim.machine.link_classes import link_classes
from et_sim.machine.model import GraphFabric, LevelFabric, Machine, Network

Scaled = tuple[Machine, float] | None


class Part(IntEnum):
    """What a message pays for in a level of a network of ASTRA-sim 1.0."""

    LINKS = 0
    CARDS = 1
    ROUTER = 2
    MEMORY = 3


BANDWIDTH_OF = {Part.LINKS: "link_bandwidth", Part.MEMORY: "memory_bandwidth"}
LATENCY_OF = {
    Part.LINKS: "latency_ns",
    Part.CARDS: "nic_ns",
    Part.ROUTER: "router_ns",
    Part.MEMORY: "memory_latency_ns",
}


BANDWIDTH = "bytes_per_ns"  # of a class of links of a graph


def scale_bandwidth(machine: Machine, link: int, multiple: float) -> Scaled:
    """The bandwidth of a class of links."""
    level, part = divmod(link, len(Part))
    name: str | None = "bandwidth"
    if machine.network.levels:
        name = BANDWIDTH_OF.get(Part(part))
    elif isinstance(machine.network.fabric, GraphFabric):
        name = BANDWIDTH
    return None if name is None else _scale_link(machine, link, level, name, multiple)


def scale_latency(machine: Machine, link: int, multiple: float) -> Scaled:
    """The latency of a class of links."""
    level, part = divmod(link, len(Part))
    name = LATENCY_OF[Part(part)] if machine.network.levels else "latency_ns"
    return _scale_link(machine, link, level, name, multiple)


def scale_system(machine: Machine, name: str, multiple: float) -> Scaled:
    """A figure of the system."""
    found = _scale(machine.system, name, multiple)
    return found and (replace(machine, system=found[0]), found[1])


def _scale_link(machine: Machine, link: int, level: int, name: str, multiple: float) -> Scaled:
    network, fabric = machine.network, machine.network.fabric
    if isinstance(fabric, GraphFabric):
        return _scale_class(machine, fabric, link, name, multiple)
    if isinstance(fabric, LevelFabric):
        found = _scale(fabric.levels[level], name, multiple)
        if found is None:
            return None
        levels = (*fabric.levels[:level], found[0], *fabric.levels[level + 1 :])
        npus = (dimension.npus for dimension in network.grid.dimensions)
        changed = Network.of_cut_levels(levels, tuple(zip(npus, fabric.level_of, strict=True)))
    else:
        found = _scale(fabric.dimensions[link], name, multiple) if link < len(fabric.dimensions) else None
        if found is None:
            return None
        dimensions = (*fabric.dimensions[:link], found[0], *fabric.dimensions[link + 1 :])
        changed = Network.of_dimensions(dimensions, fabric.links)
    return replace(machine, network=changed), found[1]


def _scale_class(machine: Machine, fabric: GraphFabric, link: int, name: str, multiple: float) -> Scaled:
    """All links of a class, whose figures are the same."""
    of_link, classes = link_classes(fabric.graph)
    found = _scale(classes[link], name, multiple)
    if found is None:
        return None
    figures = getattr(fabric.graph, name).copy()
    figures[of_link == link] = getattr(found[0], name)
    changed = replace(fabric, graph=replace(fabric.graph, **{name: figures}))
    return replace(machine, network=replace(machine.network, fabric=changed)), found[1]


def _scale(holder: Any, name: str, multiple: float) -> tuple[Any, float] | None:
    before = getattr(holder, name)
    if not before:
        return None
    is_whole = name.endswith("_ns") and name != BANDWIDTH and before == int(before)
    after = type(before)(round(before * multiple)) if is_whole else before * multiple
    return replace(holder, **{name: after}), after / before
