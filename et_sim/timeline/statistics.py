"""Use of actors' time, as exact interval arithmetic.

From the device's point of view, each moment of a rank belongs to the first of these parts that is in
progress: a kernel or copy; a transfer (which is then exposed: neither hides it); a request to remote memory;
waiting for another rank to begin; the host, whose operators and gaps hide nothing; idle time. The time from
the rank's finish to the makespan is `early_ns`. The parts add up to the makespan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import COMPUTE, COPY, HOST, MEMORY, TRANSFER, WAITING, Spent
from et_sim.engine.outcome import Outcome
from et_sim.timeline.content import Nullable
from et_sim.timeline.rows import Rows


class KernelFigures(Struct):
    """Averages of how well the kernels of actors use the machine, over those that the roofline timed.

    They are weighted by duration. The reference divides by one nanosecond more, and includes CPU operations
    and kernels without figures.
    """

    actors: int
    time_ns: Any
    compute_bound_ns: Any
    weighted: Any  # compute utilisation, memory utilisation, intensity: each times duration

    @staticmethod
    def of(actors: int) -> KernelFigures:
        """Return empty sums."""
        return KernelFigures(
            actors, np.zeros(actors, np.int64), np.zeros(actors, np.int64), np.zeros((3, actors))
        )

    def add(self, rows: Rows) -> None:
        """Count a block."""
        used = rows.utilisation
        if used is None:
            return
        timed = np.flatnonzero(~np.isnan(used.compute) & (rows.end_ns >= 0))
        actor, duration = rows.actor[timed].astype(np.intp), (rows.end_ns - rows.start_ns)[timed]
        np.add.at(self.time_ns, actor, duration)
        np.add.at(self.compute_bound_ns, actor, np.where(used.is_memory_bound[timed], 0, duration))
        for total, figure in zip(self.weighted, (used.compute, used.memory, used.intensity), strict=True):
            # Rows are added in order, so that sums do not depend on blocks.
            total += np.bincount(actor, weights=figure[timed] * duration, minlength=self.actors)

    def columns(self) -> dict[str, Any]:
        """Return averages per actor; NaN without time in such kernels."""
        with np.errstate(invalid="ignore"):
            compute, memory, intensity = self.weighted / self.time_ns
            bound = self.compute_bound_ns / self.time_ns
        return {
            "compute_bound_share": bound,
            "compute_utilisation": compute,
            "memory_utilisation": memory,
            "operational_intensity": intensity,
        }


class Statistics(Struct, frozen=True, eq=False):
    """Figures per actor."""

    finish_ns: Any  # -1: never finished
    # Parts:
    compute_ns: Any
    exposed_comm_ns: Any
    exposed_memory_ns: Any
    waiting_ns: Any
    host_ns: Any
    idle_ns: Any
    early_ns: Any
    # Totals, regardless of other activities:
    transfer_ns: Any
    hidden_comm_ns: Any
    communication_ns: Any
    comm_without_kernel_ns: Any
    memory_ns: Any
    cpu_ns: Any
    reference_exposed_ns: Any  # unsigned: it wraps where the reference's does
    compute_bound_share: Any  # NaN, like the next three: no kernel was timed by the roofline
    compute_utilisation: Any
    memory_utilisation: Any
    operational_intensity: Any
    peak_memory_bytes: Any  # -1: not tracked, or no node names a tensor

    def columns(self) -> dict[str, Nullable]:
        """Return the figures by name, eight bytes each; missing ones are null."""
        return {name: _nullable(getattr(self, name)) for name in self.__struct_fields__}


def _nullable(column: Any) -> Nullable:
    if column.dtype.kind == "u":
        return Nullable.of(column)
    return Nullable(column, ~np.isfinite(column) if column.dtype.kind == "f" else column < 0)


def combine(outcome: Outcome, spent: Spent, kernels: KernelFigures, peak_memory_bytes: Any) -> Statistics:
    """Return the statistics of all actors."""
    finish, parts, totals = outcome.finish_ns, spent.parts, spent.totals
    end = np.where(finish < 0, outcome.end_ns, finish)
    last = int(end.max())
    return Statistics(
        finish_ns=finish,
        compute_ns=parts[COMPUTE] + parts[COPY],
        exposed_comm_ns=parts[TRANSFER],
        exposed_memory_ns=parts[MEMORY],
        waiting_ns=parts[WAITING],
        host_ns=parts[HOST],
        idle_ns=end - spent.covered_ns,
        early_ns=last - end,
        transfer_ns=totals[TRANSFER],
        hidden_comm_ns=totals[TRANSFER] - parts[TRANSFER],
        communication_ns=spent.communication_ns,
        comm_without_kernel_ns=spent.comm_without_kernel_ns,
        memory_ns=totals[MEMORY],
        cpu_ns=totals[HOST],
        reference_exposed_ns=(end - outcome.busy_ns).astype(np.uint64),
        **kernels.columns(),
        peak_memory_bytes=peak_memory_bytes,
    )


class Occupation:
    """Use of actors' time, from their rows block by block, actor after actor."""

    def __init__(self, actors: int, end_ns: int) -> None:
        self._spent, self._end_ns = Spent(actors), end_ns

    def add(self, rows: Rows) -> None:
        """Add a block."""
        end = rows.end_ns
        if (end < 0).any():
            end = np.where(end < 0, self._end_ns, end)  # nodes without an end are still in progress
        admitted = rows.start_ns + np.maximum(rows.queued_ns, 0)
        moved = admitted + np.maximum(rows.waiting_ns, 0)
        self._spent.add(rows.actor, rows.activity, rows.start_ns, end, admitted, moved)

    def figures(self) -> Spent:
        """Return the sums after all rows were added."""
        self._spent.close()
        return self._spent
