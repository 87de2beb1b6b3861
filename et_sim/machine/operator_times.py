"""Measured durations of operations: the model `table` of the key `compute`, and the file that it names.

Columns: `operation` and `dtype` (empty or missing: any), `ns` or `us`, and `shape` (a whole `layer_shape`) or
`size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS
from et_sim.documents.keys import Key, Remarks, Section, nearest
from et_sim.documents.kinds import TEXT, choice
from et_sim.machine.datatypes import BITS, datatype_named

if TYPE_CHECKING:
    from et_sim.machine.measured import MeasuredRows

NS_OF = MappingProxyType({"ns": 1.0, "us": 1000.0})
MEASURED = "time of measured operations"


class Outside(StrEnum):
    """The treatment of kernels that the table does not cover."""

    REFUSE = "refuse"
    LEAVE = "leave"  # to later rules
    EXTRAPOLATE = "extrapolate"  # above in proportion to the size; below, the time of the smallest


class Measure(StrEnum):
    """The unit of the column `size`."""

    OPERATIONS = "operations"
    BYTES = "bytes"


class OperatorTimes(Struct, frozen=True, eq=False):
    """Durations in ns: of whole shapes, and by size."""

    timer: ClassVar[str] = "et_sim.compute.operator_table:OperatorTable"
    scope: ClassVar[tuple[str, str]] = "kernels as measured", ""
    more_keys: ClassVar[tuple[Key, ...]] = (
        Key("file", TEXT, "The table, CSV or Arrow; a path relative to the system file.", required=True),
    )
    place: str = ""  # of the file
    datatype: str = choice(
        "The datatype of nodes that have no attribute `dtype`.", "", name="dtype", choices=BITS
    )
    size_is: Measure = choice(
        "The unit of the column `size`.",
        Measure.OPERATIONS,
        stated=True,
        name="size",
        choices=Measure,
    )
    outside: Outside = choice(
        "Kernels that the table does not cover: refused, left to later rules, or extrapolated: in "
        "proportion to the size above the table, and the time of the smallest size below it.",
        Outside.REFUSE,
        stated=True,
        choices=Outside,
    )
    of_shapes: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (shape, datatype)
    # Kind of operation and datatype ("": any) -> ascending sizes, and their durations.
    of_sizes: Mapping[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = field(
        default_factory=dict
    )
    multiple: float = 1.0  # factor of all durations

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, remarks: Remarks) -> dict[str, Any]:
        """Read the durations of the file."""
        from et_sim.machine.measured import read_measured

        columns = ("operation", "dtype", "shape", "size", *NS_OF)
        table = read_measured(section.beside(given["file"]), (), columns, remarks)
        units = [unit for unit in NS_OF if unit in table.columns]
        if len(units) != 1 or not {"shape", "size"} & set(table.columns):
            raise MachineError(
                "the table needs a column 'ns' or 'us', and one of 'shape' and 'size'",
                place=table.place,
                remedy="columns: operation, dtype, shape, size, ns or us",
            )
        of_shapes, points = _rows(table, units[0])
        of_sizes = {
            (kind, datatype): table.curve(
                sizes, " ".join(filter(None, (kind, datatype))), ", or the whole shape"
            )
            for (kind, datatype), sizes in points.items()
        }
        if not of_shapes and not of_sizes:
            raise MachineError("the table has no rows", place=table.place, remedy="give durations")
        maps = {"of_shapes": MappingProxyType(of_shapes), "of_sizes": MappingProxyType(of_sizes)}
        return {"place": table.place, **maps}

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the name of the figure that stands for all durations."""
        return (MEASURED,)

    def scaled(self, name: str, multiple: float) -> tuple[OperatorTimes, float] | None:
        """Return the settings with all durations multiplied."""
        return (replace(self, multiple=self.multiple * multiple), multiple) if name == MEASURED else None


def _rows(
    table: MeasuredRows, unit: str
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
                raise MachineError(f"{shape!r} is listed twice", place=table.at(row), remedy="leave one out")
            of_shapes[shape, datatype] = duration
            continue
        points = of_sizes.setdefault((table.word(row, "operation"), datatype), {})
        table.add_point(points, row, duration)
    return of_shapes, of_sizes


def _datatype(table: MeasuredRows, row: int) -> str:
    word = table.word(row, "dtype")
    known = datatype_named(word) if word else ""
    if known is None:
        remedy = f"{nearest(word, tuple(BITS))} known: {', '.join(BITS)}".strip()
        raise MachineError(f"dtype {word!r} is not known", place=table.at(row), remedy=remedy)
    return known
