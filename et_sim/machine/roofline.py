"""A device with a roof for each datatype and level of memory: the model `roofline` of the key `compute`.

Its fields are the keys of the model. Not here: what a kernel takes on it (`et_sim.compute.device`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field, structs

from et_sim.basics.errors import MachineError
from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Kind, Remarks, Section, Slot, key, nearest, show
from et_sim.documents.kinds import (
    NUMBER,
    OBJECT,
    choice,
    count,
    number,
    rate,
    section,
    sections,
    size,
    text,
    time,
    watts,
)
from et_sim.machine.datatypes import BITS
from et_sim.machine.power import POWER, Power

if TYPE_CHECKING:
    from et_sim.machine.measured import Measured

LARGEST_RATE = 1 << 40
LARGEST_TILE = 65536
LARGEST = 1 << 20  # count of processors, or steps
CURVE_KEYS = ("peak", "half", "table")
ANY = ""  # the datatype of a peak that holds for all of them


FloatColumn = npt.NDArray[np.float64]
OTHER = "other"  # operations without an entry of their own


@quick_dataclass(frozen=True)
class MemoryLevel:
    """Bandwidth in decimal GB/s, so bytes per ns; without a capacity, everything fits."""

    name: str = text("What the timeline calls it: `HBM`.", required=True)
    bandwidth: float = rate(
        "Bandwidth of the whole device.",
        unit="GB/s (10^9 bytes)",
        above_minimum=True,
        required=True,
        maximum=LARGEST_RATE,
    )
    capacity: int | None = size("Without the key: everything fits.", None, above_minimum=True)

    def faster(self, multiple: float) -> MemoryLevel:
        """With a multiple of the bandwidth."""
        return replace(self, bandwidth=self.bandwidth * multiple)


class Curve(Struct, frozen=True):
    """Which part of a peak is reached, by size: `peak` x / (x + `half`), or measured points.

    Between points it is a line over the logarithm of the size, beyond them that of the nearest.
    """

    peak: float = 1.0
    half: float = 0.0
    sizes: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, size: FloatColumn) -> FloatColumn:
        """The part that is reached by operations of some sizes."""
        speed: FloatColumn
        if self.sizes:
            speed = self.peak * np.interp(np.log(np.maximum(size, 1.0)), np.log(self.sizes), self.values)
        else:
            speed = self.peak * size / (size + self.half) if self.half else np.full(len(size), self.peak)
        return speed


class Efficiency(Struct, frozen=True):
    """Curves by kind of operation."""

    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({OTHER: Curve()}))

    def of(self, kind: str) -> Curve:
        """That of a kind of operation."""
        return self.curves.get(kind) or self.curves.get(OTHER) or Curve()

    def better(self, kind: str, multiple: float) -> Efficiency:
        """With the curve of a kind multiplied."""
        curve = self.curves[kind]
        raised = structs.replace(curve, peak=curve.peak * multiple)
        return Efficiency(MappingProxyType({**self.curves, kind: raised}))


class Tile(Struct, frozen=True):
    """Of a product's output, and the step in which it goes through the inner side; `part`: of the peak that
    processors reach with such tiles."""

    rows: int
    columns: int
    step: int
    part: float = 1.0


def _is_part(value: Any, most: float = 1) -> bool:
    return type(value) in (int, float) and 0 < value <= most


def _peaks(slot: Slot, value: Any) -> Mapping[str, float]:
    section = slot.section.entry(slot.key.name, OBJECT.read(slot, value))
    if not value:
        raise section.fault("no peak is given", 'for example {"bf16": 312}')
    for name, figure in value.items():
        if name not in BITS:
            remedy = nearest(name, BITS) or f"known: {', '.join(BITS)}"
            raise section.fault(f"datatype {show(name)} is not known", remedy)
        if not _is_part(figure, LARGEST_RATE):
            raise section.fault(f'key "{name}" is {show(figure)}', "allowed: a number > 0, in TFLOPS")
    return MappingProxyType({name: float(figure) for name, figure in value.items()})


def _efficiency(slot: Slot, value: Any) -> Efficiency:
    if not isinstance(value, dict):
        part = NUMBER.read(slot, value)
        if not _is_part(part):
            raise slot.refusal(value)
        return Efficiency(MappingProxyType({OTHER: Curve(part)}))
    section = slot.section.entry(slot.key.name, value)
    if not value:
        raise section.fault("nothing is given", f'for example {{"gemm": 0.8, "{OTHER}": 1}}')
    if any(name in CURVE_KEYS for name in value):
        return Efficiency(MappingProxyType(_curves(section, slot.remarks)))
    curves = {kind: _curve(section, kind, slot.remarks) for kind in value}
    return Efficiency(MappingProxyType({OTHER: Curve(), **curves}))


def _curve(section: Section, kind: str, remarks: Remarks) -> Curve:
    """The curve of a kind of operation."""
    entry = section.content[kind]
    inner = section.entry(kind, entry)
    if not isinstance(entry, dict):
        return Curve(_part(entry, inner))
    curves = _curves(inner, remarks)
    if list(curves) != [OTHER]:
        raise inner.fault(
            "the table has a column 'operation', and stands under one",
            "leave the column out, or name the table for all operations",
        )
    return curves[OTHER]


def _curves(section: Section, remarks: Remarks) -> dict[str, Curve]:
    """A fitted curve, or measured ones by kind of operation."""
    entry = section.content
    for name in entry:
        if name not in CURVE_KEYS:
            remedy = nearest(name, CURVE_KEYS) or f"known: {', '.join(CURVE_KEYS)}"
            raise section.fault(f"key {show(name)} is not known", remedy)
    if "table" in entry:
        if len(entry) > 1 or not isinstance(entry["table"], str):
            raise section.fault('"table" names a file, and stands alone', "correct it")
        from et_sim.machine.measured import read_measured

        path = section.beside(entry["table"])
        return _measured(read_measured(path, ("size", "efficiency"), ("operation",), remarks))
    half: Any = entry.get("half")
    if not _is_part(half, sys.float_info.max):
        raise section.fault(
            f'key "half" is {show(half)}',
            "give the size at which half of the peak is reached, a number > 0",
        )
    return {OTHER: Curve(_part(entry.get("peak", 1.0), section.entry("peak", {})), float(half))}


def _part(value: Any, section: Section) -> float:
    if not _is_part(value):
        raise section.fault(f"{show(value)} is no efficiency", "allowed: a number > 0 and <= 1")
    return float(value)


def _measured(table: Measured) -> dict[str, Curve]:
    points: dict[str, dict[float, float]] = {}
    for row in range(len(table.rows)):
        value = table.number(row, "efficiency")
        if value > 1:
            raise MachineError(f"the efficiency is {value:g}", place=table.at(row), remedy="give at most 1")
        table.add_point(points.setdefault(table.word(row, "operation") or OTHER, {}), row, value)
    if not points:
        raise MachineError("the table has no rows", place=table.place, remedy="give two sizes at least")
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
        and all(map(_is_part, value[3:]))
    )


PEAKS = Kind("peaks", OBJECT.allowed, _peaks)
EFFICIENCY = Kind("number or object", lambda _: "a number > 0 and <= 1, or an object", _efficiency)
TILES = Kind(
    "list of [M, N, K] or [M, N, K, part]",
    lambda _: (
        "a list such as [[128, 256, 64]] or [[128, 256, 64, 0.9]], each of three whole numbers "
        "from 1 to 65536, and perhaps a part > 0 and <= 1"
    ),
    _tiles,
)


@quick_dataclass(frozen=True)
class RooflineDevice:
    """Rates in TFLOPS, time in ns."""

    timer: ClassVar[str] = "et_sim.compute.device:Device"
    scope: ClassVar[tuple[str, str]] = "kernels as far below their roofs as the machine says", ""

    peaks: Mapping[str, float] = key(  # by datatype
        PEAKS,
        "Peak rate by datatype, in TFLOPS (integers: TOPS).",
        unit="TFLOPS",
        choices=BITS,
        required=True,
    )
    datatype: str = choice(  # "" if there is none
        "The datatype of nodes that have no attribute `dtype`.", "", name="dtype", choices=BITS
    )
    levels: tuple[MemoryLevel, ...] = sections(
        "Levels of memory, the largest first. The smallest that a kernel's tensors fit serves it.",
        name="memory",
        of=MemoryLevel,
        required=True,
    )
    efficiency: Efficiency = key(
        EFFICIENCY,
        "Part of the peak rate that is reached; see [efficiencies](compute.md#efficiencies).",
        Efficiency(),
        stated=1.0,
    )
    memory_efficiency: Efficiency = key(
        EFFICIENCY,
        "Part of a level's bandwidth that is reached, by bytes.",
        Efficiency(),
        stated=1.0,
    )
    launch_ns: float = time("What every kernel takes besides.", 0.0, stated=True, name="launch-overhead")
    processors: int = count(  # 0: nothing is cut into tiles
        "Processors (SMs, compute units) that the tiles of kernels are spread over.",
        0,
        minimum=1,
        maximum=LARGEST,
    )
    tiles: tuple[Tile, ...] = key(
        TILES,
        "Tiles that products may be cut into; the one that takes the shortest time is taken. A fourth number "
        "is the part of the peak that is reached with it.",
        (),
        needs="processors",
    )
    prologue: float = number(
        "Steps of K that every tile takes besides its own, to begin and to end.",
        0.0,
        needs="tiles",
        maximum=LARGEST,
    )
    split_k: int = count(
        "Parts into which K of a product may be split, at most; powers of two are tried.",
        1,
        needs="tiles",
        minimum=1,
        maximum=1 << 10,
    )
    split_ns: float = time(
        "What a product takes besides that is split.", 0.0, name="split-time", needs="split-k"
    )
    query_tile: int = count(  # 0: attention is not cut into tiles
        "Queries that a processor works on at a time, in attention. Without the key: attention is not cut.",
        0,
        needs="processors",
        minimum=1,
        maximum=LARGEST,
    )
    query_prologue: float = number(
        "Keys that every tile of attention takes besides those that its queries see.",
        0.0,
        needs="query-tile",
        maximum=LARGEST,
    )
    power: Power | None = section(  # None: it keeps its full clock
        "What the device draws, and how that follows its clock. Given together with `power-cap`.",
        None,
        of=Power,
    )
    power_cap: float | None = watts(
        "The most that the device draws: the clock of a kernel that would draw more falls until it does not; "
        "see [power](compute.md#power). Without the key: the full clock.",
        None,
        needs=POWER,
    )

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse figures that contradict each other."""
        if self.power is not None:
            self.power.check_with(self.peaks, self.power_cap, section)
        if self.datatype and self.datatype not in self.peaks:
            raise section.fault(
                f'key "dtype" is "{self.datatype}", which has no peak', f"peaks: {', '.join(self.peaks)}"
            )
        for index, (larger, level) in enumerate(pairwise(self.levels), 1):
            if level.capacity is None or (larger.capacity is not None and level.capacity >= larger.capacity):
                raise section.entry("memory", {}, index).fault(
                    f'"{level.name}" is not smaller than "{larger.name}" before it',
                    'give the largest level first, and a "capacity" to all behind it',
                )

    @property
    def at_full_clock(self) -> RooflineDevice:
        """The device for a moment: no kernel is long enough for its draw to count."""
        return replace(self, power=None, power_cap=None)

    @property
    def figures(self) -> tuple[str, ...]:
        """What can be multiplied."""
        return tuple(self._places)

    @property
    def _places(self) -> dict[str, tuple[str, str]]:
        """The field of every figure, and what it is called there."""
        places = {f"peak of {datatype}": ("peaks", datatype) for datatype in self.peaks}
        places |= {f"bandwidth of {level.name}": ("levels", level.name) for level in self.levels}
        places |= {f"efficiency of {kind}": ("efficiency", kind) for kind in self.efficiency.curves}
        for kind in self.memory_efficiency.curves:
            places[f"memory efficiency of {kind}"] = ("memory_efficiency", kind)
        return places | ({"launch overhead": ("launch_ns", "")} if self.launch_ns else {})

    def scaled(self, name: str, multiple: float) -> tuple[RooflineDevice, float] | None:
        """With one figure multiplied; a curve is, as a whole."""
        if name not in self._places:
            return None
        field_name, key = self._places[name]
        before: Any = getattr(self, field_name)
        after: Any
        match field_name:
            case "peaks":
                after = MappingProxyType({**before, key: before[key] * multiple})
                power = self.power and self.power.faster(key, multiple)
                return replace(self, peaks=after, power=power), multiple
            case "levels":
                after = tuple(curve.faster(multiple) if curve.name == key else curve for curve in before)
            case "launch_ns":
                split_ns = self.split_ns * multiple
                return replace(self, launch_ns=before * multiple, split_ns=split_ns), multiple
            case _:
                after = before.better(key, multiple)
        changed: dict[str, Any] = {field_name: after}
        return replace(self, **changed), multiple
