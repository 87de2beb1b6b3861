"""Columns of a graph that are looked up when they are wanted, not kept.

What a node is called or how it is described stands in the columns of its call or of its work; copying that
to every node of a large graph would take more memory than the graph.

Not here: which columns there are (`rank`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converters.pytorch.nesting import NONE

Column = npt.NDArray[np.int64]


class Lookup:
    """A column by row: `lookup[rows]` are its entries, NONE where there is nothing.

    Each part is a column by row that names an entry of the values beside it, or NONE; `like` is any column
    by row.
    """

    def __init__(self, like: Any, *parts: tuple[Any, Any]) -> None:
        self._like = like
        self._parts = [(index, values) for index, values in parts if len(values)]
        self._further: Any = None

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, rows: Any) -> Any:
        """Entries of some rows, given as a slice, as numbers or as one number."""
        found = np.full(np.shape(self._like[rows]), NONE, np.int64)
        for index, values in self._parts:
            which = index[rows]
            found = np.where(which != NONE, values[which], found)
        if self._further is not None:
            found = np.where(found != NONE, self._further[found], NONE)
        return found

    def then(self, values: Any) -> Lookup:
        """What stands in further values where this column says."""
        if not len(values):
            return Lookup(self._like)
        further = Lookup(self._like, *self._parts)
        further._further = values
        return further


def taken(values: Any, index: Any) -> Column:
    """Entries of a column, NONE where the index is."""
    found: Column = Lookup(index, (index, values))[:]
    return found
