"""Parts of the system, declared: its bus, streams, stragglers, factors, costs and local memory.

Each field with a key is that key of an object of the system file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field

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
_RANKS = "Ranks of the entry."
_NAME = '`*` stands for any text: `"*gemm*"`.'

on_the_bus = partial(integer, stated=True, unit="ns", needs=BUS)
cost = partial(number, maximum=MOST_COST)
BUSY, IDLE, NETWORK = "busy-watts", "idle-watts", "network-watts"
LEAVES_OUT = "the energy of a run would be incomplete"


class SharedBus(Struct, frozen=True):
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


class Straggler(Struct, frozen=True):
    """Ranks that are slower than their traces and the machine, and their slowdown."""

    ranks: tuple[range, ...] | None = ranks(_RANKS, required=True)  # None: all
    compute: float = number(
        "Multiplies the durations of compute nodes, replayed or modelled.", 1.0, above_minimum=True
    )
    delay_ns: int = time("Time by which the ranks start late; with `node`, additional time of that node.", 0)
    node: int | None = count("The id of the node that `delay` applies to.", None, needs="delay")
    jitter: float = number(
        "Width of random factors: the duration of every compute node is multiplied by its own factor, drawn "
        "uniformly from 1 - `jitter` to 1 + `jitter`.",
        0.0,
        below=1,
    )
    seed: int = count("Seed of the factors. Without the key: 0.", 0, needs="jitter")

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Convert the delay to whole nanoseconds; refuse fractions."""
        delay = given.get("delay", 0)
        if delay != int(delay):
            raise section.fault(
                f'key "delay" is {delay} ns, which is not a whole number of nanoseconds',
                "give whole nanoseconds",
            )
        return {"delay": int(delay)}

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse an entry without effect."""
        if not {"compute", "delay", "jitter"} & given.keys():
            raise section.fault("the entry has no effect", "give at least one of compute, delay, jitter")


class WorkKind(StrEnum):
    """The kinds of work of a trace's nodes, as time factors distinguish them."""

    KERNELS = "kernels"
    COPIES = "copies"
    OPERATORS = "operators"
    LAUNCHES = "launches"
    GAPS = "gaps"
    COMMUNICATION = "communication"


class TimeFactors(Struct, frozen=True):
    """Factors of the durations of nodes, by kind of work."""

    more_keys: ClassVar[tuple[Key, ...]] = tuple(
        Key(kind.value, NUMBER, f"Multiplies the time of {work}.")
        for kind, work in (
            (WorkKind.KERNELS, "kernels of devices, recorded or modelled"),
            (WorkKind.COPIES, "copies to, from and between devices, and fills of their memory"),
            (WorkKind.OPERATORS, "the host's operators, without launches"),
            (WorkKind.LAUNCHES, "calls of the device's runtime that launch work or wait for it"),
            (
                WorkKind.GAPS,
                "unexplained time between two entries of a thread or stream of a recording",
            ),
            (
                WorkKind.COMMUNICATION,
                "sends, receives and collectives that take their recorded time, as with `replay-only`; "
                "simulated ones take the network's time",
            ),
        )
    )
    ranks: tuple[range, ...] | None = ranks(f"{_RANKS} Without the key: all.", None)  # None: all
    name: str | None = text(f"Only nodes with this name; {_NAME} Without the key: any name.", None)
    factors: Mapping[WorkKind, float] = field(default_factory=dict)
    place: str = ""  # of the entry, for messages

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Return the factors by kind of work."""
        factors = {kind: given[kind.value] for kind in WorkKind if kind.value in given}
        if not factors:
            raise section.fault("the entry has no factor", f"give at least one of {', '.join(WorkKind)}")
        return {"factors": factors}


class StreamWork(StrEnum):
    """The kinds of work that streams take."""

    KERNELS = "kernels"
    COPIES = "copies"
    HOST = "host"
    SENDS = "sends"
    COLLECTIVES = "collectives"
    LOADS = "loads"
    STORES = "stores"


class LimitedWork(Struct, frozen=True):
    """Work of an NPU of which a limited number runs at a time."""

    name: str = text("Name of the stream.", required=True)
    takes: frozenset[StreamWork] = choices(
        "Work of the stream: `kernels` and `copies` of the device, `host` work, `sends`, `collectives`, "
        "`loads` from and `stores` to remote memory.",
        choices=StreamWork,
        becomes=frozenset,
        required=True,
    )
    at_a_time: int = count(
        "Most nodes of the stream that run at a time.",
        1,
        stated=True,
        minimum=1,
        minimum_reason="without it, no node of the stream starts",
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
    "while a send or collective of the same NPU is in progress; at most three decimals. Without the key: 1."
)


def _exact(factor: float) -> Fraction:
    """Return the factor as the exact decimal of its text."""
    from fractions import Fraction

    return Fraction(str(factor))


class Overlap(Struct, frozen=True):
    """The slowdown of work by concurrent communication."""

    kernels: float = _slowed(f"Factor of the time of kernels {_WHILE}")
    copies: float = _slowed(f"Factor of the time of copies to, from and between devices {_WHILE}")
    place: str = ""

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse factors with more than three decimals."""
        for name, factor in given.items():
            if (_exact(factor) * DECIMALS).denominator != 1:
                cause = f'key "{name}" is {factor}, with more than three decimals'
                raise section.fault(cause, "round it to three decimals")

    def slowed(self) -> tuple[SlowedWork, ...]:
        """Return the work that takes longer; factors of 1 have no effect."""
        both = ((StreamWork.KERNELS, self.kernels), (StreamWork.COPIES, self.copies))
        return tuple(SlowedWork(work, _exact(factor), self.place) for work, factor in both if factor > 1)


