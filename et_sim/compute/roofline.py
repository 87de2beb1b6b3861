"""Roofline: a kernel is bound by its arithmetic or by its memory traffic.

intensity = ops / bytes; rate = min(memory bandwidth * intensity, peak); time = ops / rate. The order
of the floating-point operations is the reference's, so that the truncated nanoseconds agree. A kernel
without operations (the reference divides zero by zero) takes the time of its memory traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from et_sim.units import LONGEST_NS

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak of one NPU: TFLOPS and decimal GB/s of local memory."""

    peak_tflops: float
    memory_gbps: float

    def duration_ns(self, num_ops: Column, tensor_bytes: Column) -> Column:
        """Time of each kernel; `tensor_bytes` must not be zero."""
        bandwidth = self.memory_gbps * 1e9
        ops = num_ops.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.minimum(bandwidth * (ops / tensor_bytes), self.peak_tflops * 1e12)
            seconds = np.where(num_ops == 0, tensor_bytes / bandwidth, ops / rate)
        nanoseconds = seconds * 1e9
        # A machine without peak or bandwidth has no roofline: the reference takes no time then.
        finite = np.where(np.isfinite(nanoseconds), nanoseconds, 0.0)
        return np.minimum(finite, 2 * LONGEST_NS).astype(np.int64)
