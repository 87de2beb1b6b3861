"""What the actors did with their time, as exact interval arithmetic.

`exposed_comm_ns` is the reference's figure (finish time less the plain sum of kernel times, unsigned);
`exposed_comm_true_ns` is the time in which communication was under way and nothing else; idle time is
the time before the finish in which nothing was.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from et_sim.engine.drive import Outcome
from et_sim.intervals import Intervals, spent
from et_sim.plan.tables import Lane
from et_sim.timeline.kernels import KernelFigures
from et_sim.timeline.rows import COLLECTIVE_NAMES, KIND_NAMES, Occupied

COMMUNICATION_KINDS = ("send", "receive", *COLLECTIVE_NAMES)
Parts = tuple[Any, ...]  # lengths per actor, one array a figure
FIGURES = 7


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Figures per actor."""

    finish_ns: Any  # -1: never finished
    compute_ns: Any
    communication_ns: Any
    memory_ns: Any
    cpu_ns: Any
    overlap_ns: Any
    exposed_comm_ns: Any  # unsigned: it wraps where the reference's does
    exposed_comm_true_ns: Any
    idle_ns: Any
    compute_bound_share: Any  # NaN, like the next three: no kernel was timed by the roofline
    compute_utilisation: Any
    memory_utilisation: Any
    operational_intensity: Any
    peak_memory_bytes: Any  # -1: not tracked

    def columns(self) -> dict[str, Any]:
        """The figures by name, eight bytes each; what there is not is masked."""
        return {field.name: _masked(getattr(self, field.name)) for field in fields(self)}


def _masked(column: Any) -> Any:
    if column.dtype.kind == "u":
        return np.ma.masked_array(column)
    return np.ma.masked_invalid(column) if column.dtype.kind == "f" else np.ma.masked_less(column, 0)


def combine(outcome: Outcome, lengths: Any, kernels: KernelFigures, peak_memory_bytes: Any) -> Statistics:
    """Statistics of all actors from what `measure_block` found: `lengths` has a row for each figure."""
    compute, communication, memory, cpu, overlap, alone, covered = lengths
    finish = outcome.finish_ns
    end = np.where(finish < 0, outcome.end_ns, finish)
    return Statistics(
        finish_ns=finish,
        compute_ns=compute,
        communication_ns=communication,
        memory_ns=memory,
        cpu_ns=cpu,
        overlap_ns=overlap,
        exposed_comm_ns=(end - outcome.busy_ns).astype(np.uint64),
        exposed_comm_true_ns=alone,
        idle_ns=end - covered,
        **kernels.columns(),
        peak_memory_bytes=peak_memory_bytes,
    )


def measure_block(rows: Occupied, first: int, until: int, end_ns: int) -> Parts:
    """Interval lengths of the actors from `first` on, from rows that are all of theirs."""
    end = np.where(rows.end_ns < 0, end_ns, rows.end_ns)  # what never ended is still under way
    every = Intervals(until - first, rows.actor - first, rows.start_ns, end)
    codes = {name: code for code, name in enumerate(KIND_NAMES)}
    cpu = rows.lane == Lane.CPU
    compute = (rows.kind == codes["compute"]) & ~cpu
    communication = np.isin(rows.kind, [codes[name] for name in COMMUNICATION_KINDS]) & ~cpu
    memory = np.isin(rows.kind, [codes["memory_load"], codes["memory_store"]]) & ~cpu
    found = spent(every, compute, communication)
    return (
        found.compute_ns,
        found.communication_ns,
        every.where(memory).union_ns(),
        every.where(cpu).union_ns(),
        found.overlap_ns,
        found.exposed_ns,
        found.covered_ns,
    )
