"""The result of a run, held in memory: figures per rank at once, tables when asked for.

Not here: files (`writer`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.timeline.coverage import CoverageCounter
from et_sim.timeline.rows import TimelineSource
from et_sim.timeline.statistics import Statistics, combine, measure_block
from et_sim.trace.workload import Workload
from et_sim.units import format_ranks


@dataclass(eq=False)
class Result:
    """What `et_sim.simulate` returns; all times are integer nanoseconds."""

    outcome: Outcome
    workload: Workload
    manifest: dict[str, Any]

    @property
    def is_complete(self) -> bool:
        """Whether every rank finished."""
        return self.outcome.is_complete

    @property
    def makespan_ns(self) -> int:
        """When the last rank finished; of an incomplete run, when the last thing happened."""
        return int(self.outcome.finish_ns.max()) if self.is_complete else self.outcome.end_ns

    @property
    def finish_ns(self) -> Any:
        """Finish time of every rank (int64); -1 for a rank that never finished."""
        return self.outcome.finish_ns[self._actor_of_rank]

    @property
    def exposed_comm_ns(self) -> Any:
        """The reference's exposed communication of every rank (uint64: it wraps as the reference's)."""
        return self.statistics.exposed_comm_ns[self._actor_of_rank]

    @property
    def compute_ns(self) -> Any:
        """Time with a device kernel running, per rank."""
        return self.statistics.compute_ns[self._actor_of_rank]

    @property
    def statistics(self) -> Statistics:
        """All figures, per actor."""
        return self._measured[0]

    @property
    def coverage(self) -> dict[str, Any]:
        """What was modelled, replayed, defaulted, instant or not executed."""
        return self._measured[1]

    @cached_property
    def timeline(self) -> Any:
        """The timeline as a pyarrow.Table: one row per executed node per actor."""
        import pyarrow as pa

        from et_sim.timeline.tables import timeline_schema

        return pa.Table.from_batches(list(self.batches()), timeline_schema(self.manifest_text))

    @property
    def manifest_text(self) -> str:
        """The manifest as canonical JSON."""
        return json.dumps(self.manifest, sort_keys=True)

    def batches(self) -> Iterator[Any]:
        """The timeline as Arrow record batches."""
        from et_sim.timeline.tables import timeline_batch, timeline_schema

        schema = timeline_schema(self.manifest_text)
        for rows in self._source.blocks():
            yield timeline_batch(rows, self._source, schema)

    def actors_table(self) -> Any:
        """Who the actors are, with their figures, as a pyarrow.Table."""
        from et_sim.timeline.tables import actors_table

        columns = self.statistics.columns()
        columns["actor"] = np.arange(self._source.actors, dtype=np.int32)
        columns["ranks"] = [format_ranks(ranks) for ranks in self._ranks_of_actors]
        columns["rank_count"] = self._ranks_per_actor
        columns["finish_ns"] = np.ma.masked_less(columns["finish_ns"], 0)
        return actors_table(columns, self.manifest_text)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "status": "complete" if self.is_complete else "stalled",
            "makespan_ns": self.makespan_ns,
            "ranks": self.workload.ranks,
            "model": self.manifest["model"],
            "profile": self.manifest["profile"],
            "folded": {"actors": self._source.actors, "ranks": self.workload.ranks},
            "messages": self.outcome.messages,
            "per_rank": self._per_rank(),
            "coverage": self.coverage,
            "warnings": self.manifest["warnings"],
            "defaults": self.manifest["defaults"],
        }

    def _per_rank(self) -> list[dict[str, Any]]:
        """Figures of the ranks, those with equal figures merged, in order of their first rank."""
        columns = self.statistics.columns()
        figures = np.stack([column.astype(np.uint64) for column in columns.values()], axis=1)
        unique, entry = np.unique(figures, axis=0, return_inverse=True)
        of_rank = entry.reshape(-1)[self._actor_of_rank]
        ranks = np.argsort(of_rank, kind="stable")
        groups = np.split(ranks, np.flatnonzero(np.diff(of_rank[ranks])) + 1)
        merged = []
        for members in sorted(groups, key=lambda group: int(group[0])):
            figures_of_members = unique[of_rank[members[0]]].tolist()
            row: dict[str, Any] = {"ranks": format_ranks(members)}
            row.update(zip(columns, figures_of_members, strict=True))
            if self.outcome.finish_ns[self._actor_of_rank[members[0]]] < 0:
                row["finish_ns"] = None
            merged.append(row)
        return merged

    @cached_property
    def _source(self) -> TimelineSource:
        return TimelineSource(self.outcome, self.workload)

    @cached_property
    def _measured(self) -> tuple[Statistics, dict[str, Any]]:
        counter, parts = CoverageCounter(self._ranks_per_actor), []
        for rows in self._source.blocks():
            counter.add(rows)
            parts.append(measure_block(rows, self._source.actors, self.outcome.end_ns))
        per_template = self.outcome.plan.templates["nodes"][self.outcome.plan.actors["template"]]
        total = int((per_template * self._ranks_per_actor).sum())
        return combine(self.outcome, parts), counter.as_dict(self.workload, total)

    @property
    def _actor_of_rank(self) -> Any:
        return self.outcome.plan.actor_of_rank

    @cached_property
    def _ranks_per_actor(self) -> Any:
        return np.bincount(self._actor_of_rank, minlength=self._source.actors)

    @cached_property
    def _ranks_of_actors(self) -> list[Any]:
        ranks = np.argsort(self._actor_of_rank, kind="stable")
        return np.split(ranks, np.cumsum(self._ranks_per_actor)[:-1])
