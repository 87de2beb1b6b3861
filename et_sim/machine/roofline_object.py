"""The model `roofline` of the key `compute`: peaks, levels of memory, efficiencies, tiles.

Not here: the keys (`compute_tables`), and what a kernel takes (`et_sim.compute.device`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import nearest, read_keys, show
from et_sim.machine.compute_tables import LARGEST_RATE, LEVEL_OF_MEMORY_KEYS
from et_sim.machine.datatypes import BITS
from et_sim.machine.keys import Remarks
from et_sim.machine.measured import Measured, read_measured
from et_sim.machine.roofline import OTHER, Curve, Efficiency, MemoryLevel, RooflineDevice, Tile
from et_sim.machine.sources import Source

SUSTAINED = "sustained-peaks"
CURVE_KEYS = ("peak", "half", "table")
Files = list[tuple[str, str]]


def read_roofline(values: dict[str, Any], place: str, files: Files, remarks: Remarks) -> RooflineDevice:
    """The device that the keys describe; the system file's own place is under the empty key."""
    peaks = _peaks(values["peaks"], place, "peaks")
    sustained = _peaks(values[SUSTAINED], place, SUSTAINED) if SUSTAINED in values else {}
    for name, rate in sustained.items():
        if rate > peaks.get(name, 0.0):
            raise MachineError(
                f'key "{name}" is {rate:g}, above the peak of {name}, {peaks.get(name, 0.0):g}',
                place=f'{place}: "{SUSTAINED}"',
                remedy="give what kernels reach in a long run, at most the peak",
            )
    datatype = values.get("dtype", "")
    if datatype and datatype not in peaks:
        raise MachineError(
            f'key "dtype" is "{datatype}", which has no peak',
            place=place,
            remedy=f"peaks: {', '.join(peaks)}",
        )
    folder = Path(values[""]).parent
    return RooflineDevice(
        peaks=peaks,
        datatype=datatype,
        levels=_levels(values["memory"], place, remarks),
        efficiency=_efficiency(values, "efficiency", place, folder, files),
        memory_efficiency=_efficiency(values, "memory-efficiency", place, folder, files),
        launch_ns=values["launch-overhead"],
        processors=values.get("processors", 0),
        tiles=tuple(Tile(*one) for one in values.get("tiles", ())),
        prologue=values.get("prologue", 0.0),
        split_k=values.get("split-k", 1),
        split_ns=values.get("split-time", 0.0),
        query_tile=values.get("query-tile", 0),
        query_prologue=values.get("query-prologue", 0.0),
        sustained=MappingProxyType(dict(sustained)),
    )


def _peaks(given: dict[str, Any], place: str, key: str) -> Mapping[str, float]:
    place = f'{place}: "{key}"'
    if not given:
        raise MachineError("no peak is given", place=place, remedy='for example {"bf16": 312}')
    for name, rate in given.items():
        if name not in BITS:
            remedy = nearest(name, tuple(BITS)) or f"known: {', '.join(BITS)}"
            raise MachineError(f"datatype {show(name)} is not known", place=place, remedy=remedy)
        if type(rate) not in (int, float) or not 0 < rate <= LARGEST_RATE:
            raise MachineError(
                f'key "{name}" is {show(rate)}', place=place, remedy="allowed: a number > 0, in TFLOPS"
            )
    return MappingProxyType({name: float(rate) for name, rate in given.items()})


def _levels(entries: list[dict[str, Any]], place: str, remarks: Remarks) -> tuple[MemoryLevel, ...]:
    levels: list[MemoryLevel] = []
    for index, entry in enumerate(entries):
        here = f'{place}: "memory" index {index}'
        given = read_keys(Source(here, entry, ""), LEVEL_OF_MEMORY_KEYS, remarks)
        capacity = given.get("capacity")
        one = MemoryLevel(given["name"], given["bandwidth"], None if capacity is None else int(capacity))
        if any(one.name == other.name for other in levels):
            raise MachineError(f'two levels are called "{one.name}"', place=here, remedy="name them apart")
        if levels and (
            one.capacity is None or (levels[-1].capacity is not None and one.capacity >= levels[-1].capacity)
        ):
            raise MachineError(
                f'"{one.name}" is not smaller than "{levels[-1].name}" before it',
                place=here,
                remedy='give the largest level first, and a "capacity" to all behind it',
            )
        levels.append(one)
    return tuple(levels)


