"""Lengths of unions of intervals, for many actors at once, and what time was spent on.

The actors' time axes are laid end to end on one long axis, so that one sort serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST_AXIS = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals [start, end) of actors 0..actors-1, in no particular order."""

    actors: int
    actor: Any
    start_ns: Any
    end_ns: Any

    def where(self, mask: Any) -> Intervals:
        """Those intervals that a mask selects."""
        return Intervals(self.actors, self.actor[mask], self.start_ns[mask], self.end_ns[mask])

    def union_ns(self) -> Any:
        """Per actor: how long at least one of its intervals is open."""
        total = np.zeros(self.actors, np.int64)
        span = int(self.end_ns.max(initial=0)) + 1
        at_once = max(LONGEST_AXIS // span, 1)
        for first in range(0, self.actors, at_once):
            inside = (self.actor >= first) & (self.actor < first + at_once)
            offset = (self.actor[inside] - first).astype(np.int64) * span
            covered, owner = _union(self.start_ns[inside] + offset, self.end_ns[inside] + offset)
            np.add.at(total, self.actor[inside][owner], covered)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Spent:
    """Per actor: for how long something of a sort was under way; what overlaps counts once."""

    compute_ns: Any
    communication_ns: Any
    overlap_ns: Any  # both at once
    exposed_ns: Any  # communication, and nothing else at all
    covered_ns: Any  # anything


def spent(every: Intervals, compute: Any, communication: Any) -> Spent:
    """From all intervals, and masks that say which are kernels and which are communication."""
    compute_ns, communication_ns = every.where(compute).union_ns(), every.where(communication).union_ns()
    covered_ns = every.union_ns()
    return Spent(
        compute_ns=compute_ns,
        communication_ns=communication_ns,
        overlap_ns=compute_ns + communication_ns - every.where(compute | communication).union_ns(),
        exposed_ns=covered_ns - every.where(~communication).union_ns(),
        covered_ns=covered_ns,
    )


def _union(start: Any, end: Any) -> tuple[Any, Any]:
    """What each interval adds to the union of the earlier ones, and which interval it is."""
    order = np.lexsort((end, start))
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(np.concatenate(([0], end)))[:-1] if len(end) else end
    return np.maximum(end - np.maximum(start, reached), 0), order
