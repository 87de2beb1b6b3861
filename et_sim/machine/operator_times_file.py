"""The model `table` of the key `compute`: a file of measured durations.

Columns: `operation` and `dtype` (empty or missing: any), `ns` or `us`, and `shape` (a whole `layer_shape`) or
`size`. Not here: which node takes which (`et_sim.compute.operator_table`).
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS
from et_sim.machine.checks import nearest
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.machine.keys import Remarks
from et_sim.machine.measured import Measured, read_measured
from et_sim.machine.operator_times import Measure, OperatorTimes, Outside

Files = list[tuple[str, str]]
NS_OF = MappingProxyType({"ns": 1.0, "us": 1000.0})


def read_operator_times(
    values: dict[str, Any],
    place: str,  # noqa: ARG001
    files: Files,
    remarks: Remarks,  # noqa: ARG001
) -> OperatorTimes:
    """The durations; the system file's own place is under the empty key."""
    path = Path(values[""]).parent / values["file"]
    table = read_measured(path, (), ("operation", "dtype", "shape", "size", *NS_OF))
    files.append((table.place, table.digest))
    units = [unit for unit in NS_OF if unit in table.columns]
    if len(units) != 1 or not {"shape", "size"} & set(table.columns):
        raise MachineError(
            "the table needs a column 'ns' or 'us', and one of 'shape' and 'size'",
            place=table.place,
            remedy="columns: operation, dtype, shape, size, ns or us",
        )
    of_shapes, points = _rows(table, units[0])
    of_sizes = {}
    for (kind, datatype), found in points.items():
        if len(found) < 2:
            of = " ".join(filter(None, (kind, datatype)))
            raise MachineError(
                f"the table has only one size{' of ' + of if of else ''}",
                place=table.place,
                remedy="give two sizes at least, or the whole shape",
            )
        sizes = tuple(sorted(found))
        of_sizes[kind, datatype] = sizes, tuple(found[size] for size in sizes)
    if not of_shapes and not of_sizes:
        raise MachineError("the table has no rows", place=table.place, remedy="give durations")
    return OperatorTimes(
        place=table.place,
        datatype=values.get("dtype", ""),
        size_is=Measure(values["size"]),
        outside=Outside(values["outside"]),
        of_shapes=MappingProxyType(of_shapes),
        of_sizes=MappingProxyType(of_sizes),
    )


def _rows(
    table: Measured, unit: str
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], dict[float, float]]]:
    of_shapes: dict[tuple[str, str], float] = {}
    of_sizes: dict[tuple[str, str], dict[float, float]] = {}
    for row in range(len(table.rows)):
        duration = table.number(row, unit) * NS_OF[unit]
        if duration > LONGEST_NS:
            raise MachineError("the time is too long", place=table.at(row), remedy=f"at most {LONGEST_NS} ns")
        datatype = _datatype(table, row)
        shape = " ".join(table.word(row, "shape").split())
        if bool(shape) == bool(table.word(row, "size")):
            raise MachineError("the row needs a shape or a size, and not both", place=table.at(row))
        if shape:
            operation = table.word(row, "operation")
            if operation not in ("", shape.partition(" ")[0]):
                raise MachineError(
                    f"operation {operation!r} is not that of {shape!r}",
                    place=table.at(row),
                    remedy="correct one of them, or leave the operation out",
                )
            if (shape, datatype) in of_shapes:
                raise MachineError(f"{shape!r} stands twice", place=table.at(row), remedy="leave one out")
            of_shapes[shape, datatype] = duration
            continue
        found = of_sizes.setdefault((table.word(row, "operation"), datatype), {})
        size = table.number(row, "size")
        if size in found:
            raise MachineError(f"size {size:g} stands twice", place=table.at(row), remedy="leave one out")
        found[size] = duration
    return of_shapes, of_sizes


def _datatype(table: Measured, row: int) -> str:
    word = table.word(row, "dtype")
    known = datatype_named(word) if word else ""
    if known is None:
        remedy = f"{nearest(word, tuple(BITS))} known: {', '.join(BITS)}".strip()
        raise MachineError(f"dtype {word!r} is not known", place=table.at(row), remedy=remedy)
    return known
