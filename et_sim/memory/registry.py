"""Models of remote memory: the cost of a request, and the server it waits for.

A model is a class and an entry of MODELS. Requests of one server are served one after the other, in the order
in which they come; the engine does that. A model with a `pool` (`machine.memory`) has stages that requests
pass instead.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import LONGEST_NS
from et_sim.machine.model import Machine, MemoryKind, RemoteMemory
from et_sim.machine.remote_memory import MemoryPool, PoolStage
from et_sim.trace.columns import IntColumn, NodeKind, RowColumn, Trace

NO_SERVER = -1


class MemoryModel(Protocol):
    """A remote memory."""

    @classmethod
    def of(cls, machine: Machine) -> Self | None:
        """Return the memory of a machine; None if it has no memory of this kind."""

    def needs(self) -> tuple[str, ...]:
        """Return the attributes that every request must have."""

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        """Return how long each request occupies a server; in a pool, its time without others."""

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        """Return the server at which the requests of each rank queue; NO_SERVER: they never wait."""


class PoolMemory(Struct, frozen=True):
    """The pool of a memory file, behind stages that transfers pass in equal pieces.

    A request that is alone takes, at each stage, one piece's serialisation and the latency, and besides, all
    pieces but one at the slowest stage. Each stage's times are cut to whole nanoseconds.
    """

    pool: MemoryPool
    ranks: int

    @classmethod
    def of(cls, machine: Machine) -> PoolMemory | None:
        """Return the pool of a machine whose memory file describes one."""
        pool = machine.memory.pool
        return None if pool is None else cls(pool, machine.network.ranks)

    def needs(self) -> tuple[str, ...]:
        """Return the attribute with the bytes."""
        return ("tensor_size",)

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        """Return how long each request takes without others."""
        stores = trace.kind[rows] == NodeKind.MEM_STORE
        tiers = tiers_of(self.pool, trace, rows)
        size, taken = trace.tensor_bytes[rows], np.zeros(len(rows), np.int64)
        for tier in unique(tiers[(tiers >= 0) & (tiers < len(self.pool.tiers))]).tolist():
            for way in (False, True):
                which = (tiers == tier) & (stores == way)
                taken[which] = self._alone_ns(tier, size[which], stores=way)
        return taken

    def _alone_ns(self, tier: int, size: IntColumn, *, stores: bool) -> IntColumn:
        pieces = np.maximum(-(-size // self.pool.chunk_bytes), 1)
        first = last = np.zeros(len(size), np.int64)
        for stage in stages_of(self.pool, tier, stores=stores):
            rate = per_npu(stage, self.ranks) * stage.bandwidth(stores=stores)
            piece_ns, every = _whole_ns(size / pieces, rate), _whole_ns(size, rate)
            latency = int(stage.latency_ns)
            last = np.maximum(first + every, last + piece_ns) + latency
            first = first + piece_ns + latency
        return last

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        """Return one server for all, unless each NPU has units of its own at all stages."""
        is_shared = any(stage.count < self.ranks for stage in self.pool.stages)
        return np.zeros_like(ranks) if is_shared else np.full_like(ranks, NO_SERVER)


def _whole_ns(size: Any, rate: float) -> IntColumn:
    """Return the time of bytes in nanoseconds, limited to somewhat more than the longest run."""
    with np.errstate(over="ignore"):
        taken: IntColumn = np.minimum(size / rate, 2.0 * LONGEST_NS).astype(np.int64)
    return taken


def tiers_of(pool: MemoryPool, trace: Trace, rows: IntColumn) -> IntColumn:
    """Return the tier of each request."""
    named = trace.has("memory_tier", rows)
    return np.where(named, trace.memory_tier[rows].astype(np.int64), pool.default_tier)


def stages_of(pool: MemoryPool, tier: int, *, stores: bool) -> list[PoolStage]:
    """Return the stages that data passes, in its order: stores go to the memory, loads come from there."""
    stages = [pool.stages[stage] for stage in pool.tiers[tier].stages]
    return stages if stores else stages[::-1]


def per_npu(stage: PoolStage, ranks: int) -> int:
    """Return the number of units that share the transfers of one NPU."""
    return max(stage.count // ranks, 1)


class Remote(Struct, frozen=True):
    """The remote memory of a memory file: a latency, and a port that serves one request after another.

    Loads and stores cost the same. All ranks share one port, or those of a node do, or each has its own, at
    which its requests do not wait for each other.
    """

    memory: RemoteMemory

    @classmethod
    def of(cls, machine: Machine) -> Remote | None:
        """Return the memory of a machine whose memory file describes one."""
        kind = machine.memory.kind
        return None if kind in (MemoryKind.NONE, MemoryKind.HIERARCHICAL_POOL) else cls(machine.memory)

    def needs(self) -> tuple[str, ...]:
        """Return the attribute with the bytes."""
        return ("tensor_size",)

    def service_ns(self, trace: Trace, rows: IntColumn) -> IntColumn:
        """Return latency and transfer; without a bandwidth the transfer takes no time."""
        size, memory = trace.tensor_bytes[rows], self.memory
        if memory.bandwidth == 0:
            return np.full_like(size, memory.latency_ns)
        return memory.latency_ns + (size / float(memory.bandwidth)).astype(np.int64)

    def server_of_ranks(self, ranks: RowColumn) -> RowColumn:
        """Return one server for all, one per node, or none."""
        if self.memory.kind is MemoryKind.POOL:
            return np.zeros_like(ranks)
        if self.memory.kind is MemoryKind.PER_NODE:
            return ranks // np.int32(self.memory.npus_per_node)
        return np.full_like(ranks, NO_SERVER)


MODELS: tuple[type[MemoryModel], ...] = (Remote, PoolMemory)


def memory_model(machine: Machine) -> MemoryModel | None:
    """Return the model of a machine's remote memory: the first that supports it; None if it has none."""
    return next((model for kind in MODELS if (model := kind.of(machine)) is not None), None)
