"""Roofline: a kernel is bound by its arithmetic or by its memory traffic.

intensity = ops / bytes; rate = min(memory bandwidth * intensity, peak); time = ops / rate. The order
of the floating-point operations is the reference's, so that the truncated nanoseconds agree. A kernel
without operations (the reference divides zero by zero) takes the time of its memory traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from et_sim.units import LONGEST_NS

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Utilisation:
    """Of each kernel: the shares of peak and of bandwidth that it reaches, and which of them limits it."""

    compute: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]
    intensity: npt.NDArray[np.float64]  # operations per byte
    is_memory_bound: npt.NDArray[np.bool_]

    def take(self, rows: npt.NDArray[np.int64]) -> Utilisation:
        """That of some of the kernels, in the order given."""
        return Utilisation(
            self.compute[rows], self.memory[rows], self.intensity[rows], self.is_memory_bound[rows]
        )

    def slowed(self, nominal_ns: Column, actual_ns: Column) -> Utilisation:
        """The same kernels where they take other times than the roofline says."""
        ratio = np.where(actual_ns > 0, nominal_ns / np.maximum(actual_ns, 1), 1.0)
        return replace(self, compute=self.compute * ratio, memory=self.memory * ratio)

    def spread(self, is_kernel: npt.NDArray[np.bool_]) -> Utilisation:
        """The same kernels among nodes that are none: those have NaN."""
        compute, memory, intensity = np.full((3, len(is_kernel)), np.nan)
        compute[is_kernel], memory[is_kernel] = self.compute, self.memory
        intensity[is_kernel] = self.intensity
        is_memory_bound = np.zeros(len(is_kernel), np.bool_)
        is_memory_bound[is_kernel] = self.is_memory_bound
        return Utilisation(compute, memory, intensity, is_memory_bound)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak of one NPU: TFLOPS and decimal GB/s of local memory."""

    peak_tflops: float
    memory_gbps: float

    @property
    def _peak(self) -> float:
        return self.peak_tflops * 1e12

    @property
    def _bandwidth(self) -> float:
        return self.memory_gbps * 1e9

    def duration_ns(self, num_ops: Column, tensor_bytes: Column) -> Column:
        """Time of each kernel; `tensor_bytes` must not be zero."""
        ops = num_ops.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.minimum(self._bandwidth * (ops / tensor_bytes), self._peak)
            seconds = np.where(num_ops == 0, tensor_bytes / self._bandwidth, ops / rate)
        nanoseconds = seconds * 1e9
        # A machine without peak or bandwidth has no roofline: the reference takes no time then.
        finite = np.where(np.isfinite(nanoseconds), nanoseconds, 0.0)
        return np.minimum(finite, 2 * LONGEST_NS).astype(np.int64)

    def utilisation(self, num_ops: Column, tensor_bytes: Column) -> Utilisation:
        """How well each kernel uses the machine; NaN where a machine without peak or bandwidth says
        nothing. `tensor_bytes` must not be zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            intensity = num_ops / tensor_bytes
            rate = np.minimum(self._bandwidth * intensity, self._peak)
            compute = rate / self._peak
            memory = np.where(rate < self._peak, 1.0, self._peak / intensity / self._bandwidth)
        says_nothing = not (0 < self._peak < np.inf and 0 < self._bandwidth < np.inf)
        nothing = np.full(len(intensity), np.nan)
        return Utilisation(
            compute=nothing if says_nothing else compute,
            memory=nothing if says_nothing else memory,
            intensity=nothing if says_nothing else intensity,
            is_memory_bound=rate < self._peak,
        )