class Costs(Struct, frozen=True):
    """The power and price of an NPU; None: not known."""

    busy_watts: float | None = cost(
        "Power of an NPU while it computes: while a kernel or copy runs. Leave out this and `idle-watts` if "
        "the device has `power`.",
        None,
        unit="watts",
    )
    idle_watts: float | None = cost(
        "Power at other times: while it communicates or waits, and until the last rank is done. Requires "
        "`busy-watts`.",
        None,
        unit="watts",
    )
    network_watts: float = cost(
        "Power of an NPU's links and its share of switches, at all times.",
        0,
        stated=True,
        unit="watts",
    )
    price_per_hour: float | None = cost("The price of an NPU for an hour, all charges included.", None)
    currency: str = text("Currency of the price.", "USD", stated=True, needs="price-per-hour")

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse a power that makes the energy incomplete, and more power when idle than when busy."""
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


class WhenFull(StrEnum):
    """The action if tensors need more local memory than there is."""

    STOP = "stop"
    REPORT = "report"
    SPILL = "spill"


CAPACITY, TRACKS = "local-mem-capacity", "track-local-mem"
RESERVED, WHEN_FULL = "local-mem-reserved", "when-full"


class LocalMemory(Struct, frozen=True):
    """The local memory of an NPU."""

    total_bytes: int = size(
        "Local memory of an NPU; with it, the memory of tensors is tracked and limited "
        "([local memory](memory.md#local-memory)).",
        None,
        name=CAPACITY,
        reference=NOT_KNOWN,
        minimum=1,
    )
    reserved_bytes: int = size(
        "Memory that tensors cannot use: that of the driver, the collective library and kernel graphs.",
        0,
        name=RESERVED,
        reference=NOT_KNOWN,
        minimum=0,
        needs=CAPACITY,
    )
    when_full: WhenFull = choice(
        "Action if a run needs more: `stop` ends it, `report` reports it and continues; with `spill`, "
        "tensors move to [remote memory](memory.md#spilling). Without the key: `stop`.",
        WhenFull.STOP,
        reference=NOT_KNOWN,
        choices=WhenFull,
        needs=CAPACITY,
    )
    place: str = ""  # for messages

    @property
    def capacity_bytes(self) -> int:
        """Return the bytes that tensors can use."""
        return self.total_bytes - self.reserved_bytes

    @property
    def text(self) -> str:
        """Describe the memory that tensors can use, and the reserved part."""
        return memory_text(self.capacity_bytes, self.reserved_bytes)
