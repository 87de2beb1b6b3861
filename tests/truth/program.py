"""Programs of the ground truth, thread by thread, independent of any machine.

A thread is a list of steps in the order in which it takes them. Times are whole nanoseconds on the machine
that is recorded; `Machine` holds the differences of other machines. The module uses no
recordings and no part of et-sim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Machine:
    """Factors of durations; `straggler` maps ranks to a factor of all but communication."""

    kernels: float = 1.0
    host: float = 1.0
    network: float = 1.0
    straggler: Mapping[int, float] = field(default_factory=dict)

    def host_ns(self, rank: int, lasts: int) -> int:
        """Return the time of host work that lasts this long on the recorded machine."""
        return round(lasts * self.host * self.straggler.get(rank, 1.0))

    def kernel_ns(self, rank: int, lasts: int) -> int:
        return round(lasts * self.kernels * self.straggler.get(rank, 1.0))

    def delay_ns(self, rank: int, lasts: int) -> int:
        """Return a delay from launches to kernels, or between kernels."""
        return round(lasts * self.straggler.get(rank, 1.0))

    def transfer_ns(self, lasts: int) -> int:
        return round(lasts * self.network)


AS_RECORDED = Machine()


@dataclass(frozen=True)
class Transfer:
    """A collective, or a message for the kinds "send" and "recv": no member ends before all have begun."""

    key: tuple[Any, ...]  # the same on all members: they meet here
    kind: str  # as et_sim.trace.CollectiveKind spells it
    ranks: tuple[int, ...]
    size: int  # bytes that a rank puts in
    lasts: int  # after the last has begun
    group: str = "0"
    peer: int = -1


@dataclass(frozen=True)
class Work:
    """The work that a launch puts on a stream, `turn` after earlier work and `latency` after the launch."""

    name: str
    lasts: int
    latency: int
    turn: int
    sort: str = "kernel"  # or gpu_memcpy, gpu_memset
    size: int = 0
    transfer: Transfer | None = None


@dataclass(frozen=True)
class Begin:
    """The begin of a call: an operator (`cpu_op`) or an annotation (`user_annotation`)."""

    name: str
    category: str = "cpu_op"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # its communication, from which shapes and tensors of the recording follow
    transfer: Transfer | None = None


@dataclass(frozen=True)
class End:
    """The end of the innermost call."""


@dataclass(frozen=True)
class Host:
    """A computation of the thread."""

    lasts: int


@dataclass(frozen=True)
class Call:
    """A call of the runtime that does nothing else."""

    name: str
    lasts: int


@dataclass(frozen=True)
class Launch:
    """A launch of work on a stream; with `waits`, the call returns this long after the end of the work."""

    name: str
    lasts: int
    stream: int
    work: Work
    waits: int = -1


@dataclass(frozen=True)
class Record:
    """An event recorded on a stream: it happens when all work so far is done."""

    event: str
    stream: int
    lasts: int


@dataclass(frozen=True)
class WaitEvent:
    """A wait of a stream: later work begins at least `turn` after the event, as last recorded."""

    event: str
    stream: int
    lasts: int
    turn: int


@dataclass(frozen=True)
class Synchronize:
    """A call that returns `after` its stream or event, or with neither after the device."""

    name: str
    lasts: int
    after: int
    stream: int = -1
    event: str = ""


@dataclass(frozen=True)
class Query:
    """Repeated queries of a thread until an event has happened; `pause` lies between the calls."""

    event: str
    lasts: int
    pause: int


@dataclass(frozen=True)
class Signal:
    """A signal to another thread to go on."""

    flag: str


@dataclass(frozen=True)
class Await:
    """A sleep until `wakes` after a signal, or no sleep if the signal came before."""

    flag: str
    wakes: int


@dataclass(frozen=True)
class Sleep:
    """A pause of the same length on every machine."""

    lasts: int


@dataclass(frozen=True)
class Exchange:
    """A communication of the host's thread itself, within the open call."""

    transfer: Transfer


Step: TypeAlias = (
    Begin
    | End
    | Host
    | Call
    | Launch
    | Record
    | WaitEvent
    | Synchronize
    | Query
    | Signal
    | Await
    | Sleep
    | Exchange
)


@dataclass
class Rank:
    """One process: its threads by number, and the time at which all begin, on every machine."""

    threads: dict[int, list[Step]] = field(default_factory=dict)
    starts: int = 0


@dataclass
class Program:
    """All ranks, with the names of their features for tables of errors."""

    ranks: list[Rank]
    features: frozenset[str]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    transfer_ns: Callable[[int], int] = lambda size: size
    backend: str = "nccl"
    clocks: list[int] = field(default_factory=list)  # by how much each rank's clock is ahead
