"""A library on a machine: its choice for a collective, and the time of the choice when nothing else runs.

The library chooses by its own constants, right or wrong; the time follows from the calibration of the
machine. Choosing by calibrated times would be further from what libraries do.

The library's cost model is made for choosing, and is 15 to 35 % too fast as a prediction. Measured times
follow it with a factor for launches, for steps and for bandwidth of each protocol, and one stage more: a rank
passes one piece (its part of the bytes) through its own memory. Without measurements the factors are 1 and
the stage costs nothing. Sends and receives, of which all-to-alls consist, are not in the library's model:
short ones have a small start and a low bandwidth, long ones the opposite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.engine_names import ENGINES, EXPERT_EXCHANGES
from et_sim.documents.kinds import choice, choices, count, flag, number, section
from et_sim.machine.collective_library.between import Between
from et_sim.machine.collective_library.buffers import ConnectionSlots
from et_sim.machine.collective_library.candidates import (
    ALL_REDUCE,
    AllowedCandidates,
    Candidate,
    Crossing,
    LibraryGroup,
    LibraryMachine,
    TimeBySize,
)
from et_sim.machine.collective_library.channels import CARD_EFFICIENCY, Channels, LibraryWires, rings_of
from et_sim.machine.collective_library.constants import (
    ALGORITHMS,
    FEWEST_BYTES,
    LIBRARIES,
    MOST_CHANNELS,
    NETWORK_US,
    NVLS,
    NVLS_TREE,
    PROTOCOL_NAMES,
    RING,
    LibraryProtocol,
    name_of,
    protocols_named,
)
from et_sim.machine.collective_library.engines import (
    ENGINE_ALL_REDUCES,
    ENGINE_PROCESSORS,
    MOST_RANKS,
    OF_ENGINES,
    TRAFFIC_OF_COPIES,
)
from et_sim.machine.collective_library.engines import (
    EXPERT_EXCHANGES as EXPERTS,
)
from et_sim.machine.collective_library.falls import (
    ChoiceCurve,
    Larger,
    bounds_of,
    faster_above,
    limit_us,
    worth_mention,
)

NO_COPY = 0.0  # GB/s: the stage is left out
RING_LL_US, RING_SIMPLE_US = 6.6, 8.4  # launches, of which short and long sends take a multiple


MOST = 1_000_000


def factor(default: float, **more: Any) -> Any:
    """Declare a factor that a file may set."""
    return number("", default, maximum=MOST, **more)


positive = partial(factor, above_minimum=True)


class Calibration(Struct, frozen=True):
    """Factors of the library's cost model, unless a unit is named."""

    base_ll: float = factor(1.0)  # launch and entry
    base: float = factor(1.0)  # of LL128 and Simple
    step_ll: float = factor(1.0)
    step_ll128: float = factor(1.0)
    step_simple: float = factor(1.0)
    bandwidth_ll: float = positive(1.0)
    bandwidth_ll128: float = positive(1.0)
    bandwidth_simple: float = positive(1.0)
    copy: float = factor(NO_COPY)  # GB/s
    start_simple: float = factor(0.0)  # us
    nvls_step: float = factor(1.0)
    nvls_bandwidth: float = positive(1.0)
    nvls_copy: float = factor(NO_COPY)  # GB/s
    pairs_base: float = factor(1.25)  # short sends: by a ring's launch with LL
    pairs_step: float = factor(0.2)  # us, for each other rank
    pairs_bandwidth_short: float = factor(0.25)  # by the rings' bus bandwidth
    pairs_start: float = factor(1.0)  # long sends: by a ring's launch with Simple
    pairs_bandwidth: float = factor(0.83)  # by the bandwidth of rings with Simple
    pairs_copy: float = factor(1.0)  # by the copy rate of rings
    between_latency: float = factor(1.0)  # latency of messages between nodes
    between_bandwidth: float = positive(1.0)  # between nodes, with any protocol

    def time_us(
        self, way: Candidate, group: LibraryGroup, size: int, between: Between | None = None
    ) -> float:
        """Return the time of a collective by a candidate; `between` is the network of its nodes."""
        return self.by_size(way, group, between)(size)

    def by_size(self, way: Candidate, group: LibraryGroup, between: Between | None = None) -> TimeBySize:
        """Return the times of a collective by a candidate (`time_us`), given its size."""
        if way.crossing is not None and between is not None:
            return self._between(way, way.crossing, between)
        is_simple, by_switches = way.protocol is LibraryProtocol.SIMPLE, way.algorithm in (NVLS, NVLS_TREE)
        copy = self.nvls_copy if by_switches else self.copy if is_simple else NO_COPY
        if group.nodes > 1:
            latency, bandwidth = self.between_latency * way.latency_us, self.between_bandwidth
        elif by_switches:
            latency = self.base * way.base_us + self.nvls_step * way.within_us
            bandwidth = self.nvls_bandwidth
        else:
            base = self.base_ll if way.protocol is LibraryProtocol.LL else self.base
            step = (self.step_ll, self.step_ll128, self.step_simple)[way.protocol]
            bandwidth = (self.bandwidth_ll, self.bandwidth_ll128, self.bandwidth_simple)[way.protocol]
            latency = base * way.base_us + step * way.within_us + (self.start_simple if is_simple else 0.0)
        rate, ranks = 1000 * bandwidth * way.bandwidth * way.evened, group.ranks
        return lambda size: latency + size / rate + (size / ranks / 1000 / copy if copy else 0.0)

    def _between(self, way: Candidate, crossing: Crossing, between: Between) -> TimeBySize:
        """Return the times over a network of a known kind.

        Within nodes, LL128 has the factor of steps with LL, as both wait for flags. Its own factor was fitted
        to sizes of a node, where bandwidth hides it: with many ranks on many nodes, the protocol of larger
        messages would start too soon.
        """
        by_switches = way.algorithm in (NVLS, NVLS_TREE)
        base = self.base_ll if way.protocol is LibraryProtocol.LL else self.base
        step = self.step_simple if way.protocol is LibraryProtocol.SIMPLE else self.step_ll
        step = self.nvls_step if by_switches else step
        latency = base * way.base_us + step * way.within_us
        latency += self.between_latency * crossing.messages * between.latency_us(crossing.step_us)
        most = crossing.most * (self.nvls_bandwidth if by_switches else 1.0)
        full, node = crossing.full * min(between.share * self.between_bandwidth, 1.0), crossing.node
        rate = min(most * self.between_bandwidth, full / crossing.carried)
        return lambda size: latency + size / 1000 / rate + between.fill_us(size, full, node)

    def pairs_us(
        self,
        group: LibraryGroup,
        size: int,
        bus: float,
        rail: float,
        step: tuple[float, float, float],
        *,
        is_pci: bool,
    ) -> float:
        """Return the time of an all-to-all, which copies all pairs at once.

        `bus` is the bandwidth of rings on a node and `rail` that of a rank to other nodes, both in GB/s;
        `step` is the latency to another node by protocol. With PCI, all bytes go over one link.
        """
        n, away = group.ranks, (group.ranks - group.fewest) / group.ranks
        inside = size * (n - 1 if is_pci else group.ppn - 1) / n / 1000
        outside = size * away / 1000 / (rail * self.between_bandwidth) if group.nodes > 1 else 0.0
        steps = self.pairs_step * (n - 1)
        short_us = (
            self.pairs_base * self.base_ll * RING_LL_US + self.between_latency * step[LibraryProtocol.LL]
        )
        long_us = self.pairs_start * (self.base * RING_SIMPLE_US + self.start_simple)
        long_us += self.between_latency * step[LibraryProtocol.SIMPLE]
        full = self.pairs_bandwidth * self.bandwidth_simple * bus
        short = short_us + steps + max(inside / (self.pairs_bandwidth_short * bus), outside)
        long = long_us + steps + max(inside / full, outside)
        if self.copy and self.pairs_copy:
            long += size / n / 1000 / (self.pairs_copy * self.copy)
        return min(short, long)


