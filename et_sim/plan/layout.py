"""The layout of a group on the machine: sides, along which collectives run as along dimensions.

Members are in rank order, so that those of one node, one rack and so on are neighbours. Where all nodes hold
equally many of them, members of equal place in their nodes make up lines, one for each place; so do nodes of
equal place in their racks. A side is the way along such lines. If the group is a sub-grid, these are lines of
the machine's dimensions, and the group is a machine of its own shape. Where nodes (or racks) hold different
numbers of members, one side goes through all of the members there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of_rows
from et_sim.machine.model import LogicalGrid

Ring = tuple[int, ...]  # places, in the order of the ring


class EqualLines(Struct, frozen=True):
    """Lines of equal length, of ranks or of members of a group."""

    dimension: int  # of the machine, whose algorithm and queues it uses: the outermost one that it covers
    stride: int  # distance between neighbours, in ranks or in places of the group
    members: int
    blocks: tuple[int, ...] = ()  # uneven: members of each node, one node after the other
    uneven: int = 0  # the dimension of the machine whose nodes these are

    @property
    def own_rings(self) -> int:
        """Return the number of rings that go through uneven nodes at once: the ports of the smallest node."""
        return min(self.blocks, default=0)


Layout = tuple[EqualLines, ...]  # innermost first


def sides_of_system(grid: LogicalGrid) -> Layout:
    """Return the sides of the machine itself: its dimensions."""
    pairs = zip(grid.strides, grid.dimensions, strict=True)
    return tuple(
        EqualLines(number, stride, dimension.npus) for number, (stride, dimension) in enumerate(pairs)
    )


def sides_of_group(grid: LogicalGrid, members: Any) -> Layout:
    """Return the sides of a group, whose members are in ascending order, without sides of one member."""
    sides: list[EqualLines] = []
    stride, finest, uneven = 1, np.zeros(0, np.int64), 0  # of uneven blocks below: members of each
    for number, first in zip(_outwards(grid), _first_of_blocks(grid, members), strict=True):
        sizes = np.diff(np.append(np.flatnonzero(first), len(members)))
        if not _are_alike(sizes, finest):
            finest, uneven = (finest, uneven) if len(finest) else (sizes, number)
            continue
        count = int(sizes[0]) // stride
        if count > 1:
            blocks = finest[: np.searchsorted(np.cumsum(finest), sizes[0]) + 1] // stride
            sides.append(
                EqualLines(number, stride, count, tuple(blocks.tolist()), uneven if len(blocks) else 0)
            )
        stride, finest = int(sizes[0]), finest[:0]
    return tuple(sides)


def classes_of_groups(grid: LogicalGrid, members: Any) -> Any:
    """Return a number for each group (a row of ascending members); equal numbers have equal sides."""
    first = np.concatenate(_first_of_blocks(grid, members), axis=1)
    if (first == first[:1]).all():
        return np.zeros(len(first), np.int64)
    return groups_of_rows(np.packbits(first, axis=1)).of_row


def rings_through(blocks: Sequence[int]) -> tuple[Ring, ...]:
    """Return rings that visit one node after the other, each of them by ports of its own.

    In ring r, a node is entered at its member r and left at the one before that, so that no two rings enter a
    node, or leave it, at the same member.
    """
    begins = [0, *accumulate(blocks)]
    return tuple(
        tuple(
            begin + (ring + place) % size
            for begin, size in zip(begins, blocks, strict=False)
            for place in range(size)
        )
        for ring in range(min(blocks))
    )


def _outwards(grid: LogicalGrid) -> list[int]:
    """Return the dimensions that have several NPUs; if there is none, the first."""
    return [number for number, dimension in enumerate(grid.dimensions) if dimension.npus > 1] or [0]


def _first_of_blocks(grid: LogicalGrid, members: Any) -> list[Any]:
    """Return for each of these dimensions which members are the first of a node, a rack, ... of it."""
    firsts = []
    for number in _outwards(grid):
        block = members // (grid.strides[number] * grid.dimensions[number].npus)
        first = np.ones(block.shape, np.bool_)
        first[..., 1:] = block[..., 1:] != block[..., :-1]
        firsts.append(first)
    return firsts


def _are_alike(sizes: Any, finest: Any) -> bool:
    """Return whether all blocks are equally large, and made of the same blocks below."""
    if (sizes != sizes[0]).any():
        return False
    if not len(finest) or len(sizes) == 1:
        return True
    per_block, rest = divmod(len(finest), len(sizes))
    return rest == 0 and bool((finest.reshape(-1, per_block) == finest[:per_block]).all())
