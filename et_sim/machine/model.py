"""The machine as plain, frozen, validated values: what the hardware is.

Readers (`readers`) are the only place that makes these from files; whoever holds a `Machine` may
trust it. Not here: file formats, and any simulation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from et_sim.machine.accuracy import Accuracy
from et_sim.machine.compute_rules import ComputeRule
from et_sim.machine.costs import Costs
from et_sim.machine.graph import Figures, Graph
from et_sim.machine.library import Library
from et_sim.machine.pool import MemoryPool
from et_sim.machine.profiles import DEFAULT, Behaviour, behaviour_of
from et_sim.machine.transports import Credits, LogGops, Protocol


class Shape(StrEnum):
    """How the NPUs of one dimension are wired."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class MemoryKind(StrEnum):
    """Where remote memory lives, and who shares what on the way."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"
    HIERARCHICAL_POOL = "HIERARCHICAL_POOL"


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


GIB = 1073741824 / 1_000_000_000  # bytes per ns of a GiB/s


def bytes_per_ns(bandwidth: float) -> float:
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
        return bytes_per_ns(self.bandwidth)


# Where times have fractions that add up, as in some models of ASTRA-sim 1.0.
FRACTION_BITS = 20
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
        return bytes_per_ns(self.bandwidth)


@dataclass(frozen=True, slots=True)
class Reducer:
    """What a switch is capable of that reduces, and copies, what it is sent."""

    bytes_per_ns: float = math.inf  # of the data that it passes on
    latency_ns: float = 0.0  # of each chunk


@dataclass(frozen=True, slots=True)
class Level:
    """A dimension as ASTRA-sim 1.0 describes it: bundles of links, and what else a message pays for."""

    shape: Shape
    npus: int
    links: int  # of an NPU
    links_used: int  # of those
    link_bandwidth: float  # of one link, in GiB/s
    latency_ns: float  # of a hop
    nic_ns: float  # twice per message
    router_ns: float  # once per message, behind a switch
    memory_latency_ns: float
    memory_bandwidth: float  # decimal GB/s
    memory_scale: float  # 0: the memory bounds no message
    built_of: str

    @property
    def bytes_per_ns(self) -> float:
        """What one message gets: all links in use, but among fully connected NPUs those to the peer."""
        peers = max(self.npus - 1, 1) if self.shape is Shape.FULLY_CONNECTED else 1
        return bytes_per_ns(self.link_bandwidth) * (self.links_used // peers)


@dataclass(frozen=True, slots=True)
class LogicalDimension:
    """A dimension as collectives see it."""

    npus: int
    shape: Shape  # of what it lies on
    bandwidth: float  # of an NPU along it, in GiB/s: by which some orders of dimensions weigh them


@dataclass(frozen=True, slots=True)
class LogicalGrid:
    """What collectives run along: dimensions, innermost first; rank ids count dimension 0 fastest."""

    dimensions: tuple[LogicalDimension, ...]

    @property
    def ranks(self) -> int:
        """How many there are."""
        return math.prod(dimension.npus for dimension in self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in rank ids between neighbours of each dimension."""
        return strides_of(self.dimensions)


