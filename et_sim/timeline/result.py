"""The result of a run, held in memory: figures per rank at once, tables when asked for.

Not here: files (`writer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.errors import UsageError
from et_sim.tables.registry import table_named
from et_sim.timeline.notebook import html, library
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.statistics import Statistics
from et_sim.units import format_ranks


@dataclass(eq=False)
class Result(RecordedRun):
    """What `et_sim.simulate` returns; all times are integer nanoseconds."""

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
        return self.outcome.finish_ns[self.measurement.actor_of_rank]

    @property
    def exposed_comm_ns(self) -> Any:
        """The reference's exposed communication of every rank (uint64: it wraps as the reference's)."""
        return self.statistics.exposed_comm_ns[self.measurement.actor_of_rank]

    @property
    def compute_ns(self) -> Any:
        """Time with a device kernel running, per rank."""
        return self.statistics.compute_ns[self.measurement.actor_of_rank]

    @property
    def peak_memory_bytes(self) -> Any:
        """The most local memory in use at any time, per rank; None unless memory is tracked."""
        if self.measurement.memory is None:
            return None
        return self.statistics.peak_memory_bytes[self.measurement.actor_of_rank]

    @property
    def statistics(self) -> Statistics:
        """All figures, per actor."""
        return self.measurement.statistics

    @property
    def coverage(self) -> dict[str, Any]:
        """What was modelled, replayed, defaulted, instant or not executed."""
        return self.measurement.coverage

    @cached_property
    def timeline(self) -> Any:
        """The timeline as a pyarrow.Table: one row per executed node per actor."""
        return self.table("timeline")

    @cached_property
    def memory(self) -> Any:
        """memory.arrow as a pyarrow.Table: every change of the local memory in use; None unless tracked."""
        return None if self.measurement.memory is None else self.table("memory")

    def table(self, name: str) -> Any:
        """One of the run's tables as a pyarrow.Table, by the name of its file."""
        declared = table_named(name)
        from et_sim.timeline.tables import whole

        table = whole(declared, self)
        if table is None:
            raise UsageError(f"this run has no table {name!r}", remedy=declared.how_to_get_it)
        return table

    def to_pandas(self, table: str = "timeline") -> Any:
        """A table as a pandas.DataFrame."""
        library("pandas")
        return self.table(table).to_pandas()

    def to_polars(self, table: str = "timeline") -> Any:
        """The same as a polars.DataFrame."""
        return library("polars").from_arrow(self.table(table))

    def _repr_html_(self) -> str:
        return html(self.summary())

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "status": "complete" if self.is_complete else "stalled",
            "makespan_ns": self.makespan_ns,
            "ranks": self.workload.ranks,
            "model": self.manifest["model"],
            "profile": self.manifest["profile"],
            "corrections": self.manifest["corrections"],
            "switched": self.manifest["switched"],
            "folded": {"actors": self.measurement.source.actors, "ranks": self.workload.ranks},
            "uneven": self.manifest["uneven"],
            "detail": self.manifest["detail"],
            "messages": self.outcome.messages,
            "per_rank": self._per_rank(),
            "coverage": self.coverage,
            "warnings": self.manifest["warnings"],
            "defaults": self.manifest["defaults"],
        }

    def _per_rank(self) -> list[dict[str, Any]]:
        """Figures of the ranks, those with equal figures merged, in order of their first rank."""
        columns = self.statistics.columns()
        bits = [np.ma.getdata(column).view(np.uint64) for column in columns.values()]
        _, actor, entry = np.unique(np.stack(bits, axis=1), axis=0, return_index=True, return_inverse=True)
        of_rank = entry.reshape(-1)[self.measurement.actor_of_rank]
        ranks = np.argsort(of_rank, kind="stable")
        groups = np.split(ranks, np.flatnonzero(np.diff(of_rank[ranks])) + 1)
        merged = []
        for members in sorted(groups, key=lambda group: int(group[0])):
            figures = {name: column[actor[of_rank[members[0]]]] for name, column in columns.items()}
            given = {name: None if v is np.ma.masked else v.item() for name, v in figures.items()}
            merged.append({"ranks": format_ranks(members), **given})
        return merged
