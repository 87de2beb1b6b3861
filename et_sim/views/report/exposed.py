"""How much of the communication of each group is exposed: under way while nothing but communication is.

Per actor, the time that a group's communication adds to that of everything that is not communication; times
of actors count once per rank. Not here: the exposed time of ranks, which the run's summary has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.intervals import Intervals, Unions, together
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory

MESSAGES = "sends and receives"
OTHER_KINDS = ("compute", "memory_load", "memory_store", "metadata", "invalid")
COLUMNS = ("actor", "kind", "group", "start_ns", "end_ns", "bytes")


@dataclass(slots=True)
class Exposed:
    """Communication of a group, over all ranks."""

    group: str
    count: int = 0
    bytes: int = 0
    active_ns: int = 0
    exposed_ns: int = 0


def exposed_by_group(run: RunDirectory) -> list[Exposed]:
    """All groups, the most exposed first."""
    found: dict[str, Exposed] = {}
    adding: _Adding | None = None
    for rows in run.batches("timeline", COLUMNS):
        # Texts are the same in all batches.
        adding = adding or _Adding(found, rows, run.rank_counts())
        end = integers(rows["end_ns"], missing=-1)
        adding.add(rows, np.where(end < 0, run.summary["makespan_ns"], end))
    if adding is not None:
        adding.unions.close()
    return sorted(found.values(), key=lambda one: (-one.exposed_ns, -one.active_ns, one.group))


class _Adding:
    """Adds up blocks of the timeline."""

    def __init__(self, found: dict[str, Exposed], rows: Any, ranks: Any) -> None:
        self._found, self._ranks = found, ranks
        named = [text or MESSAGES for text in (*rows["group"].dictionary.to_pylist(), None)]
        self._texts = sorted(set(named))  # groups of one name are shown as one
        self._sort_of_group = np.array([1 + self._texts.index(text) for text in named])
        kinds = (*rows["kind"].dictionary.to_pylist(), None)
        self._is_other = np.array([kind in OTHER_KINDS for kind in kinds])
        self.unions = Unions(1 + len(self._texts), self._measure)

    def add(self, rows: Any, end: Any) -> None:
        """Take a block, with the ends of its nodes."""
        actor = numbers(rows["actor"])
        is_other = self._is_other[coded(rows["kind"])]
        sort = np.where(is_other, 0, self._sort_of_group[coded(rows["group"])])
        self.unions.add(actor, sort, numbers(rows["start_ns"]), end)
        weight, size = self._ranks[actor], integers(rows["bytes"], missing=0)
        for number in np.flatnonzero(np.bincount(sort)).tolist():
            if number:
                own = np.flatnonzero(sort == number)
                total = self._of(number)
                total.count += int(weight[own].sum())
                total.bytes += _dot(weight[own], size[own])

    def _of(self, sort: int) -> Exposed:
        text = self._texts[sort - 1]
        return self._found.setdefault(text, Exposed(text))

    def _measure(self, unions: list[Intervals]) -> None:
        others, *groups = unions
        for sort, active in enumerate(groups, start=1):
            if len(active):
                without = others.of(np.unique(active.owner))
                total = self._of(sort)
                total.active_ns += self._long(active)
                total.exposed_ns += self._long(together((active, without))) - self._long(without)

    def _long(self, found: Intervals) -> int:
        """Time over all ranks."""
        return _dot(self._ranks[found.owner], found.end - found.start)


def _dot(counts: Any, values: Any) -> int:
    """The sum of products, in Python's unbounded integers where it might not fit."""
    if float(np.abs(values).max(initial=0)) * float(counts.sum()) < 2**62:
        return int((counts * values).sum())
    return sum(c * v for c, v in zip(counts.tolist(), values.tolist(), strict=True))
