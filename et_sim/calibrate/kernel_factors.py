"""Families of kernels, and the figures of a device that are fitted to each.

Kinds of one family share their figures: those that were not measured stay in proportion to those that were.

Not here: the fit (`calibrate.kernels`), and how a machine file writes figures (`calibrate.machine_file`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import Struct, structs

from et_sim.compute.device import ATTENTION, PRODUCTS
from et_sim.compute.operations import Shape
from et_sim.machine.roofline import Curve, Efficiency, RooflineDevice

QUERY_TILES = (64, 128, 256)  # of common fused kernels
# Where fits begin, if the machine does not say.
PROLOGUE, QUERY_PROLOGUE, LAUNCH_NS, SPLIT_NS = 2.0, 128.0, 2000.0, 2000.0


class Family(Struct, frozen=True):
    """Kinds of operations, and the places of the numbers in their shapes that stand for what is left out."""

    name: str
    kinds: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]  # by kind

    def sizes_of(self, shape: Shape) -> tuple[int, ...]:
        """The numbers that a row must not share with what it is judged by."""
        return tuple(shape.numbers[at] for at in self.places[self.kinds.index(shape.kind)])


FAMILIES = (
    Family("products", PRODUCTS, ((1, 2), (0, 1), (4, 5))),
    Family("attention", ATTENTION, ((1,), (1,))),
    Family("norms", ("layernorm", "rmsnorm"), ((0, 1), (0, 1))),
    Family("softmax", ("softmax",), ((0, 1),)),
    Family("elementwise", ("elementwise",), ((0,),)),
    Family("embedding", ("embedding",), ((0, 1),)),
)


class Factor(Struct, frozen=True):
    """A figure that is fitted."""

    name: str
    start: float
    change: Callable[[RooflineDevice, float], RooflineDevice]
    highest: float = math.inf


def starts(device: RooflineDevice, family: Family) -> tuple[RooflineDevice, ...]:
    """Devices that fits begin with, of which the best is taken."""
    if family.kinds == ATTENTION and device.processors:
        return tuple(replace(device, query_tile=tile) for tile in QUERY_TILES)
    if family.kinds == PRODUCTS and device.tiles:
        return (_with_parts(device),)
    return (device,)


def factors(device: RooflineDevice, family: Family, lead: str) -> list[Factor]:
    """Figures of a family, of which `lead` was measured."""
    factors_found = []
    if family.kinds == PRODUCTS:
        factors_found += _of_tiles(device) if device.tiles else [_efficiency(device, family.kinds, lead)]
        factors_found.append(Factor("launch-overhead", device.launch_ns or LAUNCH_NS, _setter("launch_ns")))
    if family.kinds == ATTENTION:
        factors_found.append(_efficiency(device, family.kinds, lead))
        if device.query_tile:
            begin = device.query_prologue or QUERY_PROLOGUE
            factors_found.append(Factor("query-prologue", begin, _setter("query_prologue")))
    else:
        factors_found.append(_efficiency(device, family.kinds, lead, is_memory=True))
    return factors_found


def one_factor(device: RooflineDevice, family: Family, lead: str) -> list[Factor]:
    """The figure that all rows of a family depend on, where they are too few for the others."""
    if family.kinds != PRODUCTS or not device.tiles:
        return [_efficiency(device, family.kinds, lead, is_memory=family.kinds not in (PRODUCTS, ATTENTION))]
    highest = 1 / max(tile.part for tile in device.tiles)
    return [Factor("parts of all tiles, times", 1.0, _scale_parts, highest)]


def _scale_parts(device: RooflineDevice, value: float) -> RooflineDevice:
    return replace(
        device, tiles=tuple(structs.replace(tile, part=tile.part * value) for tile in device.tiles)
    )


def _of_tiles(device: RooflineDevice) -> list[Factor]:
    """Parts of the peak by size of tile, and what tiles and splits take besides."""
    tile_factors = []
    for size in sorted({tile.rows * tile.columns for tile in device.tiles}, reverse=True):
        part = next(tile.part for tile in device.tiles if tile.rows * tile.columns == size)
        tile_factors.append(Factor(f"part with tiles of {size}", part, _part_setter(size), 1.0))
    tile_factors.append(Factor("prologue", device.prologue or PROLOGUE, _setter("prologue")))
    if device.split_k > 1:
        tile_factors.append(Factor("split-time", device.split_ns or SPLIT_NS, _setter("split_ns")))
    return tile_factors


def _with_parts(device: RooflineDevice) -> RooflineDevice:
    """What all products reach, as a part that every tile does."""
    whole = device.efficiency.of(PRODUCTS[0]).peak
    tiles = tuple(structs.replace(tile, part=tile.part * whole) for tile in device.tiles)
    parts = {kind: min(1.0, device.efficiency.of(kind).peak / whole) for kind in PRODUCTS}
    return replace(device, tiles=tiles, efficiency=_with(device.efficiency, parts))


def _efficiency(
    device: RooflineDevice, kinds: Sequence[str], lead: str, *, is_memory: bool = False
) -> Factor:
    field_name = "memory_efficiency" if is_memory else "efficiency"
    given: Efficiency = getattr(device, field_name)
    begin = given.of(lead).peak
    proportion = {kind: given.of(kind).peak / begin for kind in kinds}

    def change(device: RooflineDevice, value: float) -> RooflineDevice:
        parts = {kind: min(1.0, value * share) for kind, share in proportion.items()}
        changed: dict[str, Any] = {field_name: _with(getattr(device, field_name), parts)}
        return replace(device, **changed)

    return Factor(f"{field_name.replace('_', '-')} of {lead}", begin, change, 1.0)


def _with(efficiency: Efficiency, parts: dict[str, float]) -> Efficiency:
    return Efficiency(
        MappingProxyType({**efficiency.curves, **{kind: Curve(part) for kind, part in parts.items()}})
    )


def _setter(field_name: str) -> Callable[[RooflineDevice, float], RooflineDevice]:
    def change(device: RooflineDevice, value: float) -> RooflineDevice:
        changed: dict[str, Any] = {field_name: value}
        return replace(device, **changed)

    return change


def _part_setter(size: int) -> Callable[[RooflineDevice, float], RooflineDevice]:
    def change(device: RooflineDevice, value: float) -> RooflineDevice:
        tiles = (
            structs.replace(tile, part=value) if tile.rows * tile.columns == size else tile
            for tile in device.tiles
        )
        return replace(device, tiles=tuple(tiles))

    return change
