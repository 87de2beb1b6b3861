"""Which data the messages of a collective algorithm carry.

The data of a group is cut into equal pieces: parts of the vector (all-reduce, reduce-scatter), the members'
shards (all-gather), or one block per pair of members (all-to-all, block origin * members + destination).
Piece p of a reduce-scatter is what member p ends with. A tree moves the vector as one piece, and does every
operation as an all-reduce.

Invariant: `load` depends on nothing but its arguments, so that schedules can be checked by moving data along
them. Not here: the order of messages (`schedule`), and their bytes, in which the reference truncates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from et_sim.collectives.algorithm import Algorithm
from et_sim.collectives.program import Operation
from et_sim.collectives.schedule import UP


class Load(NamedTuple):
    """What one message carries, and whether its target adds it to what it has."""

    pieces: range
    reduces: bool


@dataclass(frozen=True, slots=True)
class Movement:
    """Data before, during and after a collective of `members` members."""

    family: str
    operation: Operation
    members: int

    @property
    def pieces(self) -> int:
        """Into how many pieces the data is cut."""
        if self.family == "doubleBinaryTree":
            return 1
        return self.members**2 if self.operation is Operation.ALL_TO_ALL else self.members

    def before(self, member: int) -> range:
        """The pieces to which a member contributes."""
        if self.operation is Operation.ALL_GATHER:
            return range(member, member + 1)
        if self.operation is Operation.ALL_TO_ALL:
            return range(member * self.members, (member + 1) * self.members)
        return range(self.pieces)

    def after(self, member: int) -> range:
        """The pieces that a member must have at the end."""
        if self.operation is Operation.REDUCE_SCATTER:
            return range(member, member + 1)
        if self.operation is Operation.ALL_TO_ALL:
            return range(member, self.pieces, self.members)
        return range(self.pieces)

    def contributors(self, piece: int) -> range:
        """Whose contributions a piece consists of at the end."""
        if self.operation is Operation.ALL_GATHER:
            return range(piece, piece + 1)
        if self.operation is Operation.ALL_TO_ALL:
            origin = piece // self.members
            return range(origin, origin + 1)
        return range(self.members)

    @property
    def reducing_steps(self) -> int:
        """How many steps add what they carry; they come first."""
        if self.family == "doubleBinaryTree":
            return UP + 1
        if self.operation not in (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER):
            return 0
        return self._levels if self.family == "halvingDoubling" else self.members - 1

    def load(self, source: int, target: int, step: int) -> Load:
        """What the message of one step carries."""
        if self.family == "doubleBinaryTree":
            pieces = range(1)
        elif self.family == "ring":
            pieces = self._ring(source, step)
        elif self.family == "direct":
            pieces = self._direct(source, target, step)
        else:
            pieces = self._halving_doubling(source, target, step)
        return Load(pieces, step < self.reducing_steps)

    def _ring(self, source: int, step: int) -> range:
        """A member passes on what it received last, first its own; a relay passes on what is not for it."""
        if self.operation is Operation.ALL_TO_ALL:
            return self._relayed(source, step)
        if step < self.reducing_steps:
            return _one((source - 1 - step) % self.members)
        return _one((source - step % (self.members - 1)) % self.members)

    def _relayed(self, source: int, step: int) -> range:
        """Blocks of the member itself for all others, then blocks of the one before it that go further, …"""
        behind, left = 0, step
        while left >= self.members - 1 - behind:
            left -= self.members - 1 - behind
            behind += 1
        origin = (source - behind) % self.members
        return _one(origin * self.members + (source + 1 + left) % self.members)

    def _direct(self, source: int, target: int, step: int) -> range:
        if self.operation is Operation.ALL_TO_ALL:
            return _one(source * self.members + target)
        return _one(target if step < self.reducing_steps else source)

    @property
    def _levels(self) -> int:
        return self.members.bit_length() - 1

    def _halving_doubling(self, source: int, target: int, step: int) -> range:
        """Level i leaves the pieces that agree with a member in the lowest i + 1 bits."""
        scatters = step < self.reducing_steps
        level = step if scatters else self._levels - 1 - step % self._levels
        stride = 2 << level
        return range((target if scatters else source) % stride, self.members, stride)


def movement(algorithm: Algorithm, operation: Operation, members: int) -> Movement:
    """The movement of data that an algorithm makes for an operation."""
    effective = Operation.ALL_REDUCE if algorithm.keeps_size else operation
    return Movement(algorithm.family, effective, members)


def _one(piece: int) -> range:
    return range(piece, piece + 1)
