"""A graph of NPUs, NICs and switches, its builder, and checks of reachability.

Links are directed and numbered in the order in which they were added: of equally short paths, the lowest
number decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.kept import Kept, with_parts_of
from et_sim.basics.unique import groups_of, unique
from et_sim.basics.units import format_bandwidth, format_ns
from et_sim.documents.reading import MOST_DEVICES, MOST_LINKS

Value = TypeVar("Value")


class LinkClass(Struct, frozen=True):
    """A class of links that differ only in their ends."""

    name: str
    bytes_per_ns: float
    latency_ns: float


def link_classes(graph: Graph) -> tuple[Any, list[LinkClass]]:
    """Return the class of each link, and the classes from the lowest row up."""
    of_link, first, ends, names = graph.derived(_classes, numbers_of(graph).tobytes())
    figures = zip(graph.bytes_per_ns[first].tolist(), graph.latency_ns[first].tolist(), strict=True)
    classes = []
    for end, name, (bandwidth, latency) in zip(ends, names, figures, strict=True):
        is_one = ends.count(end) == 1
        figures_too = name if is_one else f"{name}, {format_bandwidth(bandwidth)}, {format_ns(latency)}"
        classes.append(LinkClass(figures_too, bandwidth, latency))
    return of_link, classes


def numbers_of(graph: Graph) -> Any:
    """Return a number for the bandwidth and latency of each link, in their order."""
    if graph.numbers is not None:
        return graph.numbers
    figures = (np.asarray(column, np.float64) for column in (graph.bytes_per_ns, graph.latency_ns))
    return groups_of(*(column.view(np.int64) for column in figures)).of_row  # positive: in order


def _classes(graph: Graph, numbers: bytes) -> tuple[Any, Any, list[tuple[int, int]], list[str]]:
    """Return the class of each link, the first link of each class, and rows and names of its ends."""
    low, high = graph.tiers[graph.sources], graph.tiers[graph.targets]
    groups = groups_of(low, high, np.frombuffer(numbers, np.int64))
    ends = [tuple(row) for row in np.stack((low, high))[:, groups.first].T.tolist()]
    names = {tier: row_name(graph, tier) for tier in unique(graph.tiers).tolist()}
    named = [f"{names[source]} to {names[target]}" for source, target in ends]
    return groups.of_row.astype(np.int32), groups.first, ends, named


def link_tiers(graph: Graph) -> tuple[Any, tuple[str, ...]]:
    """Return the tier of each link and the names of the tiers; a tier joins two rows in one direction."""
    return graph.derived(_tiers)


def _tiers(graph: Graph) -> tuple[Any, tuple[str, ...]]:
    rows = np.stack([graph.tiers[graph.sources], graph.tiers[graph.targets]])
    groups = groups_of(*rows)
    names = tuple(
        f"{row_name(graph, source)} to {row_name(graph, target)}"
        for source, target in rows[:, groups.first].T.tolist()
    )
    return groups.of_row.astype(np.int32), names


def row_name(graph: Graph, tier: int) -> str:
    """Return the name of a row: the names of its devices without their numbers."""
    if tier == 0:
        return "NPUs"
    names = dict.fromkeys(
        graph.names[at].rsplit(".", 1)[-1].rstrip("0123456789").rstrip("-")
        for at in np.flatnonzero((graph.tiers == tier) & (graph.kinds != NPU)).tolist()
    )
    return ", ".join([*names][:3]) or f"tier {tier}"


NPU, NIC, SWITCH = 0, 1, 2
KINDS = ("npu", "nic", "switch")


class LinkFigures(Struct, frozen=True):
    """The bandwidth and latency of a link."""

    bytes_per_ns: float
    latency_ns: float


class Graph(Struct, frozen=True, eq=False):
    """Devices by number, and directed links by number."""

    names: tuple[str, ...]
    kinds: Any
    tiers: Any  # 0 for NPUs; for switches, the row in which they are drawn
    sources: Any
    targets: Any
    bytes_per_ns: Any
    latency_ns: Any
    link_names: tuple[str, ...]
    npus: Any  # the device of each rank
    members: Any = None  # by link, the number of links that it merges (`trunks`); None: one each
    numbers: Any = None  # `numbers_of`, if they are known
    kept: Kept | None = None  # for graphs that differ in figures alone; None: there are none

    def derived(self, make: Callable[..., Value], *given: Any) -> Value:
        """Return `make(self, *given)`, which graphs that differ in figures alone share; `make` reads none."""
        return make(self, *given) if self.kept is None else self.kept.of(make, self, *given)

    def __len__(self) -> int:
        return len(self.names)


MOST_LINKS_KEPT = 1 << 14  # beside planning a larger graph, its tables take no time
FIGURES = ("bytes_per_ns", "latency_ns", "numbers", "kept")  # all other fields are the shape of a graph
Change = Callable[[Graph], Graph]


def like(graph: Graph, former: Graph | None) -> Graph:
    """Return a graph with the equal parts of a former one, and with what follows from these."""
    graph = with_parts_of(former, replace(graph, numbers=numbers_of(graph)))
    shape = [name for name in Graph.__struct_fields__ if name not in FIGURES]
    if former is not None and all(getattr(graph, name) is getattr(former, name) for name in shape):
        return replace(graph, kept=former.kept)
    return replace(graph, kept=Kept() if len(graph.sources) <= MOST_LINKS_KEPT else None)


class GraphBuilder(Struct):
    """A graph under construction."""

    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    tiers: list[int] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    figures: list[LinkFigures] = field(default_factory=list)
    link_names: dict[str, int] = field(default_factory=dict)

    def expect(self, *, devices: int = 0, links: int = 0) -> None:
        """Refuse a network that would be too large, before it is built; links of both directions count."""
        for count, most, noun in (
            (len(self.names) + devices, MOST_DEVICES, "devices"),
            (len(self.sources) + links, MOST_LINKS, "links"),
        ):
            if count > most:
                raise MachineError(
                    f"the network has {count:,} {noun}",
                    remedy=f"the limit is {most:,}; describe large machines by dimensions, which fold",
                )

    def device(self, name: str, kind: int, tier: int) -> int:
        """Add a device; raise KeyError if the name is taken."""
        if name in self.number:
            raise KeyError(name)
        if len(self.names) >= MOST_DEVICES:
            self.expect(devices=1)
        self.number[name] = len(self.names)
        self.names.append(name)
        self.kinds.append(kind)
        self.tiers.append(tier)
        return self.number[name]

    def npus(self, count: int) -> list[int]:
        """Add `count` NPUs."""
        self.expect(devices=count)
        first = self.kinds.count(NPU)
        return [self.device(f"npu{first + number}", NPU, 0) for number in range(count)]

    def switches(self, count: int, name: str, tier: int) -> list[int]:
        """Add `count` switches of a tier."""
        self.expect(devices=count)
        return [self.device(f"{name}{number}", SWITCH, tier) for number in range(count)]

    def link(self, source: int, target: int, figures: LinkFigures, name: str = "") -> None:
        """Add a link; raise KeyError if the name is taken."""
        name = name or f"{self.names[source]}->{self.names[target]}"
        if name in self.link_names:
            raise KeyError(name)
        if len(self.sources) >= MOST_LINKS:
            self.expect(links=1)
        self.link_names[name] = len(self.sources)
        self.sources.append(source)
        self.targets.append(target)
        self.figures.append(figures)

    def cable(self, device: int, other: int, figures: LinkFigures) -> None:
        """Add a link each way."""
        self.link(device, other, figures)
        self.link(other, device, figures)

    def built(self, kept: Sequence[int] | None = None, ranks: Sequence[int] | None = None) -> Graph:
        """Build the graph of the `kept` links; `ranks` holds the device of each rank."""
        of = list(range(len(self.sources))) if kept is None else kept
        names = list(self.link_names)
        kinds = np.array(self.kinds, np.int8)
        return Graph(
            names=tuple(self.names),
            kinds=kinds,
            tiers=np.array(self.tiers, np.int32),
            sources=np.array(self.sources, np.int32)[of],
            targets=np.array(self.targets, np.int32)[of],
            bytes_per_ns=np.array([self.figures[link].bytes_per_ns for link in of], np.float64),
            latency_ns=np.array([self.figures[link].latency_ns for link in of], np.float64),
            link_names=tuple(names[link] for link in of),
            npus=np.flatnonzero(kinds == NPU) if ranks is None else np.array(ranks, np.int64),
        )


def switches_suffice(graph: Graph) -> bool:
    """Check whether a switch reaches all NPUs and is reached by all, with no NPU in between."""
    first = graph.npus[0]
    near = graph.targets[(graph.sources == first) & (graph.kinds[graph.targets] != NPU)]
    forwards = graph.kinds != NPU
    lengths = (_ways_through(graph, switch, forwards) for switch in unique(near).tolist())
    return any(length is not None for length in lengths)


def longest_way(graph: Graph, npus_forward: bool) -> int | None:
    """Return an upper bound of the links on a shortest path, or None if it is not known."""
    if npus_forward:
        return _ways_through(graph, graph.npus[0], np.ones(len(graph), bool))
    near = graph.targets[graph.sources == graph.npus[0]]
    lengths = (_ways_through(graph, device, graph.kinds != NPU) for device in near.tolist())
    return min((length for length in lengths if length is not None), default=None)


def _ways_through(graph: Graph, device: int, forwards: Any) -> int | None:
    """Return the most links on paths through a device, or None if it does not connect all NPUs."""
    if not forwards[device]:
        return None
    there = links_away(graph.sources, graph.targets, device, forwards)[graph.npus]
    back = links_away(graph.targets, graph.sources, device, forwards)[graph.npus]
    return None if min(there.min(), back.min()) < 0 else int(there.max() + back.max())


def unreachable_pair(graph: Graph, npus_forward: bool) -> tuple[int, int] | None:
    """Return a rank and another one that it cannot reach, or None."""
    forwards = np.ones(len(graph), bool) if npus_forward else graph.kinds != NPU
    if npus_forward:
        first = graph.npus[0]
        there = links_away(graph.sources, graph.targets, first, forwards)[graph.npus] >= 0
        if not there.all():
            return 0, int(np.argmin(there))
        back = links_away(graph.targets, graph.sources, first, forwards)[graph.npus] >= 0
        return None if back.all() else (int(np.argmin(back)), 0)
    if switches_suffice(graph):
        return None
    for rank, npu in enumerate(graph.npus.tolist()):
        is_reached = links_away(graph.sources, graph.targets, npu, forwards)[graph.npus] >= 0
        if not is_reached.all():
            return rank, int(np.argmin(is_reached))
    return None


def links_away(sources: Any, targets: Any, first: int, forwards: Any) -> Any:
    """Return the number of links from a device to each other one; -1: it cannot be reached."""
    order = np.argsort(sources, kind="stable")
    begin = np.searchsorted(sources[order], np.arange(len(forwards) + 1))
    ends = targets[order]
    away = np.full(len(forwards), -1)
    away[first] = distance = 0
    edge = np.array([first])
    while len(edge):
        distance += 1
        counts = begin[edge + 1] - begin[edge]
        of = np.repeat(begin[edge] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        devices = unique(ends[of])
        devices = devices[away[devices] < 0]
        away[devices] = distance
        edge = devices[forwards[devices]]
    return away
