"""A layer as a systolic array sees it: a product of matrices whose first factor is cut from an image.

Row i of the first factor is the window of output pixel i, column j one value of that window. Windows may
overlap, so that one word of the image is several entries, and the last windows may reach beyond the image,
where there is nothing to read.

An array takes a layer in folds. Column folds are outermost, folds do not overlap, and a fold that fills a
part of the array takes as long as one that fills it. Not here: memories.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.machine.systolic import Array, Dataflow

Words = npt.NDArray[np.int64]


class Dimensions(NamedTuple):
    """What makes a layer, without its name: layers that agree in it take the same time."""

    ifmap_height: int
    ifmap_width: int
    filter_height: int
    filter_width: int
    channels: int
    filters: int
    stride_height: int
    stride_width: int


@dataclass(frozen=True, slots=True)
class SystolicLayer:
    """A convolution of one image without padding; a matrix product is a special case."""

    name: str
    dimensions: Dimensions
    place: str = field(default="", compare=False)  # where it is described

    @classmethod
    def product(cls, name: str, rows: int, columns: int, inner: int, *, place: str = "") -> SystolicLayer:
        """The product of `rows` x `inner` and `inner` x `columns`."""
        return cls(name, Dimensions(rows, inner, 1, inner, 1, columns, 1, 1), place)

    @property
    def output_height(self) -> int:
        """Rows of the output; the last one may be of windows that reach beyond the image."""
        size = self.dimensions
        return -((size.filter_height - size.ifmap_height) // size.stride_height) + 1

    @property
    def output_width(self) -> int:
        """Columns of the output."""
        size = self.dimensions
        return -((size.filter_width - size.ifmap_width) // size.stride_width) + 1

    @property
    def rows(self) -> int:
        """M: output pixels of one filter."""
        return self.output_height * self.output_width

    @property
    def columns(self) -> int:
        """N: filters."""
        return self.dimensions.filters

    @property
    def inner(self) -> int:
        """K: values of a window."""
        size = self.dimensions
        return size.filter_height * size.filter_width * size.channels

    @property
    def macs(self) -> int:
        """Multiplications, each with an addition."""
        return self.rows * self.columns * self.inner

    @property
    def is_plain(self) -> bool:
        """Whether every word of the image is in one window at most, and every window within the image."""
        return all(
            (outputs == 1 or stride >= window) and (outputs - 1) * stride + window <= image
            for outputs, stride, window, image in self._axes()
        )

    @property
    def image_words(self) -> int:
        """Words of the image that some window holds."""
        if self.is_plain:
            return self.rows * self.inner
        touched = [len(unique(places[places < image])) for places, image in self._places()]
        return touched[0] * touched[1] * self.dimensions.channels

    @property
    def window_words(self) -> int:
        """Entries of all windows that lie within the image."""
        if self.is_plain:
            return self.rows * self.inner
        held = [int((places < image).sum()) for places, image in self._places()]
        return held[0] * held[1] * self.dimensions.channels

    def _axes(self) -> tuple[tuple[int, int, int, int], ...]:
        size = self.dimensions
        return (
            (self.output_height, size.stride_height, size.filter_height, size.ifmap_height),
            (self.output_width, size.stride_width, size.filter_width, size.ifmap_width),
        )

    def _places(self) -> list[tuple[Words, int]]:
        """Along each axis, where the values of each window are, and how long the image is."""
        return [
            (np.arange(outputs)[:, None] * stride + np.arange(window), image)
            for outputs, stride, window, image in self._axes()
        ]

    @property
    def has_holes(self) -> bool:
        """Whether some windows reach beyond the image."""
        return any((outputs - 1) * stride + window > image for outputs, stride, window, image in self._axes())

    def corners(self) -> tuple[Words, Words]:
        """Row and column of the image where the window of each output pixel begins."""
        size = self.dimensions
        row, column = np.divmod(np.arange(self.rows), self.output_width)
        return row * size.stride_height, column * size.stride_width

    def offsets(self) -> tuple[Words, Words, Words]:
        """How far down and along each value of a window is, and its channel."""
        size = self.dimensions
        down, rest = np.divmod(np.arange(self.inner), size.filter_width * size.channels)
        return down, *np.divmod(rest, size.channels)


class Folds(Struct, frozen=True, dict=True):
    """`down` and `across` are what rows and columns carry, `steps` is what streams through."""

    down: int
    across: int
    steps: int
    height: int
    width: int
    dataflow: Dataflow

    @classmethod
    def of(cls, layer: SystolicLayer, array: Array) -> Folds:
        """Those of a layer on an array."""
        rows, columns, inner = layer.rows, layer.columns, layer.inner
        down, across, steps = {
            Dataflow.OUTPUT: (rows, columns, inner),
            Dataflow.WEIGHT: (inner, columns, rows),
            Dataflow.INPUT: (inner, rows, columns),
        }[array.dataflow]
        return cls(down, across, steps, array.height, array.width, array.dataflow)

    @cached_property
    def row_folds(self) -> int:
        """Folds of what rows carry."""
        return -(-self.down // self.height)

    @cached_property
    def column_folds(self) -> int:
        """Folds of what columns carry."""
        return -(-self.across // self.width)

    @cached_property
    def count(self) -> int:
        """All folds, in the order of which row folds are innermost."""
        return self.row_folds * self.column_folds

    @cached_property
    def load(self) -> int:
        """Cycles in which a fold's stationary operand enters the array."""
        return 0 if self.dataflow == Dataflow.OUTPUT else self.height

    @cached_property
    def cycles(self) -> int:
        """Of one fold: load, fill, stream and drain."""
        return self.load + self.height + self.width + self.steps - 2

    @cached_property
    def last_height(self) -> int:
        """Rows of the array that the last row fold uses."""
        return self.down - (self.row_folds - 1) * self.height

    @cached_property
    def last_width(self) -> int:
        """Columns of the array that the last column fold uses."""
        return self.across - (self.column_folds - 1) * self.width

    def height_of(self, fold: int) -> int:
        """Rows of the array that a row fold uses."""
        return self.height if fold < self.row_folds - 1 else self.last_height

    def width_of(self, fold: int) -> int:
        """Columns of the array that a column fold uses."""
        return self.width if fold < self.column_folds - 1 else self.last_width

    @property
    def mapping(self) -> float:
        """The mean share of the array that folds use."""
        return self.down * self.across / (self.count * self.height * self.width)

    def compute(self, is_corrected: bool) -> float:
        """The same over the cycles of a fold, of which SCALE-Sim counts some twice unless output stays."""
        doubled = 0 if is_corrected or self.dataflow == Dataflow.OUTPUT else self.width - 1
        return self.mapping * self.steps / (self.cycles + doubled)


def triangle(steps: int) -> int:
    """1 + 2 + … + steps; nothing for steps below 1."""
    return steps * (steps + 1) // 2 if steps > 0 else 0


def slanted_before(line: int, height: int, width: int) -> int:
    """Entries of a `height` x `width` block in the lines before `line`, if column c lags by c lines."""
    return triangle(line) - triangle(line - height) - triangle(line - width) + triangle(line - height - width)


def slanted_line(entry: int, height: int, width: int) -> int:
    """The line in which an entry of such a block is, counting line by line from 0."""
    short, size = min(height, width), height * width
    if entry < triangle(short):
        return (isqrt(8 * entry + 1) - 1) // 2
    if entry < size - triangle(short - 1):
        return short + (entry - triangle(short)) // short
    return height + width - 2 - (isqrt(8 * (size - 1 - entry) + 1) - 1) // 2
