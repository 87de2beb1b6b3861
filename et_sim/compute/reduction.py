"""What a local reduction costs inside a collective: two reads and one write of local memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]


def reduction_ns(reduced_bytes: Column, memory_gbps: float) -> Column:
    """Three passes over the data, each truncated alone; a machine without bandwidth charges nothing."""
    if memory_gbps <= 0 or not math.isfinite(memory_gbps):
        return np.zeros_like(reduced_bytes)
    one_pass = (reduced_bytes.astype(np.float64) / (memory_gbps * 1e9)) * 1e9
    return 3 * one_pass.astype(np.int64)
