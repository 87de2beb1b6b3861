"""The compute model: a kernel whose shape consists of products or convolutions, on a systolic array.

Kernels of equal shapes are computed once. The cost of a layer is reported in the columns of SCALE-Sim's three
reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import InputError, TraceError
from et_sim.compute.model import Durations, Labels, Treatment, Utilisation, place_of, without
from et_sim.compute.operations import read_shape
from et_sim.compute.systolic.corrected import corrected
from et_sim.compute.systolic.files import LARGEST
from et_sim.compute.systolic.layer import Dimensions, Folds, SystolicLayer
from et_sim.compute.systolic.overlapping import Overlapping
from et_sim.compute.systolic.streams import HeldOperand, OperandStream, Slanted, Written
from et_sim.compute.systolic.timing import Timing, limited, unlimited
from et_sim.machine.systolic import Array, ClockedArray, Dataflow
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

MOST_STEPS = 1 << 25
COMPUTE = ("Total Cycles", "Stall Cycles", "Overall Util %", "Mapping Efficiency %", "Compute Util %")
BANDWIDTH = tuple(
    f"Avg {operand} {memory} BW" for memory in ("SRAM", "DRAM") for operand in ("IFMAP", "FILTER", "OFMAP")
)
_MOVES = (("IFMAP", "Reads"), ("Filter", "Reads"), ("OFMAP", "Writes"))
ACCESS = tuple(
    f"{memory} {operand} {figure}"
    for memory in ("SRAM", "DRAM")
    for operand, move in _MOVES
    for figure in ("Start Cycle", "Stop Cycle", move)
)


class LayerReport(Struct, frozen=True, dict=True):
    """The report of one layer; triples belong to ifmap, filter and ofmap."""

    layer: SystolicLayer
    array: Array
    alike: LayerReport | None = None  # report of another layer with the same dimensions

    @cached_property
    def timing(self) -> Timing:
        """Return the times at which its words move."""
        if self.alike is not None:
            return self.alike.timing
        self._refuse_endless()
        folds = Folds.of(self.layer, self.array)
        as_scale_sim = limited if self.array.is_limited else unlimited
        rule = corrected if self.array.is_corrected else as_scale_sim
        return rule(_streams(self.layer, folds), Written(folds), folds, self.array)

    def _refuse_endless(self) -> None:
        """Refuse layers that take hours: the rules loop over folds, and over filled halves of memories."""
        if not (self.array.is_limited or self.array.is_corrected):
            return
        array = self.array
        halves = [kb << 9 for kb in (array.ifmap_kb, array.filter_kb, array.ofmap_kb)]
        filled = sum(words // half for words, half in zip(self.sram_words, halves, strict=True))
        folds = Folds.of(self.layer, array).count
        if folds + filled > MOST_STEPS:
            raise InputError(
                f"layer {self.layer.name} has {folds:,} folds, and fills halves of memories {filled:,} times",
                place=self.layer.place,
                remedy=f"the limit is {MOST_STEPS:,}: give a larger array or memory, or calculated"
                " bandwidth with SCALE-Sim's rules",
            )

    @cached_property
    def sram_words(self) -> tuple[int, int, int]:
        """Return the accesses of each memory."""
        return sram_words(self.layer, self.array)

    @cached_property
    def cycles(self) -> int:
        """Return all cycles, stalls included."""
        return self.timing.total if self.array.is_limited else unlimited_cycles(self.layer, self.array)

    @cached_property
    def stalls(self) -> int:
        """Return the cycles in which the array waits: none, unless bandwidth is limited."""
        return self.timing.stalls if self.array.is_limited else 0

    @property
    def overall(self) -> float:
        """Return the share of all multiplications that the array could perform."""
        return self.layer.macs / (self.cycles * self.array.elements) if self.cycles else 0.0

    @property
    def compute_row(self) -> dict[str, float]:
        """Return a row of COMPUTE_REPORT.csv."""
        folds = Folds.of(self.layer, self.array)
        shares = (self.overall, folds.mapping, folds.compute(self.array.is_corrected))
        values = (self.cycles, self.stalls, *(share * 100 for share in shares))
        return dict(zip(COMPUTE, values, strict=True))

    @property
    def bandwidth_row(self) -> dict[str, float]:
        """Return a row of BANDWIDTH_REPORT.csv: words per cycle."""
        sram = [words / self.cycles if self.cycles else 0.0 for words in self.sram_words]
        return dict(
            zip(BANDWIDTH, (*sram, *(traffic.bandwidth for traffic in self.timing.dram)), strict=True)
        )

    @property
    def access_row(self) -> dict[str, int]:
        """Return a row of DETAILED_ACCESS_REPORT.csv."""
        sram = [(*span, words) for span, words in zip(self.timing.spans, self.sram_words, strict=True)]
        return dict(
            zip(ACCESS, (value for traffic in (*sram, *self.timing.dram) for value in traffic), strict=True)
        )


def reports(layers: Iterable[SystolicLayer], array: Array) -> list[LayerReport]:
    """Return a report for each layer; layers with equal dimensions share the work."""
    known: dict[Dimensions, LayerReport] = {}
    reports = []
    for layer in layers:
        reports.append(LayerReport(layer, array, known.get(layer.dimensions)))
        known.setdefault(layer.dimensions, reports[-1])
    return reports


def unlimited_cycles(layer: SystolicLayer, array: Array) -> int:
    """Return the cycles without waiting."""
    folds = Folds.of(layer, array)
    return folds.count * folds.cycles - (0 if array.is_corrected else 1)


def sram_words(layer: SystolicLayer, array: Array) -> tuple[int, int, int]:
    """Return the accesses of each memory; SCALE-Sim adds the sides of the array to outputs that stay."""
    folds = Folds.of(layer, array)
    rows, columns, inner = layer.rows, layer.columns, layer.inner
    down, across = folds.row_folds, folds.column_folds
    if array.dataflow == Dataflow.OUTPUT:
        more = 0 if array.is_corrected else folds.count * (array.height + array.width)
        return rows * inner * across, columns * inner * down, rows * columns + more
    if array.dataflow == Dataflow.WEIGHT:
        return rows * inner * across, columns * inner, rows * columns * down
    return rows * inner, columns * inner * across, rows * columns * down


def _streams(layer: SystolicLayer, folds: Folds) -> tuple[OperandStream, OperandStream]:
    """Return the streams of ifmap and filter."""
    streamed = Slanted(
        height=folds.steps,
        width=folds.height,
        last_width=folds.last_height,
        blocks=folds.row_folds,
        visits=folds.column_folds,
        is_held=False,
        start=folds.load,
        fold_cycles=folds.cycles,
    )
    plain: OperandStream = HeldOperand(folds) if folds.dataflow == Dataflow.INPUT else streamed
    image = plain if layer.is_plain else Overlapping(layer, folds, plain)
    if folds.dataflow == Dataflow.INPUT:
        return image, streamed
    if folds.dataflow == Dataflow.WEIGHT:
        return image, HeldOperand(folds)
    return image, Slanted(
        height=folds.steps,
        width=folds.width,
        last_width=folds.last_width,
        blocks=folds.column_folds,
        visits=folds.row_folds,
        is_held=True,
        start=0,
        fold_cycles=folds.cycles,
    )


CONVOLUTION = "conv"


def layers_of(text: str, place: str) -> tuple[tuple[SystolicLayer, int], ...]:
    """Return the layers that an operation consists of, and the number of each."""
    shape = read_shape(text, place)
    operation = shape.operation
    if not operation.products:
        raise TraceError(
            f"layer_shape {text!r} is not a matrix product or convolution, as systolic arrays require",
            place=place,
            remedy='let another rule of "compute" time it: "where": {"operation": …}',
        )
    is_convolution = shape.kind == CONVOLUTION
    sides = [
        side for product in operation.products for side in (product.rows, product.columns, product.inner)
    ]
    largest = max(shape.numbers if is_convolution else sides)
    if largest > LARGEST:
        raise TraceError(
            f"layer_shape {text!r} has the size {largest:,}",
            place=place,
            remedy=f"the limit of a systolic array is {LARGEST:,}: cut the operation into several kernels",
        )
    if is_convolution:
        return ((SystolicLayer(text, Dimensions(*shape.numbers), place), shape.count),)
    return tuple(
        (
            SystolicLayer.product(text, product.rows, product.columns, product.inner, place=place),
            product.count,
        )
        for product in operation.products
    )


class _Figures(NamedTuple):
    """The timing of one shape."""

    ns: int
    compute: float
    memory: float
    intensity: float
    is_memory_bound: bool


class Systolic(Struct, frozen=True):
    """A model by which each kernel has the array to itself."""

    clocked: ClockedArray
    label: str = "systolic"
    place: str = ""
    _known: dict[str, _Figures] = field(default_factory=dict)

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return the kernels without a shape."""
        return without(trace, "layer_shape")

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:  # noqa: ARG002
        """Return the cycles of kernels, stalls included, in nanoseconds."""
        shapes, first, number = np.unique(trace.layer_shape[rows], return_index=True, return_inverse=True)
        figures = [
            self._figures(trace.layer_shapes[shape], trace, int(rows[row]))
            for shape, row in zip(shapes.tolist(), first.tolist(), strict=True)
        ]
        of_row = number.reshape(-1)
        columns = np.array([layer_figures[1:4] for layer_figures in figures], np.float64).reshape(-1, 3)[
            of_row
        ]
        is_bound = np.array([layer_figures.is_memory_bound for layer_figures in figures], np.bool_)[of_row]
        unknown = Utilisation.unknown(self.label, "", len(rows))
        return Durations(
            np.array([layer_figures.ns for layer_figures in figures], np.int64)[of_row],
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
            reports = [(LayerReport(layer, self.clocked.array), count) for layer, count in layers]
            self._known[text] = self._of(reports)
        return self._known[text]

    def _of(self, reports: list[tuple[LayerReport, int]]) -> _Figures:
        """Return the timing of layers one after the other.

        Unlimited bandwidth has no utilisation, and every word counts once.
        """
        array = self.clocked.array
        cycles = sum(report.cycles * count for report, count in reports)
        macs = sum(report.layer.macs * count for report, count in reports)
        memory = 0.0
        if array.is_limited:
            words = sum(sum(each.words for each in report.timing.dram) * count for report, count in reports)
            possible = sum(array.bandwidth(operand) for operand in range(3)) * cycles
            memory = min(1.0, words / possible) if possible else 0.0
        else:
            words = sum(_words(report) * count for report, count in reports)
        stalls = sum(report.stalls * count for report, count in reports)
        compute = macs / (cycles * array.elements) if cycles else 0.0
        duration = self.clocked.duration_ns(cycles)
        return _Figures(duration, compute, memory, 2 * macs / words, 2 * stalls > cycles)


def _words(report: LayerReport) -> int:
    layer = report.layer
    return layer.image_words + layer.inner * layer.columns + layer.rows * layer.columns
