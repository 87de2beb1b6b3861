"""How well the kernels of an actor use its machine: averages over those that the roofline timed.

Averages are weighted by duration, over exactly these kernels. The reference divides by one nanosecond more,
and counts CPU operations and kernels without figures in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.timeline.rows import Rows


@dataclass(slots=True)
class KernelFigures:
    """Adds up blocks of rows per actor; each block must hold all rows of its actors."""

    actors: int
    time_ns: Any
    compute_bound_ns: Any
    weighted: Any  # compute utilisation, memory utilisation, intensity: each times duration

    @staticmethod
    def of(actors: int) -> KernelFigures:
        """Nothing added up yet."""
        return KernelFigures(
            actors, np.zeros(actors, np.int64), np.zeros(actors, np.int64), np.zeros((3, actors))
        )

    def add(self, rows: Rows) -> None:
        """Count a block."""
        used = rows.utilisation
        if used is None:
            return
        timed = np.flatnonzero(~np.isnan(used.compute) & (rows.end_ns >= 0))
        actor, used = rows.actor[timed], used.take(timed)
        duration = (rows.end_ns - rows.start_ns)[timed]
        np.add.at(self.time_ns, actor, duration)
        np.add.at(self.compute_bound_ns, actor, np.where(used.is_memory_bound, 0, duration))
        for total, figure in zip(self.weighted, (used.compute, used.memory, used.intensity), strict=True):
            # Row after row, so that the sum does not depend on how actors are put into blocks.
            total += np.bincount(actor, weights=figure * duration, minlength=self.actors)

    def columns(self) -> dict[str, Any]:
        """Averages per actor; NaN where no time was spent in such kernels."""
        with np.errstate(invalid="ignore"):
            compute, memory, intensity = self.weighted / self.time_ns
            bound = self.compute_bound_ns / self.time_ns
        return {
            "compute_bound_share": bound,
            "compute_utilisation": compute,
            "memory_utilisation": memory,
            "operational_intensity": intensity,
        }
