"""A machine with one of its figures multiplied.

Latencies and delays that are whole stay whole, so each function also says what they were multiplied by in
the end; None: the machine has no such figure. Classes of links are numbered as in the record of causes: the
dimensions, then links with figures of their own; of levels, four each (`Part`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any

from et_sim.machine.model import Machine, Network

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


def scale_bandwidth(machine: Machine, link: int, multiple: float) -> Scaled:
    """The bandwidth of a class of links."""
    level, part = divmod(link, len(Part))
    name = BANDWIDTH_OF.get(Part(part)) if machine.network.levels else "bandwidth"
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
    network = machine.network
    if network.levels:
        found = _scale(network.levels[level], name, multiple)
    elif link < len(network.dimensions):
        found = _scale(network.dimensions[link], name, multiple)
    else:
        return None
    if found is None:
        return None
    if network.levels:
        changed = _with_level(network, level, found[0])
    else:
        changed = replace(network, dimensions=_put(network.dimensions, link, found[0]))
    return replace(machine, network=changed), found[1]


def _with_level(network: Network, level: int, changed: Any) -> Network:
    cut = tuple((d.npus, number) for d, number in zip(network.dimensions, network.level_of, strict=True))
    return Network.of_cut_levels(_put(network.levels, level, changed), cut)


def _scale(holder: Any, name: str, multiple: float) -> tuple[Any, float] | None:
    before = getattr(holder, name)
    if not before:
        return None
    is_whole = name.endswith("_ns") and before == int(before)
    after = type(before)(round(before * multiple)) if is_whole else before * multiple
    return replace(holder, **{name: after}), after / before


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
