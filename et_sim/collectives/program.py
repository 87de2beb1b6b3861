"""The common language of collective algorithms: a program of steps every member runs.

A member keeps a list of *packets* (what to send next, and to whom) and spends one *bundle* (an
endpoint transfer, perhaps followed by a local reduction) before each packet may go. Bundles are made
at the start (`start_bundles` of them) and one for every message received. A step sends one packet
and posts the receive of the packet that some other member sends in the same step.

Invariant: a program says nothing about who runs it: peers are distances along the group, so one
program serves all members. Tables are periodic: row k stands for every step k + i * period.

Not here: time (the plan turns reduced bytes into nanoseconds) and the choice of algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.int64]
Distances = npt.NDArray[np.int32]


class Operation(IntEnum):
    """What a phase does to the data of its group."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


class Peer(IntEnum):
    """How a step's distance names the peer."""

    SHIFT = 0  # send `distance` ahead, receive from `distance` behind, in the queue's direction
    PAIR = 1  # exchange with the member whose block of `distance` members is the neighbour of mine


@dataclass(frozen=True, slots=True, eq=False)
class StepProgram:
    """What each of `members` members does in one phase."""

    members: int
    sends: int  # messages each member sends, and receives
    start_bundles: int  # bundles made at the start; as many credits must be back at the end
    # With this many sends or fewer left, wait until `half` messages were received (0: never wait).
    half: int
    peer: Peer
    distance: Distances  # per step, periodic
    message_bytes: Bytes  # per step, periodic
    reduced_bytes: Bytes  # per bundle, periodic; 0: this bundle reduces nothing


def reduction_pattern(operation: Operation, head: int, tail: int, size: int) -> Bytes:
    """Bytes reduced per bundle: groups of `head` silent bundles, then `tail` that may reduce.

    A reduce-scatter reduces in every group, an all-reduce in every other one (its second half only
    gathers), the rest never.
    """
    if operation in (Operation.ALL_GATHER, Operation.ALL_TO_ALL):
        return np.zeros(1, np.int64)
    group = np.zeros(head + tail, np.int64)
    group[head:] = size
    if operation is Operation.REDUCE_SCATTER:
        return group
    return np.concatenate((group, np.zeros(head + tail, np.int64)))
