"""The stream of an image whose windows overlap, or reach beyond it.

One word is then several entries, far apart, and some entries are missing, so there is no closed form for the
words of a memory: entries are laid out fold by fold, but only if the image does not fit into its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.compute.systolic.layer import Folds, SystolicLayer
from et_sim.compute.systolic.streams import OperandStream, PhaseEnds, WordWindow
from et_sim.machine.systolic import Dataflow

Entries = npt.NDArray[np.int32]
BEYOND = -1  # the entry is beyond the image
Some = slice


class Windows(Struct, frozen=True):
    """The windows of an image: an entry is the sum of its window's start and its offset in the window."""

    has_holes: bool
    height: int
    width: int
    pixels: Entries
    values: Entries
    pixel_row: Entries
    pixel_column: Entries
    value_row: Entries
    value_column: Entries

    @classmethod
    def of(cls, layer: SystolicLayer) -> Windows:
        """Return the windows of a layer."""
        size = layer.dimensions
        row, column = layer.corners()
        down, along, channel = layer.offsets()
        parts = (
            (row * size.ifmap_width + column) * size.channels,
            (down * size.ifmap_width + along) * size.channels + channel,
            *(row, column, down, along),
        )
        figures = (part.astype(np.int32) for part in parts)
        return cls(layer.has_holes, size.ifmap_height, size.ifmap_width, *figures)

    def block(self, pixels: Some, values: Some) -> Entries:
        """Return the words of some entries by pixel and value; BEYOND outside the image."""
        words: Entries = self.pixels[pixels, None] + self.values[None, values]
        if self.has_holes:
            words[~self.inside(pixels, values)] = BEYOND
        return words

    def inside(self, pixels: Some, values: Some) -> npt.NDArray[np.bool_]:
        """Return whether entries lie within the image, by pixel and value."""
        row = self.pixel_row[pixels, None] + self.value_row[None, values]
        column = self.pixel_column[pixels, None] + self.value_column[None, values]
        inside: npt.NDArray[np.bool_] = (row < self.height) & (column < self.width)
        return inside


MOST_ENTRIES = 1 << 26  # most entries of one pass that are kept
MOST_ASKED, MOST_AT_ONCE = 1 << 32, 1 << 27  # most entries of all passes, and of a fold
_LEAST_BLOCK, _MOST_BLOCK, _MOST_COUNTED = 256, 1 << 16, 1 << 14
_SEARCHES = 16  # searches through the whole list before it is sorted


