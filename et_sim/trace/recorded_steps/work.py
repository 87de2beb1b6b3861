"""The work in recorded operations, without the time that they waited for other ranks.

An operation of several ranks takes from the start of its last participant to each participant's end; the time
before is waiting, which a simulation finds again. Operations that move no data between ranks are all work.

The even work of a kind is the mean of all its computations, or the median of all its communications, as in
"Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): a few operations that
were disturbed do not change a median.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from et_sim.trace.columns import IntColumn
from et_sim.trace.recorded_steps.table import (
    BACKWARD,
    BACKWARD_RECEIVE,
    BACKWARD_SEND,
    CLIP,
    EMBEDDING,
    FORWARD,
    FORWARD_RECEIVE,
    FORWARD_SEND,
    GARBAGE,
    GATHER,
    OPTIMIZER,
    SCATTER,
    StepRecording,
)

Work = dict[str, IntColumn]  # by kind, with the axes step, replica, stage and number

COMPUTATIONS = frozenset((FORWARD, BACKWARD, GARBAGE, OPTIMIZER))
PARTNERS = {
    FORWARD_SEND: FORWARD_RECEIVE,
    FORWARD_RECEIVE: FORWARD_SEND,
    BACKWARD_SEND: BACKWARD_RECEIVE,
    BACKWARD_RECEIVE: BACKWARD_SEND,
}
_REPLICA, _STAGE = 1, 2
TOGETHER = {GATHER: (_REPLICA,), SCATTER: (_REPLICA,), EMBEDDING: (_STAGE,), CLIP: (_REPLICA, _STAGE)}


def recorded_work(recording: StepRecording) -> Work:
    """Return the work of each operation as it was recorded."""
    work = {}
    for kind, operations in recording.kinds.items():
        last = operations.start
        if kind in PARTNERS:
            last = np.maximum(last, recording.kinds[PARTNERS[kind]].start)
        elif kind in TOGETHER:
            last = np.broadcast_to(last.max(TOGETHER[kind], keepdims=True), last.shape)
        # clocks differ a little: a participant may end before the last one begins
        work[kind] = np.maximum(operations.end - last, 0)
    return work


def even_work(work: Work) -> Work:
    """Return the work with every operation of a kind at the same duration."""
    return {
        kind: np.full_like(values, round(float((np.mean if kind in COMPUTATIONS else np.median)(values))))
        for kind, values in work.items()
    }


def mixed_work(
    recording: StepRecording, work: Work, base: Work, uneven: Mapping[str, Iterable[int | str]]
) -> Work:
    """Return `base` with the recorded durations of some operations: those of some `kind`, or of some `stage`,
    `replica` or `rank` of the job; an operation must fulfil each key that is given.
    """
    mixed = {}
    for kind, values in work.items():
        is_chosen = np.zeros(values.shape, bool)
        if kind in set(uneven.get("kind", (kind,))):
            stages = np.array(recording.kinds[kind].stages)
            at = np.ones((recording.replicas, len(stages)), bool)
            if "stage" in uneven:
                at &= np.isin(stages, list(uneven["stage"]))[None]
            if "replica" in uneven:
                at &= np.isin(np.arange(recording.replicas), list(uneven["replica"]))[:, None]
            if "rank" in uneven:
                at &= np.isin(recording.ranks[:, stages], list(uneven["rank"]))
            is_chosen |= at[None, :, :, None]
        mixed[kind] = np.where(is_chosen, values, base[kind])
    return mixed
