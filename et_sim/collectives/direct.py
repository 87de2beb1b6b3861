"""Direct: every member talks to every other one, `window` of them at a time.

All-reduce is a direct reduce-scatter and a direct all-gather: its second half waits until the first
has arrived completely. Which bundles are charged a reduction follows the reference: groups of
`window` silent bundles and `window` (in sub-groups: (n-1) * window) that reduce.
"""

from __future__ import annotations

import numpy as np

from et_sim.collectives.program import Operation, Peer, StepProgram, bundle_pattern


def direct(
    operation: Operation, members: int, size: int, *, window: int | None, subgroup: bool
) -> StepProgram:
    """The direct program of one phase with `size` input bytes per member."""
    others = members - 1
    width = others if window is None else min(window, others)
    message = size if operation is Operation.ALL_GATHER else size // members
    both_halves = operation is Operation.ALL_REDUCE
    return StepProgram(
        members=members,
        sends=2 * others if both_halves else others,
        start_bundles=width,
        half=others if both_halves else 0,
        peer=Peer.SHIFT,
        distance=np.arange(1, members, dtype=np.int32),
        message_bytes=np.full(others, message, np.int64),
        bundles=bundle_pattern(operation, width, others * width if subgroup else width, message),
    )
