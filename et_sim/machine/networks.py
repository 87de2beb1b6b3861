"""The network as plain, frozen, validated values: what collectives run along, and what their messages cross.

Not here: file formats (`network_file`, `topology`), and any simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Kind, Slot, key
from et_sim.documents.kinds import bandwidth, choice, count, number, text, time
from et_sim.machine.graph import Figures, Graph
from et_sim.machine.transports import Credits, LogGops, Protocol
from et_sim.machine.trunks import Trunks, no_trunks, trunks_of

MOST_RANKS = 2**31 - 1  # rank ids are 32-bit in traces and timelines
_GIB_PER_S = "GiB/s (2^30 bytes)"


class Shape(StrEnum):
    """How the NPUs of one dimension are wired."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


GIB = 1073741824 / 1_000_000_000  # bytes per ns of a GiB/s


def bytes_per_ns(bandwidth: float) -> float:
    """GiB/s as bytes per ns; the multiplication precedes the division, as in the reference."""
    return bandwidth * 1073741824 / 1000000000


@quick_dataclass(frozen=True)
class Dimension:
    """One network dimension. Bandwidth is GiB/s per link (the files call it GB/s), latency ns."""

    shape: Shape = choice(
        "How the NPUs of each dimension are wired, innermost dimension first.",
        name="topology",
        choices=Shape,
        required=True,
    )
    npus: int = count(
        "NPUs in each dimension; rank ids count dimension 0 fastest.",
        name="npus_count",
        reference="1 is refused there; here such a dimension is legal and never takes part.",
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
        """Link bandwidth."""
        return bytes_per_ns(self.bandwidth)


# Where times have fractions that add up, as in some models of ASTRA-sim 1.0.
FRACTION_BITS = 20
AT_SWITCH = -1  # in place of an NPU: the switch of its line
_SWITCH = "switch"


def _link_end(slot: Slot, value: Any) -> int:
    if value == _SWITCH:
        return AT_SWITCH
    if type(value) is int and value >= 0:
        return value
    raise slot.refusal(value)


LINK_END = Kind("NPU or switch", lambda _: 'the number of an NPU, or "switch"', _link_end)


def end_name(end: int) -> str:
    """An end of a link as files have it."""
    return f'"{_SWITCH}"' if end == AT_SWITCH else str(end)


@quick_dataclass(frozen=True)
class UnevenLink:
    """A directed link that differs from the others of its dimension; it has both figures of its own."""

    dimension: int = count("The dimension that the link is in, counted from 0.", required=True)
    source: int = key(
        LINK_END,
        "Where it begins: an NPU; in a Switch dimension, at one of the ends, `switch`.",
        name="from",
        required=True,
    )
    target: int = key(LINK_END, "Where it ends; in a Ring, a neighbour.", name="to", required=True)
    bandwidth: float = bandwidth(
        "Its bandwidth, as in the list. Without the key: as the dimension's.",
        0.0,
        unit=_GIB_PER_S,
        above_minimum=True,
    )
    latency_ns: float = time("Its latency, as in the list. Without the key: as the dimension's.", 0.0)

    @property
    def bytes_per_ns(self) -> float:
        """Its bandwidth."""
        return bytes_per_ns(self.bandwidth)


@quick_dataclass(frozen=True)
class Reducer:
    """What a switch is capable of that reduces, and copies, what it is sent."""

    bytes_per_ns: float = bandwidth(
        "What a switch passes on of reduced or copied data in a time. Without the key: as much as comes.",
        math.inf,
        name="rate",
        unit=_GIB_PER_S,
        above_minimum=True,
        becomes=bytes_per_ns,
    )
    latency_ns: float = time("What a switch takes for a chunk besides. Without the key: nothing.", 0.0)


@quick_dataclass(frozen=True)
class Level:
    """A dimension as ASTRA-sim 1.0 describes it: bundles of links, and what else a message pays for."""

    shape: Shape = choice(
        "How the NPUs of each dimension are wired, innermost dimension first.",
        name="topologies-per-dim",
        choices=Shape,
        required=True,
    )
    built_of: str = text(
        "What a dimension is built of: of interest to its price only.", "Node", name="dimension-type"
    )
    npus: int = count("NPUs in each dimension.", name="units-count", minimum=1, required=True)
    links: int = count(
        "Links of an NPU in each dimension: a ring uses an even number of them, a fully connected "
        "dimension as many per peer as there are for all, a switch all.",
        name="links-count",
        minimum=1,
        required=True,
    )
    latency_ns: float = number("Latency of one hop.", name="link-latency", unit="ns", required=True)
    link_bandwidth: float = number(
        "Bandwidth of one link.", unit=_GIB_PER_S, above_minimum=True, required=True
    )
    nic_ns: float = number("Paid twice by every message.", 0.0, name="nic-latency", unit="ns")
    router_ns: float = number(
        "Paid once by a message through a switch.", 0.0, name="router-latency", unit="ns"
    )
    memory_latency_ns: float = number(
        "Latency of the memory that bounds a message.", 0.0, name="hbm-latency", unit="ns"
    )
    memory_bandwidth: float = number(
        "Bandwidth of the memory that bounds a message.", 1.0, name="hbm-bandwidth", unit="GB/s (10^9 bytes)"
    )
    memory_scale: float = number(  # 0: the memory bounds no message
        "A message takes at least so many times the latency and the serialisation of the memory.",
        0.0,
        name="hbm-scale",
    )
    links_used: int = 0

    @property
    def bytes_per_ns(self) -> float:
        """What one message gets: all links in use, but among fully connected NPUs those to the peer."""
        peers = max(self.npus - 1, 1) if self.shape is Shape.FULLY_CONNECTED else 1
        return bytes_per_ns(self.link_bandwidth) * (self.links_used // peers)


class LogicalDimension(Struct, frozen=True):
    """A dimension as collectives see it."""

    npus: int
    shape: Shape  # of what it lies on
    bandwidth: float  # of an NPU along it, in GiB/s: by which some orders of dimensions weigh them


class LogicalGrid(Struct, frozen=True):
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


class GridFabric(Struct, frozen=True):
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


class LevelFabric(Struct, frozen=True):
    """What messages cross in ASTRA-sim 1.0: they pay for the highest level in which their ends differ.

    A level may be cut into several dimensions of the logical grid.
    """

    levels: tuple[Level, ...]
    level_of: tuple[int, ...]  # per dimension of the grid

    @property
    def is_cut(self) -> bool:
        """Whether some level is cut into several dimensions."""
        return len(self.levels) < len(self.level_of)


class Cards(Struct, frozen=True):
    """What a rank of a graph has while no other one sends: its node, and a network card."""

    dimensions: tuple[Dimension, ...]
    port: Figures  # of its link to the card
    sharers: int = 1  # NPUs of a node to a card
    has_node: bool = True  # in dimension 0; else each rank is a node
    is_only_port: bool = False  # whether bytes to the others of the node take that link too


class Routing(StrEnum):
    """Which ways a message takes through a graph: one of the shortest, all of them, or a detour."""

    SPREAD = "spread"
    SHORTEST = "shortest"
    DESTINATION = "destination"
    ECMP = "ecmp"
    ECMP_NS3 = "ecmp-ns3"
    DIMENSION_ORDER = "dimension-order"
    VALIANT = "valiant"


class GraphFabric(Struct, frozen=True, eq=False, dict=True):
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
    cards: Cards | None = None  # if switches join the NPUs of every dimension
    names_routing: bool = True  # else it is the default of the generator, if there is one

    @property
    def ranks(self) -> int:
        """How many NPUs it connects."""
        return len(self.graph.npus)

    @cached_property
    def trunks(self) -> Trunks:
        """Links that always carry the same, as one; each by itself, where messages do not spread."""
        if self.routing is not Routing.SPREAD or self.graph.members is not None:
            return no_trunks(self.graph)
        ends = (self.graph.sources, self.graph.targets)
        on_routes = {int(end[link]) for way in self.routes for link in way for end in ends}
        return trunks_of(self.graph, {*on_routes, *(device for device, _ in self.reducers)})

    @cached_property
    def routed(self) -> GraphFabric:
        """The same as messages cross it: link by link, or where they spread, trunk by trunk."""
        trunks = self.trunks
        if trunks.graph is self.graph:
            return self
        routes = tuple(tuple(int(trunks.of_link[link]) for link in way) for way in self.routes)
        reducers = tuple((int(trunks.of_device[device]), reducer) for device, reducer in self.reducers)
        return replace(self, graph=trunks.graph, routes=routes, reducers=reducers)


Fabric = GridFabric | LevelFabric | GraphFabric


class Network(Struct, frozen=True):
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
        seen = (
            LogicalDimension(dimension.npus, dimension.shape, dimension.bandwidth) for dimension in dimensions
        )
        return Network(LogicalGrid(tuple(seen)), GridFabric(dimensions, links, reducers))

    @staticmethod
    def of_levels(levels: tuple[Level, ...]) -> Network:
        """A dimension for each level."""
        cut = tuple((level.npus, at) for at, level in enumerate(levels))
        return Network.of_cut_levels(levels, cut)

    @staticmethod
    def of_cut_levels(levels: tuple[Level, ...], cut: tuple[tuple[int, int], ...]) -> Network:
        """Dimensions of the given (NPUs, level)."""
        seen = []
        for npus, at in cut:
            level = levels[at]
            seen.append(LogicalDimension(npus, level.shape, level.links_used * level.link_bandwidth))
        bits = FRACTION_BITS if any(level.memory_scale for level in levels) else 0
        fabric = LevelFabric(levels, tuple(at for _, at in cut))
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
        return self.cards.dimensions if self.cards is not None else ()

    @property
    def cards(self) -> Cards | None:
        """The nodes and cards of a graph, if it has some."""
        return self.fabric.cards if isinstance(self.fabric, GraphFabric) else None

    @property
    def node(self) -> Dimension | None:
        """The dimension that is a node, where there are some."""
        has_node = self.cards is None or self.cards.has_node
        return self.wiring[0] if self.wiring and has_node else None

    @property
    def outside(self) -> Dimension | None:
        """The first dimension that joins nodes."""
        outer = self.wiring if self.node is None else self.wiring[1:]
        return next((dimension for dimension in outer if dimension.npus > 1), None)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of ASTRA-sim 1.0, if it is such a network."""
        return self.fabric.levels if isinstance(self.fabric, LevelFabric) else ()


def strides_of(dimensions: Sequence[LogicalDimension | Dimension | Level]) -> tuple[int, ...]:
    """Distance in rank ids between neighbours of each dimension, innermost first."""
    return tuple(math.prod(dimension.npus for dimension in dimensions[:at]) for at in range(len(dimensions)))