def _efficiency(values: dict[str, Any], name: str, place: str, folder: Path, files: Files) -> Efficiency:
    given, place = values[name], f'{place}: "{name}"'
    if not isinstance(given, dict):
        return Efficiency(MappingProxyType({OTHER: Curve(given)}))
    if not given:
        raise MachineError(
            "nothing is given", place=place, remedy=f'for example {{"gemm": 0.8, "{OTHER}": 1}}'
        )
    if any(key in CURVE_KEYS for key in given):
        curves = _curves(given, place, folder, files)
        return Efficiency(MappingProxyType(curves))
    found: dict[str, Curve] = {}
    for kind, entry in given.items():
        found[kind] = _curve(entry, f'{place}: "{kind}"', folder, files)
    return Efficiency(MappingProxyType({OTHER: Curve(), **found}))


def _curve(entry: Any, place: str, folder: Path, files: Files) -> Curve:
    if isinstance(entry, dict):
        curves = _curves(entry, place, folder, files)
        if list(curves) != [OTHER]:
            raise MachineError(
                "the table has a column 'operation', and stands under one",
                place=place,
                remedy="leave the column out, or name the table for all operations",
            )
        return curves[OTHER]
    return Curve(_part(entry, place))


def _curves(entry: dict[str, Any], place: str, folder: Path, files: Files) -> dict[str, Curve]:
    """A fitted curve, or measured ones by kind of operation."""
    for key in entry:
        if key not in CURVE_KEYS:
            remedy = nearest(key, CURVE_KEYS) or f"known: {', '.join(CURVE_KEYS)}"
            raise MachineError(f"key {show(key)} is not known", place=place, remedy=remedy)
    if "table" in entry:
        if len(entry) > 1 or not isinstance(entry["table"], str):
            raise MachineError('"table" names a file, and stands alone', place=place, remedy="correct it")
        return _measured(
            read_measured(folder / entry["table"], ("size", "efficiency"), ("operation",)), files
        )
    half: Any = entry.get("half")
    if type(half) not in (int, float) or not 0 < half < math.inf:
        raise MachineError(
            f'key "half" is {show(half)}',
            place=place,
            remedy="give the size at which half of the peak is reached, a number > 0",
        )
    return {OTHER: Curve(_part(entry.get("peak", 1.0), f'{place}: "peak"'), float(half))}


def _measured(table: Measured, files: Files) -> dict[str, Curve]:
    files.append((table.place, table.digest))
    points: dict[str, dict[float, float]] = {}
    for row in range(len(table.rows)):
        size, value = table.number(row, "size"), table.number(row, "efficiency")
        if value > 1:
            raise MachineError(f"the efficiency is {value:g}", place=table.at(row), remedy="give at most 1")
        of_kind = points.setdefault(table.word(row, "operation") or OTHER, {})
        if size in of_kind:
            raise MachineError(f"size {size:g} stands twice", place=table.at(row), remedy="leave one out")
        of_kind[size] = value
    for kind, found in points.items():
        if len(found) < 2:
            raise one_point(table, kind)
    if not points:
        raise one_point(table, OTHER)
    curves = {}
    for kind, found in points.items():
        sizes = tuple(sorted(found))
        curves[kind] = Curve(1.0, 0.0, sizes, tuple(found[size] for size in sizes))
    return {OTHER: Curve(), **curves} if OTHER not in curves and len(curves) > 0 else curves


def one_point(table: Measured, kind: str) -> MachineError:
    """Nothing can be interpolated in such a table."""
    of = "" if kind == OTHER else f" of {kind}"
    count = "no point" if not table.rows else "only one point"
    return MachineError(f"the table has {count}{of}", place=table.place, remedy="give two sizes at least")


def _part(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not 0 < value <= 1:
        raise MachineError(
            f"{show(value)} is no efficiency", place=place, remedy="allowed: a number > 0 and <= 1"
        )
    return float(value)
