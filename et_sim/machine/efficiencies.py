"""Parts of peaks that kernels reach, and the tiles that they are cut into, as system files write them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field, structs

from et_sim.basics.errors import MachineError
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, nearest, show
from et_sim.documents.kinds import NUMBER

if TYPE_CHECKING:
    from et_sim.machine.measured import MeasuredRows

LARGEST_TILE = 65536
CURVE_KEYS = ("peak", "half", "table")
OTHER = "other"  # operations without an entry of their own

FloatColumn = npt.NDArray[np.float64]


class Curve(Struct, frozen=True):
    """The part of a peak that is reached, by size: `peak` x / (x + `half`), or measured points.

    Between points, the part is linear in the logarithm of the size; beyond them, it is that of the nearest.
    """

    peak: float = 1.0
    half: float = 0.0
    sizes: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, size: FloatColumn) -> FloatColumn:
        """Return the parts that operations of these sizes reach."""
        speed: FloatColumn
        if self.sizes:
            speed = self.peak * np.interp(np.log(np.maximum(size, 1.0)), np.log(self.sizes), self.values)
        else:
            speed = self.peak * size / (size + self.half) if self.half else np.full(len(size), self.peak)
        return speed

    def raised(self, multiple: float) -> Curve:
        """Return the curve with every part multiplied."""
        return structs.replace(self, peak=self.peak * multiple)


class Efficiency(Struct, frozen=True):
    """Curves by kind of operation."""

    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({OTHER: Curve()}))

    def of(self, kind: str) -> Curve:
        """Return the curve of a kind of operation."""
        return self.curves.get(kind) or self.curves.get(OTHER) or Curve()

    def with_curve(self, kind: str, curve: Curve) -> Efficiency:
        """Return the curves with the one of a kind replaced."""
        return Efficiency(MappingProxyType({**self.curves, kind: curve}))

    def better(self, kind: str, multiple: float) -> Efficiency:
        """Return the curves with the one of a kind multiplied, if the kind has one of its own."""
        if kind not in self.curves:
            return self
        return self.with_curve(kind, self.curves[kind].raised(multiple))


class Tile(Struct, frozen=True):
    """A tile of a product's output, its step along the inner side, and the part of the peak it reaches."""

    rows: int
    columns: int
    step: int
    part: float = 1.0


def is_part(value: Any, most: float = 1) -> bool:
    return type(value) in (int, float) and 0 < value <= most


def _efficiency(slot: Slot, value: Any) -> Efficiency:
    if not isinstance(value, dict):
        part = NUMBER.read(slot, value)
        if not is_part(part):
            raise slot.refusal(value)
        return Efficiency(MappingProxyType({OTHER: Curve(part)}))
    section = slot.section.entry(slot.key.name, value)
    if not value:
        raise section.fault("the object is empty", f'for example {{"gemm": 0.8, "{OTHER}": 1}}')
    if any(name in CURVE_KEYS for name in value):
        return Efficiency(MappingProxyType(_curves(section, slot.remarks)))
    curves = {kind: _curve(section, kind, slot.remarks) for kind in value}
    return Efficiency(MappingProxyType({OTHER: Curve(), **curves}))


def _curve(section: Section, kind: str, remarks: Remarks) -> Curve:
    entry = section.content[kind]
    inner = section.entry(kind, entry)
    if not isinstance(entry, dict):
        return Curve(_part(entry, inner))
    curves = _curves(inner, remarks)
    if list(curves) != [OTHER]:
        raise inner.fault(
            "the table has a column 'operation', but is the table of one operation",
            "leave the column out, or name the table for all operations",
        )
    return curves[OTHER]


def _curves(section: Section, remarks: Remarks) -> dict[str, Curve]:
    """Read a fitted curve, or measured ones by kind of operation."""
    entry = section.content
    for name in entry:
        if name not in CURVE_KEYS:
            remedy = nearest(name, CURVE_KEYS) or f"known: {', '.join(CURVE_KEYS)}"
            raise section.fault(f"key {show(name)} is not known", remedy)
    if "table" in entry:
        if len(entry) > 1 or not isinstance(entry["table"], str):
            raise section.fault('"table" must be a file name and the only key', "leave the other keys out")
        from et_sim.machine.measured import read_measured

        path = section.beside(entry["table"])
        return _measured(read_measured(path, ("size", "efficiency"), ("operation",), remarks))
    half: Any = entry.get("half")
    if not is_part(half, sys.float_info.max):
        raise section.fault(
            f'key "half" is {show(half)}',
            "give the size at which half of the peak is reached, a number > 0",
        )
    return {OTHER: Curve(_part(entry.get("peak", 1.0), section.entry("peak", {})), float(half))}


def _part(value: Any, section: Section) -> float:
    if not is_part(value):
        raise section.fault(f"the efficiency is {show(value)}", "allowed: a number > 0 and <= 1")
    return float(value)


def _measured(table: MeasuredRows) -> dict[str, Curve]:
    points: dict[str, dict[float, float]] = {}
    for row in range(len(table.rows)):
        value = table.number(row, "efficiency")
        if value > 1:
            raise MachineError(f"the efficiency is {value:g}", place=table.at(row), remedy="give at most 1")
        table.add_point(points.setdefault(table.word(row, "operation") or OTHER, {}), row, value)
    if not points:
        raise MachineError("the table has no rows", place=table.place, remedy="give at least two sizes")
    curves = {
        kind: Curve(1.0, 0.0, *table.curve(measured, "" if kind == OTHER else kind))
        for kind, measured in points.items()
    }
    return curves if OTHER in curves else {OTHER: Curve(), **curves}


def _tiles(slot: Slot, value: Any) -> tuple[Tile, ...]:
    if not isinstance(value, list) or not value or not all(map(_is_tile, value)):
        raise slot.refusal(value)
    return tuple(Tile(*sides) for sides in value)


def _is_tile(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and all(type(side) is int and 1 <= side <= LARGEST_TILE for side in value[:3])
        and all(map(is_part, value[3:]))
    )


def _of_one(slot: Slot, value: Any) -> Curve:
    return _curve(slot.section.entry(slot.key.name, {slot.key.name: value}), slot.key.name, slot.remarks)


EFFICIENCY = ValueKind("number or object", lambda _: "a number > 0 and <= 1, or an object", _efficiency)
CURVE = ValueKind(
    "number or object", lambda _: 'a number > 0 and <= 1, or an object with "peak" and "half"', _of_one
)
TILES = ValueKind(
    "list of [M, N, K] or [M, N, K, part]",
    lambda _: (
        "a list such as [[128, 256, 64]] or [[128, 256, 64, 0.9]], each of three whole numbers "
        "from 1 to 65536, and perhaps a part > 0 and <= 1"
    ),
    _tiles,
)
