"""Tables of measurements that a system file names: CSV with a header, or Arrow files."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import MachineError, did_you_mean, unreadable
from et_sim.documents.keys import Remarks

ARROW_ENDINGS = (".arrow", ".feather")


class MeasuredRows(Struct, frozen=True):
    """Rows by column name, and the lines that hold them."""

    place: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    first_line: int  # 2 for CSV, after the header; 0 for Arrow

    def at(self, row: int) -> str:
        """Return the place of a row."""
        word = "line" if self.first_line else "row"
        return f"{self.place}: {word} {row + self.first_line}"

    def number(self, row: int, column: str) -> float:
        """Return a number above zero."""
        value = self.rows[row][column]
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number < math.inf:
            raise MachineError(
                f"column {column!r} is {str(value)[:40]!r}",
                place=self.at(row),
                remedy="give a number above 0",
            )
        return number

    def add_point(self, points: dict[float, float], row: int, value: float) -> None:
        """Add the value of a row to the points, by its size."""
        size = self.number(row, "size")
        if size in points:
            raise MachineError(f"size {size:g} is listed twice", place=self.at(row), remedy="leave one out")
        points[size] = value

    def curve(
        self, points: Mapping[float, float], of: str, instead: str = ""
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the sizes in ascending order, and their values; refuse a single size."""
        if len(points) < 2:
            cause = f"the table has only one size{' of ' + of if of else ''}"
            remedy = f"give at least two sizes{instead}"
            raise MachineError(cause, place=self.place, remedy=remedy)
        sizes = tuple(sorted(points))
        return sizes, tuple(points[size] for size in sizes)

    def word(self, row: int, column: str) -> str:
        """Return a text; empty if there is no such column or value."""
        value = self.rows[row].get(column)
        return "" if value is None else str(value).strip()


def read_measured(
    path: Path, required: Sequence[str], optional: Sequence[str], remarks: Remarks
) -> MeasuredRows:
    """Read the table at a path, which must have the required columns and may have the optional ones."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise MachineError(f"the table cannot be read: {unreadable(error)}", place=str(path)) from None
    columns, rows, first = _arrow(raw, path) if path.suffix in ARROW_ENDINGS else _csv(raw, path)
    known = (*required, *optional)
    for column in columns:
        if column not in known:
            near = did_you_mean(column, known) or f"columns: {', '.join(known)}"
            raise MachineError(f"column {column!r} is not known", place=str(path), remedy=near)
    for column in required:
        if column not in columns:
            raise MachineError(
                f"column {column!r} is missing", place=str(path), remedy=f"columns: {', '.join(known)}"
            )
    remarks.inputs.append((str(path), hashlib.sha256(raw).hexdigest()))
    return MeasuredRows(str(path), tuple(columns), tuple(rows), first)


def _csv(raw: bytes, path: Path) -> tuple[list[str], list[dict[str, Any]], int]:
    import csv

    try:
        lines = list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise MachineError(f"this is no CSV table: {error}", place=str(path)) from None
    if not lines:
        raise MachineError("the table is empty", place=str(path), remedy="begin with the names of columns")
    columns = [name.strip() for name in lines[0]]
    rows = []
    for number, cells in enumerate(lines[1:], 2):
        if not cells:
            raise MachineError("the line is empty", place=f"{path}: line {number}", remedy="leave it out")
        if len(cells) != len(columns):
            raise MachineError(
                f"the line has {len(cells)} cells, the header {len(columns)}",
                place=f"{path}: line {number}",
                remedy="give one cell per column",
            )
        rows.append(dict(zip(columns, cells, strict=True)))
    return columns, rows, 2


def _arrow(raw: bytes, path: Path) -> tuple[list[str], list[dict[str, Any]], int]:
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(pa.py_buffer(raw)).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise MachineError(
            f"this is no Arrow file: {str(error).splitlines()[0]}",
            place=str(path),
            remedy="write it with pyarrow.feather.write_feather, or as CSV",
        ) from None
    return table.column_names, table.to_pylist(), 0
