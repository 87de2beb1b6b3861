"""Families of kernels, and the figures of a device that are fitted to each.

Kinds of one family share their figures: kinds that were not measured stay in proportion to measured ones.
Products and attention in another datatype than the device's own have figures of their own, in an entry of its
`kinds`, and so have launches of attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.compute.operations import Shape
from et_sim.compute.tiles import ATTENTION, PRODUCTS
from et_sim.machine.datatypes import BITS
from et_sim.machine.efficiencies import Curve, Efficiency, Tile
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.roofline import RooflineDevice

QUERY_TILES = (64, 128, 256)  # of common fused kernels
# Starts of fits for figures that the machine does not have.
PROLOGUE, QUERY_PROLOGUE, LAUNCH_NS, SPLIT_NS = 2.0, 128.0, 2000.0, 2000.0
QUANTISE = "quantise"


class OperationFamily(Struct, frozen=True):
    """A family of operations, and the indices of the numbers in their shapes by which rows are left out."""

    name: str
    kinds: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]  # by kind

    def sizes_of(self, shape: Shape) -> tuple[int, ...]:
        """Return the numbers of a shape by which rows are left out."""
        return tuple(shape.numbers[at] for at in self.places[self.kinds.index(shape.kind)])


FAMILIES = (
    OperationFamily("products", PRODUCTS, ((1, 2), (0, 1), (4, 5))),
    OperationFamily("attention", ATTENTION, ((1,), (1,))),
    OperationFamily("norms", ("layernorm", "rmsnorm"), ((0, 1), (0, 1))),
    OperationFamily("softmax", ("softmax",), ((0, 1),)),
    OperationFamily("elementwise", ("elementwise",), ((0,),)),
    OperationFamily("quantisation", ("quantise",), ((0, 1),)),
    OperationFamily("embedding", ("embedding",), ((0, 1),)),
)


def family_of(kind: str) -> OperationFamily:
    """Return the family of a kind of operation."""
    return next(family for family in FAMILIES if kind in family.kinds)


class Factor(Struct, frozen=True):
    """A figure that is fitted."""

    name: str
    start: float
    change: Callable[[RooflineDevice, float], RooflineDevice]
    highest: float = math.inf
    is_included: bool = False  # of kernels that measured times may include


class Target(Struct, frozen=True):
    """Kernels of a family that are fitted together.

    `lead` is the kind that was measured; `datatype` is empty for the device's own peak.
    """

    family: OperationFamily
    lead: str
    datatype: str = ""
    includes: frozenset[str] = frozenset()  # kinds of kernels that measured times include

    @property
    def entry(self) -> str:
        """Return the entry of `kinds` that its figures are written to; empty: the device itself."""
        return f"{self.lead} {self.datatype}" if self.datatype else ""

    @property
    def launch_entry(self) -> str:
        """Return the entry for the time of launches."""
        return self.entry or (self.lead if self.family.kinds == ATTENTION else "")

    def found(self, device: RooflineDevice) -> RooflineDevice:
        """Return the device with its constants for these kernels."""
        return device.of_kind(self.lead, self.datatype or device.datatype)


def target_of(
    device: RooflineDevice,
    family: OperationFamily,
    lead: str,
    datatype: str,
    includes: frozenset[str] = frozenset(),
) -> Target:
    """Return the target for rows of a datatype: the device itself if the datatype has the same peak."""
    own = device.peaks.get(device.datatype)
    is_own = not datatype or family.kinds not in (PRODUCTS, ATTENTION) or device.peaks.get(datatype) == own
    return Target(family, lead, "" if is_own else datatype, includes)


def changed(device: RooflineDevice, entry: str, **figures: Any) -> RooflineDevice:
    """Return the device with other figures, in an entry of its kinds if one is named."""
    if not entry:
        return replace(device, **figures)
    kind = replace(device.kinds.get(entry, KernelKind()), **figures)
    return replace(device, kinds=MappingProxyType({**device.kinds, entry: kind}))


def starts(device: RooflineDevice, target: Target) -> tuple[RooflineDevice, ...]:
    """Return the devices with which fits begin; the best fit is taken."""
    if target.family.kinds == ATTENTION and device.processors:
        return tuple(changed(device, target.entry, query_tile=tile) for tile in QUERY_TILES)
    if target.family.kinds == PRODUCTS and device.tiles:
        return (_with_parts(device, target),)
    return (device,)


def factors(device: RooflineDevice, target: Target) -> list[Factor]:
    """Return the figures of a family's kernels in a datatype."""
    family, found, factors_found = target.family, target.found(device), list[Factor]()
    if family.kinds == PRODUCTS:
        factors_found += _of_tiles(found, target) if device.tiles else [_efficiency(device, target)]
        if QUANTISE not in target.includes:  # rows cannot separate the two launches
            factors_found.append(_launch(found, target.launch_entry))
    if family.kinds == ATTENTION:
        factors_found.append(_efficiency(device, target))
        if found.query_tile:
            begin = found.query_prologue or QUERY_PROLOGUE
            factors_found.append(Factor("query-prologue", begin, _setter("query_prologue", target.entry)))
        factors_found.append(_launch(found, target.launch_entry))
    else:
        factors_found.append(_efficiency(device, target, is_memory=True))
    if QUANTISE in target.includes:
        factors_found.append(_launch(device.of_kind(QUANTISE, target.datatype), QUANTISE))
    for kind in sorted(target.includes):
        factor = _efficiency(device, Target(family_of(kind), kind), is_memory=True)
        factors_found.append(structs.replace(factor, is_included=True))
    return factors_found


