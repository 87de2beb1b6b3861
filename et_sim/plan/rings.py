"""Rings whose order the system file gives: an axis of its own for each ring of a dimension.

A position along such an axis is a place in the ring. Chunks take turns among the rings of a dimension. Groups
that are a part of the system know nothing of them: their rings go as the group is listed.

Not here: what a ring does (`et_sim.collectives.ring`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from et_sim.plan.tables import NO_ORDER


class RingAxes:
    """Numbers the axes of rings, from `first` on, by dimension."""

    def __init__(self, rings: tuple[tuple[tuple[int, ...], ...], ...], first: int) -> None:
        self._rings = rings
        self._first = first
        self.dimension_of = [d for d, rings in enumerate(self._rings) for _ in rings]

    def count(self, dimensions: list[int]) -> int:
        """After how many chunks those that cross these dimensions are on the same rings again."""
        return math.lcm(*(max(len(self._rings[d]), 1) for d in dimensions)) if self._rings else 1

    def axis(self, dimension: int, turn: int) -> int:
        """The axis of a chunk along a dimension: its ring's, or that of the dimension itself."""
        if not self._rings or not self._rings[dimension]:
            return dimension
        first = self._first + self.dimension_of.index(dimension)
        return first + turn % len(self._rings[dimension])

    def order(self, axis: int) -> tuple[int, ...]:
        """The places around the ring of one of these axes."""
        dimension = self.dimension_of[axis - self._first]
        return self._rings[dimension][axis - self._first - self.dimension_of.index(dimension)]

    def is_ring(self, axis: int) -> bool:
        """Whether it is one of these axes."""
        return self._first <= axis < self._first + len(self.dimension_of)

    def dimension(self, axis: int) -> int:
        """The dimension along which an axis goes, if it is one of these; else the axis."""
        return self.dimension_of[axis - self._first] if self.is_ring(axis) else axis

    def fill(self, axes: Any) -> Any:
        """Say in the axis table where orders begin; returns the orders: places by position, and back."""
        orders = [np.zeros(0, np.int64)]
        axes["order_first"] = NO_ORDER
        row = self._first
        for ring in (np.array(ring) for rings in self._rings for ring in rings):
            axes["order_first"][row] = sum(len(one) for one in orders)
            orders += [ring, np.argsort(ring)]
            row += 1
        return np.concatenate(orders).astype(np.int32)
