"""Double binary tree: reduce up a tree to its root, then broadcast down it again.

The root has one child, the root of a balanced binary tree of all other members, numbered in order. There
are two trees, with the root numbered last or first; the phases of an actor alternate between them. As in
the reference the whole chunk goes over one tree, and every operation is done as an all-reduce, so that a
phase leaves its size unchanged. (The reference needs powers of two; here any number of members works.)
Mended, nothing is reduced on the way down, and other operations use another algorithm (`algorithm`).
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import CostFixes
from et_sim.collectives.tree import TreeProgram, hang


def double_binary_tree(members: int, size: int, fixes: CostFixes) -> TreeProgram:
    """The trees of `members` members that exchange messages of `size` bytes."""
    trees = [hang(members, members - 1, [0], [members - 1]), hang(members, 0, [1], [members])]
    each = np.full(2 * members, size, np.int64)
    return TreeProgram(
        members=members,
        parent=np.concatenate([tree.parent for tree in trees]),
        left=np.concatenate([tree.left for tree in trees]),
        right=np.concatenate([tree.right for tree in trees]),
        up_bytes=each,
        down_bytes=each,
        goes_up=True,
        goes_down=True,
        reduces_up=True,
        reduces_down=not fixes.tree_operations,
    )
