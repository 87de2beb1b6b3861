"""The result of a run, held in memory: figures per rank at once, tables when asked for.

Not here: files (`writer`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.errors import UsageError, did_you_mean
from et_sim.memory import peaks
from et_sim.timeline.coverage import CoverageCounter
from et_sim.timeline.keep import EVERYTHING, Keep, both
from et_sim.timeline.kernels import KernelFigures
from et_sim.timeline.layers import LayerRun
from et_sim.timeline.links import LinkSource
from et_sim.timeline.memory import MemorySource, until_next
from et_sim.timeline.messages import Messages, MessageSource
from et_sim.timeline.notebook import html, library
from et_sim.timeline.path import Moments, PathSource
from et_sim.timeline.phases import Phases, PhaseSource
from et_sim.timeline.rows import Rows, TimelineSource
from et_sim.timeline.statistics import Occupation, Statistics, combine
from et_sim.trace.tensors import unannotated
from et_sim.trace.workload import Workload
from et_sim.units import format_ranks


@dataclass(eq=False)
class Result:
    """What `et_sim.simulate` returns; all times are integer nanoseconds."""

    outcome: Outcome
    workload: Workload
    manifest: dict[str, Any]
    moments: Moments | None = None  # what caused what, if that was recorded
    phases: Phases | None = None  # what became of the chunks of collectives, if that was logged
    layers: LayerRun | None = None  # of a layer file
    messages: Messages | None = None  # all of them, if they were logged
    _measures: list[tuple[Statistics, dict[str, Any]]] = field(default_factory=list, init=False, repr=False)

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
    def tracks_memory(self) -> bool:
        """Whether the run tracks local memory."""
        return self._memory_source is not None

    @property
    def peak_memory_bytes(self) -> Any:
        """The most local memory in use at any time, per rank; None unless memory is tracked."""
        if self._memory_source is None:
            return None
        return self.statistics.peak_memory_bytes[self._actor_of_rank]

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

    @cached_property
    def memory(self) -> Any:
        """memory.arrow as a pyarrow.Table: every change of the local memory in use; None unless tracked."""
        import pyarrow as pa

        from et_sim.timeline.tables import memory_schema

        if self._memory_source is None:
            return None
        return pa.Table.from_batches(list(self.memory_batches()), memory_schema(self.manifest_text))

    def table(self, name: str) -> Any:
        """One of the run's tables as a pyarrow.Table, by the name of its file."""
        import pyarrow as pa

        tables: dict[str, Callable[[], Any]] = {
            "timeline": lambda: self.timeline,
            "actors": self.actors_table,
            "phases": lambda: self.phases and pa.Table.from_batches(self.phase_batches(), self.phase_schema),
            "messages": lambda: (
                self.messages and pa.Table.from_batches(self.message_batches(), self.message_schema)
            ),
            "links": lambda: (
                pa.Table.from_batches(self.link_batches(), self.link_schema) if self.records_links else None
            ),
            "memory": lambda: self.memory,
        }
        if name not in tables:
            remedy = did_you_mean(name, tuple(tables)) or f"tables: {', '.join(tables)}"
            raise UsageError(f"there is no table {name!r}", remedy=remedy)
        table = tables[name]()
        if table is None:
            remedy = 'set "track-local-mem": 1' if name == "memory" else f'simulate with detail="{name}"'
            raise UsageError(f"this run has no table {name!r}", remedy=remedy)
        return table

    def to_pandas(self, table: str = "timeline") -> Any:
        """A table (`timeline`, `actors`, `phases`, `messages`, `links` or `memory`) as a pandas.DataFrame."""
        library("pandas")
        return self.table(table).to_pandas()

    def to_polars(self, table: str = "timeline") -> Any:
        """The same as a polars.DataFrame."""
        return library("polars").from_arrow(self.table(table))

    def _repr_html_(self) -> str:
        return html(self.summary())

    @property
    def manifest_text(self) -> str:
        """The manifest as canonical JSON."""
        return json.dumps(self.manifest, sort_keys=True)

    def batches(self, keep: Keep = EVERYTHING) -> Iterator[Any]:
        """The timeline as Arrow record batches."""
        from et_sim.timeline.tables import TimelineBatches

        batches = TimelineBatches(self._source, self.manifest_text)
        actors = keep.actors(self._actor_of_rank)
        for rows in self._measured_blocks():
            touched = keep.touches(rows.start_ns, rows.end_ns)
            mask = both(None if actors is None else actors[rows.actor], touched)
            if mask is None or mask.any():
                yield batches.batch(rows if mask is None else rows.where(mask))

    def memory_batches(self, keep: Keep = EVERYTHING) -> Iterator[Any]:
        """The changes of local memory as Arrow record batches; none unless it is tracked.

        Of a window also the last change before it is kept, which says how much is in use when it opens.
        """
        from et_sim.timeline.tables import memory_batch, memory_schema, tensor_texts

        schema = memory_schema(self.manifest_text)
        if self._memory_source is not None:
            tensors, actors = tensor_texts(self._memory_source), keep.actors(self._actor_of_rank)
            for rows in self._source.blocks():
                found = self._memory_source.changes(rows)
                touched = keep.touches(found.time_ns, until_next(found))
                mask = both(None if actors is None else actors[found.owner], touched)
                yield memory_batch(found if mask is None else found.where(mask), rows, tensors, schema)

    def path_batches(self) -> Iterator[Any]:
        """The record of causes as Arrow record batches; none unless it was asked for."""
        from et_sim.timeline.tables import path_batch

        if self.moments is not None:
            source = PathSource(self.moments, self.outcome, self.workload)
            for columns in source.blocks():
                yield path_batch(columns, source, self.path_schema)

    @property
    def path_schema(self) -> Any:
        """The schema of these."""
        from et_sim.timeline.tables import path_schema

        resources = self.outcome.resources
        links = json.dumps(resources.wiring if resources else (), sort_keys=True)
        return path_schema(self.manifest_text, links, self.outcome.plan.routes_by_bandwidth)

    @property
    def phase_schema(self) -> Any:
        """Schema of phases.arrow."""
        from et_sim.timeline.tables import phase_schema

        return phase_schema(self.manifest_text, has_layers=self.layers is not None)

    def phase_batches(self, keep: Keep = EVERYTHING) -> Iterator[Any]:
        """What became of the chunks of collectives as Arrow record batches; none unless it was logged."""
        from et_sim.timeline.tables import phase_batch

        if self.phases is not None:
            layer_of = self.layers.layer_of if self.layers else None
            source = PhaseSource(self.phases, self.outcome, self.workload, layer_of)
            actors = keep.actors(self._actor_of_rank)
            for columns in source.blocks():
                touched = keep.touches(columns["queued_ns"], columns["end_ns"])
                mask = both(None if actors is None else actors[columns["actor"]], touched)
                kept = {name: values if mask is None else values[mask] for name, values in columns.items()}
                yield phase_batch(kept, self.phase_schema)

    @property
    def message_schema(self) -> Any:
        """Schema of messages.arrow."""
        from et_sim.timeline.tables import message_schema

        return message_schema(self.manifest_text)

    def message_batches(self, keep: Keep = EVERYTHING) -> Iterator[Any]:
        """All messages as Arrow record batches; none unless they were logged."""
        from et_sim.timeline.tables import message_batch

        if self.messages is not None:
            source = MessageSource(self.messages, self.outcome, self.workload)
            for columns in source.blocks(keep):
                yield message_batch(columns, self.message_schema)

    @property
    def records_links(self) -> bool:
        """Whether it was noted how busy links are."""
        return len(self.outcome.run.traffic.slices) > 0

    @property
    def link_schema(self) -> Any:
        """Schema of links.arrow."""
        from et_sim.timeline.tables import link_schema

        return link_schema(self.manifest_text)

    def link_batches(self, keep: Keep = EVERYTHING) -> Iterator[Any]:
        """How busy links were as Arrow record batches; none unless it was noted."""
        from et_sim.timeline.tables import link_batch

        if self.records_links:
            source = LinkSource(self.outcome)
            for columns in source.blocks(keep):
                yield link_batch(columns, source, self.link_schema)

    def layers_table(self) -> Any:
        """What every layer of a layer file took, as a pyarrow.Table; None for other workloads."""
        from et_sim.timeline.tables import layer_table

        if self.layers is None:
            return None
        return layer_table(self.layers.columns(), self.manifest_text, self.layers.figures())

    def actors_table(self) -> Any:
        """Who the actors are, with their figures, as a pyarrow.Table."""
        from et_sim.timeline.tables import actors_table

        columns = self.statistics.columns()
        columns["actor"] = np.arange(self._source.actors, dtype=np.int32)
        columns["ranks"] = [format_ranks(ranks) for ranks in self._ranks_of_actors]
        columns["rank_count"] = self._ranks_per_actor
        return actors_table(columns, self.manifest_text)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "status": "complete" if self.is_complete else "stalled",
            "makespan_ns": self.makespan_ns,
            "ranks": self.workload.ranks,
            "model": self.manifest["model"],
            "profile": self.manifest["profile"],
            "corrections": self.manifest["corrections"],
            "folded": {"actors": self._source.actors, "ranks": self.workload.ranks},
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
        of_rank = entry.reshape(-1)[self._actor_of_rank]
        ranks = np.argsort(of_rank, kind="stable")
        groups = np.split(ranks, np.flatnonzero(np.diff(of_rank[ranks])) + 1)
        merged = []
        for members in sorted(groups, key=lambda group: int(group[0])):
            figures = {name: column[actor[of_rank[members[0]]]] for name, column in columns.items()}
            given = {name: None if v is np.ma.masked else v.item() for name, v in figures.items()}
            merged.append({"ranks": format_ranks(members), **given})
        return merged

    @cached_property
    def _source(self) -> TimelineSource:
        return TimelineSource(self.outcome, self.workload)

    @cached_property
    def _measured(self) -> tuple[Statistics, dict[str, Any]]:
        """Figures and coverage, from a pass over all rows."""
        if not self._measures:
            for _ in self._measured_blocks():
                pass
        return self._measures[0]

    def _measured_blocks(self) -> Iterator[Rows]:
        """All rows, measured on their way: a pass that writes the timeline need not be repeated."""
        actors, memory = self._source.actors, self._memory_source
        counter = CoverageCounter(self._ranks_per_actor, self._names_tensors)
        kernels, occupation = KernelFigures.of(actors), Occupation(actors, self.outcome.end_ns)
        peak = np.full(actors, -1, np.int64) if memory is None else np.zeros(actors, np.int64)
        is_new = not self._measures
        for first, until in self._source.spans():
            for rows in self._pieces(first, until):
                if is_new:
                    occupation.add(rows)
                    counter.add(rows)
                    kernels.add(rows)
                    if memory is not None:
                        peak += peaks(memory.changes(rows), actors)
                yield rows
        if is_new:
            per_template = self.outcome.plan.templates["nodes"][self.outcome.plan.actors["template"]]
            total = int((per_template * self._ranks_per_actor).sum())
            statistics = combine(self.outcome, occupation.figures(), kernels, peak)
            self._measures.append((statistics, counter.as_dict(self.workload, total)))

    def _pieces(self, first: int, until: int) -> Iterator[Rows]:
        """Rows of actors; where memory is tracked, all of them at once, because tensors live long."""
        if self._memory_source is None:
            return self._source.pieces(first, until)
        return iter((self._source.rows(first, until),))

    @cached_property
    def _memory_source(self) -> MemorySource | None:
        return MemorySource(self.outcome.plan) if self.outcome.plan.tensors else None

    @property
    def _names_tensors(self) -> Any:
        """Which nodes of the templates name tensors; None if memory is not tracked."""
        if not self.outcome.plan.tensors:
            return None
        return np.concatenate([~unannotated(trace) for trace in self.workload.templates])

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