class Overlapping(Struct, frozen=True, dict=True):
    """The image of a layer; `plain` is its stream if every entry were a word of its own."""

    layer: SystolicLayer
    folds: Folds
    plain: OperandStream

    @cached_property
    def words(self) -> int:
        return self.layer.image_words

    @cached_property
    def listed(self) -> int:
        return self.layer.window_words

    @property
    def padded(self) -> int:
        return self.plain.padded

    @property
    def first_line(self) -> int:
        return self.plain.first_line

    @cached_property
    def last_line(self) -> int:
        if not self.layer.has_holes:
            return self.plain.last_line
        fold = self._of_pass - 1
        while not (lines := np.flatnonzero((self._block(fold) != BEYOND).any(axis=1))).size:
            fold -= 1
        last = (self._passes - 1) * self._of_pass + fold
        return last * self.folds.cycles + self._begin + int(lines[-1])

    def line_of(self, entry: int) -> int:
        if not self.layer.has_holes:
            return self.plain.line_of(entry)
        again, entry = divmod(entry, self.listed)
        fold = int(np.searchsorted(self._ends, entry, side="right"))
        counts = np.cumsum(np.count_nonzero(self._block(fold) != BEYOND, axis=1))
        line = int(np.searchsorted(counts, entry - (self._ends[fold - 1] if fold else 0), side="right"))
        return (again * self._of_pass + fold) * self.folds.cycles + self._begin + line

    def phases(self, most: int) -> PhaseEnds:
        if most > self.words:
            return PhaseEnds((), self.words)
        self._refuse_endless()
        counter = _Counter(self._image, most)
        for _ in range(self._passes):
            for fold in range(self._of_pass):
                counter.add(self._entries(fold))
        return PhaseEnds(tuple(counter.ends), counter.held)

    def slides(self, window: WordWindow) -> Iterator[tuple[int, int]]:
        if window.is_whole:
            return
        if self.listed > MOST_ENTRIES:
            raise InputError(
                f"layer {self.layer.name} has {self.listed:,} entries of overlapping windows, and they do not"
                " fit into the ifmap's memory",
                place=self.layer.place,
                remedy=f"SCALE-Sim's rules are for {MOST_ENTRIES:,} at most: use corrected rules, or give the"
                " product of its windows",
            )
        asked = np.concatenate([self._entries(fold) for fold in range(self._of_pass)])
        buffer = _Buffer(self._fetched(), self._image, window)
        at, size, total = 0, _LEAST_BLOCK, len(asked) * self._passes
        while at < total:
            place = at % len(asked)
            is_held = buffer.is_held[asked[place : place + size]]
            missing = int(np.argmin(is_held))
            if is_held[missing]:
                at += len(is_held)
                size = min(2 * size, _MOST_BLOCK)
                continue
            at += missing
            yield self.line_of(at), buffer.reach(int(asked[at % len(asked)]))
            size = _LEAST_BLOCK

    def _refuse_endless(self) -> None:
        """Refuse layers that would take minutes, or more memory than machines have."""
        asked = self.listed * self._passes
        at_once = self.folds.height * (self.folds.width if self._is_held else self.folds.steps)
        if asked > MOST_ASKED or at_once > MOST_AT_ONCE:
            raise InputError(
                f"layer {self.layer.name} reads {asked:,} words of overlapping windows, up to"
                f" {at_once:,} in a fold, and its image does not fit into the memory",
                place=self.layer.place,
                remedy=f"the limits are {MOST_ASKED:,} and {MOST_AT_ONCE:,}: give the product of its"
                " windows instead, or a larger memory",
            )

    @property
    def _is_held(self) -> bool:
        return self.folds.dataflow == Dataflow.INPUT

    @property
    def _passes(self) -> int:
        return 1 if self._is_held else self.folds.column_folds

    @property
    def _of_pass(self) -> int:
        """Return the folds of a pass over the image."""
        return self.folds.count if self._is_held else self.folds.row_folds

    @property
    def _begin(self) -> int:
        """Return the first line of a fold's block."""
        return 0 if self._is_held else self.folds.load

    @property
    def _image(self) -> int:
        size = self.layer.dimensions
        return size.ifmap_height * size.ifmap_width * size.channels

    @cached_property
    def _windows(self) -> Windows:
        return Windows.of(self.layer)

    @cached_property
    def _kept(self) -> dict[int, Entries]:
        return {}

    def _entries(self, fold: int) -> Entries:
        """Return the words that the array reads in a fold, in order."""
        kept = self._kept.get(fold)
        if kept is None:
            block = self._block(fold)
            kept = block[block != BEYOND]
            if self.listed <= MOST_ENTRIES and self._passes > 1:
                self._kept[fold] = kept
        return kept

    @cached_property
    def _last_block(self) -> dict[int, Entries]:
        return {}

    def _block(self, fold: int) -> Entries:
        """Return the words that the array reads in a fold, by line and column."""
        if fold not in self._last_block:
            self._last_block.clear()
            self._last_block[fold] = self._held(fold) if self._is_held else slanted(self._upright(fold))
        return self._last_block[fold]

    def _upright(self, fold: int) -> Entries:
        """Return the words of a fold by step and column, before columns lag."""
        first = fold * self.folds.height
        fold_rows, all_of_them = slice(first, first + self.folds.height), slice(None)
        if self.folds.dataflow == Dataflow.OUTPUT:
            return self._windows.block(fold_rows, all_of_them).T
        return self._windows.block(all_of_them, fold_rows)

    def _held(self, fold: int) -> Entries:
        column, row = divmod(fold, self.folds.row_folds)
        pixels = slice(column * self.folds.width, (column + 1) * self.folds.width)
        values = slice(row * self.folds.height, (row + 1) * self.folds.height)
        block = self._windows.block(pixels, values).T[::-1]
        unused = np.full((self.folds.height - len(block), block.shape[1]), BEYOND, np.int32)
        return np.concatenate([unused, block])

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        """Return the number of entries of a pass up to the end of each fold."""
        counts = [np.count_nonzero(self._block(fold) != BEYOND) for fold in range(self._of_pass)]
        return np.cumsum(counts)

    def _fetched(self) -> Entries:
        """Return the list of words in the order of fetching."""
        folds, parts = self.folds, []
        if self._is_held:
            for column in range(folds.column_folds):
                pixels = slice(column * folds.width, (column + 1) * folds.width)
                block = self._windows.block(pixels, slice(None)).T
                parts.append(block[block != BEYOND])
            return np.concatenate(parts)
        stack = np.full((folds.row_folds * folds.steps, folds.height), BEYOND, np.int32)
        for fold in range(folds.row_folds):
            block = self._upright(fold)
            stack[fold * folds.steps : (fold + 1) * folds.steps, : block.shape[1]] = block
        lines = slanted(stack)
        listed: Entries = lines[lines != BEYOND]
        return listed


