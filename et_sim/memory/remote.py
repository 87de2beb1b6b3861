"""Remote memory as a latency and a port that serves one request after the other.

Loads and stores cost the same. Not here: the waiting itself, which the engine does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from et_sim.machine.model import MemoryKind, RemoteMemory

NO_SERVER = -1


def service_ns(memory: RemoteMemory, size: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Time to serve requests of `size` bytes; without a bandwidth the transfer takes no time."""
    if memory.bandwidth == 0:
        return np.full_like(size, memory.latency_ns)
    return memory.latency_ns + (size / float(memory.bandwidth)).astype(np.int64)


def server_of_ranks(memory: RemoteMemory, ranks: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The server each rank's requests queue at; -1 where requests never wait."""
    if memory.kind is MemoryKind.POOL:
        return np.zeros_like(ranks)
    if memory.kind is MemoryKind.PER_NODE:
        return ranks // np.int32(memory.npus_per_node)
    return np.full_like(ranks, NO_SERVER)
