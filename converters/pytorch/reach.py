"""How soon work begins after what it awaited has ended, as the recording shows.

When work begins late, another stream has last ended work some time before. If the work awaited that, the time
between is the latency of the device; if not, it is an accident, the longer the seldomer work ends. So the
distances of a recording pile up at its latencies. The reach is the distance up to which their number exceeds
four times that of expected accidents by most: what lies beyond is too thin to tell from these. Where other
streams end work all the time, a distance says little and counts for little.

Not here: what is concluded from it (`events`, `waits`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converters.pytorch.graph import Column
from et_sim.units import format_ns

SELDOM = 0.25  # accidents among what is taken for none
_USUAL_NS = 10_000  # of other recordings
_ENOUGH = 5  # samples that make it shorter than usual
_LONGEST_NS = 100_000  # a latency that is longer has another reason


@dataclass(frozen=True, slots=True)
class Reach:
    """The longest time from an end to what awaited it."""

    ns: int
    samples: int = 0  # within it; none: it is what is usual elsewhere
    accidents: float = 0.0  # share of the samples that are expected by accident

    def __str__(self) -> str:
        within = f"within {format_ns(self.ns)} of what was awaited"
        if not self.samples:
            return f"{within}, as is usual, for the recording does not tell"
        return f"{within}, as {self.samples:,} that began late; {100 * self.accidents:.0f} % by accident"


def find_reach(distance: Column, ends: Column, window: Column) -> Reach:
    """The reach, of samples: the distance from the last end, and how many ends there were in which time."""
    order = np.argsort(distance, kind="stable")
    distance, rate = distance[order], (ends / np.maximum(window, 1))[order]
    weight = 1 / (1 + rate * _LONGEST_NS)
    found = np.cumsum(weight)
    passed = np.cumsum(weight * rate * distance)  # accidents expected before each of those so far
    rest = np.append(np.cumsum((weight * rate)[::-1])[::-1], 0)[1:]
    accidents = passed + rest * distance
    excess = np.where(distance <= _LONGEST_NS, found - accidents / SELDOM, 0)
    at = int(np.argmax(excess)) if len(excess) else 0
    if not len(excess) or excess[at] <= 0 or (at + 1 < _ENOUGH and distance[at] < _USUAL_NS):
        return Reach(_USUAL_NS)
    return Reach(int(distance[at]), at + 1, float(accidents[at] / found[at]))