PAIRS = "pairs"  # all-to-all: copies of all pairs
ALL_TO_ALL, BARRIER = "all_to_all", "barrier"
BARRIER_BYTES = 4
LEAST_US = 0.001
NO_STEPS = (0.0, 0.0, 0.0)


class Call(Struct, frozen=True):
    """A collective; bytes as nccl-tests counts them."""

    kind: str
    ranks: int
    nodes: int
    size: int
    datatype: str = ""
    least: int = 0  # ranks on the node that has the fewest; 0: equally many on each

    @property
    def group(self) -> LibraryGroup:
        """Return the ranks of the collective."""
        return LibraryGroup(self.ranks, self.nodes, self.least)


class Logged(Struct, frozen=True):
    """An observed choice of a library."""

    kind: str
    nodes: int
    size: int
    algorithm: str
    protocol: LibraryProtocol


class LibraryChoice(Struct, frozen=True):
    """The choice of a library, and its time when nothing else runs."""

    algorithm: str
    protocol: LibraryProtocol
    channels: int
    time_us: float
    estimate_us: float  # the library's own, by which it chose; for pairs the time
    unlimited_us: float = 0.0  # the calibrated time if it was limited before a fall; else 0
    larger: Larger | None = None  # a larger size that takes less time

    @property
    def text(self) -> str:
        """Return the choice as it is shown."""
        has_channels = self.algorithm != PAIRS and self.algorithm not in OF_ENGINES
        return f"{self.name}, {self.channels} channels" if has_channels else self.name

    @property
    def name(self) -> str:
        """Return the name of the algorithm and protocol, without channels."""
        if self.algorithm == PAIRS:
            return "send and receive of all pairs"
        if self.algorithm in OF_ENGINES:
            return f"{self.algorithm} of the engine"
        return name_of(self.algorithm, self.protocol)


