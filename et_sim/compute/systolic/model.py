"""The compute model: a kernel that says which product or convolution it is, on a systolic array.

Kernels of equal shapes are worked out once. Not here: what a layer costs (`report`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from et_sim.compute.model import Durations, Treatment, Utilisation
from et_sim.compute.systolic.report import Report
from et_sim.compute.systolic.shapes import parse_shape
from et_sim.machine.model import System
from et_sim.machine.systolic import ClockedArray
from et_sim.trace.columns import IntColumn, Trace


class _Figures(NamedTuple):
    """Of one shape."""

    ns: int
    compute: float
    memory: float
    intensity: float
    is_memory_bound: bool


@dataclass(frozen=True, slots=True)
class Systolic:
    """Each kernel has the array to itself."""

    clocked: ClockedArray
    _known: dict[str, _Figures] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, system: System) -> Systolic | None:
        """The array of a system that has one."""
        is_used = system.systolic is not None and not system.replay_only
        return cls(system.systolic) if is_used and system.systolic is not None else None

    def needs(self) -> tuple[str, ...]:
        """The shape."""
        return ("layer_shape",)

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Cycles, stalls included, in nanoseconds."""
        shapes, first, number = np.unique(trace.layer_shape[rows], return_index=True, return_inverse=True)
        found = [
            self._figures(trace.layer_shapes[shape], trace, int(rows[row]))
            for shape, row in zip(shapes.tolist(), first.tolist(), strict=True)
        ]
        columns = np.array([one[1:4] for one in found], np.float64).reshape(-1, 3)[number.reshape(-1)]
        is_bound = np.array([one.is_memory_bound for one in found], np.bool_)
        return Durations(
            np.array([one.ns for one in found], np.int64)[number.reshape(-1)],
            np.full(len(rows), Treatment.MODELLED, np.uint8),
            trace.tensor_bytes[rows],
            Utilisation(columns[:, 0], columns[:, 1], columns[:, 2], is_bound[number.reshape(-1)]),
        )

    def rank_classes(self, ranks: int) -> None:
        """All ranks are the same machine."""

    def same(self, first: Trace, second: Trace) -> bool:
        """Utilisation follows from shapes."""
        return all(
            first.layer_shapes[one] == second.layer_shapes[other]
            for one, other in set(zip(first.layer_shape.tolist(), second.layer_shape.tolist(), strict=True))
        )

    def _figures(self, text: str, trace: Trace, row: int) -> _Figures:
        if text not in self._known:
            place = ", ".join(filter(None, (trace.source, trace.describe(row))))
            self._known[text] = self._of(Report(parse_shape(text, place), self.clocked.array))
        return self._known[text]

    def _of(self, found: Report) -> _Figures:
        """Of unlimited bandwidth no share is used, and every word counts once."""
        array, layer = self.clocked.array, found.layer
        words = layer.image_words + layer.inner * layer.columns + layer.rows * layer.columns
        memory = 0.0
        if array.is_limited:
            words = sum(one.words for one in found.timing.dram)
            possible = sum(array.bandwidth(operand) for operand in range(3)) * found.cycles
            memory = min(1.0, words / possible) if possible else 0.0
        duration = self.clocked.duration_ns(found.cycles)
        is_memory_bound = 2 * found.stalls > found.cycles
        return _Figures(duration, found.overall, memory, 2 * layer.macs / words, is_memory_bound)
