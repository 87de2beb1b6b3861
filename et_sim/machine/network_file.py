"""The network file: one list per property, one entry per dimension; and single links that differ.

Not here: what the shapes mean for messages (`et_sim.network`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import check, check_names, read_keys, show
from et_sim.machine.keys import Key, Remarks
from et_sim.machine.model import (
    AT_SWITCH,
    Dimension,
    GridFabric,
    Network,
    Reducer,
    Shape,
    UnevenLink,
    bytes_per_ns,
)
from et_sim.machine.sources import Source
from et_sim.machine.tables import DIMENSION_KEYS, NETWORK_KEYS
from et_sim.machine.topology.credits import read_credits
from et_sim.machine.topology.protocol import read_protocol
from et_sim.machine.uneven_tables import IN_NETWORK_KEY, IN_NETWORK_KEYS, LINK_KEYS, LINKS_KEY

SWITCH = "switch"


def read_links(source: Source, fabric: GridFabric, remarks: Remarks) -> tuple[UnevenLink, ...]:
    """The links that the source changes; `fabric` has the others."""
    if LINKS_KEY.name not in source.content:
        return ()
    found: dict[tuple[int, int, int], UnevenLink] = {}
    entries = check(LINKS_KEY, source.content[LINKS_KEY.name], source.place, remarks)
    for index, entry in enumerate(entries):
        place = f'{source.place}: "links" index {index}'
        link = _link(read_keys(Source(place, entry, ""), LINK_KEYS, remarks), fabric, place)
        ends = (link.dimension, link.source, link.target)
        if ends in found:
            raise MachineError("the same link stands there twice", place=place, remedy="keep one of them")
        found[ends] = link
    return tuple(found.values())


def _link(given: dict[str, Any], fabric: GridFabric, place: str) -> UnevenLink:
    number = given["dimension"]
    if number >= len(fabric.dimensions):
        raise MachineError(
            f'key "dimension" is {number}, and the network has {len(fabric.dimensions)}',
            place=place,
            remedy=f"allowed: 0 to {len(fabric.dimensions) - 1}",
        )
    if "bandwidth" not in given and "latency" not in given:
        raise MachineError(
            "the entry does not say how the link differs",
            place=place,
            remedy="give its bandwidth, its latency, or both",
        )
    _check_ends(given["from"], given["to"], fabric, number, place)
    dimension = fabric.dimensions[number]
    return UnevenLink(
        dimension=number,
        source=AT_SWITCH if given["from"] == SWITCH else given["from"],
        target=AT_SWITCH if given["to"] == SWITCH else given["to"],
        bandwidth=given.get("bandwidth", dimension.bandwidth),
        latency_ns=given.get("latency", dimension.latency_ns),
    )


def _check_ends(source: Any, target: Any, fabric: GridFabric, number: int, place: str) -> None:
    """Refuse two ends that no link of the dimension connects."""
    for name, end in (("from", source), ("to", target)):
        if end != SWITCH and end >= fabric.ranks:
            raise MachineError(
                f'key "{name}" is {end}, and the network has {fabric.ranks} NPUs',
                place=place,
                remedy=f"allowed: 0 to {fabric.ranks - 1}",
            )
    dimension = fabric.dimensions[number]
    named = f"from {show(source)} to {show(target)}"
    if dimension.shape is Shape.SWITCH:
        if (source == SWITCH) == (target == SWITCH):
            raise MachineError(
                f"no link leads {named} in dimension {number}, which is a Switch",
                place=place,
                remedy=f'one end is an NPU, the other one "{SWITCH}"',
            )
        return
    if SWITCH in (source, target) or not _are_connected(dimension, fabric.strides[number], source, target):
        kind = "neighbours" if dimension.shape is Shape.RING else "NPUs"
        raise MachineError(
            f"no link leads {named} in dimension {number}, which is a {dimension.shape.value}",
            place=place,
            remedy=f"links connect {kind} that differ in this dimension only",
        )


def _are_connected(dimension: Dimension, stride: int, source: int, target: int) -> bool:
    """Whether one link leads from one NPU to the other, on a ring or among fully connected ones."""
    here, there = source // stride % dimension.npus, target // stride % dimension.npus
    if source == target or target - source != (there - here) * stride:
        return False
    return dimension.shape is not Shape.RING or (there - here) % dimension.npus in (1, dimension.npus - 1)


_MOST_RANKS = 2**31 - 1  # rank ids are 32-bit in traces and timelines


def read_network(source: Source, remarks: Remarks, *, may_be_plain: bool = False) -> Network:
    """The network that the source describes.

    `may_be_plain`: the topology may be one word, as in files for the congestion model of ASTRA-sim 1.0.
    """
    check_names(source, NETWORK_KEYS, remarks)
    if may_be_plain and isinstance(source.content.get("topology"), str):
        source = replace(source, content=source.content | {"topology": [source.content["topology"]]})
    lists = {key.name: _list(key, source) for key in DIMENSION_KEYS}
    _check_lengths(lists, source.place)
    columns = {
        key.name: [
            check(key, value, source.place, remarks, index) for index, value in enumerate(lists[key.name])
        ]
        for key in DIMENSION_KEYS
    }
    dimensions = tuple(
        Dimension(Shape(shape), npus, bandwidth, latency)
        for shape, npus, bandwidth, latency in zip(
            *(columns[name] for name in ("topology", "npus_count", "bandwidth", "latency")), strict=True
        )
    )
    network = Network.of_dimensions(dimensions)
    if network.ranks > _MOST_RANKS:
        cause = f'key "npus_count" is {show(lists["npus_count"])}: {network.ranks} NPUs in all'
        raise MachineError(cause, place=source.place, remedy=f"allowed: at most {_MOST_RANKS}")
    for index, dimension in enumerate(dimensions):
        if dimension.npus == 1:
            text = f"index {index} is 1: this dimension never takes part (the reference refuses it)"
            remarks.warn(source.place, "npus_count", text)
    links = read_links(source, GridFabric(dimensions), remarks)
    network = Network.of_dimensions(dimensions, links, _reducers(source, dimensions, remarks))
    speeds: list[Dimension | UnevenLink] = [*dimensions, *links]
    credits = read_credits(
        source, [one.bytes_per_ns for one in speeds], [one.latency_ns for one in speeds], remarks
    )
    protocol = read_protocol(source, remarks)
    return replace(network, protocol=protocol, credits=credits)


def _reducers(
    source: Source, dimensions: tuple[Dimension, ...], remarks: Remarks
) -> tuple[tuple[int, Reducer], ...]:
    """The dimensions whose switches reduce."""
    if IN_NETWORK_KEY.name not in source.content:
        return ()
    found: dict[int, Reducer] = {}
    entries = check(IN_NETWORK_KEY, source.content[IN_NETWORK_KEY.name], source.place, remarks)
    for index, entry in enumerate(entries):
        place = f'{source.place}: "{IN_NETWORK_KEY.name}" index {index}'
        given = read_keys(Source(place, entry, ""), IN_NETWORK_KEYS, remarks)
        number = given["dimension"]
        if number >= len(dimensions):
            cause = f'key "dimension" is {number}, and the network has {len(dimensions)}'
            raise MachineError(cause, place=place, remedy=f"allowed: 0 to {len(dimensions) - 1}")
        if dimensions[number].shape is not Shape.SWITCH:
            cause = f"dimension {number} is a {dimensions[number].shape.value}, which has no switch"
            raise MachineError(cause, place=place, remedy="name a Switch dimension")
        if number in found:
            raise MachineError(
                f"dimension {number} stands there twice", place=place, remedy="keep one of them"
            )
        rate = bytes_per_ns(given["rate"]) if "rate" in given else math.inf
        found[number] = Reducer(rate, given.get("latency", 0.0))
    return tuple(sorted(found.items()))


def _list(key: Key, source: Source) -> list[Any]:
    """The key's list, one entry per dimension."""
    form = f"allowed: a list with one entry per dimension, each {key.allowed}"
    if key.name not in source.content:
        raise MachineError(f'key "{key.name}" is missing', place=source.place, remedy=form)
    value = source.content[key.name]
    if isinstance(value, list) and value:
        return value
    cause = f'key "{key.name}" is {show(value)}'
    if isinstance(value, str | int | float):
        cause += ", one value instead of a list"
        form = f"write it as a list with one entry per dimension: {key.name}: [ {value} ]"
    raise MachineError(cause, place=source.place, remedy=form)


def _check_lengths(lists: dict[str, list[Any]], place: str) -> None:
    dimensions = len(lists["topology"])
    for name, entries in lists.items():
        if len(entries) != dimensions:
            raise MachineError(
                f'key "{name}" has {len(entries)} entries, "topology" has {dimensions}',
                place=place,
                remedy="allowed: one entry per dimension in every list",
            )
