"""Named axes: where a rank stands in a plan of parallelism, and who is in one group with it.

    axes = Axes(tensor=8, data=16, pipeline=4)

The first axis is the innermost one: its ranks are neighbours. `split` gives ranks further names, along axes
that stand in place of some of the others, as experts are spread over the ranks of tensor and data.

Not here: what ranks do (`rank`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import plural
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import MOST_RANKS


class Axis(NamedTuple):
    """Places along an axis, which are so many ranks apart."""

    size: int
    stride: int


class Axes:
    """Ranks by their places along axes."""

    def __init__(self, /, **sizes: int) -> None:
        self._all: dict[str, Axis] = {}
        self._own = tuple(sizes)
        self.ranks = self._add(sizes, 1)
        if self.ranks > MOST_RANKS:
            raise UsageError(f"{self.ranks:,} ranks are too many", remedy=f"plan at most {MOST_RANKS:,}")

    def _add(self, sizes: Mapping[str, int], stride: int) -> int:
        """Take in neighbouring axes; how far apart places of a next one would be."""
        for name, size in sizes.items():
            if name in self._all:
                raise UsageError(f"there are two axes called {name!r}", remedy="give each its own name")
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise UsageError(f"axis {name!r} has {size!r} places", remedy="give a number from 1 up")
            self._all[name] = Axis(size, stride)
            stride *= size
        return stride

    def split(self, *names: str, **sizes: int) -> Axes:
        """The same ranks with further axes, which together stand for some neighbouring ones."""
        if not names:
            raise UsageError(
                "no axis is named that is to be split",
                remedy=f"name some of {', '.join(self._all) or 'the axes'} before the new sizes",
            )
        old = sorted((self[name] for name in names), key=lambda axis: (axis.stride, axis.size))
        first, total = old[0].stride, prod(axis.size for axis in old)
        reached = first
        for axis in old:
            if axis.stride != reached:
                raise UsageError(
                    f"the axes {', '.join(names)} are not neighbours",
                    remedy="split axes that follow each other",
                )
            reached *= axis.size
        axes = Axes()
        axes.ranks, axes._own = self.ranks, self._own
        axes._all = dict(self._all)
        axes._add(sizes, first)
        if prod(sizes.values()) != total:
            text = " x ".join(f"{name} {size}" for name, size in sizes.items()) or "no sizes"
            raise UsageError(
                f"{text} are {prod(sizes.values())} places, and {plural(total, 'rank')} are to be split",
                remedy=f"choose sizes whose product is {total}",
            )
        return axes

    def __getitem__(self, name: str) -> Axis:
        if name not in self._all:
            remedy = did_you_mean(name, tuple(self._all)) or f"known: {', '.join(self._all)}"
            raise UsageError(f"there is no axis {name!r}", remedy=remedy)
        return self._all[name]

    def __str__(self) -> str:
        parts = [f"{name} {self._all[name].size}" for name in self._own if self._all[name].size > 1]
        return " x ".join(parts) or "one rank"

    def size(self, *names: str) -> int:
        """How many ranks differ only in their places along these axes."""
        return prod(self[name].size for name in names)

    def place(self, name: str, rank: Any) -> Any:
        """The place of a rank, or of each of an array of ranks."""
        axis = self[name]
        return rank // axis.stride % axis.size

    def sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Axes from the innermost one."""
        return tuple(sorted(names, key=lambda name: (self[name].stride, self[name].size)))

    def rule(self, *names: str) -> GroupRule:
        """The groups of ranks that differ only in their places along these axes."""
        axes = sorted((self[name] for name in names), key=lambda axis: (axis.stride, axis.size))
        return GroupRule(tuple(axis.size for axis in axes), tuple(axis.stride for axis in axes))

    def rule_of_ends(self, name: str) -> GroupRule:
        """The groups of the first and the last rank along an axis."""
        axis = self[name]
        return GroupRule(2, (axis.size - 1) * axis.stride, every=axis.size * axis.stride)
