"""Direct: every member talks to every other one, `window` of them at a time.

All-reduce is a direct reduce-scatter and a direct all-gather: its second half waits until the first
has arrived completely.

Which transfers are charged a reduction follows the reference: groups of `window` silent ones and `window`
(in sub-groups: (n-1) * window) that reduce. Mended, exactly the messages of the reducing half are.
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import (
    Operation,
    Peer,
    Phase,
    StepProgram,
    Transfers,
    piece_bytes,
    transfer_pattern,
    transfers_of_messages,
)

REDUCING = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)


def program(phase: Phase) -> StepProgram:
    """The direct program of one phase."""
    operation, members = phase.operation, phase.members
    others = members - 1
    width = others if phase.window is None else min(phase.window, others)
    message = piece_bytes(operation, members, phase.size, phase.fixes)
    both_halves = operation is Operation.ALL_REDUCE
    sends = 2 * others if both_halves else others
    if phase.fixes.direct_reductions:
        transfers = _mended(operation, others, sends, width, message)
    else:
        transfers = transfer_pattern(operation, width, others * width if phase.subgroup else width, message)
    return StepProgram(
        members=members,
        sends=sends,
        start_transfers=width,
        half=others if both_halves else 0,
        peer=Peer.SHIFT,
        distance=np.arange(1, members, dtype=np.int32),
        message_bytes=np.full(others, message, np.int64),
        transfers=transfers,
    )


def _mended(operation: Operation, others: int, sends: int, width: int, message: int) -> Transfers:
    """The first n-1 messages received are those of the first half, whatever the window."""
    sizes = np.full(sends, message, np.int64)
    reduces = (np.arange(sends) < others) & (operation in REDUCING)
    return transfers_of_messages(sizes, sizes, reduces, width)
