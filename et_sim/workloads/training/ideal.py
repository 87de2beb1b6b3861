"""The pipeline of a plan on a network that takes no time: when each place is done with its passes.

Not here: how long a pass is (`figures`, `bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from et_sim.trace.columns import Trace
from et_sim.workloads.pipeline import Direction, Pass, Shape, schedule
from et_sim.workloads.training.plan import Plan

# How long the kernels at some rows of a rank's trace take, in nanoseconds.
KernelTimes = Callable[[Trace, Any, int], Any]
Lengths = Mapping[Pass, int]
_Key = tuple[Direction, int, int]  # of a pass: direction, micro-batch and piece


def passes_by_place(plan: Plan) -> list[list[Pass]]:
    """What each place along the pipeline works on, in its order."""
    of_place = schedule(plan.schedule, Shape(plan.pipeline, plan.micro_batches, plan.chunks))
    return [list(of_place(place)) for place in range(plan.pipeline)]


def ends_of_passes(
    plan: Plan, orders: Sequence[Sequence[Pass]], lengths: Sequence[Lengths], until_sent: Sequence[Lengths]
) -> list[int]:
    """When each place has done all its passes, one after the other, each after those that it needs.

    `until_sent` says how long after its begin a pass has what the next place needs.
    """
    sent: dict[_Key, int] = {}
    clock, at = [0] * plan.pipeline, [0] * plan.pipeline
    left = sum(len(order) for order in orders)
    while left:
        for place, order in enumerate(orders):
            while at[place] < len(order):
                one = order[at[place]]
                piece = one.chunk * plan.pipeline + place
                ready = _ready(one, piece, plan.parts, sent)
                if ready is None:
                    break
                begin = max(clock[place], ready)
                clock[place] = begin + lengths[place][one]
                sent[one.direction, one.micro_batch, piece] = begin + until_sent[place][one]
                at[place] += 1
                left -= 1
    return clock


def _ready(one: Pass, piece: int, parts: int, sent: Mapping[_Key, int]) -> int | None:
    """When what a pass needs of other stages is there; None: not yet known."""
    if one.direction is Direction.WEIGHTS:
        return 0
    before = piece - 1 if one.direction is Direction.FORWARD else piece + 1
    return sent.get((one.direction, one.micro_batch, before)) if 0 <= before < parts else 0
