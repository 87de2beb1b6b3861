"""Rounds at a pace: all members send equal messages, with pauses between them, so that all take a given time.

Collective libraries move bytes at their own pace: launches, flags and copies take time beside the wires. The
pauses are what is left of the library's time when an idle network has carried the messages, so a collective
that is alone takes exactly that time, and one that meets others takes longer.

Not here: how long a library takes (`machine.collective_library`), and its steps (`plan.library_phases`).
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import Peer, StepProgram, Transfers

MOST_UNEVEN = 4096  # pauses that differ by a nanosecond are listed one by one up to so many


def paced(
    members: int,
    distance: tuple[int, ...],
    steps: int,
    size: int,
    pause_ns: int,
    at_once: int = 1,
    *,
    pauses_last: bool = False,
) -> StepProgram:
    """`steps` messages of `size` bytes, to the members that far ahead in turn, so many of them at once.

    There is a pause before every round of them and one behind the last; `pause_ns` is of all together. Where
    messages of a round take different times, only one that is `pauses_last` is not hidden by some of them.
    """
    rounds = steps // at_once
    each, longer = divmod(max(pause_ns, 0), rounds + 1)
    rows = rounds + 1 if (longer or pauses_last) and rounds < MOST_UNEVEN else 1
    time = np.full(rows, each, np.int64)
    time[: longer if rows > 1 else 0] += 1
    if pauses_last and rows > 1:
        time[-1], time[:-1] = time.sum(), 0
    time = np.repeat(time, at_once if rows > 1 else 1)
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
    )
