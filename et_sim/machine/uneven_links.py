"""Links that differ from the others of their dimension: the entries of the network file's key "links".

Not here: what they cost messages (`et_sim.network`).
"""

from __future__ import annotations

from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import check, read_keys, show
from et_sim.machine.keys import Remarks
from et_sim.machine.model import AT_SWITCH, Dimension, GridFabric, Shape, UnevenLink
from et_sim.machine.sources import Source
from et_sim.machine.uneven_tables import LINK_KEYS, LINKS_KEY

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
