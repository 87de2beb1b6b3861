"""When and how much an operand moves."""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 62  # a line, or a cycle, that does not come


class Traffic(NamedTuple):
    """The first and the last cycle, and how many words."""

    start: int
    stop: int
    words: int

    @property
    def bandwidth(self) -> float:
        """Words per cycle."""
        return self.words / (self.stop - self.start + 1)