class Library(Struct, frozen=True):
    """A collective library on a machine."""

    name: str
    gpu: str  # generation
    wires: LibraryWires
    node: int  # ranks of a whole node
    cpu: str = choice("CPU of the host.", "intel", stated=True, choices=tuple(NETWORK_US))
    has_switch: bool = flag(
        "A switch that can reduce (NVSwitch) joins the GPUs.", True, stated=True, name="switch"
    )
    has_collnet: bool = flag(
        "Switches of the network reduce (SHARP, by its plugin).", False, stated=True, name="collnet"
    )
    algorithms: tuple[str, ...] = choices(
        "Allowed algorithms, as NCCL_ALGO; all if none of them supports a collective.",
        (),
        choices=ALGORITHMS,
    )
    protocols: tuple[LibraryProtocol, ...] = choices(
        "Allowed protocols, as NCCL_PROTO.",
        (),
        choices=tuple(PROTOCOL_NAMES.values()),
        becomes=protocols_named,
    )
    rings_within: Channels | None = None  # as the library logs them, in place of a search
    rings_between: Channels | None = None
    calibration: Calibration = section(
        "Factors that were fitted to measured collectives. Without the key: the library's own model.",
        Calibration(),
        of=Calibration,
    )
    buffers: ConnectionSlots = section(
        "Its buffers, which bound how far a sender runs ahead of a late receiver.",
        ConnectionSlots(),
        of=ConnectionSlots,
    )
    between: Between | None = section(
        "The network between its nodes. Without the key: the library's own model.", None, of=Between
    )
    occupies: bool = flag(  # processors, beside kernels
        "A collective of NCCL takes a processor (SM) for each of its channels from kernels that run at the "
        "same time, if the machine has `processors`. `overlap` overrides it.",
        True,
        stated=True,
    )
    most_processors: int = count(  # 0: as many as it has channels
        "The most processors (SMs) that a collective takes from kernels. Without the key: one for each "
        "channel.",
        0,
        minimum=1,
    )
    engine: str = choice(
        "Inference engine whose own all-reduce runs within a node, up to the size from which the engine "
        "leaves it to the library. A workload may name it, too.",
        "",
        choices=ENGINES,
    )
    expert_exchange: str = choice(
        "Kernels by which tokens reach their experts, in place of the library's all-to-all. A workload may "
        "name them, too.",
        "",
        choices=EXPERT_EXCHANGES,
    )
    eager: bool = flag(
        "The engine launches its all-reduces one by one, and not in a graph of kernels.", False
    )
    shares_memory: bool = False  # its exchanges with experts take memory from kernels, and no processors
    logged: tuple[
        Logged, ...
    ] = ()  # observed choices, which override its constants between the observed sizes

    def choice(self, call: Call, ways: AllowedCandidates | None = None) -> LibraryChoice:
        """Return the best allowed choice by the library's own estimates; `ways` are its own."""
        if call.kind == ALL_TO_ALL:
            return self.choices(call)[0]
        if self.engine and (own := self._of_engine(call)) is not None:
            return own
        (kind, size), group, ways = self._counted(call), call.group, ways or self.ways()
        way, known = self._chosen_of(call, ways)
        chosen = self._chosen(way, size, ways.time_us(way, group, size))
        if all(ways.time_us(other, group, size) >= chosen.time_us for other in known):
            return chosen
        larger = faster_above(self._curve(call, ways), size, chosen.time_us, way, known)
        if not larger:
            return chosen
        time, most = chosen.time_us, limit_us(kind, group, larger)
        if time > most:
            chosen = replace(chosen, time_us=most, unlimited_us=time)
        return replace(chosen, larger=worth_mention(larger, chosen.time_us))

    def _of_engine(self, call: Call) -> LibraryChoice | None:
        """Return the engine's own all-reduce; None where it leaves the collective to the library."""
        own, wires = ENGINE_ALL_REDUCES[self.engine], self.wires
        is_within = call.nodes == 1 and 1 < call.ranks <= MOST_RANKS and wires.is_nvlink
        if call.kind != ALL_REDUCE or not is_within or call.size > own.most:
            return None
        link = wires.line_rate * (call.ranks - 1 if wires.is_mesh else 1)
        way, time = own.way(call.ranks, call.size, link)
        time = max(time, own.eager) if self.eager else time
        return LibraryChoice(way, LibraryProtocol.SIMPLE, 0, time, time)

    def _of_experts(
        self, group: LibraryGroup, size: int, message: tuple[float, float, float]
    ) -> LibraryChoice:
        """Return the all-to-all by the kernels that exchange tokens with experts."""
        own, wires = EXPERTS[self.expert_exchange], self.wires
        link = wires.line_rate * (max(group.ppn - 1, 1) if wires.is_mesh else 1)
        within = size * (group.ppn - 1) / group.ranks
        between = size * (group.ranks - group.fewest) / group.ranks if group.nodes > 1 else 0.0
        limit, card = self.most_processors, self._of_cards(self.wires.card, group) if self.wires.card else 0.0
        time = own.time_us(within, between, message[LibraryProtocol.SIMPLE], link, card, limit)
        return LibraryChoice(PAIRS, LibraryProtocol.SIMPLE, self.rings(group).count, time, time)

    def _curve(self, call: Call, ways: AllowedCandidates) -> ChoiceCurve:
        """Return the choices for other sizes of the collective."""
        kind, group = self._counted(call)[0], call.group

        def at(size: int) -> Call:
            return replace(call, kind=kind, size=size)

        seen = [entry.size for entry in self.logged if (entry.kind, entry.nodes) == (kind, call.nodes)]
        beyond = [seen_size + 1 for seen_size in seen]  # after the last, its own constants stand
        factors = max(map(len, LIBRARIES[self.name].tree_factors))
        return ChoiceCurve(
            lambda size: self._chosen_of(at(size), ways),
            lambda way, size: max(ways.time_us(way, group, size), LEAST_US),
            bounds_of(group, ways.rings(group).count, [*seen, *beyond], factors),
        )

    def _seen(self, call: Call) -> tuple[str, LibraryProtocol] | None:
        """Return the observed choice at the next lower size; None outside the observed sizes."""
        kind, size = self._counted(call)
        alike = sorted(
            (entry.size, entry) for entry in self.logged if (entry.kind, entry.nodes) == (kind, call.nodes)
        )
        sizes = [at for at, _ in alike]
        if not alike or not sizes[0] <= size <= sizes[-1]:
            return None
        entry = alike[bisect_right(sizes, size) - 1][1]
        return entry.algorithm, entry.protocol

    @property
    def takes_processors(self) -> bool:
        """Check whether its collectives take processors from kernels, and their number is known."""
        return self.occupies and LIBRARIES[self.name].threads is not None

    def processors(self, call: Call, choice: LibraryChoice) -> int:
        """Return the processors that the choice takes from kernels on each GPU: one for each block.

        Channels run twice, each with half of the bytes; small collectives use fewer.
        """
        threads = LIBRARIES[self.name].threads
        if not self.takes_processors or threads is None or self._travels_alone(call):
            return 0
        least = threads[choice.protocol] * FEWEST_BYTES[choice.protocol]
        if choice.algorithm == RING and choice.protocol is LibraryProtocol.LL:
            least *= call.ranks
        if choice.algorithm in OF_ENGINES:
            return min(ENGINE_PROCESSORS, self.most_processors or MOST_CHANNELS)
        most = min(2 * choice.channels, self.most_processors or MOST_CHANNELS, MOST_CHANNELS)
        return max(min(most, call.size // least), 1)

    def _travels_alone(self, call: Call) -> bool:
        """Return whether the bytes travel without a kernel."""
        return call.kind == ALL_TO_ALL and bool(own := self.expert_exchange) and EXPERTS[own].travels_alone

    def memory(self, call: Call, choice: LibraryChoice) -> float:
        """Return the GB/s that an exchange with experts takes from kernels on each GPU."""
        if not self.shares_memory or not self.expert_exchange or call.kind != ALL_TO_ALL:
            return 0.0
        sent = call.size * (call.ranks - 1) / call.ranks
        return TRAFFIC_OF_COPIES * sent / (1000 * choice.time_us)

    def way(self, call: Call) -> Candidate:
        """Return its choice as a candidate of its cost model."""
        return self._chosen_of(call, self.ways())[0]

    def _chosen_of(self, call: Call, ways: AllowedCandidates) -> tuple[Candidate, Sequence[Candidate]]:
        """Return its choice and all candidates."""
        kind, size = self._counted(call)
        known = best = ways.of(kind, call.group, size, call.datatype)
        if self.logged and (seen := self._seen(call)):
            best = [candidate for candidate in known if (candidate.algorithm, candidate.protocol) == seen]
        return min(best or known, key=lambda candidate: candidate.estimate_us(size)), known

    def choices(self, call: Call) -> tuple[LibraryChoice, ...]:
        """Return all candidates as choices, in the order of the library's tables."""
        group = call.group
        rings = self.rings(group)
        if call.kind == ALL_TO_ALL:
            network = LIBRARIES[self.name].network
            entry = (network.tree if group.has_one_on_each else network.ring) if group.nodes > 1 else NO_STEPS
            if group.nodes > 1 and self.between is not None:
                ll, ll128, simple = map(self.between.latency_us, entry)
                entry = (ll, ll128, simple)
            if self.expert_exchange:
                return (self._of_experts(group, call.size, entry),)
            bus, rail = self._bus_on_node(group), self._rail(group)
            time = self.calibration.pairs_us(
                group, call.size, bus, rail, entry, is_pci=not self.wires.is_nvlink
            )
            return (LibraryChoice(PAIRS, LibraryProtocol.SIMPLE, rings.count, time, time),)
        kind, size = self._counted(call)
        ways = self.ways()
        known = ways.of(kind, group, size, call.datatype)
        return tuple(self._chosen(way, size, ways.time_us(way, group, size)) for way in known)

    def _counted(self, call: Call) -> tuple[str, int]:
        """Return the kind and bytes that the library counts: a barrier is a small all-reduce."""
        return (ALL_REDUCE, BARRIER_BYTES) if call.kind == BARRIER else (call.kind, call.size)

    def ways(self) -> AllowedCandidates:
        """Return its candidates for further choices."""
        return AllowedCandidates(self._machine(), self.rings, self._is_allowed, self._by_size)

    def rings(self, group: LibraryGroup) -> Channels:
        """Return the rings of a group of ranks."""
        given = self.rings_within if group.nodes == 1 else self.rings_between
        if given is not None:
            return given
        speeds = LIBRARIES[self.name].gpus[self.gpu].speeds
        cards = max(self.wires.cards * group.fewest // self.node, 1)
        return rings_of(self.wires, speeds, nodes=group.nodes, ppn=group.ppn, cards=cards)

    def _chosen(self, way: Candidate, size: int, time_us: float) -> LibraryChoice:
        time, estimate = max(time_us, LEAST_US), way.estimate_us(size)
        return LibraryChoice(way.algorithm, way.protocol, way.channels, time, estimate)

    def _by_size(self, way: Candidate, group: LibraryGroup) -> TimeBySize:
        return self.calibration.by_size(way, group, self.between)

    def _is_allowed(self, way: Candidate) -> bool:
        algorithms, protocols = self.algorithms, self.protocols
        if way.crossing is not None and self.between is not None:
            protocols = protocols or self.between.protocols
        return (not algorithms or way.algorithm in algorithms) and (
            not protocols or way.protocol in protocols
        )

    def _machine(self) -> LibraryMachine:
        rules = LIBRARIES[self.name]
        return LibraryMachine(
            rules,
            rules.gpus[self.gpu],
            self.wires,
            self.cpu,
            self.has_switch,
            self.has_collnet,
            self.node,
            self.between,
        )

    def _bus_on_node(self, group: LibraryGroup) -> float:
        rings = self.rings(LibraryGroup(group.ppn if self.wires.is_mesh else self.node, 1))
        return rings.count * rings.within

    def _rail(self, group: LibraryGroup) -> float:
        """Return the rate that collectives reach over the cards for each rank."""
        share = CARD_EFFICIENCY if self.between is None else self.between.share
        return self._of_cards(self.wires.card * share, group)

    def _of_cards(self, card: float, group: LibraryGroup) -> float:
        """Return the rate of the cards for each rank; a few ranks of a node need not share one."""
        return max(card * self.wires.cards / max(self.node, group.ppn), card / group.ppn, LEAST_US)
