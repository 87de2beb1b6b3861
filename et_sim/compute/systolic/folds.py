"""How a layer is folded onto an array: what rows, columns and time carry, cycles, utilisation.

Column folds are outermost, folds do not overlap, and a fold that fills a part of the array takes as long
as one that fills it. Not here: memories.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt

from et_sim.compute.systolic.layer import SystolicLayer
from et_sim.machine.systolic import Array, Dataflow


@dataclass(frozen=True)
class Folds:
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
