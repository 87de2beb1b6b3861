"""Speeds of links: one for every dimension, and one for every link that differs from its dimension's.

A link is named by the NPU it belongs to and a port there: its direction round a ring, up or down at a
switch, the distance among fully connected NPUs.

Not here: what a speed costs a message (`grid`, `link`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.machine.model import AT_SWITCH, Dimension, GridFabric, Shape, UnevenLink
from et_sim.plan.tables import record, table

RING, FULLY_CONNECTED, SWITCH = 0, 1, 2
SHAPE_CODE = {Shape.RING: RING, Shape.FULLY_CONNECTED: FULLY_CONNECTED, Shape.SWITCH: SWITCH}
LINKS_PER_NPU = 2  # in a ring or switch dimension
CLOCKWISE, ANTICLOCKWISE = 0, 1
UP, DOWN = 0, 1  # links between an NPU and its switch

SPEED = record(
    ("link", "i8"),  # in the speed's dimension: NPU * ports + port; of a dimension's own speed: none
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
)


def ports_of(dimension: Dimension) -> int:
    """How many links an NPU has in a dimension; some may not be there."""
    return dimension.npus if dimension.shape is Shape.FULLY_CONNECTED else LINKS_PER_NPU


def port_names(wiring: int, ports: int) -> list[str]:
    """What the links of an NPU are called, by port."""
    named = {RING: ["clockwise", "anticlockwise"], SWITCH: ["to the switch", "from the switch"]}
    return named.get(wiring) or [f"{distance} further on" for distance in range(ports)]


def npu_and_port(fabric: GridFabric, link: UnevenLink) -> tuple[int, int]:
    """Whose link it is, and at which port."""
    dimension, stride = fabric.dimensions[link.dimension], fabric.strides[link.dimension]
    if dimension.shape is Shape.SWITCH:
        return (link.source, UP) if link.target == AT_SWITCH else (link.target, DOWN)
    ahead = (link.target - link.source) // stride % dimension.npus
    if dimension.shape is Shape.FULLY_CONNECTED:
        return link.source, ahead
    return link.source, CLOCKWISE if ahead == 1 else ANTICLOCKWISE


def speed_table(fabric: GridFabric) -> tuple[Any, Any]:
    """(the speeds: first those of the dimensions, then by dimension and link; where those of each begin)."""
    count = len(fabric.dimensions)
    rows = _uneven_rows(fabric)
    speeds = table(SPEED, count + len(rows))
    for speed, dimension in zip(speeds, fabric.dimensions, strict=False):
        speed.link, speed.bytes_per_ns, speed.latency_ns = -1, dimension.bytes_per_ns, dimension.latency_ns
    for speed, (_, code, link) in zip(speeds[count:], rows, strict=True):
        speed.link, speed.bytes_per_ns, speed.latency_ns = code, link.bytes_per_ns, link.latency_ns
    first = count + np.searchsorted([row[0] for row in rows], np.arange(count + 1))
    return speeds, first


def _uneven_rows(fabric: GridFabric) -> list[tuple[int, int, UnevenLink]]:
    """(dimension, link, its figures) in the order of the table."""
    rows = []
    for link in fabric.links:
        npu, port = npu_and_port(fabric, link)
        rows.append((link.dimension, npu * ports_of(fabric.dimensions[link.dimension]) + port, link))
    return sorted(rows, key=lambda row: row[:2])


def dimension_names(fabric: GridFabric) -> tuple[str, ...]:
    """What the dimensions are called."""
    return tuple(f"dimension {number}" for number in range(len(fabric.dimensions)))


def speed_names(fabric: GridFabric) -> tuple[str, ...]:
    """What has each of the speeds, in the order of the table."""
    names = [*dimension_names(fabric)]
    for _, _, link in _uneven_rows(fabric):
        ends = ("switch" if end == AT_SWITCH else str(end) for end in (link.source, link.target))
        names.append(f"dimension {link.dimension}: {' to '.join(ends)}")
    return tuple(names)


@works_on_tables
def speed_of(fabric: Tables, row: int, npu: int, port: int) -> int:
    """The row of the speed of a link in dimension `row`."""
    dimension = fabric.dimensions[row]  # type: ignore[attr-defined]
    wanted = npu * dimension.ports + port
    low, high = dimension.uneven_first, dimension.uneven_end
    while low < high:
        middle = (low + high) >> 1
        if fabric.speeds[middle].link < wanted:  # type: ignore[attr-defined]
            low = middle + 1
        else:
            high = middle
    is_uneven = low < dimension.uneven_end and fabric.speeds[low].link == wanted  # type: ignore[attr-defined]
    return low if is_uneven else row
