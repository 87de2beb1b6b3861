"""The memory models there are.

Remote memory as a latency and a port that serves one request after the other. Loads and stores cost the same.
All ranks share one port, or those of a node do, or each has its own, at which its requests do not wait for
each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from et_sim.machine.model import Machine, MemoryKind, RemoteMemory
from et_sim.memory.model import NO_SERVER, MemoryModel
from et_sim.memory.pool import PoolMemory
from et_sim.trace.columns import IntColumn, RowColumn, Trace


@dataclass(frozen=True, slots=True)
class Remote:
    """The remote memory that a memory file describes."""

    memory: RemoteMemory

    @classmethod
    def of(cls, machine: Machine) -> Remote | None:
        """The memory of a machine whose memory file describes one."""
        kind = machine.memory.kind
        return None if kind in (MemoryKind.NONE, MemoryKind.HIERARCHICAL_POOL) else cls(machine.memory)

    def needs(self) -> tuple[str, ...]:
        """How much is moved."""
        return ("tensor_size",)

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        """Latency and transfer; without a bandwidth the transfer takes no time."""
        size, memory = trace.tensor_bytes[rows], self.memory
        if memory.bandwidth == 0:
            return np.full_like(size, memory.latency_ns)
        return memory.latency_ns + (size / float(memory.bandwidth)).astype(np.int64)

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        """One for all, one per node, or none."""
        if self.memory.kind is MemoryKind.POOL:
            return np.zeros_like(ranks)
        if self.memory.kind is MemoryKind.PER_NODE:
            return ranks // np.int32(self.memory.npus_per_node)
        return np.full_like(ranks, NO_SERVER)


MODELS: tuple[type[MemoryModel], ...] = (Remote, PoolMemory)


def memory_model(machine: Machine) -> MemoryModel | None:
    """The model of a machine's remote memory: the first that claims it; None if it has none."""
    return next((model for kind in MODELS if (model := kind.of(machine)) is not None), None)
