"""Unions of intervals [start, end) for many owners at once: their lengths, and their shares of columns.

The owners' time axes are laid end to end, so that one sort serves all. Intervals may come block by block
(`Unions`): only their union is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

LONGEST_AXIS = 2**62
FEW = 1 << 18  # intervals that are kept separately


class Intervals(Struct, frozen=True, eq=False):
    """Intervals of owners 0, 1, …; sorted by owner and start, and no two of an owner touch."""

    owner: Any
    start: Any
    end: Any

    def lengths(self, owners: int) -> Any:
        """Return for each owner how long one of its intervals is open."""
        total = np.zeros(owners, np.int64)
        np.add.at(total, self.owner, self.end - self.start)
        return total

    def before(self, times: Any) -> Any:
        """Return for one owner how long an interval was open before each of these times."""
        passed = np.searchsorted(self.start, times, side="right")
        closed = np.append(0, np.cumsum(self.end - self.start))
        to_come = np.append(0, self.end)[passed] - times  # of the last one that began
        return closed[passed] - np.where(passed > 0, np.maximum(to_come, 0), 0)

    def shares(self, owners: int, columns: int, span: int) -> Any:
        """Return per owner and column of time from 0 to `span` the share that is open."""
        return filled(self.owner, self.start, self.end, 1.0, (owners, columns), span)

    def split(self, owner: int) -> tuple[Intervals, Intervals]:
        """Return the intervals of the owners before this one, and the rest."""
        at = int(np.searchsorted(self.owner, owner))
        columns = self.owner, self.start, self.end
        return Intervals(*(column[:at] for column in columns)), Intervals(*(c[at:] for c in columns))

    def of(self, owners: Any) -> Intervals:
        """Return the intervals of some owners, which are ascending."""
        first, end = (np.searchsorted(self.owner, owners, side=side) for side in ("left", "right"))
        count = end - first
        rows = np.arange(int(count.sum())) + np.repeat(first - (np.cumsum(count) - count), count)
        return Intervals(self.owner[rows], self.start[rows], self.end[rows])

    def __len__(self) -> int:
        return len(self.owner)


def filled(row: Any, start: Any, end: Any, weight: Any, shape: tuple[int, int], span: int) -> Any:
    """Return per row and column of time from 0 to `span` the average weight of intervals."""
    return levels(filling(row, start, end, weight, shape, span))


def filling(row: Any, start: Any, end: Any, weight: Any, shape: tuple[int, int], span: int) -> Any:
    """Return changes of slope, which can be added up over blocks before `levels` converts them.

    An interval adds max(x - start, 0) - max(x - end, 0) to the area left of x. Each term is a slope that
    begins in some column, partly there and fully in the columns after it.
    """
    rows, columns = shape
    changes = np.zeros(rows * (columns + 2))
    for edge, sign in ((start, weight), (end, -weight)):
        at = np.clip(edge * (columns / span), 0, columns)
        column = np.minimum(at.astype(np.int64), columns)
        inside = sign * (column + 1 - at)  # of the column itself; all of those after it
        place = row * (columns + 2) + column
        changes += np.bincount(place, inside, len(changes))
        changes += np.bincount(place + 1, sign - inside, len(changes))
    return changes.reshape(rows, columns + 2)


def levels(changes: Any) -> Any:
    """Return the average of every column of every row."""
    return np.maximum(np.cumsum(changes, axis=1)[:, :-2], 0)


def union(owner: Any, start: Any, end: Any) -> Intervals:
    """Return the union of intervals in any order; empty ones vanish."""
    return union_with_first(owner, start, end)[0]


def union_with_first(owner: Any, start: Any, end: Any) -> tuple[Intervals, Any]:
    """Return the union of intervals in any order, and the row with which each of its intervals begins, the
    first of several; empty ones vanish.
    """
    rows = np.flatnonzero(end > start)
    if len(rows) < len(owner):
        owner, start, end = owner[rows], start[rows], end[rows]
    if not len(owner):
        return Intervals(owner, start, end), rows
    lowest, highest = int(owner.min()), int(owner.max())
    span = int(end.max()) + 1
    at_once = max(LONGEST_AXIS // span, 1)
    if highest - lowest < at_once:
        covered, begins = _union(owner, start, end, lowest, 0 if lowest == highest else span)
        return covered, rows[begins]
    parts, firsts = [], []
    for first in range(lowest, highest + 1, at_once):
        inside = np.flatnonzero((owner >= first) & (owner < first + at_once))
        if len(inside):
            covered, begins = _union(owner[inside], start[inside], end[inside], first, span)
            parts.append(covered)
            firsts.append(rows[inside[begins]])
    return _joined(parts), np.concatenate(firsts)


def _union(owner: Any, start: Any, end: Any, lowest: int, span: int) -> tuple[Intervals, Any]:
    """Return the union of intervals that are not empty, of owners whose axes fit side by side, and the row
    with which each begins.
    """
    order = None
    if span:
        offset = (owner - lowest).astype(np.int64) * span
        start, end = start + offset, end + offset
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")  # fast for partly sorted values
        start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    begins = np.flatnonzero(start[1:] > reached[:-1])
    firsts, lasts = np.append(0, begins + 1), np.append(begins, len(start) - 1)
    start, end = start[firsts], reached[lasts]
    rows = firsts if order is None else order[firsts]
    if not span:
        return Intervals(np.full(len(start), lowest, owner.dtype), start, end), rows
    number = start // span
    every = Intervals((number + lowest).astype(owner.dtype), start - number * span, end - number * span)
    return every, rows


def _joined(parts: Sequence[Intervals]) -> Intervals:
    """Return several sets of intervals, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*((part.owner, part.start, part.end) for part in parts), strict=True)
    return Intervals(*(np.concatenate(column) for column in columns))


