"""What a local reduction costs inside a collective: two reads and one write of local memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from et_sim.basics.units import LONGEST_NS

Column = npt.NDArray[np.int64]


def reduction_ns(reduced_bytes: Column, memory_gbps: float) -> Column:
    """Three passes over the data, each truncated alone; a machine without bandwidth charges nothing.

    Cut at what no run may reach, so that nothing overflows before it is refused.
    """
    if memory_gbps <= 0 or not math.isfinite(memory_gbps):
        return np.zeros_like(reduced_bytes)
    one_pass = (reduced_bytes.astype(np.float64) / (memory_gbps * 1e9)) * 1e9
    return 3 * np.minimum(one_pass, 2 * LONGEST_NS).astype(np.int64)
