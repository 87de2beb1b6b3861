"""The network file: one list per property, one entry per dimension; and single links that differ.

Instead, it may give the constants of LogGOPS, without links:

    loggops: { npus: 8, L: 1000, o: 200, g: 5, G: 0.04, O: 0, S: 65535 }
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.units import plural
from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    check_names,
    inner_section,
    keys_of,
    made,
    read,
    read_keys,
    show,
)
from et_sim.documents.kinds import COUNT, OBJECT, OBJECTS
from et_sim.machine.credits import CREDITS_KEY, read_credits
from et_sim.machine.failures import FAILURES_KEY, RECOVERY_KEY, read_failures
from et_sim.machine.model import bytes_per_ns
from et_sim.machine.networks import (
    AT_SWITCH,
    MOST_RANKS,
    Dimension,
    DimensionShape,
    GridFabric,
    Network,
    Reducer,
    UnevenLink,
    end_name,
    places_of,
)
from et_sim.machine.protocol_keys import read_protocol
from et_sim.machine.protocol_presets import PROTOCOL_KEY
from et_sim.machine.transports import LogGops

DIMENSION_KEYS = keys_of(Dimension)
LINK_KEYS = keys_of(UnevenLink)
IN_NETWORK_KEYS = (
    Key("dimension", COUNT, "A Switch dimension, counted from 0, whose switches reduce.", required=True),
    *keys_of(Reducer),
)
LINKS_KEY = Key(
    "links",
    OBJECTS,
    "Links that differ from the others of their dimension; see [uneven machines](uneven-machines.md).",
    "Not known there.",
    choices=tuple(key.name for key in LINK_KEYS),
)
IN_NETWORK_KEY = Key(
    "in-network",
    OBJECTS,
    "Dimensions whose [switches reduce](network-features.md#switches-that-reduce), "
    "for the algorithm `inNetwork`.",
    "Not known there.",
    choices=tuple(key.name for key in IN_NETWORK_KEYS),
)
NPUS_KEY = Key(
    "npus",
    COUNT,
    "NPUs that there are, if the last node of two Switch dimensions is "
    "[partly filled](network-features.md#a-partly-filled-last-node). "
    "Without the key: all that `npus_count` has.",
    "Not known there.",
    minimum=1,
    maximum=MOST_RANKS,
)
NETWORK_KEYS = (
    *DIMENSION_KEYS,
    NPUS_KEY,
    LINKS_KEY,
    IN_NETWORK_KEY,
    PROTOCOL_KEY,
    CREDITS_KEY,
    FAILURES_KEY,
    RECOVERY_KEY,
)


def _entries(
    source: Section, key: Key, keys: tuple[Key, ...], dimensions: tuple[Dimension, ...], remarks: Remarks
) -> list[tuple[Section, dict[str, Any]]]:
    """Return the sections of a list, each for a dimension, and their checked values."""
    if key.name not in source.content:
        return []
    entries = []
    for index, entry in enumerate(Slot(key, source, remarks).value(source.content[key.name])):
        section = source.entry(key.name, entry, index)
        given = read_keys(section, keys, remarks)
        if given["dimension"] >= len(dimensions):
            raise section.fault(
                f'key "dimension" is {given["dimension"]}, and the network has {len(dimensions)}',
                f"allowed: 0 to {len(dimensions) - 1}",
            )
        entries.append((section, given))
    return entries


def read_links(source: Section, fabric: GridFabric, remarks: Remarks) -> tuple[UnevenLink, ...]:
    """Read the links that the source changes; `fabric` has the others."""
    links: dict[tuple[int, int, int], UnevenLink] = {}
    for section, given in _entries(source, LINKS_KEY, LINK_KEYS, fabric.dimensions, remarks):
        if "bandwidth" not in given and "latency" not in given:
            raise section.fault("the entry has neither a bandwidth nor a latency", "give one or both of them")
        _check_ends(given, fabric, section)
        dimension = fabric.dimensions[given["dimension"]]
        usual = {"bandwidth": dimension.bandwidth, "latency": dimension.latency_ns}
        link = made(UnevenLink, usual | given)
        ends = (link.dimension, link.source, link.target)
        if ends in links:
            raise section.fault("the link is listed twice", "keep one of them")
        links[ends] = link
    return tuple(links.values())


def _check_ends(given: dict[str, Any], fabric: GridFabric, section: Section) -> None:
    """Refuse two ends that no link of the dimension connects."""
    source, target, number = given["from"], given["to"], given["dimension"]
    for name, end in (("from", source), ("to", target)):
        if end >= fabric.ranks:
            raise section.fault(
                f'key "{name}" is {end}, and the network has {fabric.ranks} NPUs',
                f"allowed: 0 to {fabric.ranks - 1}",
            )
    dimension = fabric.dimensions[number]
    shape = dimension.shape
    ends = "neighbours" if shape is DimensionShape.RING else "NPUs"
    remedy = f"links connect {ends} that differ in this dimension only"
    if shape is DimensionShape.SWITCH:
        is_link, remedy = (
            (source == AT_SWITCH) != (target == AT_SWITCH),
            'one end is an NPU, the other one "switch"',
        )
    else:
        is_link = AT_SWITCH not in (source, target) and _are_connected(
            dimension, fabric.strides[number], source, target
        )
    if not is_link:
        named = f"from {end_name(source)} to {end_name(target)}"
        raise section.fault(f"no link leads {named} in dimension {number}, which is a {shape.value}", remedy)


def _are_connected(dimension: Dimension, stride: int, source: int, target: int) -> bool:
    """Check whether a link leads from one NPU to the other, on a ring or among fully connected ones."""
    here, there = source // stride % dimension.npus, target // stride % dimension.npus
    if source == target or target - source != (there - here) * stride:
        return False
    return dimension.shape is not DimensionShape.RING or (there - here) % dimension.npus in (
        1,
        dimension.npus - 1,
    )


def read_network(source: Section, remarks: Remarks, *, may_be_plain: bool = False) -> Network:
    """Read the network of a source.

    `may_be_plain`: the topology may be one word, as in files for the congestion model of ASTRA-sim 1.0.
    """
    check_names(source, NETWORK_KEYS, remarks)
    if may_be_plain and isinstance(source.content.get("topology"), str):
        source = structs.replace(source, content=source.content | {"topology": [source.content["topology"]]})
    lists = {key.name: listed(key, source) for key in DIMENSION_KEYS}
    _check_lengths(lists, source)
    dimensions = tuple(
        made(
            Dimension,
            {
                key.name: Slot(key, source, remarks, index).value(lists[key.name][index])
                for key in DIMENSION_KEYS
            },
        )
        for index in range(len(lists["topology"]))
    )
    network = Network.of_dimensions(dimensions)
    if network.ranks > MOST_RANKS:
        cause = f'key "npus_count" is {show(lists["npus_count"])}: {network.ranks} NPUs in all'
        raise source.fault(cause, f"allowed: at most {MOST_RANKS}")
    for index, dimension in enumerate(dimensions):
        if dimension.npus == 1:
            text = f"index {index} is 1: this dimension never takes part (the reference refuses it)"
            remarks.warn(source.place, "npus_count", text)
    filled = _filled(source, dimensions, remarks)
    fabric = GridFabric(dimensions, filled=filled)
    links = read_links(source, fabric, remarks)
    network = Network.of_dimensions(dimensions, links, _reducers(source, dimensions, remarks), filled)
    speeds: list[Dimension | UnevenLink] = [*dimensions, *links]
    credits = read_credits(
        source, [wire.bytes_per_ns for wire in speeds], [wire.latency_ns for wire in speeds], remarks
    )
    network = structs.replace(network, protocol=read_protocol(source, remarks), credits=credits)
    return read_failures(source, network, remarks)


def _filled(source: Section, dimensions: tuple[Dimension, ...], remarks: Remarks) -> int:
    """Return the number of NPUs if they do not fill the last node; 0: they do."""
    if NPUS_KEY.name not in source.content:
        return 0
    npus = int(Slot(NPUS_KEY, source, remarks).value(source.content[NPUS_KEY.name]))
    places = places_of(dimensions)
    if npus == places:
        return 0
    cause, node = f'key "npus" is {npus}', dimensions[0].npus
    if len(dimensions) != 2 or any(each.shape is not DimensionShape.SWITCH for each in dimensions):
        remedy = f"give {places}, or leave it out: only nodes of two Switch dimensions may be partly filled"
        raise source.fault(cause, remedy)
    if not places - node < npus < places:
        remedy = f"allowed: {places - node + 1} to {places}, as only the last node may be partly filled"
        raise source.fault(cause, remedy)
    if source.content.get(IN_NETWORK_KEY.name):
        raise source.fault(f'{cause}, and "in-network" names switches that reduce', "leave one of them out")
    return npus


def _reducers(
    source: Section, dimensions: tuple[Dimension, ...], remarks: Remarks
) -> tuple[tuple[int, Reducer], ...]:
    """Read the dimensions whose switches reduce."""
    reducers: dict[int, Reducer] = {}
    for section, given in _entries(source, IN_NETWORK_KEY, IN_NETWORK_KEYS, dimensions, remarks):
        number = given["dimension"]
        shape = dimensions[number].shape
        if shape is not DimensionShape.SWITCH:
            cause = f"dimension {number} is a {shape.value}, which has no switch"
            raise section.fault(cause, "name a Switch dimension")
        if number in reducers:
            raise section.fault(f"dimension {number} is listed twice", "keep one of them")
        reducers[number] = made(Reducer, given)
    return tuple(sorted(reducers.items()))


def listed(key: Key, source: Section) -> list[Any]:
    """Return the key's list, one entry per dimension."""
    form = f"allowed: a list with one entry per dimension, each {key.allowed}"
    if key.name not in source.content:
        raise source.fault(f'key "{key.name}" is missing', form)
    value = source.content[key.name]
    if isinstance(value, list) and value:
        return value
    cause = f'key "{key.name}" is {show(value)}'
    if isinstance(value, str | int | float):
        cause += ", one value instead of a list"
        form = f"write it as a list with one entry per dimension: {key.name}: [ {value} ]"
    raise source.fault(cause, form)


