"""Ring: every member passes what it got from its predecessor on to its successor.

All-reduce walks the ring twice (reduce-scatter, then all-gather): 2(n-1) steps of C/n bytes.
Reduce-scatter and all-gather walk once. All-to-all relays: n(n-1)/2 steps of C/n bytes.
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import (
    Operation,
    Peer,
    Phase,
    StepProgram,
    piece_bytes,
    transfer_pattern,
)


def program(phase: Phase) -> StepProgram:
    """The ring program of one phase."""
    operation, members = phase.operation, phase.members
    message = piece_bytes(operation, members, phase.size, phase.fixes)
    return StepProgram(
        members=members,
        sends=_sends(operation, members),
        start_transfers=1,
        half=0,
        peer=Peer.SHIFT,
        distance=np.ones(1, np.int32),
        message_bytes=np.array([message], np.int64),
        transfers=transfer_pattern(operation, 1, members - 1, message),
    )


def _sends(operation: Operation, members: int) -> int:
    if operation is Operation.ALL_REDUCE:
        return 2 * (members - 1)
    if operation is Operation.ALL_TO_ALL:
        return members * (members - 1) // 2
    return members - 1
