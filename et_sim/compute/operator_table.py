"""Measured durations: a kernel takes the time of its whole shape, or an interpolated time of its size.

Between two sizes, the logarithm of the time is linear in the logarithm of the size. The timeline marks each
kernel as measured, interpolated or outside the measured sizes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from itertools import product

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import MachineError, TraceError, did_you_mean
from et_sim.basics.unique import groups_of
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.device import NEEDED
from et_sim.compute.model import Durations, Labels, Treatment, Utilisation, datatypes_of, place_of
from et_sim.compute.operations import FORMS, PRODUCT_KERNELS, Operation, read_shape
from et_sim.machine.datatypes import BITS
from et_sim.machine.operator_times import Measure, OperatorTimes, Outside
from et_sim.trace.columns import BoolColumn, IntColumn, NodeKind, Trace

PLACES = ("measured", "interpolated", "outside what was measured")
MEASURED, INTERPOLATED, OUTSIDE = range(3)


class NotInTableError(TraceError):
    """A kernel that the table does not cover."""


class OperatorTable(Struct, frozen=True, eq=False):
    """A model of kernels by measured durations."""

    times: OperatorTimes
    label: str
    place: str
    _names: tuple[str, ...] = field(default=tuple(BITS))

    def __post_init__(self) -> None:
        for kind, _ in self.times.of_sizes:
            if kind and kind not in FORMS:
                remedy = did_you_mean(kind, tuple(FORMS)) or f"known: {', '.join(FORMS)}"
                raise MachineError(f"operation {kind!r} is not known", place=self.times.place, remedy=remedy)
        for shape, _ in self.times.of_shapes:
            read_shape(shape, self.times.place)

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return the kernels without a shape, and without the size that the table uses."""
        name = "num_ops" if self.times.size_is is Measure.OPERATIONS else "tensor_size"
        return {NEEDED: ~(trace.has("layer_shape") | trace.has(name))}

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the durations of kernels; equal kernels are looked up once."""
        has_type = trace.datatype[rows] != 0
        datatype = np.full(len(rows), -1, np.int64)
        if self.times.datatype or has_type.any():
            typed = np.arange(len(rows)) if self.times.datatype else np.flatnonzero(has_type)
            datatype[typed] = datatypes_of(trace, rows[typed], self.times.datatype, self.place)
        columns = (trace.layer_shape, trace.num_ops, trace.tensor_bytes)
        groups = groups_of(datatype, *(column[rows].astype(np.int64) for column in columns))
        looked_up = [
            self._duration(trace, int(rows[at]), "" if datatype[at] < 0 else self._names[int(datatype[at])])
            for at in groups.first.tolist()
        ]
        table_ns = np.array([ns for ns, _ in looked_up], np.float64) * self.times.multiple
        ns = np.clip(table_ns, 1, 2.0 * LONGEST_NS).astype(np.int64)[groups.of_row]
        how = np.array([place for _, place in looked_up], np.int64)[groups.of_row]
        names = [self.label, *(f"{self.label} ({place})" for place in PLACES[1:])]
        used = replace(
            Utilisation.unknown("", "", len(rows)),
            timed_by=Labels.of(names, how),
            bound=Labels.of(PLACES, how),
        )
        treatment = np.full(len(rows), Treatment.MODELLED, np.uint8)
        return Durations(ns, treatment, trace.tensor_bytes[rows], used)

    def covers(self, trace: Trace) -> BoolColumn:
        """Return the kernels that the table covers, if it leaves the rest to other rules."""
        covered = np.ones(len(trace), np.bool_)
        if self.times.outside is not Outside.LEAVE:
            return covered
        columns = (trace.layer_shape, trace.num_ops, trace.tensor_bytes, trace.datatype, trace.present)
        known: dict[tuple[int, ...], bool] = {}
        is_kernel = (trace.kind == NodeKind.COMP) & ~trace.is_cpu
        for row in np.flatnonzero(is_kernel).tolist():
            key = tuple(int(column[row]) for column in columns)
            if key not in known:
                known[key] = self._has(trace, row)
            covered[row] = known[key]
        return covered

    def _has(self, trace: Trace, row: int) -> bool:
        lacks = next(iter(self.lacking(trace, 0).values()))
        if lacks[row]:
            return False
        datatype = self.times.datatype
        if trace.datatype[row]:
            number = datatypes_of(trace, np.array([row]), datatype, self.place)
            datatype = self._names[int(number[0])]
        try:
            return self._duration(trace, row, datatype)[1] != OUTSIDE
        except NotInTableError:
            return False

    def _duration(self, trace: Trace, row: int, datatype: str) -> tuple[float, int]:
        """Return nanoseconds before `multiple`, and the index in PLACES."""
        kind, size = "", 0.0
        by_operations = self.times.size_is is Measure.OPERATIONS
        if trace.has("layer_shape", row):
            text = " ".join(trace.layer_shapes[int(trace.layer_shape[row])].split())
            operation = read_shape(text, place_of(trace, row)).operation
            plain = " ".join(word for word in text.split() if word not in PRODUCT_KERNELS)
            for known in product((text, plain), (datatype, "")):
                if known in self.times.of_shapes:
                    return self.times.of_shapes[known], MEASURED
            kind = operation.kind
            size = float(
                operation.operations if by_operations else self._bytes(operation, datatype, trace, row)
            )
        name, column = ("num_ops", trace.num_ops) if by_operations else ("tensor_size", trace.tensor_bytes)
        if trace.has(name, row):
            size = float(column[row])
        for key in ((kind, datatype), (kind, ""), ("", datatype), ("", "")):
            if key in self.times.of_sizes:
                return self._between(*self.times.of_sizes[key], size, trace, row)
        sizes = " ".join(filter(None, (kind or "kernels without a shape", datatype)))
        raise NotInTableError(
            f"{trace.describe(row)} is not in the table {self.times.place}, which has no sizes of {sizes}",
            place=trace.source,
            remedy='measure it, or let another rule of "compute" time it',
        )

    def _bytes(self, operation: Operation, datatype: str, trace: Trace, row: int) -> int:
        if not datatype:
            raise TraceError(
                f"{trace.describe(row)} has no dtype, and {self.place} gives none: its bytes are not known",
                place=trace.source,
                remedy='give "dtype" there, or the attribute dtype to the node',
            )
        return operation.bytes(BITS[datatype])

    def _between(
        self, sizes: tuple[float, ...], times: tuple[float, ...], size: float, trace: Trace, row: int
    ) -> tuple[float, int]:
        if sizes[0] <= size <= sizes[-1]:
            at = bisect_right(sizes, size) - 1
            if size == sizes[at]:
                return times[at], MEASURED
            part = math.log(size / sizes[at]) / math.log(sizes[at + 1] / sizes[at])
            return times[at] * math.exp(part * math.log(times[at + 1] / times[at])), INTERPOLATED
        if self.times.outside is not Outside.EXTRAPOLATE:
            raise NotInTableError(
                f"{trace.describe(row)} has the size {size:,.0f}, and the table {self.times.place} has sizes "
                f"from {sizes[0]:,.0f} to {sizes[-1]:,.0f}",
                place=trace.source,
                remedy='measure it, or set "outside": "extrapolate" or "leave"',
            )
        return (times[0] if size < sizes[0] else times[-1] * size / sizes[-1]), OUTSIDE