@dataclass(frozen=True, slots=True)
class GridFabric:
    """What messages cross: dimensions, innermost first, and the links that differ from their dimension's."""

    dimensions: tuple[Dimension, ...]
    links: tuple[UnevenLink, ...] = ()
    reducers: tuple[tuple[int, Reducer], ...] = ()  # dimensions whose switches reduce, in order

    @property
    def ranks(self) -> int:
        """How many NPUs it connects."""
        return math.prod(dimension.npus for dimension in self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in rank ids between neighbours of each dimension."""
        return strides_of(self.dimensions)


@dataclass(frozen=True, slots=True)
class LevelFabric:
    """What messages cross in ASTRA-sim 1.0: they pay for the highest level in which their ends differ.

    A level may be cut into several dimensions of the logical grid.
    """

    levels: tuple[Level, ...]
    level_of: tuple[int, ...]  # per dimension of the grid

    @property
    def is_cut(self) -> bool:
        """Whether some level is cut into several dimensions."""
        return len(self.levels) < len(self.level_of)


@dataclass(frozen=True, slots=True)
class Rails:
    """The two dimensions that nodes and rails are, but that NPUs share their links to the rails."""

    npus_count: tuple[int, int]
    shape: Shape  # of a node
    sharers: int  # NPUs of a node to a link
    within: Figures
    port: Figures  # of the link of one of them to the shared one
    rail: Figures
    is_only_port: bool = False  # whether bytes to the others of the node take that way too

    @property
    def dimensions(self) -> tuple[Dimension, Dimension]:
        """As an NPU sees them that is alone."""
        rate, latency = self.within.bytes_per_ns, self.within.latency_ns
        if self.is_only_port:
            rate, latency = min(rate / self.sharers, self.port.bytes_per_ns), latency + self.port.latency_ns
        inner = Dimension(self.shape, self.npus_count[0], rate / GIB, latency)
        outside = self.rail.latency_ns + self.port.latency_ns
        outer = Dimension(Shape.SWITCH, self.npus_count[1], self.rail.bytes_per_ns / GIB, outside)
        return inner, outer

    def with_figures(self, before: Figures, after: Figures) -> Rails:
        """Where links of those figures have others."""
        within, port, rail = (after if one == before else one for one in (self.within, self.port, self.rail))
        return replace(self, within=within, port=port, rail=rail)


class Routing(StrEnum):
    """Which way a message takes through a graph: one of the shortest, or a detour."""

    SHORTEST = "shortest"
    ECMP = "ecmp"
    ECMP_NS3 = "ecmp-ns3"
    DIMENSION_ORDER = "dimension-order"
    VALIANT = "valiant"


@dataclass(frozen=True, slots=True, eq=False)
class GraphFabric:
    """What messages cross: a graph of devices."""

    graph: Graph
    routing: Routing = Routing.SHORTEST
    seed: int = 0
    npus_forward: bool = False
    grid: tuple[
        tuple[int, bool], ...
    ] = ()  # (NPUs, whether it wraps round) by dimension, if it is a whole one
    routes: tuple[tuple[int, ...], ...] = ()  # links of the ways that were given
    reducers: tuple[tuple[int, Reducer], ...] = ()  # switches that reduce, by device, in order
    groups: tuple[tuple[int, ...], ...] = ()  # devices of each group of a dragonfly, if ways depend on them
    rails: Rails | None = None  # if it is nothing but nodes and rails

    @property
    def ranks(self) -> int:
        """How many NPUs it connects."""
        return len(self.graph.npus)


Fabric = GridFabric | LevelFabric | GraphFabric


@dataclass(frozen=True, slots=True)
class Network:
    """What collectives run along, and what their messages cross."""

    grid: LogicalGrid
    fabric: Fabric
    fraction_bits: int = 0  # time is counted in 2^-bits ns while a run lasts
    protocol: Protocol | None = None
    loggops: LogGops | None = None  # then nothing is known of links
    credits: Credits | None = None

    @staticmethod
    def of_dimensions(
        dimensions: tuple[Dimension, ...],
        links: tuple[UnevenLink, ...] = (),
        reducers: tuple[tuple[int, Reducer], ...] = (),
    ) -> Network:
        """Collectives run along the dimensions that are wired."""
        seen = (LogicalDimension(one.npus, one.shape, one.bandwidth) for one in dimensions)
        return Network(LogicalGrid(tuple(seen)), GridFabric(dimensions, links, reducers))

    @staticmethod
    def of_levels(levels: tuple[Level, ...]) -> Network:
        """A dimension for each level."""
        cut = tuple((level.npus, number) for number, level in enumerate(levels))
        return Network.of_cut_levels(levels, cut)

    @staticmethod
    def of_cut_levels(levels: tuple[Level, ...], cut: tuple[tuple[int, int], ...]) -> Network:
        """Dimensions of the given (NPUs, level)."""
        seen = []
        for npus, number in cut:
            level = levels[number]
            seen.append(LogicalDimension(npus, level.shape, level.links_used * level.link_bandwidth))
        bits = FRACTION_BITS if any(level.memory_scale for level in levels) else 0
        fabric = LevelFabric(levels, tuple(number for _, number in cut))
        return Network(LogicalGrid(tuple(seen)), fabric, fraction_bits=bits)

    @staticmethod
    def of_graph(fabric: GraphFabric, dimensions: tuple[LogicalDimension, ...]) -> Network:
        """Collectives run along dimensions that were declared on top of a graph."""
        return Network(LogicalGrid(dimensions), fabric)

    @property
    def ranks(self) -> int:
        """How many NPUs the network connects."""
        return self.grid.ranks

    @property
    def links(self) -> tuple[UnevenLink, ...]:
        """Links that differ from the others."""
        return self.fabric.links if isinstance(self.fabric, GridFabric) else ()

    @property
    def reducers(self) -> tuple[tuple[int, Reducer], ...]:
        """Dimensions, or devices of a graph, that reduce."""
        return () if isinstance(self.fabric, LevelFabric) else self.fabric.reducers

    @property
    def wiring(self) -> tuple[Dimension, ...]:
        """The dimensions that the network is wired in, if it is such a network."""
        if isinstance(self.fabric, GridFabric):
            return self.fabric.dimensions
        return self.rails.dimensions if self.rails is not None else ()

    @property
    def rails(self) -> Rails | None:
        """How NPUs share links to other nodes, if it is known that they do."""
        return self.fabric.rails if isinstance(self.fabric, GraphFabric) else None

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of ASTRA-sim 1.0, if it is such a network."""
        return self.fabric.levels if isinstance(self.fabric, LevelFabric) else ()


def strides_of(dimensions: Sequence[LogicalDimension | Dimension | Level]) -> tuple[int, ...]:
    """Distance in rank ids between neighbours of each dimension, innermost first."""
    return tuple(math.prod(one.npus for one in dimensions[:number]) for number in range(len(dimensions)))


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


class WorkKind(StrEnum):
    """What a node of a trace stands for, as time factors tell it."""

    KERNELS = "kernels"
    COPIES = "copies"
    OPERATORS = "operators"
    LAUNCHES = "launches"
    GAPS = "gaps"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class TimeFactors:
    """What the durations of nodes are multiplied by, by kind of work."""

    ranks: tuple[range, ...] | None  # None: all
    name: str | None  # only nodes with such a name, in which * stands for any text
    factors: Mapping[WorkKind, float]
    place: str = ""  # of the entry, for messages


class StreamWork(StrEnum):
    """What streams take."""

    KERNELS = "kernels"
    COPIES = "copies"
    HOST = "host"
    SENDS = "sends"
    COLLECTIVES = "collectives"
    LOADS = "loads"
    STORES = "stores"


@dataclass(frozen=True, slots=True)
class Stream:
    """Work of an NPU that takes turns among itself, so many at a time."""

    name: str
    takes: frozenset[StreamWork]
    at_a_time: int = 1
    nodes: str | None = None  # only nodes with such a name, in which * stands for any text
    group: str | None = None  # only collectives of this group
    recorded: int | None = None  # only nodes that were recorded on this stream
    place: str = ""  # of the entry, for messages


@dataclass(frozen=True, slots=True)
class SlowedWork:
    """Work of an NPU that takes longer while it sends, or is in a collective."""

    work: StreamWork
    factor: Fraction  # above 1
    place: str = ""  # for messages


class WhenFull(StrEnum):
    """What becomes of a run in which tensors need more local memory than there is."""

    STOP = "stop"
    REPORT = "report"
    SPILL = "spill"


@dataclass(frozen=True, slots=True)
class LocalMemory:
    """What an NPU has of its own."""

    capacity_bytes: int
    when_full: WhenFull = WhenFull.STOP
    place: str = ""  # for messages


@dataclass(frozen=True, slots=True)
class Implementations:
    """Algorithm names per collective type, one per dimension; None: not configured."""

    all_reduce: tuple[str, ...] | None = None
    all_gather: tuple[str, ...] | None = None
    reduce_scatter: tuple[str, ...] | None = None
    all_to_all: tuple[str, ...] | None = None
    broadcast: tuple[str, ...] | None = None  # "tree", or "inNetwork"; without: a tree


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
    compute: tuple[ComputeRule, ...] = ()  # what times kernels, before the roofline and the recorded times
    host_ns: float = 0.0  # of a launch; 0: kernels are there when the device is
    replay_only: bool = False
    replay_recorded: bool = False  # kernels of recordings keep their times, whatever else would time them
    replay_communication: bool = False  # ranks run by themselves
    local_reduction_delay: int = 1
    shared_bus: SharedBus | None = None
    custom_implementations: dict[str, str] = field(default_factory=dict)  # type key -> trace prefix
    rings: tuple[tuple[tuple[int, ...], ...], ...] = ()  # by dimension, the orders of its NPUs around rings
    per_node_implementation: str | None = None
    track_local_mem: bool = False
    local_memory: LocalMemory | None = None  # None: nobody says how much there is
    costs: Costs | None = None  # None: nobody says what it draws, nor its price
    accuracy: Accuracy | None = None  # None: nothing states how far it is from a real machine
    stragglers: tuple[Straggler, ...] = ()
    time_factors: tuple[TimeFactors, ...] = ()
    streams: tuple[Stream, ...] = ()
    overlap: tuple[SlowedWork, ...] = ()
    boost_mode: bool = False  # decides ties as ASTRA-sim 1.0 does in this mode
    library: Library | None = None  # what chooses collectives, in place of `implementations`
    gap_denominator: float = 16.0  # Themis keeps the usual order for less than this part of a chunk
    behaviour: Behaviour = field(default_factory=lambda: behaviour_of(DEFAULT))


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How layer files are run: options of ASTRA-sim 1.0, without effect on traces."""

    passes: int = 1
    compute_scale: float = 1.0
    comm_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """Remote memory; bandwidth is decimal GB/s, so bytes per ns."""

    kind: MemoryKind = MemoryKind.NONE
    latency_ns: int = 0
    bandwidth: int = 0
    nodes: int = 0
    npus_per_node: int = 0
    pool: MemoryPool | None = None  # in place of all these figures


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
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  # communicator groups
    layers: LayerSettings = field(default_factory=LayerSettings)
    warnings: tuple[Notice, ...] = ()
    defaults: tuple[Notice, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()  # (path, content hash) of every file read
    names_profile: bool = True  # else the reference's is the default, and whoever knows better may choose
    configuration: Mapping[str, Any] = field(default_factory=dict, compare=False)  # as read, by role

    def network_of(self, *, has_contention: bool) -> Network:
        """The network as a model counts its time: that of 1.0 with contention has fractions."""
        has_fractions = self.system.behaviour.has_fractions_of_ns and has_contention
        if not has_fractions or self.system.shared_bus is not None:
            return self.network
        return replace(self.network, fraction_bits=FRACTION_BITS)

    @property
    def straggling_ranks(self) -> int:
        """How many ranks are stragglers."""
        pieces = [piece.ranks for piece in self.system.stragglers]
        if None in pieces:
            return self.network.ranks
        return len({rank for ranks in pieces for piece in ranks or () for rank in piece})
