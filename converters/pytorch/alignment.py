"""Which elements of two sequences of names belong together, where one holds the other more or less.

An execution trace and a timeline that share no ids still list the same operators thread by thread in the
same order. Runs of names that occur once are anchors; between anchors, equal names match in order. If the
longer sequence repeats itself (many iterations), autograd's sequence numbers say which repetition it is,
and without them the first of the best wins.

Not here: what the names are of (`linking`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
_RUN = 8  # names in an anchor
_MOST_REPEATS = 256  # anchors that occur more often say nothing about where the sequences meet
_SMALL = 400  # elements between two anchors that are worth comparing one by one
_MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Names in order, and autograd's sequence numbers (-1 where there is none)."""

    name: Numbers
    number: Numbers

    def __len__(self) -> int:
        return len(self.name)


def align(short: Sequence, long: Sequence) -> tuple[Numbers, Numbers]:
    """Positions that match, ascending in both."""
    first, last = _window(short, long)
    inner = Sequence(long.name[first:last], long.number[first:last])
    anchors = _by_number(short, inner)
    if len(anchors[0]) < min(len(short), 8):
        anchors = _anchors(short.name, inner.name)
    matched_short, matched_long = _between(short.name, inner.name, *_ascending(*anchors))
    return matched_short, matched_long + first


def _window(short: Sequence, long: Sequence) -> tuple[int, int]:
    """The part of the long sequence in which the short one lies, with room for what only one of them has."""
    if len(long) <= len(short) * 5 // 4:
        return 0, len(long)
    here, there = _by_number(short, long)
    if len(here) < 3:
        here, there = _repeated_runs(short.name, long.name)
    if not len(here):
        return 0, len(long)
    shifts, votes = np.unique(there - here, return_counts=True)
    shift = int(shifts[np.argmax(votes)])
    room = max(16, len(short) // 10)
    return max(0, shift - room), min(len(long), shift + len(short) + room)


def _by_number(short: Sequence, long: Sequence) -> tuple[Numbers, Numbers]:
    """Elements of equal name and equal sequence number, of which there is one on each side."""
    keys = [side.name * (1 << 40) + side.number for side in (short, long)]
    for at, side in enumerate((short, long)):
        keys[at] = np.where(side.number > 0, keys[at], -1 - at)
    return _unique_pairs(keys[0], keys[1])


def _anchors(short: Numbers, long: Numbers) -> tuple[Numbers, Numbers]:
    """Runs of names that occur once on each side; shorter runs if there are none of the usual length."""
    here, there = _unique_pairs(short[:0], long[:0])
    for length in (_RUN, 3, 1):
        here, there = _unique_pairs(_runs(short, length), _runs(long, length))
        if len(here):
            break
    return here, there


def _repeated_runs(short: Numbers, long: Numbers) -> tuple[Numbers, Numbers]:
    """Pairs of every run that is unique in the short sequence with its occurrences in the long one."""
    ours, theirs = _runs(short, _RUN), _runs(long, _RUN)
    values, at, count = np.unique(ours, return_index=True, return_counts=True)
    values, at = values[count == 1], at[count == 1]
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    low, high = np.searchsorted(ordered, values), np.searchsorted(ordered, values, "right")
    some = (high > low) & (high - low <= _MOST_REPEATS)
    low, repeats = low[some], (high - low)[some]
    each = np.repeat(low - np.cumsum(repeats) + repeats, repeats) + np.arange(int(repeats.sum()))
    return np.repeat(at[some], repeats), order[each]


def _runs(names: Numbers, length: int) -> Any:
    """A number for each run of names, by the position of its first."""
    if len(names) < length:
        return np.zeros(0, np.uint64)
    mixed = np.zeros(len(names) - length + 1, np.uint64)
    for offset in range(length):
        mixed = (mixed + names[offset : offset + len(mixed)].astype(np.uint64)) * np.uint64(_MULTIPLIER)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _unique_pairs(ours: Any, theirs: Any) -> tuple[Numbers, Numbers]:
    """Positions of values that occur once on each side."""
    here, at_here = _once(ours)
    there, at_there = _once(theirs)
    _, first, second = np.intersect1d(here, there, assume_unique=True, return_indices=True)
    order = np.argsort(at_here[first], kind="stable")
    return at_here[first][order], at_there[second][order]


def _once(values: Any) -> tuple[Any, Any]:
    unique, at, count = np.unique(values, return_index=True, return_counts=True)
    return unique[count == 1], at[count == 1]


def _ascending(here: Numbers, there: Numbers) -> tuple[Numbers, Numbers]:
    """The longest part of the pairs that ascends on both sides."""
    ends: list[int] = []  # the last element of the best sequence of each length
    last: list[int] = []  # and the pair that it is
    before = [-1] * len(there)
    for pair, position in enumerate(there.tolist()):
        length = bisect_left(ends, position)
        if length == len(ends):
            ends.append(position)
            last.append(pair)
        else:
            ends[length], last[length] = position, pair
        before[pair] = last[length - 1] if length else -1
    chosen = []
    pair = last[-1] if last else -1
    while pair >= 0:
        chosen.append(pair)
        pair = before[pair]
    chosen.reverse()
    return here[chosen], there[chosen]


def _between(short: Numbers, long: Numbers, here: Numbers, there: Numbers) -> tuple[Numbers, Numbers]:
    """The anchors and what matches between them."""
    starts = np.concatenate(([-1], here)), np.concatenate(([-1], there))
    ends = np.append(here, len(short)), np.append(there, len(long))
    found_here, found_there = [here], [there]
    wide = np.flatnonzero((ends[0] - starts[0] > 1) & (ends[1] - starts[1] > 1))
    for gap in wide.tolist():
        low = int(starts[0][gap]) + 1, int(starts[1][gap]) + 1
        high = int(ends[0][gap]), int(ends[1][gap])
        for first, second, length in _matching(short, long, low, high):
            found_here.append(np.arange(first, first + length))
            found_there.append(np.arange(second, second + length))
    positions = np.concatenate(found_here)
    order = np.argsort(positions, kind="stable")
    return positions[order], np.concatenate(found_there)[order]


def _matching(
    short: Numbers, long: Numbers, low: tuple[int, int], high: tuple[int, int]
) -> list[tuple[int, int, int]]:
    """Equal stretches of two parts: from both ends, and in the middle if that is small."""
    ours, theirs = short[low[0] : high[0]], long[low[1] : high[1]]
    size = min(len(ours), len(theirs))
    front = _equal(ours[:size], theirs[:size])
    back = min(_equal(ours[::-1][:size], theirs[::-1][:size]), size - front)
    found = [(low[0], low[1], front), (high[0] - back, high[1] - back, back)]
    ours, theirs = ours[front : len(ours) - back], theirs[front : len(theirs) - back]
    if 0 < len(ours) <= _SMALL and 0 < len(theirs) <= _SMALL:
        matcher = SequenceMatcher(None, ours.tolist(), theirs.tolist(), autojunk=False)
        found += [
            (low[0] + front + block.a, low[1] + front + block.b, block.size)
            for block in matcher.get_matching_blocks()
        ]
    return [stretch for stretch in found if stretch[2]]


def _equal(ours: Numbers, theirs: Numbers) -> int:
    """How many elements are equal before the first difference."""
    different = np.flatnonzero(ours != theirs)
    return int(different[0]) if len(different) else len(ours)
