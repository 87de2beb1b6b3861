"""Points of a sweep: how the values of its axes are combined.

A grid takes every value of each axis with every value of the others; axes that are zipped advance together;
a sample takes some points of the whole, at random or as a Latin hypercube, in which each axis is divided into
as many parts as there are points, and each part has one.

Only `random()` of Python's generator is used, whose sequence is the same in all versions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

from et_sim.basics.errors import InputError
from et_sim.sweeps.axes import Axis
from et_sim.sweeps.expressions import Condition

Values = tuple[Any, ...]  # one of each axis, in their order
MOST_CANDIDATES = 1_000_000
METHODS = ("random", "latin-hypercube")


def grid(axes: Sequence[Axis], zipped: Sequence[Sequence[str]]) -> Iterator[Values]:
    """Every combination; the last axis changes fastest."""
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
    axes: Sequence[Axis], zipped: Sequence[Sequence[str]]
) -> list[tuple[list[int], list[tuple[Any, ...]]]]:
    """Numbers of axes that advance together, and their values, in the order of their first axes."""
    number_of = {axis.name: number for number, axis in enumerate(axes)}
    found: list[tuple[list[int], list[tuple[Any, ...]]]] = []
    for number, axis in enumerate(axes):
        group = next((names for names in zipped if axis.name in names), [axis.name])
        numbers = sorted(number_of[name] for name in group)
        if numbers[0] != number:
            continue
        values = [axes[one].values or () for one in numbers]
        counts = {axes[one].name: len(some) for one, some in zip(numbers, values, strict=True)}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise InputError(
                f"zipped axes differ in their number of values: {told}", remedy="make them equal"
            )
        found.append((numbers, list(zip(*values, strict=True))))
    return found


def sample(axes: Sequence[Axis], method: str, points: int, seed: int) -> Iterator[Values]:
    """Some points; equal seeds give equal ones."""
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
    candidates: Iterator[Values], axes: Sequence[Axis], conditions: Sequence[Condition]
) -> list[Values]:
    """Those that meet all conditions, each once."""
    names = [axis.name for axis in axes]
    found: dict[str, Values] = {}
    for values in candidates:
        named = dict(zip(names, values, strict=True))
        if all(condition.holds(named) for condition in conditions):
            found.setdefault(json.dumps(values), values)
    return list(found.values())
