"""Generators of networks that link NPUs to each other: rings, meshes, tori, cliques, a cube mesh."""

from __future__ import annotations

import math
from dataclasses import replace

from et_sim.machine.graph import GraphBuilder
from et_sim.machine.topology.fields import Fields
from et_sim.machine.topology.part import Part, Place, endpoints

# NVLinks of a DGX-1 with V100: pairs of NPUs, and how many links stand side by side.
CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1)),
    *((3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)),
)


def ring(build: GraphBuilder, fields: Fields, place: Place) -> Part:
    """NPUs in a circle."""
    return _grid(build, fields, place, (fields.whole("npus", least=2),), wraps=True)


def torus(build: GraphBuilder, fields: Fields, place: Place) -> Part:
    """NPUs in circles along every dimension."""
    return _grid(build, fields, place, fields.wholes("sizes"), wraps=True)


def mesh(build: GraphBuilder, fields: Fields, place: Place) -> Part:
    """NPUs in rows along every dimension."""
    return _grid(build, fields, place, fields.wholes("sizes"), wraps=False)


def _grid(build: GraphBuilder, fields: Fields, place: Place, sizes: tuple[int, ...], *, wraps: bool) -> Part:
    """Links to higher coordinates come first: they win where both ways round are equally long."""
    figures, count = fields.figures(), math.prod(sizes)
    build.expect(devices=count, links=count * len(sizes))
    ends = endpoints(build, fields, place, count)
    stride = 1
    for size in sizes:
        for towards in (1,) if wraps and size == 2 else (1, -1):
            for number in range(count):
                here = number // stride % size
                after = (here + towards) % size if wraps else here + towards
                if 0 <= after < size and after != here:
                    build.link(ends.ports[number], ends.ports[number + (after - here) * stride], figures)
        stride *= size
    grid = tuple((size, wraps) for size in sizes) if ends.ports == ends.devices else ()
    return Part(ends.devices, sizes, ends.ports[0], grid)


def fully_connected(build: GraphBuilder, fields: Fields, place: Place) -> Part:
    """A link between any two NPUs."""
    count, figures = fields.whole("npus", least=2), fields.figures()
    build.expect(devices=count, links=count * (count - 1))
    ends = endpoints(build, fields, place, count)
    for one in ends.ports:
        for other in ends.ports:
            if one != other:
                build.link(one, other, figures)
    return Part(ends.devices, (count,), ends.ports[0])


def hybrid_cube_mesh(build: GraphBuilder, fields: Fields, place: Place) -> Part:
    """The eight NPUs of a DGX-1: two groups of four, and each NPU linked to its counterpart."""
    figures = fields.figures()
    ends = endpoints(build, fields, place, 8)
    for one, other, count in CUBE_MESH:
        of = replace(figures, bytes_per_ns=figures.bytes_per_ns * count)
        build.cable(ends.ports[one], ends.ports[other], of)
    return Part(ends.devices, (8,), ends.ports[0])
