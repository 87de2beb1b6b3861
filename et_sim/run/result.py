"""The result of a run, held in memory: figures per rank at once, tables and files on demand."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import OutOfMemoryError, UsageError
from et_sim.basics.lazy_names import late_hints
from et_sim.basics.units import format_ns
from et_sim.tables.registry import table_named
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.writer import write_run

if TYPE_CHECKING:
    from et_sim.engine.stall import Stall
    from et_sim.tables.summary import Job, Manifest


MEMORY = (
    "it completes if no tensors wait in remote memory; if some do, nodes keep the order of their ids: "
    'give NPUs more memory ("local-mem-capacity"), or number the nodes of all ranks in one order'
)


def known_cures(manifest: Manifest, *, has_moves: bool) -> list[str]:
    """Return remedies by which a stalled run completes: enough memory, the corrected profile, or a part of
    it; `has_moves`: it completed before tensors were moved to remote memory."""
    cures = [MEMORY] if has_moves else []
    other = manifest["other_profile"]
    if other is None or other["makespan_ns"] is None:
        return cures
    figure = format_ns(other["makespan_ns"])
    cures.append(f"simulate it with --profile {other['profile']}, where it completes in {figure}")
    sufficient = [entry["correction"] for entry in other["corrections"] if entry["status"] == "complete"]
    return cures + [
        f'or switch on the correction {name}, which suffices: "corrections": {{"{name}": true}}'
        for name in sufficient
    ]


class PerRank:
    """A figure of the run's statistics, by rank."""

    def __init__(self, text: str) -> None:
        self.__doc__ = text

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, result: Result | None, _owner: type | None = None) -> Any:
        return self if result is None else result._of_ranks(getattr(result.statistics, self._name))


@late_hints
class Result(RecordedRun, eq=False):
    """The result of `et_sim.simulate`; all times are integer nanoseconds."""

    @property
    def finish_ns(self) -> Any:
        """Return the finish time of every rank (int64); -1 for a rank that never finished."""
        return self.outcome.finish_ns[self.measurement.actor_of_rank]

    compute_ns = PerRank("Time with a kernel running on the device, per rank.")
    transfer_ns = PerRank(
        "Time in which bytes of a send, receive or collective moved or queued for a link, per rank."
    )
    exposed_comm_ns = PerRank("Part of `transfer_ns` that no kernel or copy hides, per rank.")
    waiting_ns = PerRank(
        "Time in which the device waited for another rank to begin, and did nothing else, per rank."
    )
    host_ns = PerRank("Time in which the device did nothing while the host worked, per rank.")
    idle_ns = PerRank("Time before the finish with nothing under way, per rank.")
    early_ns = PerRank("Time from the finish to the makespan, per rank.")
    exposed_memory_ns = PerRank(
        "Time of requests to remote memory with no kernel and no transfer under way, per rank."
    )
    hidden_comm_ns = PerRank("Time of transfers that a kernel hides, per rank.")
    communication_ns = PerRank("Time with a send, receive or collective under way, per rank.")
    comm_without_kernel_ns = PerRank(
        "Time with communication under way, moving or waiting, and no kernel, per rank (HTA's figure)."
    )
    memory_ns = PerRank("Time with a request to remote memory under way, per rank.")
    cpu_ns = PerRank("Time with an operator of the host or a gap under way, per rank.")
    reference_exposed_ns = PerRank(
        "The reference's exposed communication per rank: finish less all kernel times (uint64: it wraps)."
    )

    @property
    def peak_memory_bytes(self) -> Any:
        """Return the most local memory in use at any time, per rank; None unless memory is tracked."""
        if self.measurement.memory is None:
            return None
        return self._of_ranks(self.statistics.peak_memory_bytes)

    def _of_ranks(self, figure: Any) -> Any:
        return figure[self.measurement.actor_of_rank]

    @property
    def jobs(self) -> dict[str, Job]:
        """Return the jobs of a job file by name, with the keys of `jobs` in summary.json."""
        return {job["name"]: job for job in self.manifest["jobs"]}

    @cached_property
    def timeline(self) -> Any:
        """Return the timeline as a pyarrow.Table: one row per executed node per actor."""
        return self.table("timeline")

    @cached_property
    def memory(self) -> Any:
        """Return memory.arrow as a pyarrow.Table, a row per change of local memory; None unless tracked."""
        return None if self.measurement.memory is None else self.table("memory")

    def table(self, name: str) -> Any:
        """Return one of the run's tables as a pyarrow.Table, by the name of its file."""
        declared = table_named(name)
        from et_sim.timeline.arrow_tables import whole

        table = whole(declared, self)
        if table is None:
            raise UsageError(f"this run has no table {name!r}", remedy=declared.how_to_get_it)
        return table

    def to_pandas(self, table: str = "timeline") -> Any:
        """Return a table as a pandas.DataFrame; whole numbers stay whole where some are missing."""
        from et_sim.run.screens import as_frame

        return as_frame(self.table(table))

    def to_polars(self, table: str = "timeline") -> Any:
        """Return a table as a polars.DataFrame."""
        from et_sim.run.screens import library

        return library("polars").from_arrow(self.table(table))

    def save(self, folder: str | Path) -> Path:
        """Write the directory that `et-sim run` writes, for `et-sim inspect`, `report` and `sql`."""
        target = Path(folder)
        stall = self.stall
        write_run(self, target, stall.as_dict() if stall else None)
        return target

    @property
    def stall(self) -> Stall | None:
        """Return the reason why some rank never finished; None if the run is complete or was stopped."""
        if self.is_complete or self.is_stopped:
            return None
        from et_sim.engine.stall import explain_stall

        has_moves = self.moved is not None and self.moved.is_any
        return explain_stall(self.outcome, self.workload, known_cures(self.manifest, has_moves=has_moves))

    def why_stopped(self) -> OutOfMemoryError:
        """Return the error of a run that ended because memory was full."""
        assert self.out_of_memory is not None
        return self.out_of_memory.as_error()

    def critical_path(self, top: int | None = None) -> dict[str, Any]:
        """Return the critical path, as `et-sim inspect RUN critical-path --json` does.

        The run must have been simulated with `detail="path"`.
        """
        from et_sim.views.critical.text import critical_path_data

        if self.causal_events is None:
            cause = "this run did not record its causal events"
            raise UsageError(cause, remedy='simulate again with detail="path"')
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            return critical_path_data(self.save(Path(folder) / "run"), top)

    def __repr__(self) -> str:
        from et_sim.run.screens import plain

        return plain(self.summary())

    def _repr_html_(self) -> str:
        from et_sim.run.screens import html

        return html(self.summary())
