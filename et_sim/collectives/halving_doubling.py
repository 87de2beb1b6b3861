"""Halving-doubling: pairs exchange half of what is left, over doubling distances, and back.

The reference's accounting is kept: a bundle is charged for the packet it will send, and groups of
log2(n) bundles start with a silent one. Only powers of two work, and not all-to-all.
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import Bundles, Bytes, Distances, Operation, Peer, StepProgram, bundle_pattern
from et_sim.errors import MachineError


def halving_doubling(operation: Operation, members: int, size: int) -> StepProgram:
    """The halving-doubling program of one phase with `size` input bytes per member."""
    levels = members.bit_length() - 1
    _refuse_what_cannot_work(operation, members, size, levels)
    sends = 2 * levels if operation is Operation.ALL_REDUCE else levels
    sizes, distances = _schedule(operation, members, size, sends + 1)
    return StepProgram(
        members=members,
        sends=sends,
        start_bundles=1,
        half=0,
        peer=Peer.PAIR,
        distance=distances[:-1],
        message_bytes=sizes[:-1],
        bundles=_bundles(operation, levels, sizes),
    )


def _bundles(operation: Operation, levels: int, sizes: Bytes) -> Bundles:
    """One bundle more than packets: the last one is made for a packet that is never sent."""
    pattern = bundle_pattern(operation, 1, levels - 1, 0)
    place = np.arange(len(sizes)) % len(pattern.size)
    return Bundles(sizes, pattern.reduces[place], pattern.inward[place], pattern.returns[place])


def _refuse_what_cannot_work(operation: Operation, members: int, size: int, levels: int) -> None:
    if operation is Operation.ALL_TO_ALL:
        raise MachineError(
            "halvingDoubling cannot do an all-to-all",
            place='system key "all-to-all-implementation"',
            remedy="use ring or direct for all-to-all",
        )
    if members != 1 << levels:
        raise MachineError(
            f"halvingDoubling needs a power of two, and this dimension or group has {members} NPUs",
            remedy="use ring or direct there",
        )
    if operation is not Operation.ALL_GATHER and size < members:
        raise MachineError(
            f"halvingDoubling would send empty messages: {size} bytes over {members} NPUs",
            remedy="use ring or direct, or fewer chunks",
        )


def _schedule(operation: Operation, members: int, size: int, steps: int) -> tuple[Bytes, Distances]:
    """Message size and pair distance of every step; halving truncates, as in the reference."""
    sizes, distances = np.empty(steps, np.int64), np.empty(steps, np.int32)
    growing = operation is not Operation.ALL_GATHER
    left, offset = (size // 2, 1) if growing else (size, members // 2)
    for step in range(steps):
        sizes[step], distances[step] = left, offset
        left, offset = _next(left, offset, growing)
        if growing and operation is Operation.ALL_REDUCE and offset == members:
            growing = False
            left, offset = _next(left, offset, growing)
    return sizes, distances


def _next(left: int, offset: int, growing: bool) -> tuple[int, int]:
    return (left // 2, offset * 2) if growing else (left * 2, offset // 2)