def one_factor(device: RooflineDevice, target: Target) -> list[Factor]:
    """Return the figure that all rows of a family depend on, for families with few rows."""
    kinds = target.family.kinds
    if kinds != PRODUCTS or not device.tiles:
        return [_efficiency(device, target, is_memory=kinds not in (PRODUCTS, ATTENTION))]
    tiles = target.found(device).tiles

    def scale(device: RooflineDevice, value: float) -> RooflineDevice:
        return changed(device, target.entry, tiles=_with_each(tiles, lambda tile: tile.part * value))

    return [Factor("parts of all tiles, times", 1.0, scale, 1 / max(tile.part for tile in tiles))]


def _with_each(tiles: Sequence[Tile], part: Callable[[Tile], float]) -> tuple[Tile, ...]:
    return tuple(structs.replace(tile, part=part(tile)) for tile in tiles)


def _launch(found: RooflineDevice, entry: str) -> Factor:
    name = f"launch-overhead of {entry}" if entry in (QUANTISE, *ATTENTION) else "launch-overhead"
    return Factor(name, found.launch_ns or LAUNCH_NS, _setter("launch_ns", entry))


def _of_tiles(found: RooflineDevice, target: Target) -> list[Factor]:
    """Return the parts of the peak by size of tile, and the additional times of tiles and splits."""
    tile_factors = []
    for size in sorted({tile.rows * tile.columns for tile in found.tiles}, reverse=True):
        part = next(tile.part for tile in found.tiles if tile.rows * tile.columns == size)
        tile_factors.append(Factor(f"part with tiles of {size}", part, _part_setter(size, target), 1.0))
    begin = found.prologue or PROLOGUE
    tile_factors.append(Factor("prologue", begin, _setter("prologue", target.entry)))
    if found.split_k > 1:
        begin = found.split_ns or SPLIT_NS
        tile_factors.append(Factor("split-time", begin, _setter("split_ns", target.entry)))
    return tile_factors


def _with_parts(device: RooflineDevice, target: Target) -> RooflineDevice:
    """Return the device with the efficiency of products as a part of every tile.

    A datatype without tiles takes those of the device, with steps of as many bytes.
    """
    found, entry = target.found(device), target.entry
    whole = found.efficiency.of(PRODUCTS[0]).peak
    tiles = _with_each(found.tiles, lambda tile: tile.part * whole)
    if not entry:
        parts = {kind: min(1.0, device.efficiency.of(kind).peak / whole) for kind in PRODUCTS}
        return replace(device, tiles=tiles, efficiency=_with(device.efficiency, parts))
    if device.kinds.get(entry, KernelKind()).tiles is None and device.datatype:
        bits, own = BITS[target.datatype], BITS[device.datatype]
        tiles = tuple(structs.replace(tile, step=max(1, tile.step * own // bits)) for tile in tiles)
    return changed(device, entry, tiles=tiles, efficiency=Curve(1.0))


def _efficiency(device: RooflineDevice, target: Target, *, is_memory: bool = False) -> Factor:
    name, lead, entry = "memory_efficiency" if is_memory else "efficiency", target.lead, target.entry
    given: Efficiency = getattr(target.found(device), name)
    begin = given.of(lead).peak
    proportion = {kind: given.of(kind).peak / begin for kind in target.family.kinds}

    def change(device: RooflineDevice, value: float) -> RooflineDevice:
        if entry:
            return changed(device, entry, **{name: Curve(value)})
        parts = {kind: min(1.0, value * share) for kind, share in proportion.items()}
        return changed(device, "", **{name: _with(getattr(device, name), parts)})

    return Factor(f"{name.replace('_', '-')} of {lead}", begin, change, 1.0)


def _with(efficiency: Efficiency, parts: dict[str, float]) -> Efficiency:
    return Efficiency(
        MappingProxyType({**efficiency.curves, **{kind: Curve(part) for kind, part in parts.items()}})
    )


def _setter(field_name: str, entry: str) -> Callable[[RooflineDevice, float], RooflineDevice]:
    return lambda device, value: changed(device, entry, **{field_name: value})


def _part_setter(size: int, target: Target) -> Callable[[RooflineDevice, float], RooflineDevice]:
    def change(device: RooflineDevice, value: float) -> RooflineDevice:
        def part(tile: Tile) -> float:
            return value if tile.rows * tile.columns == size else tile.part

        return changed(device, target.entry, tiles=_with_each(target.found(device).tiles, part))

    return change