def slanted(block: Entries) -> Entries:
    """Return the columns with column c delayed by c lines."""
    height, width = block.shape
    lines = np.full((height + width - 1, width), BEYOND, np.int32)
    size = lines.itemsize
    view = np.lib.stride_tricks.as_strided(lines, block.shape, (width * size, (width + 1) * size))
    view[...] = block
    return lines


class _Counter:
    """A counter that cuts a stream after every `most` different words."""

    def __init__(self, image: int, most: int) -> None:
        self.ends: list[range] = []
        self.held = 0
        self._most = most
        self._seen_in = np.zeros(image, np.int32)
        self._first_at = np.empty(image, np.int32)
        self._at = self._begin = 0
        self._usual = 2 * most

    def add(self, entries: Entries) -> None:
        """Add the next entries of the stream."""
        place = 0
        while place < len(entries):
            size = max(self._usual - (self._at - self._begin), _LEAST_BLOCK)
            batch = entries[place : place + min(size, _MOST_COUNTED)]
            at = np.flatnonzero(self._seen_in[batch] != len(self.ends) + 1)
            words = batch[at]
            numbers = np.arange(len(words), dtype=np.int32)
            self._first_at[words[::-1]] = numbers[::-1]
            is_new = self._first_at[words] == numbers
            count = int(np.count_nonzero(is_new))
            taken = len(batch)
            if self.held + count < self._most:
                self._seen_in[words] = len(self.ends) + 1
                self.held += count
                self._at += taken
            else:
                taken = int(at[is_new][self._most - self.held - 1]) + 1
                self._at += taken
                self.ends.append(range(self._at - 1, self._at))
                self._usual = (self._at - self._begin) * 17 // 16
                self._begin, self.held = self._at, 0
            place += taken


class _Buffer:
    """The words of an image that a window over the list holds."""

    def __init__(self, fetched: Entries, image: int, window: WordWindow) -> None:
        self._fetched, self._window = fetched, window
        self.is_held = np.zeros(image, np.bool_)
        self._sorted: tuple[Entries, npt.NDArray[np.int64]] | None = None
        self._searches = 0
        self._mark(True)

    def reach(self, word: int) -> int:
        """Slide until the window holds a word, and return the number of steps."""
        self._mark(False)
        window = self._window
        ahead = (window.start + window.held) % window.sets
        if any(np.any(entries == word) for entries in self._entries(ahead, window.step)):
            steps = 1
        else:
            steps = min(self._steps_to(int(entry) // window.set_words) for entry in self._places(word))
        window.slide(steps)
        self._mark(True)
        return steps

    def _mark(self, is_held: bool) -> None:
        for entries in self._entries(self._window.start, self._window.held):
            self.is_held[entries] = is_held

    def _entries(self, first: int, count: int) -> list[Entries]:
        """Return the words of `count` sets, wrapping around at the end of the list."""
        size, beyond = self._window.set_words, first + count - self._window.sets
        parts = [self._fetched[first * size : (first + count) * size]]
        return [*parts, self._fetched[: beyond * size]] if beyond > 0 else parts

    def _steps_to(self, wanted: int) -> int:
        away = (wanted - self._window.start) % self._window.sets
        return (away - self._window.held) // self._window.step + 1

    def _places(self, word: int) -> Entries | npt.NDArray[np.int64]:
        """Return the positions of a word in the list."""
        self._searches += 1
        if self._searches <= _SEARCHES:
            return np.flatnonzero(self._fetched == word)
        if self._sorted is None:
            order = np.argsort(self._fetched, kind="stable").astype(np.int32)
            ends = np.cumsum(np.bincount(self._fetched, minlength=len(self.is_held)))
            self._sorted = order, ends
        order, ends = self._sorted
        return order[ends[word - 1] if word else 0 : ends[word]]