def _check_lengths(lists: dict[str, list[Any]], source: Section) -> None:
    dimensions = len(lists["topology"])
    for name, entries in lists.items():
        if len(entries) != dimensions:
            raise source.fault(
                f'key "{name}" has {plural(len(entries), "entry", "entries")}, "topology" has {dimensions}',
                "allowed: one entry per dimension in every list",
            )


LOGGOPS_KEY = Key(
    "loggops",
    OBJECT,
    "Constants of the [LogGOPS model](network-models.md#loggops), in place of all other keys.",
    "Not known there.",
    choices=tuple(key.name for key in keys_of(LogGops)),
)


def read_loggops(source: Section, remarks: Remarks) -> Network:
    """Read the constants of LogGOPS, which connect all NPUs with all others."""
    section = inner_section(source, LOGGOPS_KEY, remarks)
    assert section is not None
    for name in source.content:
        if name != LOGGOPS_KEY.name:
            raise source.lined.fault(
                f'keys "{name}" and "{LOGGOPS_KEY.name}" exclude each other',
                "leave one of them out",
                key=name,
            )
    constants = read(LogGops, section, remarks)
    per_byte = constants.gap_per_byte
    bandwidth = 1 / (per_byte * bytes_per_ns(1)) if per_byte else math.inf
    dimension = Dimension(DimensionShape.FULLY_CONNECTED, constants.npus, bandwidth, float(constants.latency))
    return replace(Network.of_dimensions((dimension,)), loggops=constants)
