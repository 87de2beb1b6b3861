"""The cost model by which a collective library chooses: the estimated time of each algorithm and protocol.

    time = base + steps within nodes + steps between nodes + bytes / bandwidth

Times are in microseconds, rates in GB/s of 1e9 bytes. The formulas are facts of NCCL's source
(src/graph/tuning.cc). Steps and rates "between" nodes belong to the whole group, of which each node holds
`ppn` ranks. Bytes are counted as nccl-tests counts them: the output of a rank for an all-gather, its input
for a reduce-scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from et_sim.machine.collective_library.between import Between
from et_sim.machine.collective_library.channels import Channels, LibraryWires, speed_between, speed_within
from et_sim.machine.collective_library.constants import (
    ARM,
    COLLNET_CHAIN,
    COLLNET_DIRECT,
    LL_MOST_BETWEEN,
    NETWORK_US,
    NVLS,
    NVLS_TREE,
    PAT,
    RING,
    TREE,
    Gpu,
    LibraryProtocol,
    LibraryRules,
    StepTimes,
)

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
BROADCAST, REDUCE = "broadcast", "reduce"
SMALLEST_FACTOR = 64  # bytes
PLATEAU = 64  # bytes for each rank and channel from which rings between nodes take longer steps
FLAGS = (2.0, 128 / 120, 1.0)  # bytes on wires by bytes of data, by protocol
CHAIN_EFFICIENCY = 0.85  # of trees over nodes of one GPU
NOT_SUMMED_BY_SWITCHES = ("int8", "fp8", "int4", "fp4", "fp6")


class LibraryGroup(Struct, frozen=True):
    """A group of ranks as the library sees it."""

    ranks: int
    nodes: int
    least: int = 0  # ranks on the node that has the fewest; 0: equally many on each

    @property
    def ppn(self) -> int:
        """Return the mean number of ranks on a node."""
        return max(self.ranks // self.nodes, 1)

    @property
    def fewest(self) -> int:
        """Return the ranks on the node that has the fewest."""
        return self.least or self.ppn

    @property
    def has_one_on_each(self) -> bool:
        """Check whether each node has one rank."""
        return self.ranks == self.nodes


class LibraryMachine(Struct, frozen=True):
    """The machine as the formulas see it."""

    rules: LibraryRules
    gpu: Gpu
    wires: LibraryWires
    cpu: str
    has_switch: bool  # NVSwitch, which reduces from Hopper on
    has_collnet: bool
    node: int  # ranks of a whole node
    between: Between | None = None  # None: the library's own model


class Crossing(Struct, frozen=True):
    """The use that an algorithm makes of the network between nodes."""

    messages: int  # one after the other
    step_us: float  # time of each, as the library counts it
    full: float  # GB/s of the collective at the rate of the cards
    carried: float  # bytes on the wire by bytes of the collective, flags included
    most: float  # limit in GB/s of the collective, with any cards
    node: float  # GB/s of all cards of a node


class Candidate(Struct, frozen=True):
    """An algorithm with a protocol, and its estimated time."""

    algorithm: str
    protocol: LibraryProtocol
    channels: int
    base_us: float
    within_us: float  # steps
    between_us: float
    bandwidth: float  # GB/s of the collective
    evened: float = 1.0  # factor that smooths the library's steps of bandwidth by size
    crossing: Crossing | None = None  # None: on one node, or the library's own model

    @property
    def latency_us(self) -> float:
        """Return the part of the time that does not depend on the size."""
        return self.base_us + self.within_us + self.between_us

    def estimate_us(self, size: int) -> float:
        """Return the estimate that the library compares."""
        return self.latency_us + size / (1000 * self.bandwidth)


TimeBySize = Callable[[int], float]  # us of a collective, given its bytes


class AllowedCandidates:
    """The candidates that are allowed on one machine, and their calibrated times; those that hold for all
    sizes are made once.
    """

    def __init__(
        self,
        machine: LibraryMachine,
        rings: Callable[[LibraryGroup], Channels],
        is_allowed: Callable[[Candidate], bool],
        by_size: Callable[[Candidate, LibraryGroup], TimeBySize],
    ) -> None:
        self._machine, self._rings_of, self._is_allowed, self._by_size = machine, rings, is_allowed, by_size
        self._times: dict[int, TimeBySize] = {}  # by the identities of candidates for all sizes
        self._rings: dict[LibraryGroup, Channels] = {}
        self._for_all_sizes: dict[tuple[str, LibraryGroup], list[Candidate]] = {}

    def rings(self, group: LibraryGroup) -> Channels:
        """Return the rings of a group of ranks."""
        if group not in self._rings:
            self._rings[group] = self._rings_of(group)
        return self._rings[group]

    def of(self, kind: str, group: LibraryGroup, size: int, datatype: str) -> list[Candidate]:
        """Return the candidates of a collective; all if none is allowed. Only all-reduces depend on sizes."""
        if kind == ALL_REDUCE:
            return self._made(kind, group, size, datatype)
        key = kind, group
        if key not in self._for_all_sizes:
            made = self._for_all_sizes[key] = self._made(kind, group, size, datatype)
            self._times |= {id(way): self._by_size(way, group) for way in made}
        return self._for_all_sizes[key]

    def time_us(self, way: Candidate, group: LibraryGroup, size: int) -> float:
        """Return the calibrated time of a collective by one of the candidates."""
        return (self._times.get(id(way)) or self._by_size(way, group))(size)

    def _made(self, kind: str, group: LibraryGroup, size: int, datatype: str) -> list[Candidate]:
        ways = list(candidates(self._machine, kind, group, size, datatype, self.rings(group)))
        return [way for way in ways if self._is_allowed(way)] or ways


def candidates(
    machine: LibraryMachine, kind: str, group: LibraryGroup, size: int, datatype: str, rings: Channels
) -> Iterator[Candidate]:
    """Yield all candidates of the library's choice."""
    for way in _ways(machine, kind, group, size, datatype, rings):
        if group.nodes == 1 or machine.between is None or machine.wires.card == 0:
            yield way
            continue
        crossing = _crossing(machine, kind, group, way)
        reported = crossing.messages * machine.between.reported_us(way.protocol)
        yield replace(way, between_us=way.between_us + reported, crossing=crossing)


