"""Ring, direct, and rounds at a pace: every member sends to members at the same distance, at the same time.

Ring: every member passes the pieces from its predecessor on to its successor. All-reduce walks the ring twice
(reduce-scatter, then all-gather): 2(n-1) steps of C/n bytes. Reduce-scatter and all-gather walk once.
All-to-all relays: n(n-1)/2 steps of C/n bytes.

Direct: every member sends to every other one, `window` of them at a time. All-reduce is a direct
reduce-scatter and a direct all-gather: its second half waits until the first has arrived completely.

The transfers that are charged a reduction follow the reference: groups of `window` silent ones and `window`
(in sub-groups: (n-1) * window) that reduce. Corrected, exactly the messages of the reducing half are.

Rounds at a pace: all members send equal messages, with pauses between them, so that all take a given time.
Collective libraries move bytes at their own pace: launches, flags and copies take time beside the wires. The
pauses are the rest of the library's time after an idle network has carried the messages, so a collective that
is alone takes exactly that time, and one that meets others takes longer.
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import (
    Peer,
    Phase,
    PhaseOperation,
    StepProgram,
    Transfers,
    piece_bytes,
    transfer_pattern,
    transfers_of_messages,
)


def ring(phase: Phase) -> StepProgram:
    """Return the ring program of one phase."""
    operation, members = phase.operation, phase.members
    message = piece_bytes(operation, members, phase.size, phase.fixes)
    return StepProgram(
        members=members,
        sends=_sends_of_ring(operation, members),
        start_transfers=1,
        half=0,
        peer=Peer.SHIFT,
        distance=np.ones(1, np.int32),
        message_bytes=np.array([message], np.int64),
        transfers=transfer_pattern(operation, 1, members - 1, message),
    )


def _sends_of_ring(operation: PhaseOperation, members: int) -> int:
    if operation is PhaseOperation.ALL_REDUCE:
        return 2 * (members - 1)
    if operation is PhaseOperation.ALL_TO_ALL:
        return members * (members - 1) // 2
    return members - 1


REDUCING = (PhaseOperation.ALL_REDUCE, PhaseOperation.REDUCE_SCATTER)


def direct(phase: Phase) -> StepProgram:
    """Return the direct program of one phase."""
    operation, members = phase.operation, phase.members
    others = members - 1
    width = others if phase.window is None else min(phase.window, others)
    message = piece_bytes(operation, members, phase.size, phase.fixes)
    both_halves = operation is PhaseOperation.ALL_REDUCE
    sends = 2 * others if both_halves else others
    if phase.fixes.direct_reductions:
        transfers = _corrected_direct(operation, others, sends, width, message)
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


def _corrected_direct(
    operation: PhaseOperation, others: int, sends: int, width: int, message: int
) -> Transfers:
    """Return corrected transfers: for any window, the first n-1 messages received are the first half's."""
    sizes = np.full(sends, message, np.int64)
    reduces = (np.arange(sends) < others) & (operation in REDUCING)
    return transfers_of_messages(sizes, sizes, reduces, width)


MOST_UNEVEN = 4096  # pauses, which may differ by a nanosecond, are listed one by one up to this number


def paced(
    members: int,
    distance: tuple[int, ...],
    steps: int,
    size: int,
    pause_ns: int,
    at_once: int = 1,
    *,
    pauses_last: bool = False,
    window: int | None = None,
    copy_ns: int = 0,
) -> StepProgram:
    """Return a program of `steps` messages of `size` bytes, `at_once` of them at a time, with pauses.

    The messages go to the members at each `distance` in turn. There is a pause before every round of them and
    one behind the last; `pause_ns` is the sum of all. Where messages of a round take different times, only a
    pause at the end (`pauses_last`) is not hidden by some of them. A member sends up to `window` messages to
    each peer before the peer takes them (None: any number), and copies such a message in `copy_ns`.
    """
    rounds = steps // at_once
    each, longer = divmod(max(pause_ns, 0), rounds + 1)
    rows = rounds + 1 if rounds < MOST_UNEVEN else 1
    time = np.full(rows, each, np.int64)
    time[: longer if rows > 1 else 0] += 1
    if pauses_last and rows > 1:
        time[-1], time[:-1] = time.sum(), 0
    if rows > 1 and at_once > 1:
        time = np.repeat(time, at_once)
    nothing = np.zeros(len(time), np.bool_)
    return StepProgram(
        members=members,
        sends=steps,
        start_transfers=at_once,
        half=0,
        peer=Peer.SHIFT,
        distance=np.array(distance, np.int32),
        message_bytes=np.full(len(distance), size, np.int64),
        transfers=Transfers(np.zeros(len(time), np.int64), nothing, nothing, nothing, time),
        window=None if window is None or window * len(distance) >= steps else window * len(distance),
        copy_ns=copy_ns,
    )
