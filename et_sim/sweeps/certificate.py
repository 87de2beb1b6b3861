"""Limits of points that a search did not evaluate, and reasons why points are not the best.

No unevaluated point is better than its bound. So the best bound of all of them limits by how much any point
of the space may be better than the best one that was found: the gap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from et_sim.basics.errors import EtSimError, InputError
from et_sim.workloads.training.plan_bounds import PlanBounds

MEMORY, FORM = "memory", "not possible"
PARTS = {"compute_ns": "compute", "bubble_ns": "bubble", "network_ns": "network"}


class FullError(InputError):
    """The refusal of a plan that needs more memory than a rank has."""

    needed = 0  # bytes of a rank


def gap_of(best: float, bounds: Iterable[float]) -> float:
    """Return the share by which a point with one of these bounds may be better; less is better.

    Figures of which more is better are negative.
    """
    bound = min(bounds, default=best)
    if bound >= best:
        return 0.0
    if best > 0:
        return best / bound - 1 if bound > 0 else math.inf
    return bound / best - 1 if best else math.inf


def reason(parts: PlanBounds, best: PlanBounds) -> str:
    """Return the part of a plan's least time that exceeds that of the best plan by most."""
    return max(PARTS.items(), key=lambda part: getattr(parts, part[0]) - getattr(best, part[0]))[1]


def reasons(
    parts: Mapping[int, PlanBounds], refusals: Mapping[int, EtSimError], full: Iterable[int], best: int | None
) -> tuple[dict[str, int], dict[int, str]]:
    """Return how many points each reason keeps from being the best, and the reason of each bounded point.

    `full` are points whose evaluation ran out of memory.
    """
    why = dict.fromkeys(full, MEMORY)
    if best is not None and best in parts:
        others = (number for number in parts if number != best and number not in why)
        why |= {number: reason(parts[number], parts[best]) for number in others if number not in refusals}
    counts = Counter(why.values())
    for error in refusals.values():
        counts[MEMORY if isinstance(error, FullError) else FORM] += 1
    return dict(counts.most_common()), why
