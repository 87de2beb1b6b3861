"""Parts of the system, declared: its bus, streams, stragglers, factors, costs and local memory.

Each field with a key is that key of an object of the system file. Not here: the system itself (`system`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import memory_text
from et_sim.documents.keys import Key, Remarks, Section
from et_sim.documents.kinds import NUMBER, choice, choices, count, integer, number, ranks, size, text, time

if TYPE_CHECKING:
    from fractions import Fraction

MOST_SLOWED = 10
MOST_COST = 1_000_000_000
DECIMALS = 1000
BUS = "model-shared-bus"
NOT_KNOWN = "Not known there."
_RANKS = "Which ranks."
_NAME = '`*` stands for any text: `"*gemm*"`.'

on_the_bus = partial(integer, stated=True, unit="ns", needs=BUS)
cost = partial(number, maximum=MOST_COST)
BUSY, IDLE, NETWORK = "busy-watts", "idle-watts", "network-watts"
LEAVES_OUT = "the energy of a run would leave a part out"


@quick_dataclass(frozen=True)
class SharedBus:
    """LogGP parameters of the shared memory bus."""

    latency: int = on_the_bus("Bus latency.", 0, name="L")
    overhead: int = on_the_bus("Bus overhead per transfer.", 0, name="o")
    gap: int = on_the_bus("Bus gap between transfers.", 0, name="g")
    gap_per_byte: float = number(
        "Bus gap per byte.",
        0.0,
        name="G",
        reference="Held in single precision.",
        stated=True,
        unit="ns per byte",
        needs=BUS,
    )


@quick_dataclass(frozen=True)
class Straggler:
    """Ranks that are slower than their traces and the machine would have them, and by how much."""

    ranks: tuple[range, ...] | None = ranks(_RANKS, required=True)  # None: all
    compute: float = number(
        "Multiplies the durations of compute nodes, replayed or modelled.", 1.0, above_minimum=True
    )
    delay_ns: int = time(
        "By how much the ranks start late; with `node`, by how much that node takes longer.", 0
    )
    node: int | None = count("The id of the node that `delay` is for.", None, needs="delay")
    jitter: float = number(
        "Multiplies the duration of every compute node by a factor of its own, drawn uniformly from 1 minus "
        "this to 1 plus this.",
        0.0,
        below=1,
    )
    seed: int = count("Another seed draws other factors. Without the key: 0.", 0, needs="jitter")

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Delays are whole."""
        delay = given.get("delay", 0)
        if delay != int(delay):
            raise section.fault(
                f'key "delay" is {delay} ns, which is no whole number of nanoseconds',
                "delays are in whole nanoseconds",
            )
        return {"delay": int(delay)}

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse an entry without effect."""
        if not {"compute", "delay", "jitter"} & given.keys():
            raise section.fault(
                "the entry says nothing about its ranks", "give at least one of compute, delay, jitter"
            )


class WorkKind(StrEnum):
    """What a node of a trace stands for, as time factors tell it."""

    KERNELS = "kernels"
    COPIES = "copies"
    OPERATORS = "operators"
    LAUNCHES = "launches"
    GAPS = "gaps"
    COMMUNICATION = "communication"


@quick_dataclass(frozen=True)
class TimeFactors:
    """What the durations of nodes are multiplied by, by kind of work."""

    more_keys: ClassVar[tuple[Key, ...]] = tuple(
        Key(kind.value, NUMBER, f"Multiplies the time of {work}.")
        for kind, work in (
            (WorkKind.KERNELS, "kernels of devices, recorded or modelled"),
            (WorkKind.COPIES, "copies to, from and between devices, and fills of their memory"),
            (WorkKind.OPERATORS, "what the host does, but for launches: operators, and what is left of them"),
            (WorkKind.LAUNCHES, "calls of the device's runtime that launch work or wait for it"),
            (
                WorkKind.GAPS,
                "time between two things of a thread or stream that a recording does not explain",
            ),
            (
                WorkKind.COMMUNICATION,
                "sends, receives and collectives that take their recorded time, as with `replay-only`; what "
                "is simulated takes what the network takes",
            ),
        )
    )
    ranks: tuple[range, ...] | None = ranks(f"{_RANKS} Without the key: all.", None)  # None: all
    name: str | None = text(f"Only nodes with this name; {_NAME} Without the key: any name.", None)
    factors: Mapping[WorkKind, float] = field(default_factory=dict)
    place: str = ""  # of the entry, for messages

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """The factors by kind of work."""
        factors = {kind: given[kind.value] for kind in WorkKind if kind.value in given}
        if not factors:
            raise section.fault("the entry gives no factor", f"give at least one of {', '.join(WorkKind)}")
        return {"factors": factors}


class StreamWork(StrEnum):
    """What streams take."""

    KERNELS = "kernels"
    COPIES = "copies"
    HOST = "host"
    SENDS = "sends"
    COLLECTIVES = "collectives"
    LOADS = "loads"
    STORES = "stores"


@quick_dataclass(frozen=True)
class Stream:
    """Work of an NPU that takes turns among itself, so many at a time."""

    name: str = text("What the stream is called.", required=True)
    takes: frozenset[StreamWork] = choices(
        "Which work it takes: `kernels` and `copies` of the device, `host` work, `sends`, `collectives`, "
        "`loads` from and `stores` to remote memory.",
        choices=StreamWork,
        becomes=frozenset,
        required=True,
    )
    at_a_time: int = count(
        "How much of it is under way at a time.",
        1,
        stated=True,
        minimum=1,
        minimum_reason="nothing on the stream would ever start",
        maximum=1_000_000,
    )
    nodes: str | None = text(f"Only nodes with this name; {_NAME}", None)
    group: str | None = text("Only collectives of this communicator group; `all` is every rank.", None)
    recorded: int | None = count(
        "Only nodes whose trace records this number in the attribute `stream`.", None, name="stream"
    )
    place: str = ""  # of the entry, for messages

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse a group without collectives."""
        if self.group is not None and StreamWork.COLLECTIVES not in self.takes:
            raise section.fault(
                'key "group" has no effect: the entry takes no collectives',
                'add "collectives" to "takes", or leave "group" out',
            )


