"""Counting what a report says of a recording.

Not here: what is said of the counts (`report`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_NAMED = 3  # examples in a remark


@dataclass(slots=True)
class Tally:
    """How often what was seen, with a few examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, what: str, number: int = 1, *, example: str = "") -> None:
        """So many more; perhaps with a word about them."""
        if number:
            self.counts[what] += int(number)
            self.examples.setdefault(what, []).extend([example] if example else [])

    def remark(self, what: str, example: str) -> None:
        """One more, and what it was, unless enough of them are named."""
        self.counts[what] += 1
        named = self.examples.setdefault(what, [])
        if example not in named and len(named) < _NAMED:
            named.append(example)
