"""A machine with one of its figures multiplied.

Whole latencies and delays stay whole, so each function also returns the multiple that results; it returns
None if the machine has no such figure. Classes of links are numbered as in the record of causes: the
dimensions, then links with figures of their own; levels have four each (`ScaledPart`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.quantities import Quantity
from et_sim.machine.graph import link_classes
from et_sim.machine.model import GraphFabric, LevelFabric, Machine, Network, TimeFactors, WorkKind
from et_sim.machine.node_cards import cards_of
from et_sim.machine.remote_memory import stage_name
from et_sim.machine.switch_trees import switch_kinds

Scaled = tuple[Machine, float] | None


class ScaledPart(IntEnum):
    """The parts of a message's cost in a level of a network of ASTRA-sim 1.0."""

    LINKS = 0
    CARDS = 1
    ROUTER = 2
    MEMORY = 3


BANDWIDTH_OF = {ScaledPart.LINKS: "link_bandwidth", ScaledPart.MEMORY: "memory_bandwidth"}
LATENCY_OF = {
    ScaledPart.LINKS: "latency_ns",
    ScaledPart.CARDS: "nic_ns",
    ScaledPart.ROUTER: "router_ns",
    ScaledPart.MEMORY: "memory_latency_ns",
}


BANDWIDTH = "bytes_per_ns"  # field of a class of links of a graph
STAGE_BANDWIDTHS = ("load_bandwidth", "store_bandwidth")  # fields of a stage of a memory pool
OF_SYSTEM = {
    Quantity.ENDPOINT_DELAY: "endpoint_delay_ns",
    Quantity.PEAK_COMPUTE: "peak_perf",
    Quantity.LOCAL_MEMORY_BANDWIDTH: "local_mem_bw",
}


def figures(machine: Machine) -> dict[str, Callable[[float], Scaled]]:
    """Return the functions that multiply a figure, by its name on the critical path."""
    scales: dict[str, Callable[[float], Scaled]] = {}
    for link, name in enumerate(_classes(machine.network)):
        scales[Quantity.BANDWIDTH.of(name)] = partial(scale_bandwidth, machine, link)
        scales[Quantity.LATENCY.of(name)] = partial(scale_latency, machine, link)
    for kind, switch in enumerate(switch_kinds(machine.network)[1]):
        scales[Quantity.SWITCH_RATE.of(switch.name)] = partial(scale_switches, machine, kind, "bytes_per_ns")
        scales[Quantity.SWITCH_LATENCY.of(switch.name)] = partial(scale_switches, machine, kind, "latency_ns")
    pool = machine.memory.pool
    for number, stage in enumerate(pool.stages if pool else ()):
        called = stage_name(stage.name)
        scales[Quantity.BANDWIDTH.of(called)] = partial(scale_stage, machine, number, STAGE_BANDWIDTHS)
        scales[Quantity.LATENCY.of(called)] = partial(scale_stage, machine, number, ("latency_ns",))
    for name in dict.fromkeys(name for rule in machine.system.compute for name in rule.settings.figures):
        scales[name] = partial(_scale_rules, machine, name)
    for quantity, key in OF_SYSTEM.items():
        scales[quantity.value] = partial(scale_system, machine, key)
    scales[Quantity.KERNELS.value] = partial(_scale_kernels, machine)
    return {name: scale for name, scale in scales.items() if scale(2.0) is not None}


def _classes(network: Network) -> list[str]:
    """Return the names of the classes of links, without single links of a dimension."""
    fabric = network.fabric
    if network.loggops is not None:
        return []
    if isinstance(fabric, GraphFabric):
        return [link_class.name for link_class in link_classes(fabric.routed.graph)[1]]
    if isinstance(fabric, LevelFabric):
        parts = ["" if part is ScaledPart.LINKS else f": {part.name.lower()}" for part in ScaledPart]
        return [f"dimension {level}{part}" for level in range(len(fabric.levels)) for part in parts]
    return [f"dimension {number}" for number in range(len(fabric.dimensions))]


def _scale_rules(machine: Machine, name: str, multiple: float) -> Scaled:
    """Multiply a figure of the key "compute" in all rules that have it."""
    rules, actual = [], multiple
    for rule in machine.system.compute:
        scaled = rule.settings.scaled(name, multiple)
        settings, actual = (rule.settings, actual) if scaled is None else scaled
        rules.append(replace(rule, settings=settings))
    return replace(machine, system=replace(machine.system, compute=tuple(rules))), actual


def _scale_kernels(machine: Machine, multiple: float) -> Scaled:
    """Multiply the times of all computation on devices, as the key "time-factors" does."""
    entry = TimeFactors(None, None, {WorkKind.KERNELS: multiple}, "--vary")
    factors = (*machine.system.time_factors, entry)
    return replace(machine, system=replace(machine.system, time_factors=factors)), multiple


def scale_bandwidth(machine: Machine, link: int, multiple: float) -> Scaled:
    """Multiply the bandwidth of a class of links."""
    level, part = divmod(link, len(ScaledPart))
    name: str | None = "bandwidth"
    if machine.network.levels:
        name = BANDWIDTH_OF.get(ScaledPart(part))
    elif isinstance(machine.network.fabric, GraphFabric):
        name = BANDWIDTH
    return None if name is None else _scale_link(machine, link, level, name, multiple)


