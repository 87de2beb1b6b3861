"""A device with roofs: a node takes its launches, and then the longer of its arithmetic and its traffic.

    arithmetic = operations * waste / (peak * efficiency * clock)
    traffic    = bytes / (bandwidth * efficiency), from the smallest level of memory that the bytes fit, or
                 the largest where they are `cold`

Element-wise kernels whose tensors are parts of wider ones compute the place of every number that they access,
and load numbers one by one; their traffic takes at least the time of these instructions.

A product whose inner side is split takes less arithmetic, and some time more; the better option is taken.

Waste is that of whole waves of tiles (`tiles`).

Figures are the device's for the kernel's operation and datatype (`RooflineDevice.of_kind`). The clock is 1,
or the one that a cap on power leaves (`clock`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import MachineError, TraceError, did_you_mean
from et_sim.basics.kernel_names import FP8_CACHE, FULL_SUMS, OWN_KINDS, STRIDED
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
from et_sim.compute.operations import FORMS, Operation, read_shape
from et_sim.compute.tiles import additional_ns, waste
from et_sim.machine.datatypes import BITS
from et_sim.machine.efficiencies import OTHER, Efficiency, FloatColumn
from et_sim.machine.roofline import RooflineDevice
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

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
    additional: FloatColumn  # ns of waves of tiles, and of parts of split keys
    kind: list[str]  # kind of operation of each device
    devices: list[RooflineDevice]  # the device for each kind of operation and datatype
    of_device: IntColumn

    def figure(self, name: str) -> FloatColumn:
        """Return a number of the device for each kernel."""
        return np.array([float(getattr(device, name)) for device in self.devices])[self.of_device]


class _Timed(NamedTuple):
    """The times of kernels, and their parts in ns."""

    ns: IntColumn
    work: _Work
    arithmetic: FloatColumn
    traffic: FloatColumn
    launch: FloatColumn
    total: FloatColumn
    wasted: FloatColumn  # factor on operations
    clock: FloatColumn
    energy: FloatColumn
    names: IntColumn  # of peaks
    peak: FloatColumn
    bandwidth: FloatColumn
    level: IntColumn  # of memory; -1: places of numbers take longer
    of_efficiency: tuple[list[str], IntColumn]  # names of curves, and that of each kernel
    of_memory: tuple[list[str], IntColumn]


class Device(Struct, frozen=True, eq=False):
    """A model for kernels with shapes, or with operations and bytes."""

    device: RooflineDevice
    label: str
    place: str
    _known: dict[str, Operation] = field(default_factory=dict)
    _waste: dict[tuple[str, int], tuple[float, float, float]] = field(
        default_factory=dict
    )  # whole, split, and additional time
    _devices: dict[tuple[str, int], RooflineDevice] = field(default_factory=dict)  # by kind and datatype

    def __post_init__(self) -> None:
        for name, kinds in (
            ("efficiency", list(self.device.efficiency.curves)),
            ("memory-efficiency", list(self.device.memory_efficiency.curves)),
            ("kinds", [kind.partition(" ")[0] for kind in self.device.kinds]),
        ):
            for kind in kinds:
                if kind not in (known := (*FORMS, *OWN_KINDS, OTHER)):
                    remedy = did_you_mean(kind, known) or f"known: {', '.join(known)}"
                    raise MachineError(
                        f'operation "{kind}" is not known', place=f'{self.place}: "{name}"', remedy=remedy
                    )

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return the kernels without a shape, and without operations and bytes."""
        has_figures = trace.has("num_ops") & trace.has("tensor_size")
        return {NEEDED: ~(trace.has("layer_shape") | has_figures)}

    def ns(self, trace: Trace, rows: IntColumn, rank: int = 0) -> IntColumn:  # noqa: ARG002
        """Return the nanoseconds of kernels."""
        return self._timed(trace, rows).ns

    def _timed(self, trace: Trace, rows: IntColumn) -> _Timed:
        """Return the times of kernels, at least a nanosecond each, and their parts."""
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
        launch = launches * work.figure("launch_ns") + np.where(is_split, split_ns, 0.0) + work.additional
        arithmetic = whole * wasted
        arithmetic, traffic, launch, clock, energy = self._powered(work, arithmetic, traffic, launch, level)
        launch = launch + work.figure("exposed") * np.minimum(arithmetic, traffic)
        total = launch + np.maximum(arithmetic, traffic)
        return _Timed(
            ns=np.clip(total, 1, 2.0 * LONGEST_NS).astype(np.int64),
            work=work,
            arithmetic=arithmetic,
            traffic=traffic,
            launch=launch,
            total=total,
            wasted=wasted,
            clock=clock,
            energy=energy,
            names=names,
            peak=peak_of,
            bandwidth=bandwidth,
            level=np.where(is_placing, -1, level),
            of_efficiency=of_efficiency,
            of_memory=of_memory,
        )

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the durations of kernels, and what they follow from."""
        timed = self._timed(trace, rows)
        work, total = timed.work, np.maximum(timed.total, 1)
        levels = [level.name for level in self.device.levels]
        efficiencies, memory_efficiencies = timed.of_efficiency, timed.of_memory
        with np.errstate(divide="ignore", invalid="ignore"):
            used = Utilisation(
                compute=work.operations / (timed.peak * 1e3) / total,
                memory=work.bytes / timed.bandwidth / total,
                intensity=np.where(work.bytes > 0, work.operations / work.bytes, 0.0),
                is_memory_bound=timed.traffic > timed.arithmetic,
                arithmetic_ns=timed.arithmetic,
                traffic_ns=timed.traffic,
                launch_ns=timed.launch,
                timed_by=Labels.alike(self.label, len(rows)),
                bound=self._bound(timed.arithmetic, timed.traffic, timed.launch, timed.wasted, timed.level),
                peak=Labels.of(["", *(f"peak of {bits}" for bits in BITS)], timed.names),
                efficiency=Labels.of(
                    [*(f"efficiency of {kind}" for kind in efficiencies[0]), ""],
                    np.where(timed.clock < 1, len(efficiencies[0]), efficiencies[1]),
                ),
                level=Labels.of(
                    [*(Quantity.BANDWIDTH.of(level) for level in levels), ""],
                    np.where(timed.level < 0, len(levels), timed.level),
                ),
                memory_efficiency=Labels.of(
                    [*(f"memory efficiency of {kind}" for kind in memory_efficiencies[0]), ""],
                    np.where(timed.level < 0, len(memory_efficiencies[0]), memory_efficiencies[1]),
                ),
                processors=np.where(
                    timed.arithmetic > np.maximum(timed.traffic, timed.launch),
                    self.device.processors or np.nan,
                    np.nan,
                ),
                clock=timed.clock,
                energy_pj=timed.energy,
            )
        treatment = np.full(len(rows), Treatment.MODELLED, np.uint8)
        return Durations(timed.ns, treatment, work.bytes.astype(np.int64), used)

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
        kinds_work, kinds = np.ones((8, len(groups))), [OTHER, *FORMS, *OWN_KINDS]
        kinds_work[6:] = 0
        of_kind, constants = np.zeros(len(groups), np.int64), datatype[groups.first]
        shaped = dict[int, tuple[str, int]]()
        for at, first in enumerate(groups.first.tolist()):
            row = int(rows[first])
            if not trace.has("layer_shape", row):
                continue
            text = trace.layer_shapes[trace.layer_shape[row]]
            operation = self._operation(text, trace, row)
            if operation.kernel == FP8_CACHE:
                constants[at] = list(BITS).index("fp8")
            shaped[at] = text, int(constants[at])
            kinds_work[:2, at] = operation.operations, operation.bytes(int(bits[first]))
            kinds_work[4, at] = part = self._part_of(operation)
            if operation.kernel == FULL_SUMS:  # its additional work draws as much as the products
                kinds_work[5, at] = 1 / part
            if operation.kernel == STRIDED:
                kinds_work[6, at] = operation.elements
            of_kind[at] = kinds.index(self._kind_of(operation))
        if shaped:
            kinds_work[np.ix_([2, 3, 7], list(shaped))] = self._waste_of(list(shaped.values())).T
        operations, size, whole, split, part, drawing, numbers, additional = kinds_work[:, groups.of_row]
        pairs = groups_of(of_kind, constants)
        return _Work(
            np.where(trace.has("num_ops", rows), trace.num_ops[rows], operations).astype(np.float64),
            np.where(trace.has("tensor_size", rows), trace.tensor_bytes[rows], size).astype(np.float64),
            whole,
            split,
            datatype,
            part,
            drawing,
            numbers,
            additional,
            [kinds[int(of_kind[first])] for first in pairs.first.tolist()],
            [
                self._as_found(kinds[int(of_kind[first])], int(constants[first]))
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

    def _kind_of(self, operation: Operation) -> str:
        """Return the kind by which constants are found: its own one, if the device has some of it."""
        form = operation.form
        has_own = any(kind == form or kind.startswith(f"{form} ") for kind in self.device.kinds)
        return form if has_own else operation.kind

    def _as_found(self, kind: str, datatype: int) -> RooflineDevice:
        if (kind, datatype) not in self._devices:
            self._devices[kind, datatype] = self.device.of_kind(kind, list(BITS)[datatype])
        return self._devices[kind, datatype]

    def _operation(self, text: str, trace: Trace, row: int) -> Operation:
        if text not in self._known:
            self._known[text] = read_shape(text, place_of(trace, row)).operation
        return self._known[text]

    def _waste_of(self, shapes: list[tuple[str, int]]) -> FloatColumn:
        """Return the waste of each shape and datatype, whole and split, and its additional time."""
        new: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for shape in dict.fromkeys(shapes):
            if shape not in self._waste:
                new.setdefault((self._kind_of(self._known[shape[0]]), shape[1]), []).append(shape)
        for (kind, datatype), alike in new.items():
            device, operations = self._as_found(kind, datatype), [self._known[text] for text, _ in alike]
            whole, split = waste(device, operations)
            more = [additional_ns(device, operation) for operation in operations]
            entries = zip(whole.tolist(), split.tolist(), more, strict=True)
            self._waste.update(zip(alike, entries, strict=True))
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
