"""A device with roofs: a node takes its launches, and then the longer of its arithmetic and its traffic.

    arithmetic = operations * waste / (peak * efficiency * clock)
    traffic    = bytes / (bandwidth * efficiency), from the smallest level of memory that the bytes fit, or
                 the largest where they are `cold`

Element-wise kernels whose tensors are parts of wider ones compute the place of every number that they access,
and load numbers one by one; their traffic takes at least the time of these instructions.

A product whose inner side is split takes less arithmetic, and some time more; the better option is taken.

Waste is the ratio of the operations of whole waves of tiles to the kernel's own: each processor takes a tile,
and a wave takes the same time for any number of tiles. A tile of a product goes through its inner side in
steps, with some more to begin and to end; with few tiles, that side may be split among several. A tile of
attention is a part of the queries of one head, and goes through the keys that they see; kernels for fewer
queries than a tile has work differently, and are not cut. The exponentials of scores are further operations
of attention, which its shape does not count.

Figures are the device's for the kernel's operation and datatype (`RooflineDevice.of_kind`). The clock is 1,
or the one that a cap on power leaves (`clock`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import MachineError, TraceError, did_you_mean
from et_sim.basics.kernel_names import FULL_SUMS, STRIDED
from et_sim.basics.quantities import Quantity
from et_sim.basics.unique import groups_of
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.clock import ClockLoad, limited
from et_sim.compute.model import (
    Durations,
    Labels,
    Treatment,
    Utilisation,
    datatypes_of,
    place_of,
)
from et_sim.compute.operations import FORMS, Operation, Product, read_shape
from et_sim.machine.datatypes import BITS
from et_sim.machine.efficiencies import OTHER, Efficiency, FloatColumn
from et_sim.machine.roofline import RooflineDevice
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

PRODUCTS = ("gemm", "grouped_gemm", "conv")
ATTENTION = ("attention", "attention_backward")
LEAST_STEPS = 4  # least steps of each part of a split


def waste(device: RooflineDevice, operations: Sequence[Operation]) -> tuple[FloatColumn, FloatColumn]:
    """Return the waste of each operation as one piece, and with the best split if that is better."""
    whole, split = np.ones(len(operations)), np.ones(len(operations))
    products = [at for at, operation in enumerate(operations) if operation.kind in PRODUCTS]
    if device.tiles and products:
        columns = _Products.of([operations[at].products for at in products])
        powers = range(device.split_k.bit_length())
        ratios = np.stack([columns.operations(device, 1 << power) for power in powers]) / columns.own
        whole[products], split[products] = ratios[0], ratios.min(axis=0)
    for at, operation in enumerate(operations):
        if operation.kind in ATTENTION:
            whole[at] = split[at] = _of_attention(device, operation) / operation.operations
    return whole, split


class _Products(Struct, frozen=True):
    """All products of some operations, one after the other; `first` has the index of each first one."""

    rows: IntColumn
    columns: IntColumn
    count: IntColumn
    first: IntColumn
    inner: IntColumn  # of each operation
    own: FloatColumn

    @staticmethod
    def of(operations: Sequence[tuple[Product, ...]]) -> _Products:
        sizes = np.array(
            [(p.rows, p.columns, p.count) for operation in operations for p in operation], np.int64
        )
        rows, columns, count = sizes.T
        return _Products(
            rows,
            columns,
            count,
            np.cumsum([0, *map(len, operations[:-1])]),
            np.array([products[0].inner for products in operations], np.int64),
            np.array([float(sum(p.operations for p in products)) for products in operations]),
        )

    def operations(self, device: RooflineDevice, parts: int) -> FloatColumn:
        """Return the operations with the best tile, with the inner side split into `parts`."""
        best = np.full(len(self.inner), math.inf)
        for tile in device.tiles:
            steps = -(-self.inner // (parts * tile.step))
            of_product = -(-self.rows // tile.rows) * -(-self.columns // tile.columns) * self.count
            tiles = parts * np.add.reduceat(of_product, self.first)
            each = 2 * tile.rows * tile.columns * tile.step * (steps + device.prologue) / tile.part
            is_possible = (parts == 1) | (self.inner >= parts * LEAST_STEPS * tile.step)
            best = np.minimum(best, np.where(is_possible, _waves(device, tiles) * each, math.inf))
        return best


def _of_attention(device: RooflineDevice, operation: Operation) -> float:
    scores, rows = operation.products[0], device.query_tile
    queries = scores.rows * scores.count
    of_pair = sum(product.operations for product in operation.products) / (queries * scores.columns)
    keys = operation.operations / of_pair / queries  # keys that a query sees
    each = of_pair + device.score_operations
    if not 0 < rows <= scores.rows:
        return float(queries * keys * each)
    tiles = -(-scores.rows // rows) * scores.count
    mean, longest = keys + device.query_prologue, scores.columns + device.query_prologue
    last = max(longest, tiles / device.processors * mean + longest - mean)  # if tiles are unequal
    return float(max(_waves(device, tiles) * mean, device.processors * last) * rows * each)


def _waves(device: RooflineDevice, tiles: Any) -> Any:
    """Return the number of tiles, rounded up to whole waves of all processors."""
    return -(-tiles // device.processors) * device.processors


NEEDED = "'layer_shape' (or 'num_ops' and 'tensor_size')"
LAUNCH, COMPUTE, TILES, PLACES = "launch", "compute", "tiles", "places"
OPERATIONS_OF_LANE = 2
PLACE_INSTRUCTIONS = 25  # of an access to one number: its place in two dimensions, the access, conversions


class _Work(Struct, frozen=True, eq=False):
    """The work of some kernels."""

    operations: FloatColumn
    bytes: FloatColumn
    waste: FloatColumn  # operations of whole waves of tiles by the kernel's own
    split: FloatColumn  # the same with the inner side split
    datatype: IntColumn  # index into BITS
    part: FloatColumn  # part of the best kernel's rate
    drawing: FloatColumn  # energy of an operation by that of the best kernel
    strided: FloatColumn  # accesses whose places are computed one by one
    kind: list[str]  # kind of operation of each device
    devices: list[RooflineDevice]  # the device for each kind of operation and datatype
    of_device: IntColumn

    def figure(self, name: str) -> FloatColumn:
        """Return a number of the device for each kernel."""
        return np.array([float(getattr(device, name)) for device in self.devices])[self.of_device]


class Device(Struct, frozen=True, eq=False):
    """A model for kernels with shapes, or with operations and bytes."""

    device: RooflineDevice
    label: str
    place: str
    _known: dict[str, Operation] = field(default_factory=dict)
    _waste: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)  # whole, and split
    _devices: dict[tuple[str, int], RooflineDevice] = field(default_factory=dict)  # by kind and datatype

    def __post_init__(self) -> None:
        for name, kinds in (
            ("efficiency", list(self.device.efficiency.curves)),
            ("memory-efficiency", list(self.device.memory_efficiency.curves)),
            ("kinds", [kind.partition(" ")[0] for kind in self.device.kinds]),
        ):
            for kind in kinds:
                if kind not in FORMS and kind != OTHER:
                    known = (*FORMS, OTHER)
                    remedy = did_you_mean(kind, known) or f"known: {', '.join(known)}"
                    raise MachineError(
                        f'operation "{kind}" is not known', place=f'{self.place}: "{name}"', remedy=remedy
                    )

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return the kernels without a shape, and without operations and bytes."""
        has_figures = trace.has("num_ops") & trace.has("tensor_size")
        return {NEEDED: ~(trace.has("layer_shape") | has_figures)}

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the durations of kernels, at least a nanosecond each."""
        work = self._work(trace, rows)
        names, peak_of = self._peaks(work, trace, rows)
        efficiency, of_efficiency = _parts("efficiency", work, work.operations * work.waste)
        whole = work.operations / (peak_of * 1e3 * efficiency * work.part)
        memory_efficiency, of_memory = _parts("memory_efficiency", work, work.bytes)
        level, bandwidth = self._levels(work.bytes, trace.is_cold[rows])
        traffic = work.bytes / (bandwidth * memory_efficiency)
        places = self._places_ns(work)
        is_placing = places > traffic
        traffic = np.maximum(traffic, places)
        saved = np.maximum(whole * work.waste, traffic) - np.maximum(whole * work.split, traffic)
        split_ns = work.figure("split_ns")
        is_split = saved > split_ns
        wasted = np.where(is_split, work.split, work.waste)
        launches = np.where(trace.has("launches", rows), trace.launches[rows], 1)
        launch = launches * work.figure("launch_ns") + np.where(is_split, split_ns, 0.0)
        arithmetic = whole * wasted
        arithmetic, traffic, launch, clock, energy = self._powered(work, arithmetic, traffic, launch, level)
        is_capped = clock < 1
        total = launch + np.maximum(arithmetic, traffic)
        ns = np.clip(total, 1, 2.0 * LONGEST_NS).astype(np.int64)
        levels = [level.name for level in self.device.levels]
        with np.errstate(divide="ignore", invalid="ignore"):
            used = Utilisation(
                compute=work.operations / (peak_of * 1e3) / np.maximum(total, 1),
                memory=work.bytes / bandwidth / np.maximum(total, 1),
                intensity=np.where(work.bytes > 0, work.operations / work.bytes, 0.0),
                is_memory_bound=traffic > arithmetic,
                arithmetic_ns=arithmetic,
                traffic_ns=traffic,
                launch_ns=launch,
                timed_by=Labels.alike(self.label, len(rows)),
                bound=self._bound(arithmetic, traffic, launch, wasted, np.where(is_placing, -1, level)),
                peak=Labels.of(["", *(f"peak of {bits}" for bits in BITS)], names),
                efficiency=Labels.of(
                    [*(f"efficiency of {kind}" for kind in of_efficiency[0]), ""],
                    np.where(is_capped, len(of_efficiency[0]), of_efficiency[1]),
                ),
                level=Labels.of(
                    [*(Quantity.BANDWIDTH.of(level) for level in levels), ""],
                    np.where(is_placing, len(levels), level),
                ),
                memory_efficiency=Labels.of(
                    [*(f"memory efficiency of {kind}" for kind in of_memory[0]), ""],
                    np.where(is_placing, len(of_memory[0]), of_memory[1]),
                ),
                processors=np.where(
                    arithmetic > np.maximum(traffic, launch), self.device.processors or np.nan, np.nan
                ),
                clock=clock,
                energy_pj=energy,
            )
        treatment = np.full(len(rows), Treatment.MODELLED, np.uint8)
        return Durations(ns, treatment, work.bytes.astype(np.int64), used)

    def _powered(
        self,
        work: _Work,
        arithmetic: FloatColumn,
        traffic: FloatColumn,
        launch: FloatColumn,
        level: IntColumn,
    ) -> tuple[FloatColumn, ...]:
        """Return the times of kernels under the power cap, their clocks, and energies above idle in pJ.

        Clocks and energies are NaN for a device without a power model.
        """
        power, cap = self.device.power, self.device.power_cap
        if power is None or cap is None:
            nothing = np.full(len(level), np.nan)
            return arithmetic, traffic, launch, nothing, nothing
        energies = power.energies(self.device.peaks)
        of_operation = np.array([energies.get(name, 0.0) for name in BITS])[work.datatype]
        of_bytes = np.where(level == 0, work.bytes * power.byte, 0.0)
        of_operations = work.operations * work.drawing * of_operation
        load = ClockLoad(arithmetic, traffic, launch, of_operations, of_bytes)
        under = limited(power, cap, load)
        times = arithmetic / under.clock, traffic, launch
        clock, energy = under.clock / under.stretch, load.energies(power, under.clock)
        return *(time * under.stretch for time in times), clock, energy

    def _work(self, trace: Trace, rows: IntColumn) -> _Work:
        datatype = datatypes_of(trace, rows, self.device.datatype, self.place)
        bits = np.array(list(BITS.values()))[datatype]
        groups = groups_of(trace.layer_shape[rows], datatype)
        kinds_work, kinds = np.ones((7, len(groups))), [OTHER, *FORMS]
        kinds_work[6] = 0
        of_kind = np.zeros(len(groups), np.int64)
        shaped = dict[int, tuple[str, int]]()
        for at, first in enumerate(groups.first.tolist()):
            row = int(rows[first])
            if not trace.has("layer_shape", row):
                continue
            shaped[at] = trace.layer_shapes[trace.layer_shape[row]], int(datatype[first])
            operation = self._operation(shaped[at][0], trace, row)
            kinds_work[:2, at] = operation.operations, operation.bytes(int(bits[first]))
            kinds_work[4, at] = part = self._part_of(operation)
            if operation.kernel == FULL_SUMS:  # its additional work draws as much as the products
                kinds_work[5, at] = 1 / part
            if operation.kernel == STRIDED:
                kinds_work[6, at] = operation.elements
            of_kind[at] = kinds.index(operation.kind)
        if shaped:
            kinds_work[2:4, list(shaped)] = self._waste_of(list(shaped.values())).T
        operations, size, whole, split, part, drawing, numbers = kinds_work[:, groups.of_row]
        pairs = groups_of(of_kind, datatype[groups.first])
        return _Work(
            np.where(trace.has("num_ops", rows), trace.num_ops[rows], operations).astype(np.float64),
            np.where(trace.has("tensor_size", rows), trace.tensor_bytes[rows], size).astype(np.float64),
            whole,
            split,
            datatype,
            part,
            drawing,
            numbers,
            [kinds[int(of_kind[first])] for first in pairs.first.tolist()],
            [
                self._as_found(kinds[int(of_kind[first])], int(datatype[groups.first[first]]))
                for first in pairs.first.tolist()
            ],
            pairs.of_row[groups.of_row],
        )

    def _part_of(self, operation: Operation) -> float:
        """Return the part of the best rate that a named kernel of attention or a product reaches."""
        if operation.kernel == FULL_SUMS:
            return self.device.full_sums
        kernel = self.device.attention_kernels.get(operation.kernel)
        if kernel is None:
            return 1.0
        return kernel.backward if operation.kind == "attention_backward" else kernel.forward

    def _as_found(self, kind: str, datatype: int) -> RooflineDevice:
        if (kind, datatype) not in self._devices:
            self._devices[kind, datatype] = self.device.of_kind(kind, list(BITS)[datatype])
        return self._devices[kind, datatype]

    def _operation(self, text: str, trace: Trace, row: int) -> Operation:
        if text not in self._known:
            self._known[text] = read_shape(text, place_of(trace, row)).operation
        return self._known[text]

    def _waste_of(self, shapes: list[tuple[str, int]]) -> FloatColumn:
        """Return the waste for each shape and datatype."""
        new: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for shape in dict.fromkeys(shapes):
            if shape not in self._waste:
                new.setdefault((self._known[shape[0]].kind, shape[1]), []).append(shape)
        for (kind, datatype), alike in new.items():
            whole, split = waste(self._as_found(kind, datatype), [self._known[text] for text, _ in alike])
            self._waste.update(zip(alike, zip(whole.tolist(), split.tolist(), strict=True), strict=True))
        return np.array([self._waste[shape] for shape in shapes])

    def _peaks(self, work: _Work, trace: Trace, rows: IntColumn) -> tuple[IntColumn, FloatColumn]:
        """Return the index into BITS plus one of each kernel's peak, and the peak; 0 without operations."""
        peaks = np.array([self.device.peaks.get(name, np.nan) for name in BITS])
        of_row = peaks[work.datatype]
        computes = work.operations > 0
        if (wrong := computes & np.isnan(of_row)).any():
            at = int(np.argmax(wrong))
            name = list(BITS)[int(work.datatype[at])]
            row = int(rows[at])
            raise TraceError(
                f"{trace.describe(row)} computes in {name}, for which {self.place} gives no peak",
                place=trace.source,
                remedy=f"peaks there: {', '.join(self.device.peaks)}",
            )
        return np.where(computes, work.datatype + 1, 0), np.where(computes, of_row, 1.0)

    def _places_ns(self, work: _Work) -> FloatColumn:
        """Return the time of instructions that compute the places of numbers; 0 without a peak of fp32.

        An instruction takes a lane for as long as a multiplication with an addition in fp32.
        """
        peak = self.device.peaks.get("fp32")
        if peak is None:
            return np.zeros(len(work.strided))
        return work.strided * PLACE_INSTRUCTIONS * OPERATIONS_OF_LANE / (peak * 1e3)

    def _levels(self, size: FloatColumn, is_cold: BoolColumn) -> tuple[IntColumn, FloatColumn]:
        """Return the smallest level of memory that the bytes fit, or the largest level, and its bandwidth."""
        levels = np.zeros(len(size), np.int64)
        for number, level in enumerate(self.device.levels):
            if level.capacity is not None and number:
                levels[(size <= level.capacity) & ~is_cold] = number
        return levels, np.array([level.bandwidth for level in self.device.levels])[levels]

    def _bound(
        self,
        arithmetic: FloatColumn,
        traffic: FloatColumn,
        launch: FloatColumn,
        waste: FloatColumn,
        level: IntColumn,
    ) -> Labels:
        """Return the name of the longest part; tiles if their waste decides or doubles arithmetic.

        The level -1 stands for the places of numbers.
        """
        words = [LAUNCH, COMPUTE, TILES, PLACES, *(level.name for level in self.device.levels)]
        useful = arithmetic / waste
        which = np.where(traffic > arithmetic, level + 4, 1)
        wasteful = (which == 1) & ((useful < np.maximum(traffic, launch)) | (2 * useful < arithmetic))
        which[wasteful & (waste > 1)] = 2
        which[launch > np.maximum(arithmetic, traffic)] = 0
        return Labels.of(words, which)


def _parts(name: str, work: _Work, size: FloatColumn) -> tuple[FloatColumn, tuple[list[str], IntColumn]]:
    """Return the part of a peak that each kernel reaches by an efficiency, and the name of its curve."""
    efficiencies, which, names = np.ones(len(size)), np.zeros(len(size), np.int64), list[str]()
    for number, (kind, device) in enumerate(zip(work.kind, work.devices, strict=True)):
        efficiency: Efficiency = getattr(device, name)
        label = kind if kind in efficiency.curves else OTHER
        if label not in names:
            names.append(label)
        of_this_kind = np.flatnonzero(work.of_device == number)
        efficiencies[of_this_kind] = np.maximum(efficiency.of(kind).at(size[of_this_kind]), 1e-9)
        which[of_this_kind] = names.index(label)
    return efficiencies, (names, which)
