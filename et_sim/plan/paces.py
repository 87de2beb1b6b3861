"""Paces: the durations of nodes on ranks that do not keep those of their template.

Slow ranks and ranks with jitter run the program of their template, and differ in a column. So a template is
lowered, folded and described once, however many paces its ranks have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

OWN_PACE = -1  # in place of the begin of a column: the durations are the template's


class Paces:
    """The columns of all paces; equal columns are kept once."""

    def __init__(self, ranks: int) -> None:
        self.first = np.full(ranks, OWN_PACE, np.int64)  # where the column of each rank begins
        self._columns: dict[int, Any] = {}  # by where they begin
        self._known: dict[bytes, int] = {}
        self._length = 0

    @property
    def are_any(self) -> bool:
        """Return whether some rank does not keep the durations of its template."""
        return bool(self._columns)

    def put(self, ranks: Any, durations: Any, of_template: Any) -> None:
        """Set the durations of nodes on some ranks of a template."""
        if np.array_equal(durations, of_template):
            self.first[ranks] = OWN_PACE
            return
        key = hashlib.sha256(durations.tobytes()).digest()
        if key not in self._known:
            self._known[key] = self._length
            self._columns[self._length] = durations
            self._length += len(durations)
        self.first[ranks] = self._known[key]

    def column(self, begin: int) -> Any:
        """Return the column that begins there."""
        return self._columns[begin]

    def columns(self) -> Any:
        """Return all columns, one after the other."""
        return np.concatenate([np.zeros(0, np.int64), *self._columns.values()])

    def longest(self, ranks: Any, of_template: Any) -> Any:
        """Return the longest durations of each node on some ranks of a template."""
        longest = np.array(of_template)
        for begin in np.unique(self.first[ranks]).tolist():
            if begin != OWN_PACE:
                np.maximum(longest, self._columns[begin], out=longest)
        return longest


class OpenPaces(Paces):
    """Paces whose durations are set for each run; ranks of one class have equal ones."""

    def __init__(self, classes: Any) -> None:
        super().__init__(len(classes))
        self.first = np.asarray(classes, np.int64)

    @property
    def are_any(self) -> bool:
        """Return True: the durations of the templates are never those of a run."""
        return True


def ranks_by_pace(template_of_rank: Any, code: Any) -> Iterator[tuple[int, Any]]:
    """Yield template and ranks of every pace; `code` is a number per rank, or OWN_PACE."""
    paced = np.flatnonzero(code != OWN_PACE)
    order = paced[np.lexsort((code[paced], template_of_rank[paced]))]
    of_template, of_code = template_of_rank[order], code[order]
    is_next = (of_template[1:] != of_template[:-1]) | (of_code[1:] != of_code[:-1])
    for ranks in np.split(order, np.flatnonzero(is_next) + 1) if len(order) else ():
        yield int(template_of_rank[ranks[0]]), ranks
