"""A library on a machine: what it chooses for a collective, and how long that takes when nothing else runs.

It chooses by its own constants, right or wrong; time follows from the calibration of the machine. Choosing by
calibrated times would be further from what libraries do.

Not here: formulas (`candidates`), constants (`rules`) and the messages of a choice (`plan.library_phases`).
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.kinds import choice, choices, flag, section
from et_sim.machine.library.calibration import Calibration
from et_sim.machine.library.candidates import (
    ALL_REDUCE,
    Candidate,
    Group,
    Machine,
    candidates,
)
from et_sim.machine.library.channels import CARD_EFFICIENCY, Channels, Wires, rings_of
from et_sim.machine.library.rules import (
    ALGORITHMS,
    FEWEST_BYTES,
    LIBRARIES,
    MOST_CHANNELS,
    NETWORK_US,
    PROTOCOL_NAMES,
    RING,
    Protocol,
)

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
    def group(self) -> Group:
        """Its ranks."""
        return Group(self.ranks, self.nodes, self.least)


class Logged(Struct, frozen=True):
    """What a library was seen to choose."""

    kind: str
    nodes: int
    size: int
    algorithm: str
    protocol: Protocol


class Choice(Struct, frozen=True):
    """What the library does, and how long it takes alone."""

    algorithm: str
    protocol: Protocol
    channels: int
    time_us: float
    estimate_us: float  # of the library itself, by which it chose; it has none of pairs: the time

    @property
    def text(self) -> str:
        """As it is shown."""
        if self.algorithm == PAIRS:
            return "send and receive of all pairs"
        return f"{self.algorithm} {PROTOCOL_NAMES[self.protocol]}, {self.channels} channels"


def _protocols(names: tuple[str, ...]) -> tuple[Protocol, ...]:
    return tuple(protocol for protocol, name in PROTOCOL_NAMES.items() if name in names)


@quick_dataclass(frozen=True)
class Library:
    """A collective library on a machine."""

    name: str
    gpu: str  # generation
    wires: Wires
    node: int  # ranks of a whole node
    cpu: str = choice("Of the host.", "intel", stated=True, choices=tuple(NETWORK_US))
    has_switch: bool = flag(
        "Whether a switch joins them that can reduce (NVSwitch).", True, stated=True, name="switch"
    )
    has_collnet: bool = flag(
        "Whether the network's switches reduce (SHARP, by its plugin).", False, stated=True, name="collnet"
    )
    algorithms: tuple[str, ...] = choices(
        "Only these are chosen from, as with NCCL_ALGO; all, where none of them can do what is asked.",
        (),
        choices=ALGORITHMS,
    )
    protocols: tuple[Protocol, ...] = choices(
        "Only these are chosen from, as with NCCL_PROTO.",
        (),
        choices=tuple(PROTOCOL_NAMES.values()),
        becomes=_protocols,
    )
    rings_within: Channels | None = None  # as the library says itself, in place of what is looked for
    rings_between: Channels | None = None
    calibration: Calibration = section(
        "Factors that were fitted to measured collectives; without, the library's own model says the time.",
        Calibration(),
        of=Calibration,
    )
    occupies: bool = flag(  # processors, beside kernels
        "Whether a collective of NCCL takes a processor (SM) for each of its channels from kernels that run "
        "beside it, where the machine says how many `processors` it has. `overlap` stands before it.",
        True,
        stated=True,
    )
    logged: tuple[Logged, ...] = ()  # which stand before its constants, between the sizes that were seen

    def choice(self, call: Call) -> Choice:
        """The best in the library's own eyes, of those that are allowed."""
        if call.kind == ALL_TO_ALL:
            return self.choices(call)[0]
        seen, known = self._seen(call), self.choices(call)
        best = [
            candidate for candidate in known if seen and (candidate.algorithm, candidate.protocol) == seen
        ]
        return min(best or known, key=lambda candidate: candidate.estimate_us)

    def _seen(self, call: Call) -> tuple[str, Protocol] | None:
        """What was seen of as many bytes, or of the next number below; None: nothing, or of fewer or more."""
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
        """Whether it is known how many it keeps from kernels, and minded."""
        return self.occupies and LIBRARIES[self.name].threads is not None

    def processors(self, call: Call, choice: Choice) -> int:
        """That the choice keeps from kernels on each of its GPUs while it runs: one for each block.

        Channels run twice, each with half of the bytes, and fewer of them where there are few bytes.
        """
        threads = LIBRARIES[self.name].threads
        if not self.takes_processors or threads is None:
            return 0
        least = threads[choice.protocol] * FEWEST_BYTES[choice.protocol]
        if choice.algorithm == RING and choice.protocol is Protocol.LL:
            least *= call.ranks
        return max(min(2 * choice.channels, MOST_CHANNELS, call.size // least), 1)

    def way(self, call: Call) -> Candidate:
        """What it chooses, as its cost model has it."""
        seen, known, size = self._seen(call), self._ways(call), self._counted(call)[1]
        best = [
            candidate for candidate in known if seen and (candidate.algorithm, candidate.protocol) == seen
        ]
        return min(best or known, key=lambda candidate: candidate.estimate_us(size))

    def choices(self, call: Call) -> tuple[Choice, ...]:
        """All that may be chosen, in the order of the library's tables."""
        group = call.group
        rings = self.rings(group)
        if call.kind == ALL_TO_ALL:
            network = LIBRARIES[self.name].network
            entry = (network.tree if group.has_one_on_each else network.ring) if group.nodes > 1 else NO_STEPS
            bus, rail = self._bus_on_node(group), self._rail(group)
            time = self.calibration.pairs_us(
                group, call.size, bus, rail, entry, is_pci=not self.wires.is_nvlink
            )
            return (Choice(PAIRS, Protocol.SIMPLE, rings.count, time, time),)
        size = self._counted(call)[1]
        return tuple(self._chosen(way, group, size) for way in self._ways(call))

    def _counted(self, call: Call) -> tuple[str, int]:
        """A barrier is a small all-reduce."""
        return (ALL_REDUCE, BARRIER_BYTES) if call.kind == BARRIER else (call.kind, call.size)

    def _ways(self, call: Call) -> list[Candidate]:
        kind, size = self._counted(call)
        group = call.group
        ways = list(candidates(self._machine(), kind, group, size, call.datatype, self.rings(group)))
        return [way for way in ways if self._is_allowed(way)] or ways

    def rings(self, group: Group) -> Channels:
        """Of a group of ranks."""
        given = self.rings_within if group.nodes == 1 else self.rings_between
        if given is not None:
            return given
        speeds = LIBRARIES[self.name].gpus[self.gpu].speeds
        cards = max(self.wires.cards * group.fewest // self.node, 1)
        return rings_of(self.wires, speeds, nodes=group.nodes, ppn=group.ppn, cards=cards)

    def _chosen(self, way: Candidate, group: Group, size: int) -> Choice:
        time = max(self.calibration.time_us(way, group, size), LEAST_US)
        return Choice(way.algorithm, way.protocol, way.channels, time, way.estimate_us(size))

    def _is_allowed(self, way: Candidate) -> bool:
        algorithms, protocols = self.algorithms, self.protocols
        return (not algorithms or way.algorithm in algorithms) and (
            not protocols or way.protocol in protocols
        )

    def _machine(self) -> Machine:
        rules = LIBRARIES[self.name]
        return Machine(rules, rules.gpus[self.gpu], self.wires, self.cpu, self.has_switch, self.has_collnet)

    def _bus_on_node(self, group: Group) -> float:
        rings = self.rings(Group(group.ppn if self.wires.is_mesh else self.node, 1))
        return rings.count * rings.within

    def _rail(self, group: Group) -> float:
        """What each rank gets of the cards, of which few ranks of a node need not share one."""
        card = self.wires.card * CARD_EFFICIENCY
        return max(card * self.wires.cards / max(self.node, group.ppn), card / group.ppn, LEAST_US)
