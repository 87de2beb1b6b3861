"""The network as frozen, validated values: the grid for collectives, and the fabric for their messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.documents.keys import Slot, ValueKind, key
from et_sim.documents.kinds import bandwidth, choice, count, number, text, time
from et_sim.machine.graph import Graph, LinkFigures
from et_sim.machine.transports import Credits, LogGops, PacketProtocol, Recovery

if TYPE_CHECKING:
    from et_sim.machine.trunks import Trunks

Value = TypeVar("Value")
MOST_RANKS = 2**31 - 1  # rank ids are 32-bit in traces and timelines
_GIB_PER_S = "GiB/s (2^30 bytes)"


class DimensionShape(StrEnum):
    """The wiring of the NPUs of one dimension."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


GIB = 1073741824 / 1_000_000_000  # bytes per ns of a GiB/s


def bytes_per_ns(bandwidth: float) -> float:
    """Convert GiB/s to bytes per ns; the multiplication precedes the division, as in the reference."""
    return bandwidth * 1073741824 / 1000000000


class Dimension(Struct, frozen=True):
    """One network dimension. Bandwidth is GiB/s per link (the files call it GB/s), latency ns."""

    shape: DimensionShape = choice(
        "Wiring of the NPUs of each dimension, innermost dimension first.",
        name="topology",
        choices=DimensionShape,
        required=True,
    )
    npus: int = count(
        "NPUs in each dimension; rank ids count dimension 0 fastest.",
        name="npus_count",
        reference="1 is refused there; here such a dimension is legal and has no effect.",
        minimum=1,
        required=True,
    )
    bandwidth: float = bandwidth(
        "Bandwidth of one link: to each ring neighbour, to each peer, or to the switch. "
        "A bare number is in GiB/s.",
        reference="Called GB/s there, but multiplied by 2^30.",
        unit=_GIB_PER_S,
        above_minimum=True,
        required=True,
    )
    latency_ns: float = time("Latency of one hop; fractions count. A bare number is in ns.", required=True)

    @property
    def bytes_per_ns(self) -> float:
        """Return the bandwidth of a link."""
        return bytes_per_ns(self.bandwidth)


# Bits for fractions of ns, which some models of ASTRA-sim 1.0 add up.
FRACTION_BITS = 20
AT_SWITCH = -1  # in place of an NPU: its switch
_SWITCH = "switch"


def _link_end(slot: Slot, value: Any) -> int:
    if value == _SWITCH:
        return AT_SWITCH
    if type(value) is int and value >= 0:
        return value
    raise slot.refusal(value)


LINK_END = ValueKind("NPU or switch", lambda _: 'the number of an NPU, or "switch"', _link_end)


def end_name(end: int) -> str:
    """Return the end of a link as files write it."""
    return f'"{_SWITCH}"' if end == AT_SWITCH else str(end)


class UnevenLink(Struct, frozen=True):
    """A directed link that differs from the others of its dimension; it has its own bandwidth and latency."""

    dimension: int = count("The dimension that the link is in, counted from 0.", required=True)
    source: int = key(
        LINK_END,
        "Its start: an NPU; in a Switch dimension, one of the two ends is `switch`.",
        name="from",
        required=True,
    )
    target: int = key(LINK_END, "Its end; in a Ring, a neighbour.", name="to", required=True)
    bandwidth: float = bandwidth(
        "Its bandwidth, as in the list. Without the key: as the dimension's.",
        0.0,
        unit=_GIB_PER_S,
        above_minimum=True,
    )
    latency_ns: float = time("Its latency, as in the list. Without the key: as the dimension's.", 0.0)

    @property
    def bytes_per_ns(self) -> float:
        """Return the bandwidth."""
        return bytes_per_ns(self.bandwidth)


class LinkOfGrid(Struct, frozen=True):
    """A directed link of a dimension, by its ends; AT_SWITCH: the switch of the other end."""

    dimension: int
    source: int
    target: int

    @property
    def name(self) -> str:
        """Return the link as failures name it."""
        ends = ("switch" if end == AT_SWITCH else str(end) for end in (self.source, self.target))
        return f"dimension {self.dimension}: {' to '.join(ends)}"


