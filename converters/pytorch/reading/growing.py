"""Columns and string tables while a file is being read: a block's values go in, compact arrays come out.

Not here: what the columns mean (`converters.pytorch.columns`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from converters.pytorch.columns import ABSENT

_T = TypeVar("_T")
_V = TypeVar("_V")
_LARGEST_32 = 2**31 - 1
_WRAP = 1 << 64
_PART_ROWS = 1 << 17
_OWN_PAGES_BYTES = 1 << 16


class Table(dict[_T, int]):
    """Numbers things in the order in which they are first asked for: `table[thing]`."""

    def __missing__(self, thing: _T) -> int:
        self[thing] = number = len(self)
        return number


class Memo(dict[_T, _V]):
    """What a function gives, asked only once for each argument."""

    def __init__(self, function: Callable[[_T], _V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: _T) -> _V:
        self[argument] = value = self._function(argument)
        return value


class Column:
    """Whole numbers, as `kind`, or else in 32 bits per value as long as all of a block fit."""

    def __init__(self, kind: type[np.integer[Any]] | None = None) -> None:
        self._kind = kind
        self._parts: list[npt.NDArray[Any]] = []
        self._recent: list[npt.NDArray[Any]] = []
        self._recent_rows = 0

    def add(self, values: Sequence[Any] | npt.NDArray[np.int64]) -> None:
        part = numbers(values)
        self._recent.append(narrow(part) if self._kind is None else part.astype(self._kind))
        self._recent_rows += len(part)
        if self._recent_rows >= _PART_ROWS:
            self._join()

    def finish(self) -> npt.NDArray[Any]:
        """All values; the column is empty afterwards."""
        self._join()
        parts, self._parts = self._parts, []
        return _joined(parts) if parts else np.zeros(0, self._kind or np.int32)

    def _join(self) -> None:
        if self._recent:
            self._parts.append(_joined(self._recent))
            self._recent, self._recent_rows = [], 0


Kinds = Mapping[str, type[np.integer[Any]] | None]


class Columns:
    """Columns of one table."""

    def __init__(self, kinds: Kinds) -> None:
        self._columns = {column: Column(kind) for column, kind in kinds.items()}
        self.rows = 0

    def add(self, values: Mapping[str, Any]) -> None:
        """The next rows."""
        for name, column in self._columns.items():
            column.add(values[name])
        self.rows += len(next(iter(values.values())))

    def finish(self) -> dict[str, npt.NDArray[Any]]:
        """All rows."""
        return {name: column.finish() for name, column in self._columns.items()}


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The parts as one array (of 64 bits if any part has them), in pages of its own: what the heap gives
    out between the objects of a block never goes back to the system."""
    kind = np.result_type(*parts)
    rows = sum(map(len, parts))
    if rows * kind.itemsize < _OWN_PAGES_BYTES:
        return np.concatenate(parts)
    whole: npt.NDArray[Any] = np.frombuffer(mmap(-1, rows * kind.itemsize), kind)
    return np.concatenate(parts, out=whole)


class Rows:
    """The columns of a table with few rows, filled row by row."""

    def __init__(self, *columns: str) -> None:
        self._columns = {name: array("q") for name in columns}

    def append(self, *values: object) -> None:
        """One more row, in the order of the columns."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value if type(value) is int and abs(value) < _WRAP >> 1 else whole_number(value))

    def finish(self) -> dict[str, npt.NDArray[Any]]:
        """Every column; "row" and the like in 32 bits if they fit."""
        return {name: narrow(np.array(column, np.int64)) for name, column in self._columns.items()}


def numbers(values: Sequence[Any] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers as files write them, in 64 bits."""
    with suppress(ValueError):  # numpy's word for lists among the numbers
        found: npt.NDArray[Any] = np.asarray(values)
        if found.dtype.kind == "i" and found.ndim == 1:
            return found.astype(np.int64, copy=False)
    return np.array([whole_number(value) for value in values], np.int64)


def texts_of(table: Table[str] | Table[bytes] | Table[str | bytes]) -> tuple[bytes, ...]:
    """The strings of a table as bytes."""
    return tuple(text.encode() if isinstance(text, str) else text for text in table)


def whole_number(value: object) -> int:
    """A number as files write it: also in quotation marks, in hexadecimal, or as what 64 bits without a
    sign make of -1; ABSENT for anything that is no whole number."""
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return ABSENT
    if isinstance(value, float):
        value = int(value) if value.is_integer() else ABSENT
    if not isinstance(value, int):
        return ABSENT
    wrapped = value % _WRAP
    return wrapped - _WRAP if wrapped >= _WRAP >> 1 else wrapped


def starts_of(counts: Iterable[int]) -> npt.NDArray[np.int64]:
    """Where each list starts among all lists' items; one entry more than there are lists."""
    return np.concatenate(([0], np.cumsum(np.fromiter(counts, np.int64), dtype=np.int64)))


def narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.signedinteger[Any]]:
    if len(values) and max(int(values.max()), -int(values.min())) > _LARGEST_32:
        return values
    return values.astype(np.int32)
