"""Interpretation of an entry function, several times as fast as on arrays.

Numpy makes an object of every record and number that Python reads from an array. Functions on `Tables` get
lists and plain objects in place of their arrays instead, made from rows when these are first used, and
written back at the end. Numbers are Python's, which do not overflow. A row below 0 is refused: compiled code
would read the memory in front of the table, and Python the last row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables


def interpret(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function with stand-ins for the arrays of its tables."""
    held: list[_Records | _Numbers | _Cells] = []
    result = function(*(_stand_in(argument, held) for argument in arguments))
    for stand_in in held:
        stand_in.write_back()
    return result


class _Record:
    """One record; its fields are attributes, in their order."""

    def __init__(self, names: tuple[str, ...], inner: dict[str, Any], values: tuple[Any, ...]) -> None:
        self.__dict__ = dict(zip(names, values, strict=True))
        for name, names_there in inner.items():
            self.__dict__[name] = _Record(names_there, {}, self.__dict__[name])


def _values_of(record: _Record, inner: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values of the fields, of which some are records."""
    held = record.__dict__
    return tuple((held | {name: _values_of(held[name], {}) for name in inner} if inner else held).values())


class _Records(dict[int, _Record]):
    """Records by row."""

    def __init__(self, array: Any) -> None:
        super().__init__()
        self._array = array.view(np.ndarray)
        self._names = array.dtype.names
        fields = {name: array.dtype[name].names for name in self._names}
        self._inner = {name: names for name, names in fields.items() if names}  # of fields that are records
        self._rows = len(array)

    def __missing__(self, row: int) -> _Record:
        check_rows(row)
        self[row] = made = _Record(self._names, self._inner, self._array[row].item())
        return made

    def __len__(self) -> int:
        return self._rows

    def write_back(self) -> None:
        values = [_values_of(record, self._inner) for record in self.values()]
        self._array[list(self)] = np.array(values, self._array.dtype)


class _Numbers(list[Any]):
    """Numbers one after another."""

    def __init__(self, array: Any) -> None:
        super().__init__(array.tolist())
        self._array = array
        self._before = self.copy()

    def write_back(self) -> None:
        if self != self._before:
            self._array[:] = self


class _Cells(dict[tuple[int, int], Any]):
    """Numbers in rows and columns."""

    def __init__(self, array: Any) -> None:
        super().__init__()
        self._array = array
        self.shape = array.shape

    def __missing__(self, cell: tuple[int, int]) -> Any:
        check_rows(*cell)
        return self._array.item(cell)

    def __len__(self) -> int:
        return self.shape[0]  # type: ignore[no-any-return]

    def write_back(self) -> None:
        for cell, value in self.items():
            check_rows(*cell)
            self._array[cell] = value


def check_rows(*rows: int) -> None:
    """Refuse rows that no table has, such as NONE."""
    if min(rows) < 0:
        raise IndexError(f"row {min(rows)} of a table does not exist: rows count from 0")


def _stand_in(value: Any, held: list[Any]) -> Any:
    if not isinstance(value, Tables):
        return value
    names = type(value).__match_args__  # type: ignore[attr-defined]
    return type(value)(*(_of_field(getattr(value, name), held) for name in names))


def _of_field(value: Any, held: list[Any]) -> Any:
    if not isinstance(value, np.ndarray):
        return _stand_in(value, held)
    made = (_Records if value.dtype.names else _Numbers if value.ndim == 1 else _Cells)(value)
    held.append(made)
    return made
