"""The result of a run, held in memory: figures per rank at once, tables and files when asked for.

Not here: how anything is measured (`et_sim.timeline`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import OutOfMemoryError, UsageError
from et_sim.basics.units import format_ns
from et_sim.run.result.frames import as_frame
from et_sim.run.result.screens import html, library, plain
from et_sim.tables.registry import table_named
from et_sim.timeline.recorded import RecordedRun
from et_sim.timeline.writer import write_run

if TYPE_CHECKING:
    from et_sim.engine.stall import Stall


MEMORY = (
    "it completes if no tensors wait in remote memory; where they do, nodes keep the order of their ids: "
    'give NPUs more memory ("local-mem-capacity"), or number the nodes of all ranks in one order'
)


def known_cures(manifest: Mapping[str, Any], *, has_moves: bool) -> list[str]:
    """What is known to let a stalled run complete, as remedies: enough memory, the corrected profile, or a
    part of it; `has_moves`: it did complete before tensors were moved to remote memory."""
    cures = [MEMORY] if has_moves else []
    other = manifest["other_profile"]
    if other is None or other["status"] != "complete":
        return cures
    figure = format_ns(other["makespan_ns"])
    cures.append(f"simulate it with --profile {other['profile']}, where it completes in {figure}")
    alone = [one["correction"] for one in other["corrections"] if one["status"] == "complete"]
    return cures + [
        f'or switch the correction {name} on, which alone lets it complete: "corrections": {{"{name}": true}}'
        for name in alone
    ]


@dataclass(eq=False, repr=False)
class Result(RecordedRun):
    """What `et_sim.simulate` returns; all times are integer nanoseconds."""

    @property
    def finish_ns(self) -> Any:
        """Finish time of every rank (int64); -1 for a rank that never finished."""
        return self.outcome.finish_ns[self.measurement.actor_of_rank]

    @property
    def compute_ns(self) -> Any:
        """Time with a kernel running on the device, per rank."""
        return self._of_ranks(self.statistics.compute_ns)

    @property
    def transfer_ns(self) -> Any:
        """Time in which bytes of a send, receive or collective moved or queued for a link, per rank."""
        return self._of_ranks(self.statistics.transfer_ns)

    @property
    def exposed_comm_ns(self) -> Any:
        """Of `transfer_ns`, the time that no kernel or copy hides, per rank."""
        return self._of_ranks(self.statistics.exposed_comm_ns)

    @property
    def waiting_ns(self) -> Any:
        """Time in which the device waited for another rank to begin, and did nothing else, per rank."""
        return self._of_ranks(self.statistics.waiting_ns)

    @property
    def host_ns(self) -> Any:
        """Time in which the device did nothing while the host worked, per rank."""
        return self._of_ranks(self.statistics.host_ns)

    @property
    def idle_ns(self) -> Any:
        """Time before the finish with nothing under way, per rank."""
        return self._of_ranks(self.statistics.idle_ns)

    @property
    def early_ns(self) -> Any:
        """Time from the finish to the makespan, per rank."""
        return self._of_ranks(self.statistics.early_ns)

    @property
    def exposed_memory_ns(self) -> Any:
        """Time of requests to remote memory with no kernel and no transfer under way, per rank."""
        return self._of_ranks(self.statistics.exposed_memory_ns)

    @property
    def hidden_comm_ns(self) -> Any:
        """Time of transfers that a kernel hides, per rank."""
        return self._of_ranks(self.statistics.hidden_comm_ns)

    @property
    def communication_ns(self) -> Any:
        """Time with a send, receive or collective under way, per rank."""
        return self._of_ranks(self.statistics.communication_ns)

    @property
    def comm_without_kernel_ns(self) -> Any:
        """Time with communication under way, moving or waiting, and no kernel, per rank (HTA's figure)."""
        return self._of_ranks(self.statistics.comm_without_kernel_ns)

    @property
    def memory_ns(self) -> Any:
        """Time with a request to remote memory under way, per rank."""
        return self._of_ranks(self.statistics.memory_ns)

    @property
    def cpu_ns(self) -> Any:
        """Time with an operator of the host or a gap under way, per rank."""
        return self._of_ranks(self.statistics.cpu_ns)

    @property
    def reference_exposed_ns(self) -> Any:
        """The reference's exposed communication per rank: finish less all kernel times (uint64: it wraps)."""
        return self._of_ranks(self.statistics.reference_exposed_ns)

    @property
    def peak_memory_bytes(self) -> Any:
        """The most local memory in use at any time, per rank; None unless memory is tracked."""
        if self.measurement.memory is None:
            return None
        return self._of_ranks(self.statistics.peak_memory_bytes)

    def _of_ranks(self, figure: Any) -> Any:
        return figure[self.measurement.actor_of_rank]

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """Of a job file: every job by its name, with the keys that `jobs` has in summary.json."""
        return {job["name"]: job for job in self.manifest["jobs"]}

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
        """A table as a pandas.DataFrame; whole numbers stay whole where some are missing."""
        return as_frame(self.table(table))

    def to_polars(self, table: str = "timeline") -> Any:
        """The same as a polars.DataFrame."""
        return library("polars").from_arrow(self.table(table))

    def save(self, folder: str | Path) -> Path:
        """Write the directory that `et-sim run` writes: `et-sim inspect`, `report` and `sql` read it."""
        target = Path(folder)
        stall = self.stall
        write_run(self, target, stall.as_dict() if stall else None)
        return target

    @property
    def stall(self) -> Stall | None:
        """Why some rank never finished; None of a complete run, and of one that was stopped."""
        if self.is_complete or self.is_stopped:
            return None
        from et_sim.engine.stall import explain_stall
        from et_sim.run.result.result import known_cures

        has_moves = self.moved is not None and self.moved.is_any
        return explain_stall(self.outcome, self.workload, known_cures(self.manifest, has_moves=has_moves))

    def why_stopped(self) -> OutOfMemoryError:
        """Of a run that ends where memory was full: who needed what."""
        assert self.out_of_memory is not None
        return self.out_of_memory.as_error()

    def critical_path(self, top: int | None = None) -> dict[str, Any]:
        """What decided how long the run took, as `et-sim inspect RUN critical-path --json` has it.

        The run must have been simulated with `detail="path"`.
        """
        from et_sim.views.critical.text import critical_path_data

        if self.causal_events is None:
            cause = "this run did not record what caused what"
            raise UsageError(cause, remedy='simulate again with detail="path"')
        with TemporaryDirectory() as folder:
            return critical_path_data(self.save(Path(folder) / "run"), top)

    def __repr__(self) -> str:
        return plain(self.summary())

    def _repr_html_(self) -> str:
        return html(self.summary())
