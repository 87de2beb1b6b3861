"""The machine as plain, frozen, validated values: what the hardware is.

Readers (`readers`) are the only place that makes these from files; whoever holds a `Machine` may
trust it. Not here: file formats, and any simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from et_sim.machine.corrections import Correction, Profile


class Shape(StrEnum):
    """How the NPUs of one dimension are wired."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class MemoryKind(StrEnum):
    """Where remote memory lives and who shares its one port."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"


class StreamPolicy(StrEnum):
    """Which collective goes first when several wait for the same queue."""

    LIFO = "LIFO"
    FIFO = "FIFO"
    EXPLICIT = "EXPLICIT"


class AllReducePlan(StrEnum):
    """How an all-reduce crosses several dimensions."""

    BASELINE = "baseline"
    LOCAL_BW_AWARE = "localBWAware"


class DimensionOrder(StrEnum):
    """In which order the chunks of a collective visit the dimensions."""

    ASCENDING = "ascending"
    ROUND_ROBIN = "roundRobin"
    OFFLINE_GREEDY = "offlineGreedy"
    OFFLINE_GREEDY_FLEX = "offlineGreedyFlex"
    ONLINE_GREEDY = "onlineGreedy"


class QueueOrder(StrEnum):
    """Which chunk of a reduce-scatter or all-gather phase waits in front of which."""

    FIFO = "FIFO"
    RG = "RG"
    SMALLEST_FIRST = "smallestFirst"
    LESS_REMAINING_PHASE_FIRST = "lessRemainingPhaseFirst"


def _bytes_per_ns(bandwidth: float) -> float:
    """GiB/s as bytes per ns; the multiplication precedes the division, as in the reference."""
    return bandwidth * 1073741824 / 1000000000


@dataclass(frozen=True, slots=True)
class Dimension:
    """One network dimension. Bandwidth is GiB/s per link (the files call it GB/s), latency ns."""

    shape: Shape
    npus: int
    bandwidth: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """Link bandwidth."""
        return _bytes_per_ns(self.bandwidth)


AT_SWITCH = -1  # in place of an NPU: the switch of its line


@dataclass(frozen=True, slots=True)
class UnevenLink:
    """A directed link that differs from the others of its dimension; it has both figures of its own."""

    dimension: int
    source: int  # an NPU, or AT_SWITCH
    target: int
    bandwidth: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """Its bandwidth."""
        return _bytes_per_ns(self.bandwidth)


@dataclass(frozen=True, slots=True)
class Network:
    """Dimensions, innermost first; rank ids count dimension 0 fastest."""

    dimensions: tuple[Dimension, ...]
    links: tuple[UnevenLink, ...] = ()

    @property
    def ranks(self) -> int:
        """How many NPUs the network connects."""
        return math.prod(d.npus for d in self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in rank ids between neighbours of each dimension."""
        strides, stride = [], 1
        for dimension in self.dimensions:
            strides.append(stride)
            stride *= dimension.npus
        return tuple(strides)


@dataclass(frozen=True, slots=True)
class SharedBus:
    """LogGP parameters of the shared memory bus."""

    latency: int
    overhead: int
    gap: int
    gap_per_byte: float


@dataclass(frozen=True, slots=True)
class Straggler:
    """Ranks that are slower than their traces and the machine would have them, and by how much."""

    ranks: tuple[range, ...] | None  # None: all
    compute: float = 1.0  # factor of the durations of compute nodes
    delay_ns: int = 0  # of the start, or of one node
    node: int | None = None
    jitter: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Implementations:
    """Algorithm names per collective type, one per dimension; None: not configured."""

    all_reduce: tuple[str, ...] | None = None
    all_gather: tuple[str, ...] | None = None
    reduce_scatter: tuple[str, ...] | None = None
    all_to_all: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class System:
    """The 2.x system file, validated, with the command-line-only options as fields."""

    splits: int  # preferred-dataset-splits
    implementations: Implementations
    policy: StreamPolicy = StreamPolicy.LIFO
    all_reduce_plan: AllReducePlan = AllReducePlan.LOCAL_BW_AWARE
    dimension_order: DimensionOrder = DimensionOrder.ASCENDING
    queue_order: QueueOrder = QueueOrder.FIFO
    endpoint_delay_ns: int = 10  # already scaled by injection-scale where the file gave the key
    active_chunks: int = 1  # active-chunks-per-dimension
    queues_per_dim: int = 1
    rendezvous: bool = False
    local_mem_bw: float = 0.0  # decimal GB/s; 0: reductions cost nothing
    peak_perf: float = 0.0  # TFLOPS
    roofline: bool = False
    replay_only: bool = False
    local_reduction_delay: int = 1
    shared_bus: SharedBus | None = None
    custom_implementations: dict[str, str] = field(default_factory=dict)  # type key -> trace prefix
    per_node_implementation: str | None = None
    track_local_mem: bool = False
    stragglers: tuple[Straggler, ...] = ()
    profile: Profile = Profile.REFERENCE
    corrections: frozenset[Correction] = frozenset()

    def corrects(self, correction: Correction) -> bool:
        """Whether a defect of the reference is mended."""
        return correction in self.corrections


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """Remote memory; bandwidth is decimal GB/s, so bytes per ns."""

    kind: MemoryKind = MemoryKind.NONE
    latency_ns: int = 0
    bandwidth: int = 0
    nodes: int = 0
    npus_per_node: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about accepted input that the user should see: a warning or a default taken."""

    place: str  # file (or "<system>")
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything known about the hardware, and what was said about the way it was described."""

    network: Network
    system: System
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)  # communicator groups
    warnings: tuple[Notice, ...] = ()
    defaults: tuple[Notice, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()  # (path, content hash) of every file read

    @property
    def straggling_ranks(self) -> int:
        """How many ranks are stragglers."""
        pieces = [piece.ranks for piece in self.system.stragglers]
        if None in pieces:
            return self.network.ranks
        return len({rank for ranks in pieces for piece in ranks or () for rank in piece})
