"""Roofline: a kernel is bound by its arithmetic or by its memory traffic.

intensity = ops / bytes; rate = min(memory bandwidth * intensity, peak); time = ops / rate. The order
of the floating-point operations is the reference's, so that the truncated nanoseconds agree. A kernel
without operations (the reference divides zero by zero) takes the time of its memory traffic.
A local reduction inside a collective reads local memory twice and writes it once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import Durations, Labels, OfAllRanks, Treatment, Utilisation, without
from et_sim.machine.model import System
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

Column = npt.NDArray[np.int64]


def reduction_ns(reduced_bytes: Column, memory_gbps: float) -> Column:
    """Three passes over the data, each truncated alone; a machine without bandwidth charges nothing.

    Cut at what no run may reach, so that nothing overflows before it is refused.
    """
    if memory_gbps <= 0 or not math.isfinite(memory_gbps):
        return np.zeros_like(reduced_bytes)
    one_pass = (reduced_bytes.astype(np.float64) / (memory_gbps * 1e9)) * 1e9
    return 3 * np.minimum(one_pass, 2 * LONGEST_NS).astype(np.int64)


@quick_dataclass(frozen=True)
class Roofline(OfAllRanks):
    """Peak of one NPU: TFLOPS and decimal GB/s of local memory."""

    peak_tflops: float
    memory_gbps: float

    @classmethod
    def of(cls, system: System) -> Roofline | None:
        """The roofline of a system that turns it on."""
        is_used = system.roofline and not system.replay_only
        return cls(system.peak_perf, system.local_mem_bw) if is_used else None

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Arithmetic and traffic."""
        return without(trace, "tensor_size", "num_ops")

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Kernels that touch no memory complete at once, as in the reference."""
        ops, size = trace.num_ops[rows], trace.tensor_bytes[rows]
        timed = np.flatnonzero(size)
        nanoseconds = np.zeros(len(rows), np.int64)
        nanoseconds[timed] = self.duration_ns(ops[timed], size[timed])
        treatment = np.where(size != 0, Treatment.MODELLED, Treatment.INSTANT).astype(np.uint8)
        used = self.utilisation(ops[timed], size[timed]).spread(timed, len(rows))
        return Durations(nanoseconds, treatment, size, used)

    @property
    def _peak(self) -> float:
        return self.peak_tflops * 1e12

    @property
    def _bandwidth(self) -> float:
        return self.memory_gbps * 1e9

    def duration_ns(self, num_ops: IntColumn, tensor_bytes: IntColumn) -> IntColumn:
        """Time of each kernel; `tensor_bytes` must not be zero."""
        ops = num_ops.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.minimum(self._bandwidth * (ops / tensor_bytes), self._peak)
            seconds = np.where(num_ops == 0, tensor_bytes / self._bandwidth, ops / rate)
        nanoseconds = seconds * 1e9
        # A machine without peak or bandwidth has no roofline: the reference takes no time then.
        finite = np.where(np.isfinite(nanoseconds), nanoseconds, 0.0)
        return np.minimum(finite, 2 * LONGEST_NS).astype(np.int64)

    def utilisation(self, num_ops: IntColumn, tensor_bytes: IntColumn) -> Utilisation:
        """How well each kernel uses the machine; NaN where a machine without peak or bandwidth says
        nothing. `tensor_bytes` must not be zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            intensity = num_ops / tensor_bytes
            rate = np.minimum(self._bandwidth * intensity, self._peak)
            compute = rate / self._peak
            memory = np.where(rate < self._peak, 1.0, self._peak / intensity / self._bandwidth)
            arithmetic_ns = num_ops / self._peak * 1e9
            traffic_ns = tensor_bytes / self._bandwidth * 1e9
        is_memory_bound = rate < self._peak
        labelled = replace(
            Utilisation.unknown("roofline", "", len(intensity)),
            is_memory_bound=is_memory_bound,
            peak=Labels.alike("peak compute", len(intensity)),
            level=Labels.alike("local memory bandwidth", len(intensity)),
        )
        if not (0 < self._peak < np.inf and 0 < self._bandwidth < np.inf):
            return labelled
        return replace(
            labelled,
            compute=compute,
            memory=memory,
            intensity=intensity,
            arithmetic_ns=arithmetic_ns,
            traffic_ns=traffic_ns,
            launch_ns=np.zeros(len(intensity)),
            bound=Labels.of(("compute", "memory"), is_memory_bound.astype(np.int64)),
        )
