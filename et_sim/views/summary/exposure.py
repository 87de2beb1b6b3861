"""Communication during which no kernel of its rank runs (copies are none), by operation and group.

That is what analysers of recordings (HTA) call exposed.

Communication is under way from when nothing of its own rank holds it up any more until it is done, whether it
moves bytes or waits for other ranks. What overlaps counts once for each operation; times of actors count once
per rank.

Not here: the same of whole ranks, which the run's summary has (`comm_without_kernel_ns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.basics.intervals import Intervals, Unions, together
from et_sim.tables.kinds import NOT_COMMUNICATION
from et_sim.views.run.columns import Words, coded, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import GroupCounts
from et_sim.views.run.selection import Selection

Key = tuple[str, str, str | None]  # kind, name and group of an operation
COLUMNS = ("actor", "kind", "name", "group", "start_ns", "end_ns", "queued_ns")
KERNELS, NEITHER, FIRST = 0, 1, 2


def without_kernel(run: RunDirectory, part: Selection) -> Counter[Key]:
    """Per operation that communicates, how long no kernel ran, over all selected ranks."""
    found: Counter[Key] = Counter()
    keys = _Keys(run, part)
    if not len(keys.known):
        return found
    unions = Unions(FIRST + len(keys.known), lambda parts: keys.share_out(parts, found))
    for rows in run.batches("timeline", COLUMNS):
        start = numbers(rows["start_ns"])
        end = integers(rows["end_ns"], missing=-1)
        end = np.where(end < 0, run.summary["makespan_ns"], end)
        sort = keys.sorts(rows)
        admitted = start + np.where(sort >= FIRST, integers(rows["queued_ns"], missing=0), 0)
        unions.add(numbers(rows["actor"]), sort, *part.clipped(np.minimum(admitted, end), end))
    unions.close()
    return found


class _Keys:
    """Numbers for the operations that communicate, by kind, name and how many ranks are in which group."""

    def __init__(self, run: RunDirectory, part: Selection) -> None:
        self._run = run
        self._groups = GroupCounts(run, part)
        self._kinds = self._stems = Words((), np.zeros(0, np.int64))
        batches = run.batches("timeline", COLUMNS)
        codes = (np.unique(self._codes(rows)[self._communicates(rows)]) for rows in batches)
        self.known = np.unique(np.concatenate([np.zeros(0, np.int64), *codes]))

    def sorts(self, rows: Any) -> Any:
        """What each row counts as: KERNELS, NEITHER, or the number of its operation."""
        kind = coded(rows["kind"])
        is_kernel = np.array([text == "compute" for text in self._kinds.texts])[kind]
        operation = FIRST + np.searchsorted(self.known, self._codes(rows))
        return np.where(self._communicates(rows), operation, np.where(is_kernel, KERNELS, NEITHER))

    def share_out(self, unions: list[Intervals], found: Counter[Key]) -> None:
        """Add up complete actors."""
        kernels = unions[KERNELS]
        for at, active in enumerate(unions[FIRST:]):
            if len(active):
                without = kernels.of(np.unique(active.owner))
                both = together((active, without))
                actors = 1 + int(active.owner.max())
                alone = int((both.lengths(actors) - without.lengths(actors)).sum())
                for key, ranks in self._operations(int(self.known[at])):
                    found[key] += ranks * alone

    def _operations(self, code: int) -> Iterator[tuple[Key, int]]:
        kind, stem, counts = np.unravel_index(code, self._sizes)
        for group, ranks in self._groups.counts[int(counts)]:
            yield (str(self._kinds.texts[kind]), str(self._stems.texts[stem]), group), ranks

    @property
    def _sizes(self) -> tuple[int, ...]:
        return len(self._kinds.texts), len(self._stems.texts), len(self._groups.counts)

    def _codes(self, rows: Any) -> Any:
        if not self._kinds.texts:  # texts are the same in all batches
            self._kinds, self._stems = words(rows["kind"]), self._run.stems
        codes = coded(rows["kind"]), self._stems.codes[coded(rows["name"])], self._groups.of(rows)
        return np.ravel_multi_index(codes, self._sizes)

    def _communicates(self, rows: Any) -> Any:
        known = [text is not None and text not in NOT_COMMUNICATION for text in self._kinds.texts]
        return np.array(known)[coded(rows["kind"])]
