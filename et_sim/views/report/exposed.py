"""How much of the transfers of each group is exposed: under way while no kernel or copy runs.

Times of actors count once per rank. Not here: the exposed time of ranks, which the run's summary has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.intervals import Intervals, Unions, together
from et_sim.tables.kinds import COPY, NOT_COMMUNICATION
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import GroupCounts

MESSAGES = "sends and receives"
KERNELS, NEITHER = 0, 1
COLUMNS = ("actor", "kind", "group", "start_ns", "end_ns", "queued_ns", "waiting_ns", "bytes")


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
        adding = adding or _Adding(found, rows, GroupCounts(run))
        end = integers(rows["end_ns"], missing=-1)
        adding.add(rows, np.where(end < 0, run.summary["makespan_ns"], end))
    if adding is not None:
        adding.unions.close()
    return sorted(found.values(), key=lambda one: (-one.exposed_ns, -one.active_ns, one.group))


class _Adding:
    """Adds up blocks of the timeline."""

    def __init__(self, found: dict[str, Exposed], rows: Any, groups: GroupCounts) -> None:
        self._found, self._groups = found, groups
        self._texts = (*rows["group"].dictionary.to_pylist(), None)
        kinds = (*rows["kind"].dictionary.to_pylist(), None)
        self._is_kernel = np.array([kind in ("compute", COPY) for kind in kinds])
        self._is_other = np.array([kind is None or kind in NOT_COMMUNICATION for kind in kinds])
        self.unions = Unions(2 + len(self._texts), self._measure)

    def add(self, rows: Any, end: Any) -> None:
        """Take a block, with the ends of its nodes."""
        actor, kind, group = numbers(rows["actor"]), coded(rows["kind"]), coded(rows["group"])
        is_other = self._is_other[kind]
        other = np.where(self._is_kernel[kind], KERNELS, NEITHER)
        before = integers(rows["queued_ns"], missing=0) + integers(rows["waiting_ns"], missing=0)
        start = numbers(rows["start_ns"])
        moved = np.clip(start + before, start, end)
        self.unions.add(actor, np.where(is_other, other, 2 + group), moved, end)
        own = np.flatnonzero(~is_other)
        size = integers(rows["bytes"], missing=0)[own]
        for total, ranks, (count, payload) in self._shared_out(
            actor[own], group[own], np.ones_like(size), size
        ):
            total.count += ranks * count
            total.bytes += ranks * payload

    def _measure(self, unions: list[Intervals]) -> None:
        kernels, _, *groups = unions
        for group, active in enumerate(groups):
            without = kernels.of(np.unique(active.owner))
            actors = 1 + int(active.owner.max(initial=-1))
            exposed_ns = together((active, without)).lengths(actors) - without.lengths(actors)
            owner = np.unique(active.owner)
            code, columns = np.full(len(owner), group), (active.lengths(actors)[owner], exposed_ns[owner])
            for total, ranks, (under_way, alone) in self._shared_out(owner, code, *columns):
                total.active_ns += ranks * under_way
                total.exposed_ns += ranks * alone

    def _shared_out(
        self, actor: Any, group: Any, *columns: Any
    ) -> Iterator[tuple[Exposed, int, tuple[int, ...]]]:
        """For every group that rows are in to any rank: to how many ranks, and the rows' sums."""
        counts = self._groups.of_groups(actor, group, self._texts)
        for number in np.unique(counts).tolist():
            here = counts == number
            sums = tuple(int(column[here].sum()) for column in columns)
            for text, ranks in self._groups.counts[number]:
                name = text or MESSAGES
                yield self._found.setdefault(name, Exposed(name)), ranks, sums
