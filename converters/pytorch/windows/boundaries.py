"""What a window needs of the rest of the recording, beyond the parts on both of its sides.

On every lane there is something that came last before, and something that comes first afterwards: a thread
or a stream goes on from the one and until the other, however far away they are. And there is what began
before and has not ended, around all that a window holds. With a call that launched work goes the first of
that work: it says that the call matters, and when its node ended.

Not here: the parts (`parts`), and what is made of a window (`conversion`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import EventSort
from converters.pytorch.row_file import Table


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """Rows of one part."""

    first: Table  # on each lane, the one that begins first
    last: Table  # that begins last
    longest: Table  # that ends last; annotations are marks without duration
    open: Table  # all that end after the part
    work: Table  # what these launched, the first of each
    launched_by: Any  # by row of `work`: the number of the launching event


def boundaries_of(rows: Table, lane: Any, end_ns: Any, until_ns: int) -> Boundaries:
    """Of rows in the order of their lanes and, on these, of time."""
    none, nobody = rows[:0], np.zeros(0, np.int64)
    if not len(rows):
        return Boundaries(rows, rows, rows, rows, none, nobody)
    ends = np.flatnonzero(np.append(lane[1:] != lane[:-1], True))
    begins = np.insert(ends[:-1] + 1, 0, 0)
    by_end = np.lexsort((_busy_until(rows), lane))
    return Boundaries(rows[begins], rows[ends], rows[by_end[ends]], rows[end_ns > until_ns], none, nobody)


def with_work(boundaries: list[Boundaries], work: Table, launched_by: Any) -> Boundaries:
    """Several boundaries as one, with their work; work is in the order of its launches, then of time."""
    first, last, longest, still_open = (
        np.concatenate([getattr(one, name) for one in boundaries])
        for name in ("first", "last", "longest", "open")
    )
    numbers = np.concatenate([rows["number"] for rows in (first, last, longest, still_open)])
    _, at = np.unique(launched_by, return_index=True)
    at = at[np.isin(launched_by[at], numbers)]
    return Boundaries(first, last, longest, still_open, work[at], launched_by[at])


@dataclass(slots=True)
class CarryOver:
    """What the parts so far leave to those that come."""

    last: dict[int, Table] = field(default_factory=dict)  # by lane; tables of one row
    longest: dict[int, Table] = field(default_factory=dict)
    open: list[Table] = field(default_factory=list)
    work: dict[int, Table] = field(default_factory=dict)  # by number of the launching event

    def passes(self, boundaries: Boundaries, until_ns: int) -> None:
        """A part lies behind, which ended at a moment."""
        for row in _each(boundaries.last):
            self.last[int(row["lane"][0])] = row
        for row in _each(boundaries.longest):
            known = self.longest.setdefault(int(row["lane"][0]), row)
            if _busy_until(row) > _busy_until(known):
                self.longest[int(row["lane"][0])] = row
        self.open = [
            row for row in (*self.open, *_each(boundaries.open)) if row["ts_ns"] + row["dur_ns"] > until_ns
        ]
        work = self.work | _work(boundaries)
        numbers = {int(row["number"][0]) for row in self._bare()}
        self.work = {number: work[number] for number in sorted(numbers & work.keys())}

    def rows(self) -> list[Table]:
        """All of these; some more than once."""
        return [*self._bare(), *self.work.values()]

    def _bare(self) -> list[Table]:
        return [*self.last.values(), *self.longest.values(), *self.open]


def firsts(boundaries: list[Boundaries]) -> list[Table]:
    """What comes first on each lane in some parts."""
    found: dict[int, Table] = {}
    work: dict[int, Table] = {}
    for one in boundaries:
        work |= _work(one)
        for row in _each(one.first):
            found.setdefault(int(row["lane"][0]), row)
    launched = (work.get(int(row["number"][0])) for row in found.values())
    return [*found.values(), *(row for row in launched if row is not None)]


def together(rows: list[Table]) -> Table:
    """Rows of several tables, each once, in the order of their numbers."""
    whole = np.concatenate(rows)
    _, at = np.unique(whole["number"], return_index=True)
    return whole[at]


def _work(boundaries: Boundaries) -> dict[int, Table]:
    return dict(zip(boundaries.launched_by.tolist(), _each(boundaries.work), strict=True))


def _each(rows: Table) -> list[Table]:
    return [rows[at : at + 1] for at in range(len(rows))]


def _busy_until(rows: Table) -> Any:
    return rows["ts_ns"] + np.where(rows["sort"] == EventSort.ANNOTATION, 0, rows["dur_ns"])
