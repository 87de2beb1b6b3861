"""What each axis of a sweep does: makespans by its values, and between which values the bottleneck changes.

Not here: how it is shown (`summary`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

MOST_VALUES = 12  # of a column of numbers that are shown one by one; more of them are put together
PARTS = 8


@dataclass(frozen=True, slots=True)
class Effect:
    """The points of one value of an axis, or of numbers near each other."""

    axis: str
    value: Any
    until: Any  # the last of these numbers; the same for a single value
    points: int
    least_ns: int
    mean_ns: int

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """Neighbouring values of an axis between which the bottleneck is another, all else being equal."""

    axis: str
    value: Any
    to: Any
    bottleneck: str
    becomes: str
    times: int
    of: int  # pairs of points that differ in these two values alone

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def effects_of(rows: Sequence[Mapping[str, Any]], axis: str) -> list[Effect]:
    """Makespans of complete points by the values of an axis, in the order of these."""
    found = []
    for span in _spans(_ordered(rows, axis)):
        inside = set(span)
        times = [row["makespan_ns"] for row in rows if row[axis] in inside]
        found.append(Effect(axis, span[0], span[-1], len(times), min(times), round(sum(times) / len(times))))
    return found


def _ordered(rows: Sequence[Mapping[str, Any]], axis: str) -> list[Any]:
    """Numbers by size, words as they come."""
    values = list(dict.fromkeys(row[axis] for row in rows))
    is_number = all(isinstance(value, int | float) for value in values)
    return sorted(values) if is_number else values


def _spans(values: list[Any]) -> list[list[Any]]:
    """Each by itself; of many numbers, neighbours together."""
    if len(values) <= MOST_VALUES or not all(isinstance(value, int | float) for value in values):
        return [[value] for value in values]
    cuts = [len(values) * part // PARTS for part in range(PARTS + 1)]
    return [values[first:last] for first, last in pairwise(cuts)]


def turns_of(rows: Sequence[Mapping[str, Any]], axes: Sequence[str], axis: str) -> list[Turn]:
    """Where the bottleneck changes along an axis."""
    others = [name for name in axes if name != axis]
    place = {value: number for number, value in enumerate(_ordered(rows, axis))}
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(tuple(row[name] for name in others), []).append(row)
    pairs: Counter[tuple[Any, Any]] = Counter()
    changes: Counter[tuple[Any, Any, str, str]] = Counter()
    for line in lines.values():
        line.sort(key=lambda row: place[row[axis]])
        for one, other in pairwise(line):
            ends = one[axis], other[axis]
            pairs[ends] += ends[0] != ends[1]
            if one["bottleneck"] != other["bottleneck"]:
                changes[(*ends, one["bottleneck"], other["bottleneck"])] += 1
    order = sorted(
        changes.items(), key=lambda item: (place[item[0][0]], place[item[0][1]], -item[1], item[0][2:])
    )
    return [Turn(axis, *ends, times, pairs[ends[:2]]) for ends, times in order]
