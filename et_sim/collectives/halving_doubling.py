"""Halving-doubling: members exchange half of the rest, over distances that halve or double, and back.

Powers of two: pairs exchange over doubling distances. The reference's rules are kept: sizes are halved with
truncation, a transfer is charged for the packet it will send, and groups of log2(n) of them start with a
silent one. Corrected (and where truncation would leave nothing to send), the vector is cut into n pieces,
rounded up, and every message of the reducing half is charged at its own size.

Other numbers of members, on which the reference hangs, use a circulant instead of pairs: of the s pieces that
a member still holds (s = n at first), it sends the farther half to the member ceil(s/2) ahead, and receives
as much from behind; after ceil(log2 n) rounds one piece is left, its own. An all-gather takes the same rounds
in reverse. Not all-to-all.
"""

from __future__ import annotations

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.collectives.program import (
    Bytes,
    Distances,
    Peer,
    Phase,
    PhaseOperation,
    StepProgram,
    Transfers,
    transfer_pattern,
    transfers_of_messages,
)


def halving_doubling(phase: Phase) -> StepProgram:
    """Return the halving-doubling program of one phase."""
    operation, members, size = phase.operation, phase.members, phase.size
    if operation is PhaseOperation.ALL_TO_ALL:
        raise MachineError(
            "halvingDoubling cannot do an all-to-all",
            place='system key "all-to-all-implementation"',
            remedy="use ring or direct for all-to-all",
        )
    if uses_pairs(members) and not phase.fixes.exact_halving_doubling:
        steps = _as_reference(operation, members, size)
        if steps.message_bytes.min() > 0:
            return steps
    return _exact(operation, members, size)


def uses_pairs(members: int) -> bool:
    """Return whether members exchange in pairs, as opposed to around a circulant."""
    return members & (members - 1) == 0


def _as_reference(operation: PhaseOperation, members: int, size: int) -> StepProgram:
    levels = members.bit_length() - 1
    sends = 2 * levels if operation is PhaseOperation.ALL_REDUCE else levels
    sizes, distances = _truncated(operation, members, size, sends + 1)
    return StepProgram(
        members=members,
        sends=sends,
        start_transfers=1,
        half=0,
        peer=Peer.PAIR,
        distance=distances[:-1],
        message_bytes=sizes[:-1],
        transfers=_reference_transfers(operation, levels, sizes),
    )


def _reference_transfers(operation: PhaseOperation, levels: int, sizes: Bytes) -> Transfers:
    """Return one transfer more than packets: the last one is made for a packet that is never sent."""
    pattern = transfer_pattern(operation, 1, levels - 1, 0)
    place = np.arange(len(sizes)) % len(pattern.size)
    return Transfers(sizes, pattern.reduces[place], pattern.inward[place], pattern.returns[place])


def _truncated(operation: PhaseOperation, members: int, size: int, steps: int) -> tuple[Bytes, Distances]:
    """Return message size and pair distance of every step; halving truncates, as in the reference."""
    sizes, distances = np.empty(steps, np.int64), np.empty(steps, np.int32)
    growing = operation is not PhaseOperation.ALL_GATHER
    left, offset = (size // 2, 1) if growing else (size, members // 2)
    for step in range(steps):
        sizes[step], distances[step] = left, offset
        left, offset = _next(left, offset, growing)
        if growing and operation is PhaseOperation.ALL_REDUCE and offset == members:
            growing = False
            left, offset = _next(left, offset, growing)
    return sizes, distances


def _next(left: int, offset: int, growing: bool) -> tuple[int, int]:
    return (left // 2, offset * 2) if growing else (left * 2, offset // 2)


def _exact(operation: PhaseOperation, members: int, size: int) -> StepProgram:
    """Return a program that loses no bytes, and charges every reduction."""
    inward = pairs_inward(members) if uses_pairs(members) else circulant_inward(members)
    reducing = [] if operation is PhaseOperation.ALL_GATHER else inward
    rounds = reducing + ([] if operation is PhaseOperation.REDUCE_SCATTER else inward[::-1])
    piece = size if operation is PhaseOperation.ALL_GATHER else -(-size // members)
    sizes = np.array([piece * pieces for _, pieces in rounds], np.int64)
    reduces = np.arange(len(rounds)) < len(reducing)
    return StepProgram(
        members=members,
        sends=len(rounds),
        start_transfers=1,
        half=0,
        peer=Peer.PAIR if uses_pairs(members) else Peer.AHEAD,
        distance=np.array([distance for distance, _ in rounds], np.int32),
        message_bytes=sizes,
        transfers=transfers_of_messages(sizes, sizes, reduces, 1),
    )


def pairs_inward(members: int) -> list[tuple[int, int]]:
    """Return distance and pieces of the rounds of a reduce-scatter in pairs."""
    distances = [1 << level for level in range(members.bit_length() - 1)]
    return [(distance, members // (2 * distance)) for distance in distances]


def circulant_inward(members: int) -> list[tuple[int, int]]:
    """Return distance and pieces of the rounds of a reduce-scatter around a circulant."""
    rounds = []
    concerned = members
    while concerned > 1:
        half = (concerned + 1) // 2
        rounds.append((half, concerned - half))
        concerned = half
    return rounds