class SlowedWork(Struct, frozen=True):
    """Work of an NPU that takes longer while it sends, or is in a collective."""

    work: StreamWork
    factor: Fraction  # above 1
    place: str = ""  # for messages


_slowed = partial(number, default=1.0, minimum=1, maximum=MOST_SLOWED)
_WHILE = (
    "take while a send or collective of the same NPU is under way, and as long as it is; at most three "
    "decimals. Without the key: no longer."
)


def _exact(factor: float) -> Fraction:
    """As it is written."""
    from fractions import Fraction

    return Fraction(str(factor))


@quick_dataclass(frozen=True)
class Overlap:
    """How many times longer work takes beside communication."""

    kernels: float = _slowed(f"How many times longer kernels {_WHILE}")
    copies: float = _slowed(f"How many times longer copies to, from and between devices {_WHILE}")
    place: str = ""

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse what cannot be counted exactly."""
        for name, factor in given.items():
            if (_exact(factor) * DECIMALS).denominator != 1:
                cause = f'key "{name}" is {factor}, with more than three decimals'
                raise section.fault(cause, "round it: work is counted exactly")

    def slowed(self) -> tuple[SlowedWork, ...]:
        """The work that takes longer; factors of 1 change nothing."""
        both = ((StreamWork.KERNELS, self.kernels), (StreamWork.COPIES, self.copies))
        return tuple(SlowedWork(work, _exact(factor), self.place) for work, factor in both if factor > 1)


@quick_dataclass(frozen=True)
class Costs:
    """What one NPU costs while a run goes on; None: not known."""

    busy_watts: float | None = cost(
        "What an NPU draws while it computes: while a kernel or copy runs. This and `idle-watts` are not "
        "given where its device has `power`.",
        None,
        unit="watts",
    )
    idle_watts: float | None = cost(
        "What it draws the rest of the time: while it communicates or waits, and until the last rank is "
        "done. Given together with `busy-watts`.",
        None,
        unit="watts",
    )
    network_watts: float = cost(
        "What an NPU's links, and its share of switches, draw all the time, whether bytes move or not.",
        0,
        stated=True,
        unit="watts",
    )
    price_per_hour: float | None = cost(
        "The price of an NPU for an hour, with all that is charged with it.", None
    )
    currency: str = text("What the price is in.", "USD", stated=True, needs="price-per-hour")

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse energies that would leave a part out."""
        names = (BUSY, IDLE)
        missing = next((name for name in names if name not in given), "")
        if missing and any(name in given for name in names):
            other = next(name for name in names if name != missing)
            raise section.fault(
                f'key "{other}" without "{missing}": {LEAVES_OUT}', f'give "{BUSY}" and "{IDLE}", or neither'
            )
        if (self.busy_watts or 0) < (self.idle_watts or 0):
            raise section.fault(
                f'"busy-watts" {self.busy_watts:g} is below "idle-watts" {self.idle_watts:g}', "exchange them"
            )

    def as_dict(self) -> dict[str, Any]:
        """As a run's manifest has it."""
        return asdict(self)


class WhenFull(StrEnum):
    """What becomes of a run in which tensors need more local memory than there is."""

    STOP = "stop"
    REPORT = "report"
    SPILL = "spill"


CAPACITY, TRACKS = "local-mem-capacity", "track-local-mem"
RESERVED, WHEN_FULL = "local-mem-reserved", "when-full"


@quick_dataclass(frozen=True)
class LocalMemory:
    """What an NPU has of its own."""

    total_bytes: int = size(
        "How much memory of its own an NPU has; then what its tensors need is tracked, and held against it "
        "([local memory](memory.md#local-memory)).",
        None,
        name=CAPACITY,
        reference=NOT_KNOWN,
        minimum=1,
    )
    reserved_bytes: int = size(
        "How much of it no tensor gets: what the driver, the collective library and graphs of kernels take.",
        0,
        name=RESERVED,
        reference=NOT_KNOWN,
        minimum=0,
        needs=CAPACITY,
    )
    when_full: WhenFull = choice(
        "What becomes of a run that needs more: `stop` ends it there, `report` says it, and goes on; with "
        "`spill`, tensors wait in [remote memory](memory.md#spilling). Without the key: `stop`.",
        WhenFull.STOP,
        reference=NOT_KNOWN,
        choices=WhenFull,
        needs=CAPACITY,
    )
    place: str = ""  # for messages

    @property
    def capacity_bytes(self) -> int:
        """What tensors may have."""
        return self.total_bytes - self.reserved_bytes

    @property
    def text(self) -> str:
        """What tensors may have, and why it is less than there is."""
        return memory_text(self.capacity_bytes, self.reserved_bytes)
