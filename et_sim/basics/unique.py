"""The different values of an array, sorted.

Sorting integers is several times faster than the hash table of `np.unique`, which also imports `numpy.ma`.
Not here: where they stand and how often they occur, which `np.unique` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def unique(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Each value once."""
    ordered = np.sort(np.asarray(values), axis=None)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def unique_rows(*columns: npt.ArrayLike) -> npt.NDArray[Any]:
    """Each combination of values once, a row of the result for each."""
    rows = np.stack([np.asarray(column) for column in columns], axis=1)
    rows = rows[np.lexsort(rows.T[::-1])]
    is_new = np.ones(len(rows), bool)
    np.any(rows[1:] != rows[:-1], axis=1, out=is_new[1:])
    return rows[is_new]
