"""Counting what a report says of a recording: everything once, though windows of it overlap.

A recording that is too long for the memory is converted one window of time after another, and each window
is seen together with some of what comes before and after it. What is counted has a moment, and counts where
that moment belongs. A recording that is converted as a whole is a single window; everything belongs to it.

Not here: how recordings are cut (`windows`), and what is said of the counts (`report`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Span:
    """The time from one moment to before another one."""

    first_ns: int = -_NEVER
    last_ns: int = _NEVER

    def holds(self, moments: Any) -> npt.NDArray[np.bool_]:
        """Which of some moments are in it."""
        found: npt.NDArray[np.bool_] = (moments >= self.first_ns) & (moments < self.last_ns)
        return found


@dataclass(slots=True)
class Tally:
    """How often what was seen in a span of time, with a few examples."""

    span: Span = field(default_factory=Span)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, what: str, moments: Any) -> None:
        """One more for each moment of the span; a single moment, or a column of them."""
        number = int(np.count_nonzero(self.span.holds(np.asarray(moments))))
        if number:
            self.counts[what] += number

    def remark(self, what: str, moment: int, example: str) -> None:
        """One more, and what it was, unless enough of them are named."""
        if self.span.holds(moment):
            self.counts[what] += 1
            named = self.examples.setdefault(what, [])
            if example not in named and len(named) < NAMED:
                named.append(example)


NAMED = 3  # examples in a remark
