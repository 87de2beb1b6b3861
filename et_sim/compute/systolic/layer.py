"""A layer as a systolic array sees it: a product of matrices whose first factor is cut from an image.

Row i of the first factor is the window of output pixel i, column j one value of that window. Windows may
overlap, so that one word of the image is several entries, and the last windows may reach beyond the image,
where there are no words.

An array takes a layer in folds. Column folds are outermost, folds do not overlap, and a fold that fills a
part of the array takes as long as one that fills it.
"""

from __future__ import annotations

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
    """The sizes of a layer: layers with equal sizes take the same time."""

    ifmap_height: int
    ifmap_width: int
    filter_height: int
    filter_width: int
    channels: int
    filters: int
    stride_height: int
    stride_width: int


class SystolicLayer(Struct, frozen=True):
    """A convolution of one image without padding; a matrix product is a special case."""

    name: str
    dimensions: Dimensions
    place: str = ""  # its place in a file

    @classmethod
    def product(cls, name: str, rows: int, columns: int, inner: int, *, place: str = "") -> SystolicLayer:
        """Return the product of `rows` x `inner` and `inner` x `columns`."""
        return cls(name, Dimensions(rows, inner, 1, inner, 1, columns, 1, 1), place)

    @property
    def output_height(self) -> int:
        """Return the rows of the output; windows of the last one may reach beyond the image."""
        size = self.dimensions
        return -((size.filter_height - size.ifmap_height) // size.stride_height) + 1

    @property
    def output_width(self) -> int:
        """Return the columns of the output."""
        size = self.dimensions
        return -((size.filter_width - size.ifmap_width) // size.stride_width) + 1

    @property
    def rows(self) -> int:
        """Return M: the output pixels of one filter."""
        return self.output_height * self.output_width

    @property
    def columns(self) -> int:
        """Return N: the filters."""
        return self.dimensions.filters

    @property
    def inner(self) -> int:
        """Return K: the values of a window."""
        size = self.dimensions
        return size.filter_height * size.filter_width * size.channels

    @property
    def macs(self) -> int:
        """Return the multiplications, each with an addition."""
        return self.rows * self.columns * self.inner

    @property
    def is_plain(self) -> bool:
        """Check whether every word is in at most one window, and every window within the image."""
        return all(
            (outputs == 1 or stride >= window) and (outputs - 1) * stride + window <= image
            for outputs, stride, window, image in self._axes()
        )

    @property
    def image_words(self) -> int:
        """Return the words of the image that windows hold."""
        if self.is_plain:
            return self.rows * self.inner
        touched = [len(unique(places[places < image])) for places, image in self._places()]
        return touched[0] * touched[1] * self.dimensions.channels

    @property
    def window_words(self) -> int:
        """Return the entries of all windows that lie within the image."""
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
        """Return the positions of the values of each window along each axis, and the length of the image."""
        return [
            (np.arange(outputs)[:, None] * stride + np.arange(window), image)
            for outputs, stride, window, image in self._axes()
        ]

    @property
    def has_holes(self) -> bool:
        """Check whether some windows reach beyond the image."""
        return any((outputs - 1) * stride + window > image for outputs, stride, window, image in self._axes())

    def corners(self) -> tuple[Words, Words]:
        """Return the row and column of the image at which the window of each output pixel begins."""
        size = self.dimensions
        row, column = np.divmod(np.arange(self.rows), self.output_width)
        return row * size.stride_height, column * size.stride_width

    def offsets(self) -> tuple[Words, Words, Words]:
        """Return the row, column and channel of each value within a window."""
        size = self.dimensions
        down, rest = np.divmod(np.arange(self.inner), size.filter_width * size.channels)
        return down, *np.divmod(rest, size.channels)


class Folds(Struct, frozen=True, dict=True):
    """The folds of a layer: `down` and `across` lie on rows and columns, `steps` stream through."""

    down: int
    across: int
    steps: int
    height: int
    width: int
    dataflow: Dataflow

    @classmethod
    def of(cls, layer: SystolicLayer, array: Array) -> Folds:
        """Return the folds of a layer on an array."""
        rows, columns, inner = layer.rows, layer.columns, layer.inner
        down, across, steps = {
            Dataflow.OUTPUT: (rows, columns, inner),
            Dataflow.WEIGHT: (inner, columns, rows),
            Dataflow.INPUT: (inner, rows, columns),
        }[array.dataflow]
        return cls(down, across, steps, array.height, array.width, array.dataflow)

    @cached_property
    def row_folds(self) -> int:
        """Return the folds over the rows."""
        return -(-self.down // self.height)

    @cached_property
    def column_folds(self) -> int:
        """Return the folds over the columns."""
        return -(-self.across // self.width)

    @cached_property
    def count(self) -> int:
        """Return the number of folds, of which row folds are innermost."""
        return self.row_folds * self.column_folds

    @cached_property
    def load(self) -> int:
        """Return the cycles in which a fold's stationary operand enters the array."""
        return 0 if self.dataflow == Dataflow.OUTPUT else self.height

    @cached_property
    def cycles(self) -> int:
        """Return the cycles of one fold: load, fill, stream and drain."""
        return self.load + self.height + self.width + self.steps - 2

    @cached_property
    def last_height(self) -> int:
        """Return the rows of the array that the last row fold uses."""
        return self.down - (self.row_folds - 1) * self.height

    @cached_property
    def last_width(self) -> int:
        """Return the columns of the array that the last column fold uses."""
        return self.across - (self.column_folds - 1) * self.width

    def height_of(self, fold: int) -> int:
        """Return the rows of the array that a row fold uses."""
        return self.height if fold < self.row_folds - 1 else self.last_height

    def width_of(self, fold: int) -> int:
        """Return the columns of the array that a column fold uses."""
        return self.width if fold < self.column_folds - 1 else self.last_width

    @property
    def mapping(self) -> float:
        """Return the mean share of the array that folds use."""
        return self.down * self.across / (self.count * self.height * self.width)

    def compute(self, is_corrected: bool) -> float:
        """Return that share over the cycles of a fold; SCALE-Sim counts some twice unless output stays."""
        doubled = 0 if is_corrected or self.dataflow == Dataflow.OUTPUT else self.width - 1
        return self.mapping * self.steps / (self.cycles + doubled)


def triangle(steps: int) -> int:
    """Return 1 + 2 + … + steps; zero for steps below 1."""
    return steps * (steps + 1) // 2 if steps > 0 else 0


def slanted_before(line: int, height: int, width: int) -> int:
    """Return the entries of a `height` x `width` block before `line`; column c lags by c lines."""
    return triangle(line) - triangle(line - height) - triangle(line - width) + triangle(line - height - width)


def slanted_line(entry: int, height: int, width: int) -> int:
    """Return the line of an entry of such a block, counting line by line from 0."""
    short, size = min(height, width), height * width
    if entry < triangle(short):
        return (isqrt(8 * entry + 1) - 1) // 2
    if entry < size - triangle(short - 1):
        return short + (entry - triangle(short)) // short
    return height + width - 2 - (isqrt(8 * (size - 1 - entry) + 1) - 1) // 2
