"""The generators by name, and how one network is put inside another."""

from __future__ import annotations

from collections.abc import Callable

from et_sim.machine.graph import NPU, GraphBuilder
from et_sim.machine.topology import shapes
from et_sim.machine.topology.fields import Fields
from et_sim.machine.topology.shapes import NetworkPart, Place

NPUS, RAILS, GATEWAYS = "npus", "rails", "gateways"


def nested(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """Copies of an inner network, connected by an outer one.

    The outer network connects all NPUs (`npus`), or there is one for each place in the inner ones (`rails`),
    or it connects the inner ones as wholes, by their topmost switches (`gateways`).
    """
    copies, attach = fields.whole("copies", least=2), fields.choice("attach", (NPUS, RAILS, GATEWAYS), NPUS)
    inner = []
    for copy in range(copies):
        prefix = f"{place.prefix}group{copy}."
        share = None
        if place.given is not None:
            size, rest = divmod(len(place.given), copies)
            if rest:
                cause = f"{len(place.given)} devices cannot be divided among {copies} copies"
                raise fields.fault("copies", cause, f"give a divisor of {len(place.given)}")
            share = place.given[copy * size : (copy + 1) * size]
        inner.append(generate(build, fields.part("inner"), Place(prefix, place.tier, share)))
    devices = [device for part in inner for device in part.devices]
    rows = (tier for tier, kind in zip(build.tiers, build.kinds, strict=True) if kind != NPU)
    tier = max(place.tier, 1 + max(rows, default=0))
    outer = fields.part("outer")
    inner_dimensions = inner[0].dimensions
    if attach == GATEWAYS:
        given = tuple(part.gateway for part in inner)
        part = generate(build, outer, Place(place.prefix, tier, given))
        return NetworkPart(devices, inner_dimensions + part.dimensions, part.gateway)
    if attach == NPUS:
        part = generate(build, outer, Place(place.prefix, tier, tuple(devices)))
        return NetworkPart(devices, (*inner_dimensions, copies), part.gateway, groups=part.groups)
    for at in range(len(inner[0].devices)):
        given = tuple(part.devices[at] for part in inner)
        part = generate(build, outer, Place(f"{place.prefix}rail{at}.", tier, given))
    is_grid = bool(inner[0].grid) and bool(part.grid)
    return NetworkPart(
        devices,
        inner_dimensions + part.dimensions,
        part.gateway,
        inner[0].grid + part.grid if is_grid else (),
    )


GENERATORS: dict[str, Callable[[GraphBuilder, Fields, Place], NetworkPart]] = {
    "ring": shapes.ring,
    "mesh": shapes.mesh,
    "torus": shapes.torus,
    "fully-connected": shapes.fully_connected,
    "hybrid-cube-mesh": shapes.hybrid_cube_mesh,
    "switch": shapes.switch,
    "star": shapes.switch,
    "leaf-spine": shapes.leaf_spine,
    "fat-tree": shapes.fat_tree,
    "rail-optimised": shapes.rail_optimised,
    "dragonfly": shapes.dragonfly,
    "nested": nested,
}


def generate(build: GraphBuilder, fields: Fields, place: Place) -> NetworkPart:
    """What the generator makes that an object names."""
    part = GENERATORS[fields.choice("generator", tuple(GENERATORS))](build, fields, place)
    fields.done()
    return part