class Failure(Struct, frozen=True):
    """A part that fails at a time within a run."""

    what: str
    name: str
    at_ns: int
    until_ns: int | None  # None: it stays so
    left: float  # share of the bandwidth; 0: it is dead
    links: tuple[Any, ...]  # numbers of links of a graph, or `LinkOfGrid`
    ranks: tuple[int, ...] = ()  # which lose their state

    @property
    def is_dead(self) -> bool:
        """Return whether nothing passes."""
        return self.left == 0

    @property
    def is_constant(self) -> bool:
        """Return whether something is left, as much through the whole run."""
        return self.at_ns == 0 and self.until_ns is None and not self.is_dead

    @property
    def text(self) -> str:
        """Return what fails, in words."""
        return self.name if self.name.startswith("dimension") else f"{self.what} {self.name}"


class Reducer(Struct, frozen=True):
    """The rate and latency of a switch that reduces and copies."""

    bytes_per_ns: float = bandwidth(
        "Rate at which a switch passes on reduced or copied data. Without the key: unlimited.",
        math.inf,
        name="rate",
        unit=_GIB_PER_S,
        above_minimum=True,
        becomes=bytes_per_ns,
    )
    latency_ns: float = time("Additional time of a switch for a chunk. Without the key: 0.", 0.0)


