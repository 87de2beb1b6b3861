"""The data that the messages of a collective algorithm carry.

The data of a group is cut into equal pieces: parts of the vector (all-reduce, reduce-scatter), the members'
shards (all-gather), or one block per pair of members (all-to-all, block origin * members + destination).
Piece p of a reduce-scatter is the piece that member p ends with. A double binary tree moves the vector as one
piece, and does every operation as an all-reduce. A tree with a root carries the vector as one piece (reduce,
broadcast), the members' shares (gather, scatter), or the arrivals of members (barrier).

Invariant: `load` depends on nothing but its arguments, so that schedules can be checked by moving data along
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from et_sim.collectives.algorithm import Algorithm
from et_sim.collectives.halving_doubling import circulant_inward, pairs_inward, uses_pairs
from et_sim.collectives.program import AS_REFERENCE, CostFixes, PhaseOperation
from et_sim.collectives.schedule import UP
from et_sim.collectives.trees import BY_SUBTREE, subtree_places

REDUCED = (
    PhaseOperation.ALL_REDUCE,
    PhaseOperation.REDUCE_SCATTER,
    PhaseOperation.REDUCE,
    PhaseOperation.BARRIER,
)
ROOT_BEGINS = (PhaseOperation.BROADCAST, PhaseOperation.SCATTER)
ROOT_ENDS = (PhaseOperation.REDUCE, PhaseOperation.GATHER)


class MessagePieces(Struct, frozen=True):
    """The pieces of one message, and whether its target adds them to its own."""

    pieces: Sequence[int]
    reduces: bool


class Movement(Struct, frozen=True):
    """Data before, during and after a collective of `members` members."""

    family: str
    operation: PhaseOperation
    members: int
    root: int = 0

    @property
    def pieces(self) -> int:
        """Return the number of pieces into which the data is cut."""
        if self._is_whole:
            return 1
        return self.members**2 if self.operation is PhaseOperation.ALL_TO_ALL else self.members

    @property
    def _is_whole(self) -> bool:
        of_tree = self.family == "tree" and self.operation not in BY_SUBTREE
        return of_tree or self.family == "doubleBinaryTree"

    def before(self, member: int) -> range:
        """Return the pieces to which a member contributes."""
        if self.operation in ROOT_BEGINS:
            return range(self.pieces if member == self.root else 0)
        if self.operation in (PhaseOperation.ALL_GATHER, PhaseOperation.GATHER):
            return range(member, member + 1)
        if self.operation is PhaseOperation.ALL_TO_ALL:
            return range(member * self.members, (member + 1) * self.members)
        return range(self.pieces)

    def after(self, member: int) -> range:
        """Return the pieces that a member must have at the end."""
        if self.operation in ROOT_ENDS:
            return range(self.pieces if member == self.root else 0)
        if self.operation in (PhaseOperation.REDUCE_SCATTER, PhaseOperation.SCATTER):
            return range(member, member + 1)
        if self.operation is PhaseOperation.ALL_TO_ALL:
            return range(member, self.pieces, self.members)
        return range(self.pieces)

    @property
    def reducing_steps(self) -> int:
        """Return the number of steps that add their pieces; these come first."""
        if self.operation not in REDUCED:
            return 0
        if self.family in ("tree", "doubleBinaryTree"):
            return UP + 1
        return len(self._inward) if self.family == "halvingDoubling" else self.members - 1

    def load(self, source: int, target: int, step: int) -> MessagePieces:
        """Return the load of the message of one step."""
        pieces: Sequence[int]
        if self._is_whole:
            pieces = range(1)
        elif self.family == "tree":
            pieces = self._subtree(source if step == UP else target)
        elif self.family == "ring":
            pieces = self._ring(source, step)
        elif self.family == "direct":
            pieces = self._direct(source, target, step)
        elif uses_pairs(self.members):
            pieces = self._in_pairs(source, target, step)
        else:
            pieces = self._around_a_circulant(source, step)
        return MessagePieces(pieces, step < self.reducing_steps)

    def _subtree(self, member: int) -> list[int]:
        places = subtree_places(self.members, (member - self.root) % self.members)
        return [(self.root + place) % self.members for place in places]

    def _ring(self, source: int, step: int) -> range:
        """Return the piece received last, first the member's own; a relay forwards pieces for others."""
        if self.operation is PhaseOperation.ALL_TO_ALL:
            return self._relayed(source, step)
        if step < self.reducing_steps:
            return _one((source - 1 - step) % self.members)
        return _one((source - step % (self.members - 1)) % self.members)

    def _relayed(self, source: int, step: int) -> range:
        """Return blocks of the member itself for all others, then blocks of the one before it that go
        further, …
        """
        behind, left = 0, step
        while left >= self.members - 1 - behind:
            left -= self.members - 1 - behind
            behind += 1
        origin = (source - behind) % self.members
        return _one(origin * self.members + (source + 1 + left) % self.members)

    def _direct(self, source: int, target: int, step: int) -> range:
        if self.operation is PhaseOperation.ALL_TO_ALL:
            return _one(source * self.members + target)
        return _one(target if step < self.reducing_steps else source)

    @property
    def _inward(self) -> list[tuple[int, int]]:
        """Return distance and pieces of the rounds of a reduce-scatter by halving."""
        return pairs_inward(self.members) if uses_pairs(self.members) else circulant_inward(self.members)

    def _in_pairs(self, source: int, target: int, step: int) -> range:
        """Return the pieces of a level: level i leaves those that agree with a member in the lowest i + 1
        bits.
        """
        levels = len(self._inward)
        scatters = step < self.reducing_steps
        level = step if scatters else levels - 1 - step % levels
        stride = 2 << level
        return range((target if scatters else source) % stride, self.members, stride)

    def _around_a_circulant(self, source: int, step: int) -> list[int]:
        """Return inwards pieces of members from the target on, outwards those from the source back."""
        inward = self._inward
        scatters = step < self.reducing_steps
        distance, count = inward[step if scatters else len(inward) - 1 - step % len(inward)]
        if scatters:
            return [(source + distance + k) % self.members for k in range(count)]
        return [(source - k) % self.members for k in range(count)]


def movement(
    algorithm: Algorithm,
    operation: PhaseOperation,
    members: int,
    *,
    fixes: CostFixes = AS_REFERENCE,
    root: int = 0,
) -> Movement:
    """Return the movement of data that an algorithm makes for an operation."""
    algorithm = algorithm.used_for(operation, fixes)
    effective = PhaseOperation.ALL_REDUCE if algorithm.keeps_size(fixes) else operation
    return Movement(algorithm.family, effective, members, root)


def _one(piece: int) -> range:
    return range(piece, piece + 1)
