"""The bytes of sends that a collective library's buffers hold before the receives are posted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.unique import groups_of
from et_sim.plan.records import NO_LIMIT

if TYPE_CHECKING:
    from et_sim.machine.collective_library import Library


def set_windows(channels: Any, library: Library | None, memory_bw: float, *, rendezvous: bool) -> None:
    """Set the room and the time of a copy of each channel; without a library, there is no limit.

    All channels between two ranks share one connection, and so the room of its buffers.
    """
    channels["room"] = NO_LIMIT
    if library is None:
        return
    is_within = channels["source"] // library.node == channels["target"] // library.node
    buffers = library.buffers
    channels["room"] = np.where(is_within, buffers.of_sends(within=True), buffers.of_sends(within=False))
    if memory_bw:  # it reads and writes
        channels["copy_ns"] = (2 * channels["bytes"] / memory_bw).astype(np.int64)
    if not rendezvous and len(channels):
        channels["handshake"] = groups_of(channels["source"], channels["target"]).of_row