class Level(Struct, frozen=True):
    """A dimension as ASTRA-sim 1.0 describes it: bundles of links, and other costs of a message."""

    shape: DimensionShape = choice(
        "Wiring of the NPUs of each dimension, innermost dimension first.",
        name="topologies-per-dim",
        choices=DimensionShape,
        required=True,
    )
    built_of: str = text("Material of a dimension; affects only its price.", "Node", name="dimension-type")
    npus: int = count("NPUs in each dimension.", name="units-count", minimum=1, required=True)
    links: int = count(
        "Links of an NPU in each dimension: a ring uses an even number of them, a fully connected "
        "dimension the same number for each peer, a switch all.",
        name="links-count",
        minimum=1,
        required=True,
    )
    latency_ns: float = number("Latency of one hop.", name="link-latency", unit="ns", required=True)
    link_bandwidth: float = number(
        "Bandwidth of one link.", unit=_GIB_PER_S, above_minimum=True, required=True
    )
    nic_ns: float = number("Latency that every message pays twice.", 0.0, name="nic-latency", unit="ns")
    router_ns: float = number(
        "Latency that a message through a switch pays once.", 0.0, name="router-latency", unit="ns"
    )
    memory_latency_ns: float = number(
        "Latency of the memory that bounds a message.", 0.0, name="hbm-latency", unit="ns"
    )
    memory_bandwidth: float = number(
        "Bandwidth of the memory that bounds a message.", 1.0, name="hbm-bandwidth", unit="GB/s (10^9 bytes)"
    )
    memory_scale: float = number(  # 0: the memory bounds no message
        "Factor of the memory's latency and serialisation, which bound a message's time from below.",
        0.0,
        name="hbm-scale",
    )
    links_used: int = 0

    @property
    def bytes_per_ns(self) -> float:
        """Return the rate of a message: all links in use, or those to the peer among fully connected NPUs."""
        peers = max(self.npus - 1, 1) if self.shape is DimensionShape.FULLY_CONNECTED else 1
        return bytes_per_ns(self.link_bandwidth) * (self.links_used // peers)


class LogicalDimension(Struct, frozen=True):
    """A dimension as collectives see it."""

    npus: int
    shape: DimensionShape  # of the level or dimension below it
    bandwidth: float  # of an NPU along it, in GiB/s; some orders of dimensions use it


class LogicalGrid(Struct, frozen=True):
    """The dimensions of collectives, innermost first; rank ids count dimension 0 fastest."""

    dimensions: tuple[LogicalDimension, ...]
    filled: int = 0  # the ranks that there are, if the last node is partly filled; 0: all

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.filled or places_of(self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance in rank ids between neighbours of each dimension."""
        return strides_of(self.dimensions)


class GridFabric(Struct, frozen=True):
    """The dimensions that messages cross, innermost first, and the links that differ from others."""

    dimensions: tuple[Dimension, ...]
    links: tuple[UnevenLink, ...] = ()
    reducers: tuple[tuple[int, Reducer], ...] = ()  # dimensions whose switches reduce, in order
    filled: int = 0  # the NPUs that there are, if the last node is partly filled; 0: all

    @property
    def ranks(self) -> int:
        """Return the number of NPUs."""
        return self.filled or places_of(self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance in rank ids between neighbours of each dimension."""
        return strides_of(self.dimensions)


class LevelFabric(Struct, frozen=True):
    """The levels of ASTRA-sim 1.0; a message pays for the highest level in which its ends differ.

    A level may be cut into several dimensions of the logical grid.
    """

    levels: tuple[Level, ...]
    level_of: tuple[int, ...]  # per dimension of the grid

    @property
    def is_cut(self) -> bool:
        """Check whether a level is cut into several dimensions."""
        return len(self.levels) < len(self.level_of)


class RankCards(Struct, frozen=True):
    """The node and network card of a rank of a graph, as seen while no other rank sends."""

    dimensions: tuple[Dimension, ...]
    port: LinkFigures  # link of the rank to the card
    sharers: int = 1  # NPUs of a node to a card
    has_node: bool = True  # dimension 0 is the node; else each rank is one
    is_only_port: bool = False  # bytes to other ranks of the node also take `port`


class Routing(StrEnum):
    """The choice of paths through a graph: one of the shortest, all of them, or a detour."""

    SPREAD = "spread"
    SHORTEST = "shortest"
    DESTINATION = "destination"
    ECMP = "ecmp"
    ECMP_NS3 = "ecmp-ns3"
    DIMENSION_ORDER = "dimension-order"
    VALIANT = "valiant"


class GraphFabric(Struct, frozen=True, eq=False, dict=True):
    """A graph of devices that messages cross."""

    graph: Graph
    routing: Routing = Routing.SHORTEST
    seed: int = 0
    npus_forward: bool = False
    # (NPUs, wraps round) of each dimension if the graph is a whole torus or mesh
    grid: tuple[tuple[int, bool], ...] = ()
    routes: tuple[tuple[int, ...], ...] = ()  # links of the paths that the file gives
    reducers: tuple[tuple[int, Reducer], ...] = ()  # switches that reduce, by device, in order
    groups: tuple[tuple[int, ...], ...] = ()  # devices of each group of a dragonfly, if paths depend on them
    cards: RankCards | None = None  # if switches join the NPUs of every dimension
    names_routing: bool = True  # else it is the default of the generator, if there is one
    failing: tuple[tuple[int, ...], ...] = ()  # links of each failure within a run

    @property
    def ranks(self) -> int:
        """Return the number of NPUs."""
        return len(self.graph.npus)

    def derived(self, make: Callable[..., Value], *given: Any) -> Value:
        """Return `make(self, *given)`, which fabrics share that differ in figures alone; it reads none."""
        kept = self.graph.kept
        return make(self, *given) if kept is None else kept.of(make, self, *given, alike=self._shape)

    def has_shape_of(self, other: GraphFabric) -> bool:
        """Check whether it is kept as one that differs from the other in figures alone."""
        kept = self.graph.kept
        return kept is not None and kept is other.graph.kept and self._shape == other._shape

    @cached_property
    def _shape(self) -> str:
        """Return a text of all but the graph that decides how messages cross it."""
        reducers = [device for device, _ in self.reducers]
        known = self.routing, self.seed, self.npus_forward, self.grid, self.routes, reducers, self.groups
        return repr((*known, self.failing))

    @cached_property
    def trunks(self) -> Trunks:
        """Return the graph with links that always carry the same merged, if messages spread over paths."""
        from et_sim.machine.trunks import marks_of, no_trunks, trunks_of

        if self.routing is not Routing.SPREAD or self.graph.members is not None:
            return no_trunks(self.graph)
        ends = (self.graph.sources, self.graph.targets)
        on_routes = {int(end[link]) for way in self.routes for link in way for end in ends}
        apart = {*on_routes, *(device for device, _ in self.reducers)}
        return trunks_of(self.graph, apart, marks_of(self.failing, len(self.graph.sources)))

    @cached_property
    def routed(self) -> GraphFabric:
        """Return the fabric as messages cross it: trunk by trunk if they spread, else link by link."""
        trunks = self.trunks
        if trunks.graph is self.graph:
            return self
        routes = tuple(tuple(int(trunks.of_link[link]) for link in way) for way in self.routes)
        reducers = tuple((int(trunks.of_device[device]), reducer) for device, reducer in self.reducers)
        return replace(self, graph=trunks.graph, routes=routes, reducers=reducers)


Fabric = GridFabric | LevelFabric | GraphFabric


class Network(Struct, frozen=True):
    """The grid along which collectives run, and the fabric that their messages cross."""

    grid: LogicalGrid
    fabric: Fabric
    fraction_bits: int = 0  # a run counts time in 2^-bits ns
    protocol: PacketProtocol | None = None
    loggops: LogGops | None = None  # if given, there are no links
    credits: Credits | None = None
    failures: tuple[Failure, ...] = ()
    recovery: Recovery = field(default_factory=Recovery)

    @staticmethod
    def of_dimensions(
        dimensions: tuple[Dimension, ...],
        links: tuple[UnevenLink, ...] = (),
        reducers: tuple[tuple[int, Reducer], ...] = (),
        filled: int = 0,
    ) -> Network:
        """Build a network whose collectives run along the wired dimensions."""
        seen = (
            LogicalDimension(dimension.npus, dimension.shape, dimension.bandwidth) for dimension in dimensions
        )
        return Network(LogicalGrid(tuple(seen), filled), GridFabric(dimensions, links, reducers, filled))

    @staticmethod
    def of_levels(levels: tuple[Level, ...]) -> Network:
        """Build a network with a dimension for each level."""
        cut = tuple((level.npus, at) for at, level in enumerate(levels))
        return Network.of_cut_levels(levels, cut)

    @staticmethod
    def of_cut_levels(levels: tuple[Level, ...], cut: tuple[tuple[int, int], ...]) -> Network:
        """Build a network whose dimensions are the given (NPUs, level)."""
        seen = []
        for npus, at in cut:
            level = levels[at]
            seen.append(LogicalDimension(npus, level.shape, level.links_used * level.link_bandwidth))
        bits = FRACTION_BITS if any(level.memory_scale for level in levels) else 0
        fabric = LevelFabric(levels, tuple(at for _, at in cut))
        return Network(LogicalGrid(tuple(seen)), fabric, fraction_bits=bits)

    @staticmethod
    def of_graph(fabric: GraphFabric, dimensions: tuple[LogicalDimension, ...]) -> Network:
        """Build a network whose collectives run along dimensions declared on top of a graph."""
        return Network(LogicalGrid(dimensions), fabric)

    @property
    def ranks(self) -> int:
        """Return the number of NPUs."""
        return self.grid.ranks

    @property
    def is_constant(self) -> bool:
        """Return whether all links stay through the whole run as they are at its beginning."""
        return all(failure.is_constant for failure in self.failures)

    @property
    def links(self) -> tuple[UnevenLink, ...]:
        """Return the links that differ from the others."""
        return self.fabric.links if isinstance(self.fabric, GridFabric) else ()

    @property
    def reducers(self) -> tuple[tuple[int, Reducer], ...]:
        """Return the dimensions, or devices of a graph, that reduce."""
        return () if isinstance(self.fabric, LevelFabric) else self.fabric.reducers

    @property
    def wiring(self) -> tuple[Dimension, ...]:
        """Return the dimensions that the network is wired in, if any."""
        if isinstance(self.fabric, GridFabric):
            return self.fabric.dimensions
        return self.cards.dimensions if self.cards is not None else ()

    @property
    def cards(self) -> RankCards | None:
        """Return the nodes and cards of a graph, if it has some."""
        return self.fabric.cards if isinstance(self.fabric, GraphFabric) else None

    @property
    def node(self) -> Dimension | None:
        """Return the dimension that is a node, if any."""
        has_node = self.cards is None or self.cards.has_node
        return self.wiring[0] if self.wiring and has_node else None

    @property
    def outside(self) -> Dimension | None:
        """Return the first dimension that joins nodes."""
        outer = self.wiring if self.node is None else self.wiring[1:]
        return next((dimension for dimension in outer if dimension.npus > 1), None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Return the levels of ASTRA-sim 1.0, if any."""
        return self.fabric.levels if isinstance(self.fabric, LevelFabric) else ()


def places_of(dimensions: Sequence[LogicalDimension | Dimension]) -> int:
    """Return the number of places for NPUs."""
    return math.prod(dimension.npus for dimension in dimensions)


def strides_of(dimensions: Sequence[LogicalDimension | Dimension | Level]) -> tuple[int, ...]:
    """Return the distance in rank ids between neighbours of each dimension, innermost first."""
    return tuple(math.prod(dimension.npus for dimension in dimensions[:at]) for at in range(len(dimensions)))
