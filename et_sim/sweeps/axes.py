"""Axes, each a field of the inputs and its values, as a list or a range; and points, which combine values.

A grid takes every value of each axis with every value of the others; zipped axes advance together; a sample
takes some points of the whole, at random or as a Latin hypercube, which divides each axis into as many parts
as there are points, and takes one point from each part.

Only `random()` of Python's generator is used, whose sequence is the same in all versions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.documents.keys import key
from et_sim.documents.kinds import choice, of_type
from et_sim.sweeps.expressions import Condition
from et_sim.sweeps.fields import InputField

Values = tuple[Any, ...]  # one value of each axis, in their order
MOST_CANDIDATES = 1_000_000
METHODS = ("random", "latin-hypercube")
MOST_VALUES = 1_000_000
SCALES = ("linear", "logarithmic")


_NUMBER = of_type("any number", "a number", int, float)
_MANY = of_type("any whole number", "a whole number", int)


class Range(Struct, frozen=True):
    """Numbers from one to another, both included; whole ones if both ends are."""

    first: int | float = key(_NUMBER, "The first number.", name="from", required=True)
    last: int | float = key(_NUMBER, "The last number.", name="to", required=True)
    count: int | None = key(_MANY, "The number of values; without it, a sample sets the number.", None)
    scale: str = choice("The spacing of the values.", SCALES[0], choices=SCALES)

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
    def is_logarithmic(self) -> bool:
        """Return whether equal steps multiply."""
        return self.scale == SCALES[1]

    @property
    def is_whole(self) -> bool:
        """Return whether its numbers are integers."""
        return isinstance(self.first, int) and isinstance(self.last, int)

    def values(self) -> tuple[int | float, ...]:
        """Return the values of a range with a count; equal whole numbers count once."""
        assert self.count is not None
        steps = max(self.count - 1, 1)
        return tuple(dict.fromkeys(self._at(number, steps) for number in range(self.count)))

    def _at(self, number: int, steps: int) -> int | float:
        if number in (0, steps):
            return self.last if number else self.first
        value = self._between(number / steps)
        return round(value) if self.is_whole else value

    def at(self, share: float) -> int | float:
        """Return the number at a share of the range, from 0 to below 1; whole numbers have equal parts."""
        if not self.is_whole:
            return self._between(share)
        if self.is_logarithmic:
            return min(max(round(self._between(share)), int(self.first)), int(self.last))
        return int(self.first) + int(share * (int(self.last) - int(self.first) + 1))

    def _between(self, share: float) -> float:
        if self.is_logarithmic:
            return float(math.exp(math.log(self.first) + share * math.log(self.last / self.first)))
        return float(self.first + share * (self.last - self.first))


class SweepAxis(Struct, frozen=True):
    """A field, its name in tables and conditions, and its values."""

    name: str
    field: InputField
    listed: tuple[Any, ...] = ()
    range: Range | None = None

    @property
    def values(self) -> tuple[Any, ...] | None:
        """Return all values; None for a range without a count."""
        if self.range is None:
            return self.listed
        return None if self.range.count is None else self.range.values()

    def at(self, share: float) -> Any:
        """Return the value at a share of the list or range, from 0 to below 1."""
        values = self.values
        if values is None:
            assert self.range is not None
            return self.range.at(share)
        return values[int(share * len(values))]


def grid(axes: Sequence[SweepAxis], zipped: Sequence[Sequence[str]]) -> Iterator[Values]:
    """Yield every combination; the last axis changes fastest."""
    for axis in axes:
        if axis.values is None:
            raise InputError(
                f"the range of axis {axis.name!r} has no count", remedy="add count, or sample the axes"
            )
    bundles = _bundles(axes, zipped)
    total = math.prod(len(bundle) for _, bundle in bundles)
    if total > MOST_CANDIDATES:
        raise InputError(
            f"the axes make {total:,} combinations",
            remedy=f"take at most {MOST_CANDIDATES:,}: fewer values, or a sample",
        )
    order = [number for numbers, _ in bundles for number in numbers]
    places = [order.index(number) for number in range(len(axes))]
    for chosen in product(*(bundle for _, bundle in bundles)):
        flat = [value for values in chosen for value in values]
        yield tuple(flat[place] for place in places)


def _bundles(
    axes: Sequence[SweepAxis], zipped: Sequence[Sequence[str]]
) -> list[tuple[list[int], list[tuple[Any, ...]]]]:
    """Return indices of axes that advance together, and their values, in the order of their first axes."""
    number_of = {axis.name: number for number, axis in enumerate(axes)}
    bundles: list[tuple[list[int], list[tuple[Any, ...]]]] = []
    for number, axis in enumerate(axes):
        group = next((names for names in zipped if axis.name in names), [axis.name])
        numbers = sorted(number_of[name] for name in group)
        if numbers[0] != number:
            continue
        values = [axes[number].values or () for number in numbers]
        counts = {axes[number].name: len(column) for number, column in zip(numbers, values, strict=True)}
        if len(set(counts.values())) > 1:
            counts_text = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise InputError(
                f"zipped axes differ in their number of values: {counts_text}", remedy="make them equal"
            )
        bundles.append((numbers, list(zip(*values, strict=True))))
    return bundles


def sample(axes: Sequence[SweepAxis], method: str, points: int, seed: int) -> Iterator[Values]:
    """Yield a sample of points; equal seeds give equal samples."""
    random = Random(seed)
    if method == "random":
        for _ in range(points):
            yield tuple(axis.at(random.random()) for axis in axes)
        return
    columns = []
    for axis in axes:
        keys = [random.random() for _ in range(points)]
        parts = sorted(range(points), key=keys.__getitem__)
        shares = (min((part + random.random()) / points, math.nextafter(1.0, 0.0)) for part in parts)
        columns.append([axis.at(share) for share in shares])
    yield from zip(*columns, strict=True)


def admitted(
    candidates: Iterator[Values], axes: Sequence[SweepAxis], conditions: Sequence[Condition]
) -> list[Values]:
    """Return the candidates that meet all conditions, each once."""
    names = [axis.name for axis in axes]
    combinations: dict[str, Values] = {}
    for values in candidates:
        named = dict(zip(names, values, strict=True))
        if all(condition.holds(named) for condition in conditions):
            combinations.setdefault(json.dumps(values), values)
    return list(combinations.values())
