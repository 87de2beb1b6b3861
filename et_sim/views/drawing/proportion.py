"""Which slices are shown where there is no room for all: of each stratum its share, the longest first.

A stratum is a rank, a kind of nodes and a part of the window. Each has the share of what is shown that it has
of all, and one slice at least, as far as there is room: no rank, kind or time stands for the others.

Not here: where slices come from (`visible_nodes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.run.selection import Window

MOST_PARTS = 64  # of a window
LEAST_EACH = 4  # slices of a stratum, on average
AT_ONCE = 1 << 18  # slices that are taken before some are let go


@dataclass(frozen=True, slots=True)
class Strata:
    """The numbers of strata: of so many places, kinds and parts of a window."""

    window: Window
    places: int
    kinds: int
    parts: int

    @classmethod
    def within(cls, window: Window, places: int, kinds: int, limit: int) -> Strata:
        """As many parts of the window as leave several slices to each stratum."""
        parts = limit // max(LEAST_EACH * places * kinds, 1)
        return cls(window, places, kinds, min(max(parts, 1), MOST_PARTS))

    def __len__(self) -> int:
        return self.places * self.kinds * self.parts

    def of(self, place: Any, kind: Any, start_ns: Any) -> Any:
        """The stratum of each slice; what began before the window is in its first part."""
        first, last = self.window
        width = max(-(-(last - first) // self.parts), 1)
        part = np.clip((start_ns - first) // width, 0, self.parts - 1)
        return (place * self.kinds + kind) * self.parts + part


def share_out(counts: Any, limit: int) -> Any:
    """How many of each stratum are shown, `limit` in all: in proportion, one at least if there is room."""
    there = (counts > 0).astype(np.int64)
    total, strata = int(counts.sum()), int(there.sum())
    if total <= limit:
        return counts
    if strata >= limit:
        return _portions(there, limit)
    return there + _portions(counts - there, limit - strata)


def _portions(counts: Any, limit: int) -> Any:
    """Whole numbers in proportion, none above its count, that add up to the limit."""
    up_to = np.append(0, np.cumsum(counts))
    return np.diff(up_to * limit // up_to[-1])


class InProportion:
    """The longest slices of each stratum, of slices that come row by row; of those alike, the first."""

    def __init__(self, quotas: Any) -> None:
        self._quotas = quotas
        limit = int(quotas.sum())
        self._room = limit + max(limit // 4, AT_ONCE)
        self._kept: list[tuple[Any, ...]] = []  # stratum, place, row, how long
        self._size = 0
        self._least = np.full(len(quotas), -1)  # how long what comes must at least be

    def add(self, stratum: Any, place: Any, row: Any, took: Any) -> None:
        """Take slices of rows after all those before."""
        better = np.flatnonzero((took > self._least[stratum]) & (self._quotas[stratum] > 0))
        stratum = stratum.astype(np.int32)
        self._kept.append((stratum[better], place[better], row[better], took[better]))
        self._size += len(better)
        if self._size > self._room:
            self._let_go()

    def _let_go(self) -> None:
        stratum, place, row, took = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((row, -took, stratum))
        number = np.arange(len(order)) - np.searchsorted(stratum[order], stratum[order])
        quota = self._quotas[stratum[order]]
        last = order[number == quota - 1]
        self._least[stratum[last]] = took[last]
        order = np.sort(order[number < quota])
        self._kept = [(stratum[order], place[order], row[order], took[order])]
        self._size = len(order)

    def chosen(self) -> list[tuple[Any, Any]]:
        """Places and rows, in the order in which they came."""
        if self._kept:
            self._let_go()
        return [(place, row) for _, place, row, _ in self._kept]
