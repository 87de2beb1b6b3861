"""What a stretch needs of the rest of the recording, beyond the parts on both of its sides.

On every lane there is something that came last before, and something that comes first afterwards: a thread
or a stream goes on from the one and until the other, however far away they are. And there is what began
before and has not ended, around all that a stretch holds.

Not here: the parts (`parts`), and what is made of a stretch (`conversion`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.row_file import Table


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Rows of one part."""

    first: Table  # on each lane, the one that begins first
    last: Table  # that begins last
    longest: Table  # that ends last
    open: Table  # all that end after the part


def edges_of(rows: Table, lane: Any, end_ns: Any, until_ns: int) -> Edges:
    """Of rows in the order of their lanes and, on these, of time."""
    if not len(rows):
        return Edges(rows, rows, rows, rows)
    ends = np.flatnonzero(np.append(lane[1:] != lane[:-1], True))
    begins = np.insert(ends[:-1] + 1, 0, 0)
    by_end = np.lexsort((end_ns, lane))
    return Edges(rows[begins], rows[ends], rows[by_end[ends]], rows[end_ns > until_ns])


@dataclass(slots=True)
class Before:
    """What the parts so far leave to those that come."""

    last: dict[int, Table] = field(default_factory=dict)  # by lane; tables of one row
    longest: dict[int, Table] = field(default_factory=dict)
    open: list[Table] = field(default_factory=list)

    def passes(self, edges: Edges, until_ns: int) -> None:
        """A part lies behind, which ended at a moment."""
        for row in _each(edges.last):
            self.last[int(row["lane"][0])] = row
        for row in _each(edges.longest):
            known = self.longest.setdefault(int(row["lane"][0]), row)
            if _end(row) > _end(known):
                self.longest[int(row["lane"][0])] = row
        self.open = [one for one in (*self.open, *_each(edges.open)) if _end(one) > until_ns]

    def rows(self) -> list[Table]:
        """All of these; some more than once."""
        return [*self.last.values(), *self.longest.values(), *self.open]


def firsts(edges: list[Edges]) -> list[Table]:
    """What comes first on each lane in some parts."""
    found: dict[int, Table] = {}
    for one in edges:
        for row in _each(one.first):
            found.setdefault(int(row["lane"][0]), row)
    return list(found.values())


def together(rows: list[Table]) -> Table:
    """Rows of several tables, each once, in the order of their numbers."""
    whole = np.concatenate(rows)
    _, at = np.unique(whole["number"], return_index=True)
    return whole[at]


def _each(rows: Table) -> list[Table]:
    return [rows[at : at + 1] for at in range(len(rows))]


def _end(row: Table) -> int:
    return int(row["ts_ns"][0] + row["dur_ns"][0])