def together(parts: Iterable[Intervals]) -> Intervals:
    """Return the union of several unions."""
    several = [part for part in parts if len(part)]
    if not several:
        return Intervals(*(np.zeros(0, np.int64) for _ in range(3)))
    if len(several) == 1:
        return several[0]
    every = _joined(several)
    return union(every.owner, every.start, every.end)


class Unions:
    """Unions of intervals of several kinds that come block by block, owner after owner.

    `finish` is called with the unions of one or more owners, one for each kind, when all intervals of these
    owners have come and there are more than a few.
    """

    def __init__(self, kinds: int, finish: Callable[[list[Intervals]], None], few: int = FEW) -> None:
        self._kinds, self._finish, self._few = kinds, finish, few
        self._kept: list[list[Intervals]] = [[] for _ in range(kinds)]
        self._count, self._limit = 0, FEW
        self._last = -1

    def add(self, owner: Any, kind: Any, start: Any, end: Any) -> None:
        """Add a block, whose owners do not come before those of earlier blocks."""
        if not len(owner):
            return
        first, last = int(owner.min()), int(owner.max())
        if first > self._last >= 0 and self._count > self._few:
            self.close()
        for number in np.flatnonzero(np.bincount(kind)).tolist():
            rows = np.flatnonzero(kind == number)
            if len(rows) == len(owner):
                covered = union(owner, start, end)
            else:
                covered = union(owner[rows], start[rows], end[rows])
            self._kept[number].append(covered)
            self._count += len(covered)
        self._last = last
        if first < last and self._count > self._few:
            parts = [together(kept).split(last) for kept in self._kept]
            self._finish([complete for complete, _ in parts])
            self._keep([rest for _, rest in parts])
        elif self._count > self._limit:
            self._keep([together(kept) for kept in self._kept])

    def close(self) -> None:
        """Finish the owners so far: all their intervals have come."""
        if self._last >= 0:
            self._finish([together(kept) for kept in self._kept])
            self._keep([])
            self._last = -1

    def _keep(self, parts: Sequence[Intervals]) -> None:
        self._kept = [[part] for part in parts] or [[] for _ in range(self._kinds)]
        self._count = sum(map(len, parts))
        self._limit = max(2 * self._count, FEW)  # so joining them costs no more than reading them


# Activities of a device by priority: the first one in progress counts.
COMPUTE, COPY, TRANSFER, MEMORY, WAITING, HOST = ACTIVITIES = range(6)


def waits_apart(owner: Any, kind: Any, start: Any, end: Any, admitted: Any, moved: Any) -> tuple[Any, ...]:
    """Return owner, kind, start and end, with the waiting of transfers from admission to movement as a kind.

    Before admission, other transfers of the owner are in progress, which count for themselves.
    """
    start = np.where(kind == TRANSFER, admitted, start)
    waits = np.flatnonzero((kind == TRANSFER) & (moved > start))
    if len(waits):
        owner = np.append(owner, owner[waits])
        kind = np.append(kind, np.full(len(waits), WAITING, kind.dtype))
        start, end = np.append(start, start[waits]), np.append(end, moved[waits])
        start[waits] = moved[waits]
    return owner, kind, start, end


class Spent:
    """Time of each owner by kind: the total of each kind, and the split of its time among the kinds.

    Overlaps count once in the totals. In the parts, every moment belongs to the first kind in progress: they
    add up to `covered_ns`.
    """

    def __init__(self, owners: int) -> None:
        self.totals, self.parts = np.zeros((2, len(ACTIVITIES), owners), np.int64)
        self.communication_ns, self.comm_without_kernel_ns, self.covered_ns = np.zeros((3, owners), np.int64)
        self._unions = Unions(len(ACTIVITIES), self._measure)

    def add(self, owner: Any, kind: Any, start: Any, end: Any, admitted: Any, moved: Any) -> None:
        """Add a block, as `Unions` does; see `waits_apart`."""
        self._unions.add(*waits_apart(owner, kind, start, end, admitted, moved))

    def close(self) -> None:
        """Finish: the figures then cover all owners."""
        self._unions.close()

    def _measure(self, unions: list[Intervals]) -> None:
        before = together(())
        for kind, intervals in enumerate(unions):
            _add(self.totals[kind], intervals, 1)
            every = together((before, intervals))
            _add(self.parts[kind], every, 1)
            _add(self.parts[kind], before, -1)
            before = every
            if kind == WAITING and not len(unions[MEMORY]) and not len(unions[COPY]):
                kernels_or_communication = every
        _add(self.covered_ns, before, 1)
        _add(self.communication_ns, together((unions[TRANSFER], unions[WAITING])), 1)
        if len(unions[MEMORY]) or len(unions[COPY]):
            kernels_or_communication = together(unions[kind] for kind in (COMPUTE, TRANSFER, WAITING))
        _add(self.comm_without_kernel_ns, kernels_or_communication, 1)
        _add(self.comm_without_kernel_ns, unions[COMPUTE], -1)


def _add(total: Any, intervals: Intervals, sign: int) -> None:
    np.add.at(total, intervals.owner, sign * (intervals.end - intervals.start))
