"""Communication during which no kernel of its rank runs (copies are none), by operation and group.

That is what analysers of recordings (HTA) call exposed.

Communication is under way from when nothing of its own rank holds it up any more until it is done, whether it
moves bytes or waits for other ranks. What overlaps counts once for each operation; times of actors count once
per rank.

Not here: the same of whole ranks, which the run's summary has (`comm_without_kernel_ns`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from et_sim.basics.intervals import Intervals, Unions, together
from et_sim.basics.unique import unique
from et_sim.views.run.columns import numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import OPERATION, TIMES, Key, OperationKeys, communicates, spans
from et_sim.views.run.selection import Selection

COLUMNS = (*OPERATION, *TIMES)
KERNELS, NEITHER, FIRST = 0, 1, 2


def without_kernel(run: RunDirectory, part: Selection) -> Counter[Key]:
    """Per operation that communicates, how long no kernel ran, over all selected ranks."""
    times_ns: Counter[Key] = Counter()
    keys = _Keys(run, part)
    if not len(keys.known):
        return times_ns
    unions = Unions(FIRST + len(keys.known), lambda parts: keys.share_out(parts, times_ns))
    for rows in run.batches("timeline", COLUMNS):
        times, kind = spans(rows, run.summary["makespan_ns"]), keys.activities(rows)
        admitted = np.where(kind >= FIRST, times.admitted, times.start)
        unions.add(numbers(rows["actor"]), kind, *part.clipped(admitted, times.end))
    unions.close()
    return times_ns


class _Keys:
    """Numbers for the operations that communicate, by kind, name and how many ranks are in which group."""

    def __init__(self, run: RunDirectory, part: Selection) -> None:
        self._keys = OperationKeys(run, part)
        batches = run.batches("timeline", COLUMNS)
        codes = (unique(self._codes(rows)[words(rows["kind"]).where(communicates)]) for rows in batches)
        self.known = unique(np.concatenate([np.zeros(0, np.int64), *codes]))

    def activities(self, rows: Any) -> Any:
        """What each row counts as: KERNELS, NEITHER, or the number of its operation."""
        kinds = words(rows["kind"])
        operation = FIRST + np.searchsorted(self.known, self._codes(rows))
        kind_if_not = np.where(kinds.where(lambda kind: kind == "compute"), KERNELS, NEITHER)
        return np.where(kinds.where(communicates), operation, kind_if_not)

    def share_out(self, unions: list[Intervals], times_ns: Counter[Key]) -> None:
        """Add up complete actors."""
        kernels = unions[KERNELS]
        for at, active in enumerate(unions[FIRST:]):
            if len(active):
                without = kernels.of(unique(active.owner))
                both = together((active, without))
                actors = 1 + int(active.owner.max())
                alone_ns = int((both.lengths(actors) - without.lengths(actors)).sum())
                codes = np.unravel_index(self.known[at], self._keys.sizes)
                for key, ranks in self._keys.operations(*map(int, codes)):
                    times_ns[key] += ranks * alone_ns

    def _codes(self, rows: Any) -> Any:
        return np.ravel_multi_index(self._keys.columns(rows), self._keys.sizes)