def scale_latency(machine: Machine, link: int, multiple: float) -> Scaled:
    """Multiply the latency of a class of links."""
    level, part = divmod(link, len(ScaledPart))
    name = LATENCY_OF[ScaledPart(part)] if machine.network.levels else "latency_ns"
    return _scale_link(machine, link, level, name, multiple)


def scale_switches(machine: Machine, kind: int, name: str, multiple: float) -> Scaled:
    """Multiply a figure of a kind of switches that reduce, if they have it."""
    network = machine.network
    of_entry, kinds = switch_kinds(network)
    scaled = _scale(kinds[kind].reducer, name, multiple)
    if scaled is None or math.isinf(getattr(scaled[0], name)):
        return None
    reducers = tuple(
        (at, scaled[0] if own_kind == kind else reducer)
        for (at, reducer), own_kind in zip(network.reducers, of_entry, strict=True)
    )
    fabric: Any = network.fabric  # levels have no such switches
    changed = structs.replace(network, fabric=structs.replace(fabric, reducers=reducers))
    return replace(machine, network=changed), scaled[1]


def scale_stage(machine: Machine, number: int, names: tuple[str, ...], multiple: float) -> Scaled:
    """Multiply figures of a stage of the memory pool."""
    pool = machine.memory.pool
    if pool is None:
        return None
    stage, multiplied = pool.stages[number], multiple
    for name in names:
        scaled = _scale(stage, name, multiple)
        if scaled is None:
            return None
        stage, multiplied = scaled
    stages = (*pool.stages[:number], stage, *pool.stages[number + 1 :])
    changed = replace(machine.memory, pool=replace(pool, stages=stages))
    return replace(machine, memory=changed), multiplied


def scale_system(machine: Machine, name: str, multiple: float) -> Scaled:
    """Multiply a figure of the system."""
    scaled = _scale(machine.system, name, multiple)
    return scaled and (replace(machine, system=scaled[0]), scaled[1])


def _scale_link(machine: Machine, link: int, level: int, name: str, multiple: float) -> Scaled:
    network, fabric = machine.network, machine.network.fabric
    if isinstance(fabric, GraphFabric):
        return _scale_class(machine, fabric, link, name, multiple)
    if isinstance(fabric, LevelFabric):
        scaled = _scale(fabric.levels[level], name, multiple)
        if scaled is None:
            return None
        levels = (*fabric.levels[:level], scaled[0], *fabric.levels[level + 1 :])
        npus = (dimension.npus for dimension in network.grid.dimensions)
        changed = Network.of_cut_levels(levels, tuple(zip(npus, fabric.level_of, strict=True)))
    else:
        scaled = _scale(fabric.dimensions[link], name, multiple) if link < len(fabric.dimensions) else None
        if scaled is None:
            return None
        dimensions = (*fabric.dimensions[:link], scaled[0], *fabric.dimensions[link + 1 :])
        changed = Network.of_dimensions(dimensions, fabric.links, fabric.reducers, fabric.filled)
    rewired = structs.replace(network, grid=changed.grid, fabric=changed.fabric)
    return _rewired(machine, rewired), scaled[1]


def _scale_class(machine: Machine, fabric: GraphFabric, link: int, name: str, multiple: float) -> Scaled:
    """Multiply a figure of all links of a class."""
    of_trunk, classes = link_classes(fabric.routed.graph)
    scaled = _scale(classes[link], name, multiple)
    if scaled is None:
        return None
    figures = getattr(fabric.graph, name).copy()
    is_meant = of_trunk[fabric.trunks.of_link] == link
    figures[is_meant] = getattr(scaled[0], name)
    members = fabric.routed.graph.members
    if name == BANDWIDTH and members is not None:
        figures[is_meant] /= members[fabric.trunks.of_link[is_meant]]
    changed = structs.replace(fabric, graph=structs.replace(fabric.graph, numbers=None, **{name: figures}))
    sizes = tuple(dimension.npus for dimension in machine.network.grid.dimensions)
    cards = cards_of(changed.graph, sizes, npus_forward=fabric.npus_forward)
    changed = structs.replace(changed, cards=cards)
    return _rewired(machine, structs.replace(machine.network, fabric=changed)), scaled[1]


def _rewired(machine: Machine, network: Network) -> Machine:
    """Return the machine on links of other figures, and update the wires of its collective library."""
    library = machine.system.library
    if library is None:
        return replace(machine, network=network)
    old = machine.network
    inner, outer = (
        after.bytes_per_ns / before.bytes_per_ns if after is not None and before is not None else 1.0
        for after, before in ((network.node, old.node), (network.outside, old.outside))
    )
    wires = library.wires.times(inner if network.node is not None else outer, outer)
    return replace(
        machine, network=network, system=replace(machine.system, library=replace(library, wires=wires))
    )


def _scale(holder: Any, name: str, multiple: float) -> tuple[Any, float] | None:
    before = getattr(holder, name)
    if not before:
        return None
    is_whole = name.endswith("_ns") and name != BANDWIDTH and before == int(before)
    after = type(before)(round(before * multiple)) if is_whole else before * multiple
    changed = structs.replace if isinstance(holder, Struct) else replace
    return changed(holder, **{name: after}), after / before
