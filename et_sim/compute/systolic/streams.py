"""The order in which an array reads the words of an operand, without a list of them.

A stream counts its entries, each one read of a word, and computes the line of each: the cycle of the array
without stalls. `phases` cuts it after a number of different words; `slides` moves a window over the order in
which the words are fetched. Both are closed forms per fold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from et_sim.compute.systolic.layer import Folds, slanted_before, slanted_line
from et_sim.machine.systolic import Dataflow


class WordWindow:
    """SCALE-Sim's double buffer for reads: a window that slides over the list of words to fetch.

    The list is cut into sets of a hundredth of the memory. The active half of the memory is a window of sets.
    When the array reads a word outside the window, it moves on by the size of the other half, around the
    list, until it holds the word.
    """

    __slots__ = ("held", "set_words", "sets", "start", "step")

    def __init__(self, listed: int, memory_words: int) -> None:
        active = -(-memory_words // 2)
        self.set_words = -(-memory_words // 100)
        self.sets = listed // self.set_words + 1  # the last may be empty
        self.held = min(-(-active // self.set_words), self.sets)
        self.step = min(-(-(memory_words - active) // self.set_words), self.sets - self.held)
        self.start = 0

    @property
    def is_whole(self) -> bool:
        """Check whether it holds the whole list."""
        return self.sets == self.held

    def set_of(self, entry: int) -> int:
        """Return the set of an entry of the list."""
        return entry // self.set_words

    def reach(self, wanted: int) -> int:
        """Slide until it holds this set, and return the number of steps."""
        away = (wanted - self.start) % self.sets
        if away < self.held:
            return 0
        steps = (away - self.held) // self.step + 1
        self.slide(steps)
        return steps

    def slide(self, steps: int) -> None:
        """Move on."""
        self.start = (self.start + steps * self.step) % self.sets

    def next_missing(self, held: int) -> int:
        """Return the first set after a held one that it does not hold."""
        return held + self.held - (held - self.start) % self.sets

    def holds(self, begin: int, end: int) -> bool:
        """Check whether it holds these entries."""
        first = self.set_of(begin)
        return (first - self.start) % self.sets + self.set_of(end - 1) - first < self.held

    def take(self, begin: int, end: int) -> int:
        """Slide while these entries are read one after the other, and return the number of steps."""
        at, last, steps = self.set_of(begin), self.set_of(end - 1), 0
        while at <= last:
            steps += self.reach(at)
            at = self.next_missing(at)
        return steps


_AT_ONCE, _MOST_KEPT = 1 << 16, 1 << 21  # lines
Lines = npt.NDArray[np.int64]


class LineLayout(Struct):
    """The positions of the lines of blocks of `height` steps in the order of fetching.

    All blocks lie one below another, and are fetched by diagonals. Diagonals of neighbouring blocks mix, so
    that the lines of a block are not contiguous; but each line is, and within a block they ascend. The last
    block may be narrower; blocks far from the ends are equal.
    """

    height: int
    width: int
    last_width: int
    blocks: int
    _known: dict[tuple[int, int], tuple[list[int], list[int]]] = field(default_factory=dict)
    _kept: int = 0

    def slides(self, block: int, window: WordWindow) -> Iterator[tuple[int, int]]:
        """Yield the slides of the window during a visit to a block: the line, and the number of steps."""
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
        """Return the entries at which some lines of a block begin and end."""
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
        begins: Lines = _before(diagonals, tall, narrow)
        begins += np.maximum(np.minimum(left, narrow) - np.maximum(diagonals - tall + 1, 0), 0)
        if narrow < self.width:  # the last block lacks the other columns
            low = tall - self.height
            begins += _before(diagonals - narrow, low, self.width - narrow)
            begins += np.maximum(left - np.maximum(diagonals - low + 1, narrow), 0)
        return begins


def _before(lines: Lines, height: int, width: int) -> Lines:
    """Return the entries of a `height` x `width` block in the lines before each; column c lags by c lines."""
    return _open_before(lines, width) - _open_before(lines - height, width)


def _open_before(lines: Lines, width: int) -> Lines:
    """Return the same for a block without end; neither branch overflows 64 bits."""
    short = np.clip(lines, 0, width)
    return np.where(lines < width, short * (short + 1) // 2, width * lines - width * (width - 1) // 2)


class PhaseEnds(Struct, frozen=True):
    """The entries that complete phases, and the different words after the last phase."""

    ends: tuple[range, ...]
    rest: int

    def __len__(self) -> int:
        return sum(map(len, self.ends))

    def __iter__(self) -> Iterator[int]:
        for phase_ends in self.ends:
            yield from phase_ends

    @property
    def last(self) -> int:
        """Return the entry that completes the last phase."""
        return self.ends[-1][-1]


class OperandStream(Protocol):
    """The view of an operand that memories need."""

    @property
    def words(self) -> int:
        """Return the number of different words."""

    @property
    def listed(self) -> int:
        """Return the length of the list in the order of fetching."""

    @property
    def padded(self) -> int:
        """Return that length with the entries of unused rows and columns of the array."""

    @property
    def first_line(self) -> int:
        """Return the line of the first entry."""

    @property
    def last_line(self) -> int:
        """Return the line of the last entry."""

    def line_of(self, entry: int) -> int:
        """Return the line of an entry."""

    def phases(self, most: int) -> PhaseEnds:
        """Cut the stream after every `most` different words."""

    def slides(self, window: WordWindow) -> Iterator[tuple[int, int]]:
        """Yield the slides of a window: ascending lines, and numbers of steps."""


def _cut(entries: int, words: int, most: int) -> PhaseEnds:
    """Return the phases of a stream that repeats the same different words in the same order."""
    if most > words:
        return PhaseEnds((), words)
    ends = range(most - 1, entries, most)
    return PhaseEnds((ends,) if ends else (), entries % most)


class Slanted(Struct, frozen=True):
    """An operand that streams: blocks of `height` steps, column c of a block lags by c lines.

    The array visits one block after the other, `visits` times over, or, if `is_held`, each block `visits`
    times before the next.
    """

    height: int
    width: int
    last_width: int
    blocks: int
    visits: int
    is_held: bool
    start: int  # first line within a fold
    fold_cycles: int

    @property
    def words(self) -> int:
        return self.height * ((self.blocks - 1) * self.width + self.last_width)

    @property
    def listed(self) -> int:
        return self.words

    @property
    def padded(self) -> int:
        return self.height * self.blocks * self.width

    @property
    def first_line(self) -> int:
        return self.start

    @property
    def last_line(self) -> int:
        folds = self.blocks * self.visits
        return (folds - 1) * self.fold_cycles + self.start + self.height + self.last_width - 2

    def line_of(self, entry: int) -> int:
        if self.is_held:
            block = min(entry // (self.height * self.width * self.visits), self.blocks - 1)
            size = self.height * self._width(block)
            again, entry = divmod(entry - block * self.height * self.width * self.visits, size)
            fold = block * self.visits + again
        else:
            again, entry = divmod(entry, self.words)
            block = min(entry // (self.height * self.width), self.blocks - 1)
            entry -= block * self.height * self.width
            fold = again * self.blocks + block
        return fold * self.fold_cycles + self.start + slanted_line(entry, self.height, self._width(block))

    def phases(self, most: int) -> PhaseEnds:
        if not self.is_held:
            return _cut(self.words * self.visits, self.words, most)
        ends: list[range] = []
        held = before = 0
        for block in range(self.blocks):
            size = self.height * self._width(block)
            after = before + size * self.visits
            if held + size < most:
                held += size
            else:
                first = before + most - held - 1
                ends.append(range(first, after if most <= size else first + 1, most))
                held = min(after - 1 - ends[-1][-1], size)
            before = after
        return PhaseEnds(tuple(ends), held)

    def slides(self, window: WordWindow) -> Iterator[tuple[int, int]]:
        if window.is_whole:
            return
        layout = LineLayout(self.height, self.width, self.last_width, self.blocks)
        for fold in range(self.blocks * self.visits):
            block = fold // self.visits if self.is_held else fold % self.blocks
            for line, steps in layout.slides(block, window):
                yield fold * self.fold_cycles + self.start + line, steps

    def _width(self, block: int) -> int:
        return self.width if block < self.blocks - 1 else self.last_width


class HeldOperand(Struct, frozen=True):
    """An operand that stays in the array: each fold's block enters once, its last row first."""

    folds: Folds

    @property
    def words(self) -> int:
        return self.folds.down * self.folds.across

    @property
    def listed(self) -> int:
        return self.words

    @property
    def padded(self) -> int:
        return self.folds.down * self.folds.column_folds * self.folds.width

    @property
    def first_line(self) -> int:
        return self.folds.height - self.folds.height_of(0)

    @property
    def last_line(self) -> int:
        return (self.folds.count - 1) * self.folds.cycles + self.folds.height - 1

    def line_of(self, entry: int) -> int:
        folds = self.folds
        column = min(entry // (folds.down * folds.width), folds.column_folds - 1)
        entry -= column * folds.down * folds.width
        width = folds.width_of(column)
        row = min(entry // (folds.height * width), folds.row_folds - 1)
        line = folds.height - folds.height_of(row) + (entry - row * folds.height * width) // width
        return (column * folds.row_folds + row) * folds.cycles + line

    def phases(self, most: int) -> PhaseEnds:
        return _cut(self.words, self.words, most)

    def slides(self, window: WordWindow) -> Iterator[tuple[int, int]]:
        if window.is_whole:
            return
        folds = self.folds
        for fold in range(folds.count):
            column, row = divmod(fold, folds.row_folds)
            width, height = folds.width_of(column), folds.height_of(row)
            begin = column * folds.down * folds.width + row * folds.height * width
            if window.holds(begin, begin + height * width):
                continue
            for line in range(height):
                first = begin + (height - 1 - line) * width
                steps = window.take(first, first + width)
                if steps:
                    yield fold * folds.cycles + folds.height - height + line, steps


class Written(Struct, frozen=True, dict=True):
    """The words that leave the array: also slanted, but never read again."""

    folds: Folds

    @cached_property
    def entries(self) -> int:
        """Return all writes: a product is written once per fold that adds to it."""
        return self.folds.across * self._of_column

    @property
    def first_line(self) -> int:
        return self._begin(0)

    @property
    def last_line(self) -> int:
        return self.folds.count * self.folds.cycles - (self.folds.width - self.folds.last_width) - 1

    def line_of(self, entry: int) -> int:
        """Return the line of an entry."""
        folds = self.folds
        column = min(entry // (self._of_column * folds.width), folds.column_folds - 1)
        entry -= column * self._of_column * folds.width
        width = folds.width_of(column)
        row = min(entry // (self._usual_height * width), folds.row_folds - 1)
        entry -= row * self._usual_height * width
        line = self._begin(row) + slanted_line(entry, self._height(row), width)
        return (column * folds.row_folds + row) * folds.cycles + line

    def before(self, line: int) -> int:
        """Return the number of entries in the lines before this one."""
        folds = self.folds
        fold, line = divmod(line, folds.cycles)
        column, row = divmod(fold, folds.row_folds)
        if column >= folds.column_folds:
            return self.entries
        width = folds.width_of(column)
        whole = column * self._of_column * folds.width + row * self._usual_height * width
        line -= self._begin(row)
        return whole if line <= 0 else whole + slanted_before(line, self._height(row), width)

    @cached_property
    def _is_once(self) -> bool:
        return self.folds.dataflow == Dataflow.OUTPUT

    @cached_property
    def _usual_height(self) -> int:
        return self.folds.height if self._is_once else self.folds.steps

    @cached_property
    def _last_height(self) -> int:
        return self.folds.last_height if self._is_once else self.folds.steps

    @cached_property
    def _of_column(self) -> int:
        """Return the entries of one column."""
        return self.folds.down if self._is_once else self.folds.steps * self.folds.row_folds

    def _height(self, row: int) -> int:
        return self._usual_height if row < self.folds.row_folds - 1 else self._last_height

    def _begin(self, row: int) -> int:
        folds = self.folds
        return folds.steps - 1 + folds.height - self._height(row) if self._is_once else 2 * folds.height - 1
