"""How many sends between two ranks a collective library's buffers hold before the receives are posted."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.collective_library import Library
from et_sim.plan.records import NO_LIMIT


def set_windows(channels: Any, library: Library | None, memory_bw: float) -> None:
    """Set the window and the time of a copy of each channel; without a library, there is no limit."""
    channels["window"] = NO_LIMIT
    if library is None:
        return
    size = np.maximum(channels["bytes"], 1)
    is_within = channels["source"] // library.node == channels["target"] // library.node
    buffers = library.buffers
    room = np.where(is_within, buffers.of_sends(within=True), buffers.of_sends(within=False))
    channels["window"] = np.minimum(room // size, np.iinfo(np.int32).max)
    if memory_bw:  # it reads and writes
        channels["copy_ns"] = (2 * channels["bytes"] / memory_bw).astype(np.int64)
