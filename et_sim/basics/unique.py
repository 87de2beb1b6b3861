"""Different values of an array, sorted; and groups of equal rows of columns, with their sums.

Sorting integers is several times faster than the hash table of `np.unique`, which also imports `numpy.ma`.
Sums of integers are exact. Sums of fractions are taken in the order of rows, so that they do not depend on
blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct


def unique(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return each value once."""
    ordered = np.sort(np.asarray(values), axis=None)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def unique_rows(*columns: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return each combination of values once, as rows."""
    rows = np.stack([np.asarray(column) for column in columns], axis=1)
    rows = rows[np.lexsort(rows.T[::-1])]
    is_new = np.ones(len(rows), bool)
    np.any(rows[1:] != rows[:-1], axis=1, out=is_new[1:])
    return rows[is_new]


class Groups(Struct, frozen=True, eq=False):
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


def groups_of(*columns: Any) -> Groups:
    """Return the groups of rows that are equal in all of these columns of integers."""
    order, begin = sorted_groups(*columns)
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.repeat(np.arange(len(begin)), np.diff(np.append(begin, len(order))))
    return Groups(order[begin], of_row)


def sorted_groups(*columns: Any) -> tuple[Any, Any]:
    """Return a stable order of the rows by these columns, and where in it each group of equal rows begins."""
    arrays = [np.asarray(column) for column in columns]
    varying = [column for column in arrays if len(column) and (column != column[0]).any()]
    order = np.lexsort(varying[::-1]) if varying else np.arange(len(arrays[0]))
    is_new = np.arange(len(order)) == 0
    for column in varying:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(is_new)


def sums_of(of_row: Any, values: Any, count: int) -> Any:
    """Return the sums of values by the numbers of their groups, for `count` groups."""
    if np.asarray(values).dtype.kind == "f":
        return np.bincount(of_row, values, count)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, of_row, values)
    return sums
