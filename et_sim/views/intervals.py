"""Unions of intervals [start, end), for many owners at once: how long they are, how full they make a picture.

The owners' time axes are laid end to end, so that one sort serves all. Not here: which intervals matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST_AXIS = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals of owners 0, 1, …; sorted by owner and start, and no two of an owner touch."""

    owner: Any
    start: Any
    end: Any

    def lengths(self, owners: int) -> Any:
        """Per owner, how long one of its intervals is open."""
        total = np.zeros(owners, np.int64)
        np.add.at(total, self.owner, self.end - self.start)
        return total

    def shares(self, owners: int, columns: int, span: int) -> Any:
        """Per owner and column of time from 0 to `span`, how much of the column is open."""
        return filled(self.owner, self.start, self.end, 1.0, (owners, columns), span)


def filled(row: Any, start: Any, end: Any, weight: Any, shape: tuple[int, int], span: int) -> Any:
    """Per row and column of time from 0 to `span`, the weight of intervals over it, averaged."""
    rows, columns = shape
    growth = np.zeros((rows, columns + 2))
    for edge, sign in ((start, weight), (end, -weight)):
        at = np.clip(edge * (columns / span), 0, columns)
        column = np.minimum(at.astype(np.int64), columns)
        inside = column + 1 - at  # of the column itself; all of those after it
        np.add.at(growth, (row, column), sign * inside)
        np.add.at(growth, (row, column + 1), sign * (1 - inside))
    return np.maximum(np.cumsum(growth, axis=1)[:, :columns], 0)


def union(owner: Any, start: Any, end: Any) -> Intervals:
    """The union of intervals in any order; empty ones vanish."""
    some = end > start
    owner, start, end = owner[some], start[some], end[some]
    order = np.lexsort((start, owner))
    owner, start, end = owner[order], start[order], end[order]
    if not len(order):
        return Intervals(owner, start, end)
    number = np.cumsum(np.diff(owner, prepend=owner[0]) != 0)
    span = int(end.max()) + 1
    if span * (int(number[-1]) + 1) > LONGEST_AXIS:
        number = number.astype(object)  # Python's unbounded integers
    reached = np.maximum.accumulate(end + number * span)
    begins = np.append(True, (start + number * span)[1:] > reached[:-1])
    firsts = np.flatnonzero(begins)
    return Intervals(owner[firsts], start[firsts], np.maximum.reduceat(end, firsts))
