"""What the actors did with their time, as exact interval arithmetic.

`exposed_comm_ns` is the reference's figure (finish time less the plain sum of kernel times, unsigned);
`exposed_comm_true_ns` is the time in which communication was under way and nothing else; idle time is
the time before the finish in which nothing was.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from et_sim.engine.driver import Outcome
from et_sim.intervals import COMMUNICATION, COMPUTE, CPU, MEMORY, OTHER, Spent
from et_sim.plan.tables import Lane
from et_sim.timeline.kernels import KernelFigures
from et_sim.timeline.rows import COLLECTIVE_NAMES, KIND_NAMES, Rows

COMMUNICATION_KINDS = ("send", "receive", *COLLECTIVE_NAMES)
MEMORY_KINDS = ("memory_load", "memory_store")


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


def combine(outcome: Outcome, spent: Spent, kernels: KernelFigures, peak_memory_bytes: Any) -> Statistics:
    """Statistics of all actors."""
    finish = outcome.finish_ns
    end = np.where(finish < 0, outcome.end_ns, finish)
    return Statistics(
        finish_ns=finish,
        compute_ns=spent.compute_ns,
        communication_ns=spent.communication_ns,
        memory_ns=spent.memory_ns,
        cpu_ns=spent.cpu_ns,
        overlap_ns=spent.overlap_ns,
        exposed_comm_ns=(end - outcome.busy_ns).astype(np.uint64),
        exposed_comm_true_ns=spent.exposed_ns,
        idle_ns=end - spent.covered_ns,
        **kernels.columns(),
        peak_memory_bytes=peak_memory_bytes,
    )


class Occupation:
    """What actors do with their time, from their rows piece by piece, actor after actor."""

    def __init__(self, actors: int, end_ns: int) -> None:
        self._spent, self._end_ns = Spent(actors), end_ns

    def add(self, rows: Rows) -> None:
        """Take a piece."""
        end = rows.end_ns
        if (end < 0).any():
            end = np.where(end < 0, self._end_ns, end)  # what never ended is still under way
        self._spent.add(rows.actor, SORTS[rows.kind, rows.lane], rows.start_ns, end)

    def figures(self) -> Spent:
        """When all rows are there."""
        self._spent.close()
        return self._spent


def _sorts() -> Any:
    """What a row counts as, by its kind and lane."""
    of_kind = np.full(len(KIND_NAMES), OTHER, np.int8)
    of_kind[np.isin(KIND_NAMES, COMMUNICATION_KINDS)] = COMMUNICATION
    of_kind[np.isin(KIND_NAMES, MEMORY_KINDS)] = MEMORY
    of_kind[KIND_NAMES.index("compute")] = COMPUTE
    table = np.repeat(of_kind[:, None], len(Lane), axis=1)
    table[:, Lane.CPU] = CPU
    return table


SORTS = _sorts()
