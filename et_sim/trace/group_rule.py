"""Communicator groups by arithmetic: the members of a rank's group, without a list of groups.

All functions of a rank also accept an array of ranks, so that a million of them cost what numpy costs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from et_sim.basics.errors import TraceError
from et_sim.documents.keys import key
from et_sim.documents.kinds import COUNT_OR_COUNTS
from et_sim.documents.kinds import count as counted

NO_GROUP = -1  # group and position of a rank in no group
Axes = tuple[tuple[int, int], ...]  # (size, stride), innermost first
_FORM = "give size and stride as whole numbers from 1, or as lists with one for each axis"


class GroupRule(Struct, frozen=True):
    """Groups with `size` members that are `stride` ranks apart, from the first rank to the last.

    With 16 ranks, size 4 and stride 1 makes 0-3, 4-7, …; stride 4 makes 0,4,8,12; 1,5,9,13; ….

    Members may lie along several axes, each with its size and stride, innermost first: size (2, 2) and stride
    (1, 8) makes 0,1,8,9; 2,3,10,11; …. Positions in the group count along the first axis first. Each stride
    is a multiple of the size times the stride before it.

    The pattern repeats every `every` ranks, of which the number of ranks must be a multiple. The default is
    the size times the stride of the last axis, and then every rank is in a group. With a smaller `every`,
    only groups that end before it exist: size 2, stride 6 and every 8 makes 0,6; 1,7; 8,14; 9,15, and ranks
    2-5 and 10-13 are in none.

    Axes that continue each other are merged, and axes of size 1 beside others are dropped, so that equal
    groups have equal rules.
    """

    size: int | tuple[int, ...] = key(
        COUNT_OR_COUNTS, "Members of a group, or those along each axis.", minimum=1, required=True
    )
    stride: int | tuple[int, ...] = key(
        COUNT_OR_COUNTS, "The distance of members in ranks, or one for each axis.", 1, minimum=1
    )
    every: int = counted(
        "The number of ranks after which the pattern repeats.", 0, minimum=1
    )  # 0: where axes end
    count: int = 0  # members of a group
    axes: Axes = ()
    _last: int = 0  # distance from the first to the last member
    _block_groups: int = 0  # in `every` ranks

    def __post_init__(self) -> None:
        axes = _merged(_checked_axes(self.size, self.stride))
        end, last = axes[-1][0] * axes[-1][1], sum((size - 1) * stride for size, stride in axes)
        every = _checked_every(self.every, end, last)
        if not last:  # in groups of one, the distance has no effect
            axes = ((1, every),)
        groups = every - last  # possible first members, before inner axes are divided out
        for size, stride in reversed(axes):
            groups = groups // (size * stride) * stride + min(groups % (size * stride), stride)
        sizes, strides = zip(*axes, strict=True)
        for name, value in (
            ("size", sizes if len(axes) > 1 else sizes[0]),
            ("stride", strides if len(axes) > 1 else strides[0]),
            ("every", every),
            ("count", int(np.prod(sizes, dtype=np.int64))),
            ("axes", axes),
            ("_last", last),
            ("_block_groups", groups),
        ):
            force_setattr(self, name, value)

    @property
    def has_all(self) -> bool:
        """Return whether every rank is in a group."""
        return self.count * self._block_groups == self.every

    def has(self, rank: Any) -> Any:
        """Return whether a rank, or each of an array of ranks, is in a group."""
        return self._begin(rank) + self._last < self.every

    def first(self, rank: Any) -> Any:
        """Return the lowest member of the group of a rank, or of each of an array of ranks."""
        begin = self._begin(rank)
        return self._if_any(begin, rank // self.every * self.every + begin)

    def position(self, rank: Any) -> Any:
        """Return the position of a rank, or of each of an array of ranks, in its group."""
        place, before = 0 * rank, 1
        for size, stride in self.axes:
            place = place + rank % self.every // stride % size * before
            before *= size
        return self._if_any(self._begin(rank), place)

    def index(self, rank: Any) -> Any:
        """Return the index of the group of a rank, or of each of an array of ranks, by lowest member
        from 0.
        """
        begin = at = self._begin(rank)
        for size, stride in reversed(self.axes):
            at = at // (size * stride) * stride + at % stride
        return self._if_any(begin, rank // self.every * self._block_groups + at)

    def members(self, rank: int) -> Sequence[int]:
        """Return all members of the rank's group, in the order of their positions; empty if it is in none."""
        if not self.has(rank):
            return ()
        first = self.first(rank)
        if len(self.axes) == 1:
            (size, stride), *_ = self.axes
            return range(first, first + size * stride, stride)
        steps = (range(0, size * stride, stride) for size, stride in reversed(self.axes))
        return tuple(first + sum(step) for step in product(*steps))

    def number(self, ranks: int) -> int:
        """Return the number of groups of this many ranks."""
        return ranks // self.every * self._block_groups

    def groups(self, ranks: int) -> Any:
        """Return the members of every group of this many ranks, a row each."""
        begin = np.arange(self.every - self._last)
        begin = begin[self._begin(begin) == begin]
        firsts = (np.arange(0, ranks, self.every)[:, None] + begin).reshape(-1)
        steps = np.zeros(1, np.int64)
        for size, stride in self.axes:
            steps = (np.arange(size)[:, None] * stride + steps).reshape(-1)
        return firsts[:, None] + steps

    def as_written(self) -> dict[str, Any]:
        """Return the rule as a manifest holds it."""
        written: dict[str, Any] = {"size": self.size, "stride": self.stride}
        return written if self.has_all else {**written, "every": self.every}

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.as_written().items())

    @property
    def apart(self) -> str:
        """Return the distances in words: `8 apart`, `8 and 64 apart`, `48 apart in every 64 ranks`."""
        anew = "" if self.has_all else f" in every {self.every:,} ranks"
        return f"{' and '.join(f'{stride:,}' for _, stride in self.axes)} apart{anew}"

    def _begin(self, rank: Any) -> Any:
        """Return the first possible member of the group of a rank, relative to its pattern."""
        begin = within = rank % self.every
        for size, stride in self.axes:
            begin = begin - within // stride % size * stride
        return begin

    def _if_any(self, begin: Any, value: Any) -> Any:
        """Return the value where a group begins there, elsewhere NO_GROUP."""
        return value if self.has_all else (value - NO_GROUP) * (begin + self._last < self.every) + NO_GROUP


