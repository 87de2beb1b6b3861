"""Trees: phases whose messages go up a tree to its root, down from it, or both.

`rooted_tree` serves the collectives without a choice of algorithm: reduce and gather (up), broadcast and
scatter (down), and barrier (up and down, a byte each way). The members are in the order of the group,
beginning with the root; it has two children, each the middle of one half of the others, and so on: a tree of
floor(log2 n) levels of messages, whose subtrees are blocks of neighbours.

Double binary tree: reduce up a tree to its root, then broadcast down it again. The root has one child, the
root of a balanced binary tree of all other members, numbered in order. There are two trees, with the root
numbered last or first; the phases of an actor alternate between them. As in the reference the whole chunk
goes over one tree, and every operation is done as an all-reduce, so that a phase leaves its size unchanged.
(The reference needs powers of two; here any number of members works.) Corrected, nothing is reduced on the
way down, and other operations use another algorithm (`algorithm`).

In-network: each member sends its data to a switch once, and the switch sends each member its result once. A
switch waits for a chunk's data from everything below it, then forwards the result: up to the next switch, and
from the topmost one down again, to every member over its own link. All-reduce goes up and down whole. In a
reduce-scatter, a member gets its piece; in an all-gather, the shards of all others. In a broadcast each
switch forwards at once, to all its neighbours except the sender.

The bytes between a switch and the members below it follow from their number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.collectives.program import Bytes, Phase, PhaseOperation, piece_bytes

IN_NETWORK_OPERATIONS = (
    PhaseOperation.ALL_REDUCE,
    PhaseOperation.REDUCE_SCATTER,
    PhaseOperation.ALL_GATHER,
    PhaseOperation.BROADCAST,
)


class InNetworkProgram(Struct, frozen=True):
    """The messages of `members` members and the switches above them in one phase.

    This many members send `up_fixed + up_each * members` bytes upwards, and get as many of the other two.
    """

    members: int
    root: int | None  # position of the only member that sends, and receives nothing; None: all do both
    up_fixed: int = 0
    up_each: int = 0
    down_fixed: int = 0
    down_each: int = 0


def in_network(phase: Phase) -> InNetworkProgram:
    """Return the program of one phase."""
    operation, members, size = phase.operation, phase.members, phase.size
    if operation is PhaseOperation.BROADCAST:
        return InNetworkProgram(members, phase.root, up_fixed=size, down_fixed=size)
    if operation is PhaseOperation.ALL_REDUCE:
        return InNetworkProgram(members, None, up_fixed=size, down_fixed=size)
    if operation is PhaseOperation.REDUCE_SCATTER:
        return InNetworkProgram(
            members, None, up_fixed=size, down_each=piece_bytes(operation, members, size, phase.fixes)
        )
    return InNetworkProgram(members, None, up_each=size, down_fixed=members * size, down_each=-size)


def double_binary_tree(phase: Phase) -> TreeProgram:
    """Return the double binary tree of one phase, for any operation."""
    members = phase.members
    trees = [hang(members, members - 1, [0], [members - 1]), hang(members, 0, [1], [members])]
    each = np.full(2 * members, phase.size, np.int64)
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
        reduces_down=not phase.fixes.tree_operations,
    )


Positions = npt.NDArray[np.int32]
NO_MEMBER = -1
BARRIER_BYTES = 1
GOES_UP = (PhaseOperation.REDUCE, PhaseOperation.GATHER, PhaseOperation.BARRIER)
GOES_DOWN = (PhaseOperation.BROADCAST, PhaseOperation.SCATTER, PhaseOperation.BARRIER)
BY_SUBTREE = (PhaseOperation.GATHER, PhaseOperation.SCATTER)


class Tree(Struct, frozen=True, eq=False):
    """Positions of parent and children, NO_MEMBER where there is none, and the size of each subtree."""

    parent: Positions
    left: Positions
    right: Positions
    subtree: Bytes  # members of the subtree, itself included


class TreeProgram(Struct, frozen=True, eq=False):
    """One tree or several end to end, of which the phases of an actor use one each in turn."""

    members: int
    parent: Positions
    left: Positions
    right: Positions
    up_bytes: Bytes  # bytes of each member to its parent; the root: its result
    down_bytes: Bytes  # bytes of each member from its parent; the root: its input
    goes_up: bool
    goes_down: bool
    reduces_up: bool  # a message from a child is charged a reduction
    reduces_down: bool = False  # a message from the parent is charged a reduction, unless a leaf receives it

    @property
    def trees(self) -> int:
        """Return the number of trees."""
        return len(self.parent) // self.members

    @property
    def messages(self) -> int:
        """Return the number of messages over each edge."""
        return int(self.goes_up) + int(self.goes_down)


def rooted_tree(phase: Phase) -> TreeProgram:
    """Return the tree of a collective with a root; the size is one member's share of a gather or scatter."""
    operation, members = phase.operation, phase.members
    half = (members + 2) // 2
    in_order = hang(members, 0, [1, half], [half, members])
    order = (phase.root + np.arange(members)) % members
    place = np.argsort(order)
    if operation is PhaseOperation.BARRIER:
        each = np.full(members, BARRIER_BYTES, np.int64)
    else:
        each = phase.size * (
            in_order.subtree[place] if operation in BY_SUBTREE else np.ones(members, np.int64)
        )
    return TreeProgram(
        members=members,
        parent=_renamed(in_order.parent[place], order),
        left=_renamed(in_order.left[place], order),
        right=_renamed(in_order.right[place], order),
        up_bytes=each,
        down_bytes=each,
        goes_up=operation in GOES_UP,
        goes_down=operation in GOES_DOWN,
        reduces_up=operation is PhaseOperation.REDUCE,
    )


def hang(members: int, root: int, low: list[int], high: list[int]) -> Tree:
    """Return a tree of blocks of positions from `low` to before `high` (one or two of them) below a root.

    The middle of a block is a child of the node above, and each side of it is a block again.
    """
    parent, left, right = (np.full(members, NO_MEMBER, np.int32) for _ in range(3))
    subtree = np.full(members, members, np.int64)
    first, last = np.array(low), np.array(high)
    above, is_left = np.full(len(low), root), np.arange(len(low)) == 0
    while len(first):
        real = first < last
        first, last, above, is_left = first[real], last[real], above[real], is_left[real]
        middle = (first + last) // 2
        parent[middle], subtree[middle] = above, last - first
        left[above[is_left]], right[above[~is_left]] = middle[is_left], middle[~is_left]
        first, last = np.concatenate((first, middle + 1)), np.concatenate((middle, last))
        above = np.concatenate((middle, middle))
        is_left = np.arange(len(first)) < len(middle)
    return Tree(parent, left, right, subtree)


def _renamed(positions: Positions, names: npt.NDArray[np.int64]) -> Positions:
    return np.where(positions == NO_MEMBER, NO_MEMBER, names[positions]).astype(np.int32)


def subtree_places(members: int, place: int) -> range:
    """Return the places, counted from the root, of the subtree of the member at one of them."""
    if place == 0:
        return range(members)
    half = (members + 2) // 2
    first, last = (1, half) if place < half else (half, members)
    while (middle := (first + last) // 2) != place:
        first, last = (first, middle) if place < middle else (middle + 1, last)
    return range(first, last)
