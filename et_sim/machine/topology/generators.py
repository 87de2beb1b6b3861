"""Generators by name, and networks within networks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.documents.keys import Key, Remarks, Section, Slot, key, read
from et_sim.documents.kinds import CHOICE, choice
from et_sim.documents.kinds import section as part
from et_sim.machine.graph import NPU, GraphBuilder
from et_sim.machine.model import Routing
from et_sim.machine.topology import shapes
from et_sim.machine.topology.keys import GENERATOR, whole
from et_sim.machine.topology.shapes import NetworkPart, PartPlace

NPUS, RAILS, GATEWAYS = "npus", "rails", "gateways"


class Nested(Struct, frozen=True):
    """Copies of an inner network, connected by an outer one.

    The outer network connects all NPUs (`npus`); or one outer network connects equal positions of the inner
    ones (`rails`); or it connects the topmost switches of the inner ones (`gateways`).
    """

    section: Section
    generator: str = key(GENERATOR, "Generator of the network.", required=True)
    copies: int = whole("Copies of the inner network.", minimum=2, required=True)
    inner: dict[str, Any] = part(
        "The generator of the inner network.", required=True, form="a generator and its numbers"
    )
    outer: dict[str, Any] = part(
        "The generator of the outer network.", required=True, form="a generator and its numbers"
    )
    attach: str = choice("Devices that the outer network connects.", NPUS, choices=(NPUS, RAILS, GATEWAYS))

    def _generate(self, name: str, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        return generate(build, self.section.entry(name, getattr(self, name)), place)

    def make(self, build: GraphBuilder, place: PartPlace) -> NetworkPart:
        """Add the network to a graph."""
        copies = self.copies
        inner = []
        for copy in range(copies):
            prefix = f"{place.prefix}group{copy}."
            share = None
            if place.given is not None:
                size, rest = divmod(len(place.given), copies)
                if rest:
                    cause = f"{len(place.given)} devices cannot be divided among {copies} copies"
                    raise self.section.fault(cause, f"give a divisor of {len(place.given)}", key="copies")
                share = place.given[copy * size : (copy + 1) * size]
            inner.append(self._generate("inner", build, PartPlace(prefix, place.tier, share)))
        devices = [device for part in inner for device in part.devices]
        rows = (tier for tier, kind in zip(build.tiers, build.kinds, strict=True) if kind != NPU)
        tier = max(place.tier, 1 + max(rows, default=0))
        inner_dimensions = inner[0].dimensions
        if self.attach == GATEWAYS:
            given = tuple(part.gateway for part in inner)
            part = self._generate("outer", build, PartPlace(place.prefix, tier, given))
            routing = _routing_of_both(inner[0], part)
            return NetworkPart(devices, inner_dimensions + part.dimensions, part.gateway, routing=routing)
        if self.attach == NPUS:
            part = self._generate("outer", build, PartPlace(place.prefix, tier, tuple(devices)))
            routing = _routing_of_both(inner[0], part)
            dimensions = (*inner_dimensions, copies)
            return NetworkPart(devices, dimensions, part.gateway, groups=part.groups, routing=routing)
        for at in range(len(inner[0].devices)):
            given = tuple(part.devices[at] for part in inner)
            part = self._generate("outer", build, PartPlace(f"{place.prefix}rail{at}.", tier, given))
        is_grid = bool(inner[0].grid) and bool(part.grid)
        return NetworkPart(
            devices,
            inner_dimensions + part.dimensions,
            part.gateway,
            inner[0].grid + part.grid if is_grid else (),
            routing=Routing.DIMENSION_ORDER if is_grid else _routing_of_both(inner[0], part),
        )


def _routing_of_both(inner: NetworkPart, outer: NetworkPart) -> Routing:
    """Return the default routing of a network within another; dimension order is for whole grids only."""
    return Routing.SPREAD if Routing.SPREAD in (inner.routing, outer.routing) else Routing.SHORTEST


GENERATORS: dict[str, Any] = {
    "ring": shapes.Ring,
    "mesh": shapes.Mesh,
    "torus": shapes.Mesh,
    "fully-connected": shapes.FullyConnected,
    "hybrid-cube-mesh": shapes.HybridCubeMesh,
    "switch": shapes.Switch,
    "star": shapes.Switch,
    "leaf-spine": shapes.LeafSpine,
    "fat-tree": shapes.FatTree,
    "rail-optimised": shapes.Railed,
    "dragonfly": shapes.Dragonfly,
    "nested": Nested,
}
_NAME = Key("generator", CHOICE, "", choices=tuple(GENERATORS))


def generate(build: GraphBuilder, section: Section, place: PartPlace) -> NetworkPart:
    """Generate the part of a network that an object describes."""
    if _NAME.name not in section.content:
        raise section.fault(f'key "{_NAME.name}" is missing', f"allowed: {_NAME.allowed}")
    name = Slot(_NAME, section, Remarks()).value(section.content[_NAME.name])
    part: NetworkPart = read(GENERATORS[name], section, Remarks()).make(build, place)
    return part