def _ways(
    machine: LibraryMachine, kind: str, group: LibraryGroup, size: int, datatype: str, rings: Channels
) -> Iterator[Candidate]:
    for protocol in LibraryProtocol:
        if protocol is LibraryProtocol.LL128 and not _has_ll128(machine, group):
            continue
        yield _ring(machine, kind, group, size, protocol, rings)
        if kind == ALL_REDUCE:
            yield from _tree(machine, group, size, protocol, rings)
    if kind in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER):
        yield from _switches(machine, kind, group, size, datatype)
        yield from _collnet(machine, kind, group, rings)
    if kind in (ALL_GATHER, REDUCE_SCATTER) and group.has_one_on_each and machine.rules.network.pat:
        steps = math.log2(max(group.nodes, 1)) * machine.rules.network.pat / 3.5 + 2.8 * group.ranks
        bus = 0.75 * _bus(group, rings)
        yield Candidate(PAT, LibraryProtocol.SIMPLE, rings.count, 8.0, 0.0, steps, bus)


def _crossing(machine: LibraryMachine, kind: str, group: LibraryGroup, way: Candidate) -> Crossing:
    """Return the use that a candidate makes of the network; `library_bytes` has the same bytes, by rank.

    Rings are counted with the steps of trees: the library counts shorter ones, which were not measured.
    """
    network, wires, nodes = machine.rules.network, machine.wires, group.nodes
    passes = 2 if kind == ALL_REDUCE else 1
    over_levels = 2 * int(math.log2(nodes))
    most = way.bandwidth * way.evened
    carried, step = 2 * (nodes - 1) / nodes, network.tree[way.protocol]
    if way.algorithm == RING:
        messages = passes * (nodes - 1)
        carried = 1.0 if kind in (BROADCAST, REDUCE) else passes * (group.ranks - 1) / group.ranks
        if way.protocol is LibraryProtocol.SIMPLE:
            most = min(most, way.channels * machine.rules.ring_between / carried)
    elif way.algorithm == TREE:
        messages = over_levels
    elif way.algorithm == NVLS_TREE:
        messages, step = over_levels, network.nvls_tree
        most = _by_switches(machine, group.fewest)
    elif way.algorithm == PAT:
        messages, step = max(over_levels // 2, 1), network.pat / 3.5
        carried = (nodes - 1) / nodes
    else:
        messages = 1
        step = network.collnet_direct if way.algorithm == COLLNET_DIRECT else network.collnet_chain
        carried = 1.0 if kind == ALL_REDUCE else (nodes - 1) / nodes
    full = max(wires.cards * group.fewest // machine.node, 1) * wires.card
    node = wires.cards * wires.card
    return Crossing(messages, step, full, carried * FLAGS[way.protocol], most, node)


def _by_switches(machine: LibraryMachine, ppn: int) -> float:
    """Return the GB/s of an all-reduce by the switches of one node."""
    return ppn * speed_within(machine.wires, machine.gpu.speeds, ppn) * machine.gpu.nvls_efficiency


def _has_ll128(machine: LibraryMachine, group: LibraryGroup) -> bool:
    return machine.gpu.ll128 and (machine.wires.is_nvlink or group.has_one_on_each)


def _intra(machine: LibraryMachine) -> StepTimes:
    return machine.rules.nvlink if machine.wires.is_nvlink else machine.rules.pci


def _network_us(machine: LibraryMachine, group: LibraryGroup, protocol: LibraryProtocol) -> float:
    """Return the time that a card adds to a step of a ring; zero on one node."""
    if group.nodes == 1:
        return 0.0
    return NETWORK_US[machine.cpu] * (3 if protocol is LibraryProtocol.SIMPLE else 1)


def _bus(group: LibraryGroup, channels: Channels) -> float:
    return channels.count * (channels.within if group.nodes <= 2 else channels.between)


def _by_nodes(group: LibraryGroup, values: tuple[float, float, float]) -> float:
    return values[min(group.nodes, 3) - 1]


def _ll_most(machine: LibraryMachine, group: LibraryGroup) -> float:
    if group.nodes == 1:
        return machine.gpu.ll_most
    return LL_MOST_BETWEEN[machine.cpu][0 if group.nodes == 2 else 1]


def _ring(
    machine: LibraryMachine,
    kind: str,
    group: LibraryGroup,
    size: int,
    protocol: LibraryProtocol,
    channels: Channels,
) -> Candidate:
    n, nodes = group.ranks, group.nodes
    bus = _bus(group, channels)
    if machine.rules.ratios is not None:
        bus *= machine.rules.ratios[RING][protocol]
    elif protocol is LibraryProtocol.LL:
        bus = min(_ll_most(machine, group), bus / 2)
    elif protocol is LibraryProtocol.LL128:
        bus = min(0.92 * bus, channels.count * machine.gpu.ring_ll128)
    intra = _intra(machine).ring[protocol]
    base = machine.rules.ring_base[protocol]
    if kind in (BROADCAST, REDUCE):
        tree = _intra(machine).tree[protocol]
        if nodes == 1 or group.has_one_on_each:
            step = intra if nodes == 1 else machine.rules.network.ring[protocol]
            within, between = (step, 0.0) if nodes == 1 else (0.0, step)
        else:
            within, between = n * (tree if protocol is LibraryProtocol.SIMPLE else intra), 0.0
        return Candidate(RING, protocol, channels.count, base, within, between, bus)
    both = 2 if kind == ALL_REDUCE else 1
    steps, crossing = both * (n - 1), both * (nodes - 1)
    network = machine.rules.network
    inter = (network.tree if group.has_one_on_each else network.ring)[protocol]
    within = (steps - crossing) * max(intra, _network_us(machine, group, protocol))
    between = crossing * inter
    plateau = size / (channels.count * n) >= PLATEAU
    if kind == ALL_REDUCE and protocol is LibraryProtocol.SIMPLE and nodes > 1 and plateau:
        base, within, between = (
            bandwidth * machine.gpu.ring_plateau for bandwidth in (base, within, between)
        )
    return Candidate(RING, protocol, channels.count, base, within, between, bus * n / steps)


def _tree(
    machine: LibraryMachine, group: LibraryGroup, size: int, protocol: LibraryProtocol, channels: Channels
) -> Iterator[Candidate]:
    if protocol is LibraryProtocol.SIMPLE and group.nodes == 1 and not machine.gpu.tree_simple_on_a_node:
        return
    bus = _bus(group, channels)
    if machine.rules.ratios is not None:
        bus *= machine.rules.ratios[TREE][protocol]
    else:
        bus = min(0.92 * bus, channels.count * _by_nodes(group, machine.gpu.tree))
        if protocol is LibraryProtocol.LL:
            bus = min(bus / 3.8, _ll_most(machine, group))
        elif protocol is LibraryProtocol.LL128:
            part = 7 / 9 if group.nodes == 1 else 15 / 16
            bus = min(part * bus, channels.count * _by_nodes(group, machine.gpu.tree_ll128))
    if group.has_one_on_each:
        bus *= CHAIN_EFFICIENCY
    factor, evened = _tree_factor(machine, protocol, size)
    yield Candidate(
        TREE,
        protocol,
        channels.count,
        machine.rules.tree_base[protocol],
        2 * (group.ppn - 1) * _intra(machine).tree[protocol],
        2 * int(math.log2(group.nodes)) * machine.rules.network.tree[protocol],
        bus * factor / 2,
        evened,
    )


def _tree_factor(machine: LibraryMachine, protocol: LibraryProtocol, size: int) -> tuple[float, float]:
    """Return the factor by which the library chooses, and the one that smooths it.

    The library has a factor for each power of two. Times are interpolated between them; otherwise one byte
    more would be faster by up to a fifth.
    """
    factors = machine.rules.tree_factors[protocol]
    counted = max(size, SMALLEST_FACTOR) // SMALLEST_FACTOR
    power = min(counted.bit_length() - 1, len(factors) - 1)
    here, after = factors[power], factors[min(power + 1, len(factors) - 1)]
    part = min(max(size, SMALLEST_FACTOR) / (SMALLEST_FACTOR << power) - 1, 1.0)
    return here, 1 + (after / here - 1) * part


def _switches(
    machine: LibraryMachine, kind: str, group: LibraryGroup, size: int, datatype: str
) -> Iterator[Candidate]:
    """Yield reductions and copies by NVSwitch: on one node, or under a tree over nodes."""
    gpu, intra, ppn = machine.gpu, _intra(machine), group.fewest
    if not (gpu.nvls_efficiency and machine.has_switch) or ppn < 2 or kind == REDUCE_SCATTER:
        return
    if kind == ALL_REDUCE and datatype in NOT_SUMMED_BY_SWITCHES:
        return
    speed = speed_within(machine.wires, gpu.speeds, max(ppn, 1))
    inside = speed * gpu.nvls_efficiency * (ppn - 1) / ppn
    if group.nodes == 1:
        bus = ppn * inside * (2 if kind == ALL_REDUCE else (ppn - 1) / ppn)
        ratio = ppn / (2 * (ppn - 1)) if kind == ALL_REDUCE else 1.0
        yield Candidate(NVLS, LibraryProtocol.SIMPLE, ppn, 0.0, intra.nvls, 0.0, bus * ratio)
    elif kind == ALL_REDUCE:
        between = speed_between(machine.wires, gpu.speeds) * (2 if group.nodes == 2 else 1)
        between *= min(machine.wires.cards / ppn, 1)
        bus = ppn * min(2 * inside, between, _by_nodes(group, gpu.nvls_tree))
        evened = 1.0
        if gpu.nvls_tree_by_size and machine.cpu != ARM:
            factor, evened = _tree_factor(machine, LibraryProtocol.SIMPLE, size)
            bus *= factor
        steps = 2 * int(math.log2(group.nodes)) * machine.rules.network.nvls_tree
        ratio = group.ranks / (2 * (group.ranks - 1))
        yield Candidate(
            NVLS_TREE, LibraryProtocol.SIMPLE, ppn, 0.0, intra.nvls_tree, steps, bus * ratio, evened
        )


def _collnet(
    machine: LibraryMachine, kind: str, group: LibraryGroup, channels: Channels
) -> Iterator[Candidate]:
    """Yield reductions by switches between nodes, which need a plugin."""
    if not machine.has_collnet or group.nodes == 1:
        return
    intra, network, ppn = _intra(machine), machine.rules.network, group.ppn
    bus = channels.count * channels.within
    direct = bus / (1 + (ppn / channels.count - 1) / 2)
    if machine.gpu.nvls_efficiency:
        direct *= 0.85
    if kind != ALL_REDUCE:
        direct = ppn * min(channels.within, 0.9 * channels.between)
    within = 2 * (min(1, ppn - 1) * intra.collnet_direct + 0.4 * (ppn - 1))
    ratio = 0.5 if kind == ALL_REDUCE else 1.0
    direct_way = Candidate(
        COLLNET_DIRECT,
        LibraryProtocol.SIMPLE,
        channels.count,
        0.0,
        within,
        network.collnet_direct,
        direct * ratio,
    )
    yield direct_way
    if kind == ALL_REDUCE:
        within = 2 * (ppn - 1) * intra.collnet_chain
        yield replace(
            direct_way,
            algorithm=COLLNET_CHAIN,
            within_us=within,
            between_us=network.collnet_chain,
            bandwidth=bus / 2,
        )