def _checked_axes(size: Any, stride: Any) -> Axes:
    sizes, strides = _whole_numbers("size", size), _whole_numbers("stride", stride)
    if len(sizes) != len(strides):
        raise TraceError(
            f"size {size} has {len(sizes)} axes and stride {stride} has {len(strides)}",
            remedy="give both for each axis, innermost first",
        )
    given = tuple(zip(sizes, strides, strict=True))
    axes = tuple(pair for pair in given if pair[0] > 1) or given[:1]
    for (inner, apart), (_, outer) in pairwise(axes):
        if outer % (inner * apart):
            raise TraceError(
                f"stride {outer} is no multiple of {inner * apart}, size times stride of the axis before it",
                remedy="give axes innermost first, none of which lies across another",
            )
    return axes


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    try:
        values = tuple(map(operator.index, given if isinstance(given, (tuple, list)) else (given,)))
    except TypeError:
        raise TraceError(f"{name} is {given!r}", remedy=_FORM) from None
    if not values or min(values) < 1:
        raise TraceError(f"{name} is {given!r}", remedy=_FORM)
    return values


def _merged(axes: Axes) -> Axes:
    """Merge each axis with the next if that continues it."""
    merged = [axes[0]]
    for size, stride in axes[1:]:
        inner, apart = merged[-1]
        if stride == inner * apart:
            merged[-1] = inner * size, apart
        else:
            merged.append((size, stride))
    return tuple(merged)


def _checked_every(every: Any, end: int, last: int) -> int:
    """Return the number of ranks after which the pattern repeats."""
    if not isinstance(every, int) or every < 0:
        raise TraceError(f"every is {every!r}", remedy="give a whole number, or leave it out")
    if every == 0:
        return end
    if not last < every <= end and last:
        raise TraceError(
            f"every is {every}, and groups span {last + 1} ranks in patterns of {end}",
            remedy=f"give a number from {last + 1} to {end}, or leave it out: every rank is in a group then",
        )
    return every
