"""Alignment of two sequences of names, one of which roughly contains the other.

An execution trace and a timeline that share no ids still list the same operators, thread by thread in the
same order. From a common start, equal names match one after the other; at a difference, both skip to the
nearest positions that agree again. Candidates for the start come from autograd's sequence numbers, which
distinguish iterations, from the beginnings of both sequences, and from the shift on which most runs of names
agree. The start with most matching elements wins, the first of equals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Numbers = npt.NDArray[np.int64]
_RUN = 8  # names that identify a place together
_AGAIN = 3  # names that must agree after a difference
_LOOK_AHEAD = (64, 512, 4096)
_MOST_REPEATS = 256  # runs that occur more often do not identify a place
_PLACES = 3  # shifts with most votes that are tried
_NEARLY_ALL = 0.98
_MULTIPLIER = 0x9E3779B97F4A7C15


class NameSequence(Struct, frozen=True, eq=False):
    """Names in order, and autograd's sequence numbers (-1: none)."""

    name: Numbers
    number: Numbers

    def __len__(self) -> int:
        return len(self.name)

    def chosen(self, rows: Any) -> NameSequence:
        """Return the elements at some positions."""
        return NameSequence(self.name[rows], self.number[rows])


def align(ours: NameSequence, theirs: NameSequence) -> tuple[Numbers, Numbers]:
    """Return the positions that match, ascending in both sequences."""
    best = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for shift in _shifts(ours, theirs):
        aligned = _follow(ours.name, theirs.name, shift)
        if len(aligned[0]) > len(best[0]):
            best = aligned
        if len(best[0]) >= _NEARLY_ALL * min(len(ours), len(theirs)):
            break
    return best


def _shifts(ours: NameSequence, theirs: NameSequence) -> Iterator[int]:
    """Yield the shifts of `theirs` against `ours`, likely ones first."""
    here, there = _by_number(ours, theirs)
    if len(here) >= _AGAIN:
        yield int(np.median(there[:_RUN] - here[:_RUN]))
    yield 0
    if len(ours) <= len(theirs):
        here, there = _repeated_runs(ours.name, theirs.name)
    else:
        there, here = _repeated_runs(theirs.name, ours.name)
    shifts, votes = np.unique(there - here, return_counts=True)
    yield from shifts[np.argsort(-votes, kind="stable")[:_PLACES]].tolist()


def _by_number(ours: NameSequence, theirs: NameSequence) -> tuple[Numbers, Numbers]:
    """Return elements of equal name and equal sequence number that are unique on both sides."""
    first, second = (
        np.where(side.number > 0, side.name * (1 << 40) + side.number, -1 - at)
        for at, side in enumerate((ours, theirs))
    )
    here, at_here = _once(first)
    there, at_there = _once(second)
    _, in_ours, in_theirs = np.intersect1d(here, there, assume_unique=True, return_indices=True)
    order = np.argsort(at_here[in_ours], kind="stable")
    return at_here[in_ours][order], at_there[in_theirs][order]


def _once(values: Any) -> tuple[Any, Any]:
    unique, at, count = np.unique(values, return_index=True, return_counts=True)
    return unique[count == 1], at[count == 1]


def _repeated_runs(short: Numbers, long: Numbers) -> tuple[Numbers, Numbers]:
    """Return pairs of every run that is unique in the short sequence with its occurrences in the long one."""
    ours, theirs = _runs(short, _RUN), _runs(long, _RUN)
    values, at = _once(ours)
    order = np.argsort(theirs, kind="stable")
    ordered = theirs[order]
    low, high = np.searchsorted(ordered, values), np.searchsorted(ordered, values, "right")
    repeated = (high > low) & (high - low <= _MOST_REPEATS)
    low, repeats = low[repeated], (high - low)[repeated]
    each = np.repeat(low - np.cumsum(repeats) + repeats, repeats) + np.arange(int(repeats.sum()))
    return np.repeat(at[repeated], repeats), order[each]


def _runs(names: Numbers, length: int) -> Any:
    """Return a hash of each run of names, by the position of its first."""
    if len(names) < length:
        return np.zeros(0, np.uint64)
    mixed = np.zeros(len(names) - length + 1, np.uint64)
    for offset in range(length):
        mixed = (mixed + names[offset : offset + len(mixed)].astype(np.uint64)) * np.uint64(_MULTIPLIER)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _follow(ours: Numbers, theirs: Numbers, shift: int) -> tuple[Numbers, Numbers]:
    """Return the matching positions from one shift on, skipping as few elements as possible."""
    here, there = max(0, -shift), max(0, shift)
    pieces: list[tuple[int, int, int]] = []
    while here < len(ours) and there < len(theirs):
        length = _equal(ours[here:], theirs[there:])
        if length:
            pieces.append((here, there, length))
            here, there = here + length, there + length
        skip = _next_meeting(ours[here:], theirs[there:])
        if skip is None:
            break
        here, there = here + skip[0], there + skip[1]
    windows = [
        (np.arange(first, first + size), np.arange(second, second + size)) for first, second, size in pieces
    ]
    if not windows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([first for first, _ in windows]), np.concatenate([second for _, second in windows])


def _equal(ours: Numbers, theirs: Numbers) -> int:
    """Return the number of equal elements before the first difference, comparing growing blocks."""
    size, done = 1024, 0
    most = min(len(ours), len(theirs))
    while done < most:
        end = min(done + size, most)
        different = np.flatnonzero(ours[done:end] != theirs[done:end])
        if len(different):
            return done + int(different[0])
        done, size = end, size * 2
    return done


def _next_meeting(ours: Numbers, theirs: Numbers) -> tuple[int, int] | None:
    """Return the fewest elements to skip on both sides until the next ones agree."""
    for far in _LOOK_AHEAD:
        first, second = _runs(ours[: far + _AGAIN], _AGAIN), _runs(theirs[: far + _AGAIN], _AGAIN)
        skips, other_skips = np.nonzero(first[:, None] == second[None, :])
        if len(skips):
            nearest = int(np.argmin(skips + other_skips))
            return int(skips[nearest]), int(other_skips[nearest])
        if far >= max(len(ours), len(theirs)):
            break
    return None
