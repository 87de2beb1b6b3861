"""Axes: a field of the inputs, and the values that it takes, as a list or a range.

Not here: how values of several axes make points (`sampling`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from et_sim.basics.errors import InputError
from et_sim.sweeps.fields import Field

MOST_VALUES = 1_000_000
SCALES = ("linear", "logarithmic")


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from one to another, both included; whole ones if both ends are."""

    first: int | float
    last: int | float
    count: int | None  # None: as many as a sample asks for
    is_logarithmic: bool

    def __post_init__(self) -> None:
        ends = f"from {self.first} to {self.last}"
        if not all(math.isfinite(end) for end in (self.first, self.last)):
            raise InputError(f"a range {ends} has no end", remedy="give finite numbers")
        if self.first > self.last:
            raise InputError(f"a range goes {ends}", remedy="begin with the smaller number")
        if self.is_logarithmic and self.first <= 0:
            raise InputError(
                f"a logarithmic range goes {ends}", remedy="begin above 0, or leave out the scale"
            )
        if self.count is not None and not 1 <= self.count <= MOST_VALUES:
            raise InputError(f"a range has a count of {self.count}", remedy=f"give 1 to {MOST_VALUES:,}")

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are integers."""
        return isinstance(self.first, int) and isinstance(self.last, int)

    def values(self) -> tuple[int | float, ...]:
        """As many as there are to be; whole ones that come out equal are one."""
        assert self.count is not None
        steps = max(self.count - 1, 1)
        return tuple(dict.fromkeys(self._at(number, steps) for number in range(self.count)))

    def _at(self, number: int, steps: int) -> int | float:
        if number in (0, steps):
            return self.last if number else self.first
        found = self._between(number / steps)
        return round(found) if self.is_whole else found

    def at(self, share: float) -> int | float:
        """The number at a share of the way, from 0 to just below 1: every whole number has the same part."""
        if not self.is_whole:
            return self._between(share)
        if self.is_logarithmic:
            return min(max(round(self._between(share)), int(self.first)), int(self.last))
        return int(self.first) + int(share * (int(self.last) - int(self.first) + 1))

    def _between(self, share: float) -> float:
        if self.is_logarithmic:
            return float(math.exp(math.log(self.first) + share * math.log(self.last / self.first)))
        return float(self.first + share * (self.last - self.first))


@dataclass(frozen=True, slots=True)
class Axis:
    """A field, what it is called in tables and conditions, and its values."""

    name: str
    field: Field
    listed: tuple[Any, ...] = ()
    range: Range | None = None

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All of them; None: a range without a count."""
        if self.range is None:
            return self.listed
        return None if self.range.count is None else self.range.values()

    def at(self, share: float) -> Any:
        """The value at a share of the way through them, from 0 to just below 1."""
        values = self.values
        if values is None:
            assert self.range is not None
            return self.range.at(share)
        return values[int(share * len(values))]
