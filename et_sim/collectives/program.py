"""The common language of collective algorithms: a program of steps every member runs.

A member keeps a list of *packets* (its next messages and their targets) and spends one *endpoint transfer*
(perhaps followed by a local reduction) before each packet may go. Transfers are made at the start
(`start_transfers` of them) and one for every message received. A step sends one packet and posts the receive
of the packet that some other member sends in the same step.

Invariant: a program is the same for all members: peers are distances along the group. Tables are periodic:
row k stands for every step k + i * period.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Bytes = npt.NDArray[np.int64]
Distances = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


class PhaseOperation(IntEnum):
    """The operation of a phase on the data of its group."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    BARRIER = 9


# These have no algorithm to choose: they go over one tree. All others are exchanges among equals.
OVER_A_TREE = (
    PhaseOperation.REDUCE,
    PhaseOperation.GATHER,
    PhaseOperation.SCATTER,
    PhaseOperation.BROADCAST,
    PhaseOperation.BARRIER,
)
EXCHANGES = tuple(operation for operation in PhaseOperation if operation not in OVER_A_TREE)


class Peer(IntEnum):
    """The rule by which a step's distance gives the peer."""

    SHIFT = 0  # send `distance` ahead, receive from `distance` behind, in the queue's direction
    PAIR = 1  # exchange with the member at the same place in the neighbouring block of `distance` members
    AHEAD = 2  # as SHIFT, but in the same direction in every queue


class Transfers(Struct, frozen=True, eq=False):
    """The endpoint transfers; only a shared memory bus distinguishes their directions."""

    size: Bytes  # of the packet it is made for
    reduces: Flags
    inward: Flags  # from the NPU to the memory side, as opposed to the other way
    returns: Flags  # returns to its origin
    time_ns: Bytes | None = None  # time of each beside the endpoint, in place of a reduction


class OwnBytes(Struct, frozen=True, eq=False):
    """Messages of a program in which members send bytes of their own: no bytes, no message.

    A row for each member clockwise, then the same anticlockwise; a column for each step.
    """

    sent: Bytes
    received: Bytes  # from the sender in the same step

    @property
    def longest_gap(self) -> int:
        """Return the most steps in a row in which a member receives nothing."""
        run = longest = np.zeros(len(self.received), np.int64)
        for column in self.received.T:
            run = np.where(column == 0, run + 1, 0)
            longest = np.maximum(longest, run)
        return int(longest.max(initial=0))


class StepProgram(Struct, frozen=True, eq=False):
    """The steps of each of `members` members in one phase."""

    members: int
    sends: int  # messages each member sends, and receives
    start_transfers: int  # transfers made at the start; as many credits must be back at the end
    # With this many sends or fewer left, wait until `half` messages were received (0: never wait).
    half: int
    peer: Peer
    distance: Distances  # per step, periodic
    message_bytes: Bytes  # per step, periodic
    transfers: Transfers  # periodic
    own: OwnBytes | None = None  # in place of `message_bytes`, of which these are the largest
    window: int | None = None  # steps that a member may be ahead of its target; None: any number
    copy_ns: int = 0  # time to copy a message out of the buffer where it waited for its receiver

    def has_messages_of(self, other: StepProgram) -> bool:
        """Return whether both send the same messages; pauses, windows and times of copies may differ."""
        return (
            (self.members, self.sends, self.start_transfers)
            == (other.members, other.sends, other.start_transfers)
            and len(self.transfers.size) == len(other.transfers.size)
            and np.array_equal(self.distance, other.distance)
            and np.array_equal(self.message_bytes, other.message_bytes)
        )


class CostFixes(Struct, frozen=True):
    """The corrected inaccuracies of the reference."""

    exact_halving_doubling: bool = False
    tree_operations: bool = False
    direct_reductions: bool = False
    whole_pieces: bool = False  # a piece of a chunk that does not divide is rounded up, not down


AS_REFERENCE = CostFixes()
CORRECTED = CostFixes(
    exact_halving_doubling=True, tree_operations=True, direct_reductions=True, whole_pieces=True
)


class Phase(Struct, frozen=True):
    """The input of an algorithm: `members` take part, each starting with `size` bytes."""

    operation: PhaseOperation
    members: int
    size: int
    fixes: CostFixes = AS_REFERENCE
    subgroup: bool = False
    root: int = 0  # position
    window: int | None = None  # messages under way at a time, if the algorithm's name has a number


def piece_bytes(operation: PhaseOperation, members: int, size: int, fixes: CostFixes) -> int:
    """Return one member's part of `size` bytes; for an all-gather, its input."""
    if operation is PhaseOperation.ALL_GATHER:
        return size
    return -(-size // members) if fixes.whole_pieces else size // members


def transfers_of_messages(sent: Bytes, received: Bytes, reduces: Flags, start: int) -> Transfers:
    """Return a transfer per message: `start` silent ones, then one for every message received, of its size.

    A transfer goes back to the network if there is another message for it to send.
    """
    count = start + len(received)
    size = np.concatenate((sent[:start], received))
    place = np.arange(count)
    return Transfers(
        size=size.astype(np.int64),
        reduces=np.concatenate((np.zeros(start, np.bool_), reduces)),
        inward=place < start,
        returns=(place >= start) & (place < len(sent)),
    )


def transfer_pattern(operation: PhaseOperation, head: int, tail: int, size: int) -> Transfers:
    """Return groups of `head` silent transfers, then `tail` that may reduce, all of the same size.

    A reduce-scatter reduces in every group, an all-reduce in every other one (its second half only gathers),
    the rest never.
    """
    period = head + tail
    place = np.arange(2 * period) % period
    reduces = place >= head
    if operation is PhaseOperation.ALL_REDUCE:
        reduces[period:] = False
    elif operation is not PhaseOperation.REDUCE_SCATTER:
        reduces[:] = False
    return Transfers(
        size=np.full(2 * period, size, np.int64),
        reduces=reduces,
        inward=place < head,
        returns=(place >= head) & (place < period - head),
    )
