"""Different values of an array, sorted; equal rows of tables; groups of equal rows, with the sums of columns.

Columns of integers are packed into one integer for each row, so that rows are compared and sorted as
numbers. Integers of a small range are counted and not sorted. Sums of integers are exact. Sums of fractions
are taken in the order of rows, so that they do not depend on blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_LIMIT = 1 << 62  # products of ranges remain below it
_COUNTED = 4  # values are counted if their range is at most so many times their number


def unique(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return each value once."""
    ordered = np.sort(np.asarray(values), axis=None)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def unique_rows(*columns: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return each combination of integers once, as rows."""
    arrays = [np.asarray(column) for column in columns]
    first = groups_of(*arrays).first
    return np.stack([column[first] for column in arrays], axis=1)


class EqualRows(Struct, frozen=True, eq=False):
    """Groups of equal rows, ascending by their columns."""

    first: Any  # the first row of each
    of_row: Any  # the group of each row

    def __len__(self) -> int:
        return len(self.first)

    @property
    def counts(self) -> Any:
        """Return the number of rows of each group."""
        return np.bincount(self.of_row, minlength=len(self))

    def sums(self, values: Any) -> Any:
        """Return the sum of the rows' values of each group."""
        return sums_of(self.of_row, values, len(self))

    def most(self, values: Any) -> Any:
        """Return the largest of the rows' values of each group."""
        most = values[self.first].copy()
        np.maximum.at(most, self.of_row, values)
        return most


def groups_of(*columns: Any) -> EqualRows:
    """Return the groups of rows that are equal in all of these columns of integers."""
    of_row, count = _numbered(*_packed(columns))
    first = np.empty(count, np.int64)
    first[of_row[::-1]] = np.arange(len(of_row))[::-1]  # the last assignment to a group remains
    return EqualRows(first, of_row)


def groups_of_rows(rows: Any) -> EqualRows:
    """Return the groups of equal rows of a matrix, however many columns are the same in all rows."""
    varying = rows[:, (rows != rows[:1]).any(axis=0)]
    return groups_of(np.zeros(len(rows), np.int64), *varying.T)


def sorted_groups(*columns: Any) -> tuple[Any, Any]:
    """Return a stable order of the rows by these columns, and where in it each group of equal rows begins."""
    order, is_new = _sorted(*_packed(columns))
    return order, np.flatnonzero(is_new)


def are_paired(is_first: Any, *columns: Any) -> bool:
    """Return whether the rows of a mask equal the other rows, one by one, in any order."""
    codes, _ = _packed(columns)
    return bool(np.array_equal(np.sort(codes[is_first]), np.sort(codes[~is_first])))


def _packed(columns: Sequence[Any]) -> tuple[Any, int]:
    """Return an integer for each row, in the order of the columns, and the limit of these integers."""
    arrays = [np.asarray(column) for column in columns]
    codes, span = np.zeros(len(arrays[0]), np.int64), 1
    for column in arrays if len(codes) else ():
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        width = high - low + 1
        if span * width > _LIMIT:
            codes, span = _numbered(codes, span)
        if span * width > _LIMIT:
            column, width = _numbered(column, width)
        codes = codes * width + (column.astype(np.int64) - column.min().astype(np.int64))
        span *= width
    return codes, span


def _numbered(values: Any, span: int) -> tuple[Any, int]:
    """Return the place of each value among the different ones, ascending, and their number."""
    if span <= _COUNTED * len(values):
        is_used = np.zeros(span, bool)
        is_used[values] = True
        place = np.cumsum(is_used) - 1
        return place[values], int(place[-1]) + 1
    order, is_new = _sorted(values, span)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, int(np.count_nonzero(is_new))


def _sorted(values: Any, span: int) -> tuple[Any, Any]:
    """Return a stable order of integers from 0 to below `span`, and whether a row of it has a new value."""
    if span <= 1 << 16:
        values = values.astype(np.uint16)  # sorted digit by digit
    order = np.argsort(values, kind="stable")
    is_new = np.ones(len(order), bool)
    np.not_equal(values[order[1:]], values[order[:-1]], out=is_new[1:])
    return order, is_new


def sums_of(of_row: Any, values: Any, count: int) -> Any:
    """Return the sums of values by the numbers of their groups, for `count` groups."""
    if np.asarray(values).dtype.kind == "f":
        return np.bincount(of_row, values, count)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, of_row, values)
    return sums


def equal_rows(first: Any, second: Any) -> Any:
    """Return which rows of two record arrays of one length are equal, field by field.

    NumPy's own comparison of whole records does not survive Ctrl-C: a segmentation fault, or another error.
    """
    return np.logical_and.reduce([first[name] == second[name] for name in first.dtype.names])


def in_order_of_first(values: Any) -> tuple[Any, Any]:
    """Return where each distinct value first occurs, ascending, and the number of every value there."""
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[number.reshape(-1)]
