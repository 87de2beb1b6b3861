"""Double binary tree: reduce up a tree to its root, then broadcast down it again.

The root has one child, the root of a balanced binary tree of all other members, numbered in order. There
are two variants, with the root numbered last or first; the phases of an actor alternate between them. As in
the reference the whole chunk goes over one tree, and every operation is done as an all-reduce, so that a
phase leaves its size unchanged. (The reference needs powers of two; here any number of members works.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int32]
NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class TreeProgram:
    """Both variants end to end: root last, then root first. Positions of parent and children."""

    members: int
    message_bytes: int
    parent: Positions
    left: Positions
    right: Positions


def double_binary_tree(members: int, size: int) -> TreeProgram:
    """The trees of `members` members that exchange messages of `size` bytes."""
    variants = [_tree(members, members - 1, 0), _tree(members, 0, 1)]
    parent, left, right = (np.concatenate(column) for column in zip(*variants, strict=True))
    return TreeProgram(members, size, parent, left, right)


def _tree(members: int, root: int, first: int) -> tuple[Positions, Positions, Positions]:
    """A root with a balanced tree of positions first … first + members - 2 below it."""
    parent, left, right = (np.full(members, NOBODY, np.int32) for _ in range(3))
    pending = [(first, first + members - 1, root, left)]
    while pending:
        low, high, above, side = pending.pop()
        if low < high:
            middle = (low + high) // 2
            parent[middle], side[above] = above, middle
            pending += [(low, middle, middle, left), (middle + 1, high, middle, right)]
    return parent, left, right
