"""The network file of ASTRA-sim 1.0: one list per property, one entry per dimension.

A message pays for the highest dimension in which its ends differ, and for the bundle of all links that an
NPU has there. Not here: that rule in compiled code (`et_sim.network.levels`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import check, check_names, show
from et_sim.machine.keys import Key, Kind, Remarks
from et_sim.machine.model import Level, Network, Shape
from et_sim.machine.recognise import NETWORK_1_SIGNS
from et_sim.machine.sources import Source

_SCALARS = (
    Key("topology-name", Kind.CHOICE, "Only `Hierarchical` exists.", choices=("Hierarchical",)),
    Key("dimensions-count", Kind.COUNT, "How many dimensions there are; 1 if not given.", minimum=1),
)
_LISTS = (
    Key(
        "topologies-per-dim",
        Kind.CHOICE,
        "How the NPUs of each dimension are wired, innermost dimension first.",
        choices=tuple(shape.value for shape in Shape),
        required=True,
    ),
    Key(
        "dimension-type",
        Kind.TEXT,
        "What a dimension is built of: of interest to its price only.",
        default="Node",
    ),
    Key("units-count", Kind.COUNT, "NPUs in each dimension.", minimum=1, required=True),
    Key(
        "links-count",
        Kind.COUNT,
        "Links of an NPU in each dimension: a ring uses an even number of them, a fully connected "
        "dimension as many per peer as there are for all, a switch all.",
        minimum=1,
        required=True,
    ),
    Key("link-latency", Kind.NUMBER, "Latency of one hop.", unit="ns", required=True),
    Key(
        "link-bandwidth",
        Kind.NUMBER,
        "Bandwidth of one link.",
        unit="GiB/s (2^30 bytes)",
        above_minimum=True,
        required=True,
    ),
    Key("nic-latency", Kind.NUMBER, "Paid twice by every message.", unit="ns", default=0.0),
    Key("router-latency", Kind.NUMBER, "Paid once by a message through a switch.", unit="ns", default=0.0),
    Key("hbm-latency", Kind.NUMBER, "Latency of the memory that bounds a message.", unit="ns", default=0.0),
    Key(
        "hbm-bandwidth",
        Kind.NUMBER,
        "Bandwidth of the memory that bounds a message.",
        unit="GB/s (10^9 bytes)",
        default=1.0,
    ),
    Key(
        "hbm-scale",
        Kind.NUMBER,
        "A message takes at least so many times the latency and the serialisation of the memory.",
        default=0.0,
    ),
)
LEVEL_KEYS = (*_SCALARS, *_LISTS)
_MOST_RANKS = 2**31 - 1  # rank ids are 32-bit in traces and timelines


def is_hierarchy(content: Mapping[str, Any]) -> bool:
    """Whether this is a network file of 1.0."""
    return not content.keys().isdisjoint(NETWORK_1_SIGNS)


def read_hierarchy(
    source: Source, overrides: Mapping[str, list[Any]], remarks: Remarks, overrides_place: str = ""
) -> Network:
    """The network that the source describes; `overrides` are lists that stand in place of the file's."""
    content = source.content | dict(overrides)
    places = dict.fromkeys(overrides, overrides_place)
    check_names(source, LEVEL_KEYS, remarks)
    given = {
        key.name: check(key, content[key.name], source.place, remarks)
        for key in _SCALARS
        if key.name in content
    }
    count = given.get("dimensions-count", 1)
    columns = {
        key.name: _column(key, content, count, places.get(key.name, source.place), remarks) for key in _LISTS
    }
    links_place = places.get("links-count", source.place)
    levels = tuple(
        _level({name: column[number] for name, column in columns.items()}, number, links_place, remarks)
        for number in range(count)
    )
    if math.prod(level.npus for level in levels) > _MOST_RANKS:
        cause = f'key "units-count" is {show(columns["units-count"])}'
        place = places.get("units-count", source.place)
        raise MachineError(cause, place=place, remedy=f"allowed: at most {_MOST_RANKS} NPUs in all")
    return Network.of_levels(levels)


def _column(key: Key, content: Mapping[str, Any], count: int, place: str, remarks: Remarks) -> list[Any]:
    """One checked entry per dimension; entries beyond the last dimension are not read, as in 1.0."""
    form = f"allowed: a list with one entry per dimension, each {key.allowed}"
    if key.name not in content:
        if key.required:
            raise MachineError(f'key "{key.name}" is missing', place=place, remedy=form)
        return [key.default] * count
    entries = content[key.name]
    if not isinstance(entries, list):
        raise MachineError(f'key "{key.name}" is {show(entries)}', place=place, remedy=form)
    if len(entries) < count:
        entered = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        cause = f'key "{key.name}" has {entered}, and "dimensions-count" is {count}'
        raise MachineError(cause, place=place, remedy=form)
    if len(entries) > count:
        text = (
            f'{len(entries)} entries, and "dimensions-count" is {count}: the others are not read, as in 1.0'
        )
        remarks.warn(place, key.name, text)
    return [check(key, entry, place, remarks, index) for index, entry in enumerate(entries[:count])]


def _level(of: Mapping[str, Any], number: int, place: str, remarks: Remarks) -> Level:
    shape, npus, links = Shape(of["topologies-per-dim"]), of["units-count"], of["links-count"]
    per_peer = max(npus - 1, 1)
    used = {
        Shape.RING: links // 2 * 2,
        Shape.FULLY_CONNECTED: links // per_peer * per_peer,
        Shape.SWITCH: links,
    }[shape]
    if used == 0:
        least = "2 links" if shape is Shape.RING else f"{per_peer} links, one per peer"
        raise MachineError(
            f'key "links-count" index {number} is {links}: too few for a {shape.value} of {npus} NPUs',
            place=place,
            remedy=f"allowed: at least {least}",
        )
    if used < links:
        text = (
            f"index {number}: {used} of {links} links are used in a {shape.value} of {npus} NPUs, as in 1.0"
        )
        remarks.warn(place, "links-count", text)
    if of["hbm-scale"] and not of["hbm-bandwidth"]:
        cause = f'key "hbm-bandwidth" index {number} is 0, and "hbm-scale" is not'
        raise MachineError(cause, place=place, remedy="allowed: a number > 0, in GB/s (10^9 bytes)")
    return Level(
        shape=shape,
        npus=npus,
        links=links,
        links_used=used,
        link_bandwidth=of["link-bandwidth"],
        latency_ns=of["link-latency"],
        nic_ns=of["nic-latency"],
        router_ns=of["router-latency"],
        memory_latency_ns=of["hbm-latency"],
        memory_bandwidth=of["hbm-bandwidth"],
        memory_scale=of["hbm-scale"],
        built_of=of["dimension-type"],
    )
