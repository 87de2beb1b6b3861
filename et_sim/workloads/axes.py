"""Named axes: the places of ranks in a plan of parallelism, and their groups.

    axes = Axes(tensor=8, data=16, pipeline=4)

The first axis is the innermost one: its ranks are neighbours. `split` replaces some axes by others with the
same ranks, as experts are spread over the ranks of tensor and data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import plural
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import MOST_RANKS


class RankAxis(NamedTuple):
    """The number of places along an axis, and their distance in ranks."""

    size: int
    stride: int


class Axes:
    """Ranks by their places along axes."""

    def __init__(self, /, **sizes: int) -> None:
        self._all: dict[str, RankAxis] = {}
        self._own = tuple(sizes)
        self.ranks = self._add(sizes, 1)
        if self.ranks > MOST_RANKS:
            raise UsageError(f"{self.ranks:,} ranks are too many", remedy=f"plan at most {MOST_RANKS:,}")

    def _add(self, sizes: Mapping[str, int], stride: int) -> int:
        """Add neighbouring axes, and return the stride of a next one."""
        for name, size in sizes.items():
            if name in self._all:
                raise UsageError(f"there are two axes called {name!r}", remedy="give each its own name")
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise UsageError(f"axis {name!r} has {size!r} places", remedy="give a number from 1 up")
            self._all[name] = RankAxis(size, stride)
            stride *= size
        return stride

    def split(self, *names: str, **sizes: int) -> Axes:
        """Return the same ranks with further axes, which together replace some neighbouring ones."""
        if not names:
            raise UsageError(
                "split requires an axis",
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
                f"{text} are {prod(sizes.values())} places, but the axes have {plural(total, 'rank')}",
                remedy=f"choose sizes whose product is {total}",
            )
        return axes

    def __getitem__(self, name: str) -> RankAxis:
        if name not in self._all:
            remedy = did_you_mean(name, tuple(self._all)) or f"known: {', '.join(self._all)}"
            raise UsageError(f"there is no axis {name!r}", remedy=remedy)
        return self._all[name]

    def __str__(self) -> str:
        parts = [f"{name} {self._all[name].size}" for name in self._own if self._all[name].size > 1]
        return " x ".join(parts) or "one rank"

    def size(self, *names: str) -> int:
        """Return the number of ranks that differ only in their places along these axes."""
        return prod(self[name].size for name in names)

    def place(self, name: str, rank: Any) -> Any:
        """Return the place of a rank, or of each of an array of ranks."""
        axis = self[name]
        return rank // axis.stride % axis.size

    def sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return axes from the innermost one."""
        return tuple(sorted(names, key=lambda name: (self[name].stride, self[name].size)))

    def rule(self, *names: str) -> GroupRule:
        """Return the groups of ranks that differ only in their places along these axes."""
        axes = sorted((self[name] for name in names), key=lambda axis: (axis.stride, axis.size))
        return GroupRule(tuple(axis.size for axis in axes), tuple(axis.stride for axis in axes))

    def rule_of_ends(self, name: str) -> GroupRule:
        """Return the groups of the first and the last rank along an axis."""
        axis = self[name]
        return GroupRule(2, (axis.size - 1) * axis.stride, every=axis.size * axis.stride)
