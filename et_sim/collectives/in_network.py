"""In-network: members send what they have to a switch once, and it sends them what they need, once.

A switch waits for a chunk's data from everything below it, then passes on what it makes of them: up to the
next switch, and from the topmost one down again, to every member over its own link. All-reduce goes up and
down whole. Of a reduce-scatter, a member gets its piece; of an all-gather, everybody else's shard. A
broadcast waits for nothing: each switch passes it on to all its neighbours but the one that it comes from.

The bytes between a switch and what is below it follow from how many members these are.
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.collectives.program import Operation, Phase, piece_bytes

OPERATIONS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER, Operation.BROADCAST)


class InNetworkProgram(Struct, frozen=True):
    """What `members` members and the switches above them send in one phase.

    So many members send `up_fixed + up_each * members` bytes upwards, and get as many of the other two.
    """

    members: int
    root: int | None  # position of the only member that sends, and gets nothing; None: all do both
    up_fixed: int = 0
    up_each: int = 0
    down_fixed: int = 0
    down_each: int = 0


def program(phase: Phase) -> InNetworkProgram:
    """The program of one phase."""
    operation, members, size = phase.operation, phase.members, phase.size
    if operation is Operation.BROADCAST:
        return InNetworkProgram(members, phase.root, up_fixed=size, down_fixed=size)
    if operation is Operation.ALL_REDUCE:
        return InNetworkProgram(members, None, up_fixed=size, down_fixed=size)
    if operation is Operation.REDUCE_SCATTER:
        return InNetworkProgram(
            members, None, up_fixed=size, down_each=piece_bytes(operation, members, size, phase.fixes)
        )
    return InNetworkProgram(members, None, up_each=size, down_fixed=members * size, down_each=-size)
