"""A pool of remote memory: stages between NPUs and memory, and the tiers that paths through them make.

Not here: the file that describes it (`memory_file`), and what a request costs (`et_sim.memory`).
"""

from __future__ import annotations

from dataclasses import dataclass


def stage_name(name: str) -> str:
    """What a stage is called beside links of the network."""
    return f"memory stage {name}"


@dataclass(frozen=True, slots=True)
class PoolStage:
    """Units of one sort that transfers pass: links, switches, or groups of memory. GB/s is bytes per ns."""

    name: str
    count: int
    load_bandwidth: float  # of each unit, GB/s
    store_bandwidth: float
    latency_ns: float
    is_duplex: bool = False  # loads and stores do not share a unit
    is_occupied: bool = False  # during the latency, too

    def bandwidth(self, *, stores: bool) -> float:
        """Of each unit, in one direction."""
        return self.store_bandwidth if stores else self.load_bandwidth


@dataclass(frozen=True, slots=True)
class PoolTier:
    """Where requests may go: some of the stages, from the NPUs to the memory."""

    name: str
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """Stages, tiers, and the most bytes of a transfer that pass a stage in one piece."""

    chunk_bytes: int
    stages: tuple[PoolStage, ...]
    tiers: tuple[PoolTier, ...]
    default_tier: int = 0
    is_shared: bool = False  # units fairly, by all transfers that pass them; else these take turns
