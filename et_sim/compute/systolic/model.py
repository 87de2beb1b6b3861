"""The compute model: a kernel that says which products or convolutions it consists of, on a systolic array.

Kernels of equal shapes are worked out once. Not here: what a layer costs (`report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.compute.labels import Labels, place_of
from et_sim.compute.model import Durations, Treatment, Utilisation, without
from et_sim.compute.operations import read_shape
from et_sim.compute.systolic.layer import Dimensions, SystolicLayer
from et_sim.compute.systolic.report import Report
from et_sim.compute.systolic.topology_file import LARGEST
from et_sim.machine.systolic import ClockedArray
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

CONVOLUTION = "conv"


def layers_of(text: str, place: str) -> tuple[tuple[SystolicLayer, int], ...]:
    """The layers of which an operation consists, and how many there are of each."""
    shape = read_shape(text, place)
    operation = shape.operation
    if not operation.products:
        raise TraceError(
            f"layer_shape {text!r} is no matrix product or convolution: a systolic array does nothing else",
            place=place,
            remedy='let another rule of "compute" time it: "where": {"operation": …}',
        )
    is_convolution = shape.kind == CONVOLUTION
    sides = [side for one in operation.products for side in (one.rows, one.columns, one.inner)]
    largest = max(shape.numbers if is_convolution else sides)
    if largest > LARGEST:
        raise TraceError(
            f"layer_shape {text!r} has the size {largest:,}",
            place=place,
            remedy=f"a systolic array takes {LARGEST:,} at most: cut the operation into several kernels",
        )
    if is_convolution:
        return ((SystolicLayer(text, Dimensions(*shape.numbers), place), shape.count),)
    return tuple(
        (SystolicLayer.product(text, one.rows, one.columns, one.inner, place=place), one.count)
        for one in operation.products
    )


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
    label: str = "systolic"
    place: str = ""
    _known: dict[str, _Figures] = field(default_factory=dict, compare=False)

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """The shape."""
        return without(trace, "layer_shape")

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:  # noqa: ARG002
        """Cycles, stalls included, in nanoseconds."""
        shapes, first, number = np.unique(trace.layer_shape[rows], return_index=True, return_inverse=True)
        found = [
            self._figures(trace.layer_shapes[shape], trace, int(rows[row]))
            for shape, row in zip(shapes.tolist(), first.tolist(), strict=True)
        ]
        of_row = number.reshape(-1)
        columns = np.array([one[1:4] for one in found], np.float64).reshape(-1, 3)[of_row]
        is_bound = np.array([one.is_memory_bound for one in found], np.bool_)[of_row]
        unknown = Utilisation.unknown(self.label, "", len(rows))
        return Durations(
            np.array([one.ns for one in found], np.int64)[of_row],
            np.full(len(rows), Treatment.MODELLED, np.uint8),
            trace.tensor_bytes[rows],
            replace(
                unknown,
                compute=columns[:, 0],
                memory=columns[:, 1],
                intensity=columns[:, 2],
                is_memory_bound=is_bound,
                bound=Labels.of(("compute", "memory"), is_bound.astype(np.int64)),
            ),
        )

    def _figures(self, text: str, trace: Trace, row: int) -> _Figures:
        if text not in self._known:
            layers = layers_of(text, place_of(trace, row))
            reports = [(Report(layer, self.clocked.array), count) for layer, count in layers]
            self._known[text] = self._of(reports)
        return self._known[text]

    def _of(self, found: list[tuple[Report, int]]) -> _Figures:
        """One after the other. Of unlimited bandwidth no share is used, and every word counts once."""
        array = self.clocked.array
        cycles = sum(one.cycles * count for one, count in found)
        macs = sum(one.layer.macs * count for one, count in found)
        memory = 0.0
        if array.is_limited:
            words = sum(sum(each.words for each in one.timing.dram) * count for one, count in found)
            possible = sum(array.bandwidth(operand) for operand in range(3)) * cycles
            memory = min(1.0, words / possible) if possible else 0.0
        else:
            words = sum(_words(one) * count for one, count in found)
        stalls = sum(one.stalls * count for one, count in found)
        compute = macs / (cycles * array.elements) if cycles else 0.0
        duration = self.clocked.duration_ns(cycles)
        return _Figures(duration, compute, memory, 2 * macs / words, 2 * stalls > cycles)


def _words(one: Report) -> int:
    layer = one.layer
    return layer.image_words + layer.inner * layer.columns + layer.rows * layer.columns
