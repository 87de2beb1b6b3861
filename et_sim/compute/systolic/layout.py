"""Where the lines of a streamed operand's blocks are in the order of fetching.

All blocks stand under one another, and are fetched by diagonals. Those of neighbouring blocks mix, so that
the lines of a block are neither together nor, seen over blocks, in order; but each line is together, and
within a block they ascend. Not here: which block the array is at (`streams`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from et_sim.compute.systolic.sliding import Window

_AT_ONCE, _MOST_KEPT = 1 << 16, 1 << 21  # lines
Lines = npt.NDArray[np.int64]


@dataclass(slots=True)
class Layout:
    """Of so many blocks of `height` steps. The last may be narrower; those far from the ends are alike."""

    height: int
    width: int
    last_width: int
    blocks: int
    _known: dict[tuple[int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    _kept: int = 0

    def slides(self, block: int, window: Window) -> Iterator[tuple[int, int]]:
        """Where the window has to slide during a visit to a block: lines, and by how many steps."""
        alike = self._alike(block)
        shift = (block - alike) * self.height * self.width
        lines = self.height + self._width(alike) - 1
        for first in range(0, lines, _AT_ONCE):
            begins, ends = self._lines(alike, first, min(first + _AT_ONCE, lines))
            line, last = 0, window.set_of(ends[-1] - 1 + shift)
            at = window.set_of(begins[0] + shift)
            while True:
                steps = window.reach(at)
                if steps:
                    yield first + line, steps
                missing = window.next_missing(at)
                if missing > last:
                    break
                entry = missing * window.set_words - shift
                line = bisect_right(ends, entry)
                at = window.set_of(max(begins[line], entry) + shift)

    def _width(self, block: int) -> int:
        return self.width if block < self.blocks - 1 else self.last_width

    def _alike(self, block: int) -> int:
        margin = -(-self.width // self.height) + 1
        return margin if margin < block < self.blocks - 1 - margin else block

    def _lines(self, block: int, first: int, end: int) -> tuple[list[int], list[int]]:
        """Where some lines of a block begin and end."""
        known = self._known.get((block, first))
        if known is None:
            begins = self._begins(block, np.arange(first, end))
            lines = np.arange(first, end)
            sizes = np.minimum(lines + 1, self._width(block)) - np.maximum(lines - self.height + 1, 0)
            known = begins.tolist(), (begins + sizes).tolist()
            if self._kept < _MOST_KEPT:
                self._kept += end - first
                self._known[block, first] = known
        return known

    def _begins(self, block: int, lines: Lines) -> Lines:
        tall, narrow = self.blocks * self.height, self.last_width
        diagonals, left = block * self.height + lines, np.maximum(lines - self.height + 1, 0)
        found: Lines = _before(diagonals, tall, narrow)
        found += np.maximum(np.minimum(left, narrow) - np.maximum(diagonals - tall + 1, 0), 0)
        if narrow < self.width:  # the last block lacks the other columns
            low = tall - self.height
            found += _before(diagonals - narrow, low, self.width - narrow)
            found += np.maximum(left - np.maximum(diagonals - low + 1, narrow), 0)
        return found


def _before(lines: Lines, height: int, width: int) -> Lines:
    """Entries of a `height` x `width` block in the lines before each, if column c lags by c lines."""
    return _open_before(lines, width) - _open_before(lines - height, width)


def _open_before(lines: Lines, width: int) -> Lines:
    """The same of a block without end; neither branch leaves 64 bits."""
    short = np.clip(lines, 0, width)
    return np.where(lines < width, short * (short + 1) // 2, width * lines - width * (width - 1) // 2)
