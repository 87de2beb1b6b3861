"""The reference's collectives, written a second time: chunks, phases, and algorithms within a phase.

Queues and transport are in `reference_model`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FAST_ENDPOINT_NS = 10  # in groups smaller than the system


@dataclass(frozen=True)
class PhasePlan:
    """One operation along one dimension."""

    algorithm: str
    operation: str
    size: int
    dimension: int
    cursor: str
    members: list[int]  # all ranks of a group; empty: those along the dimension
    whole_pieces: bool


def chunk_sizes(kind: str, size: int, splits: int, ranks: int, exactly: bool) -> list[int]:
    """Return bytes of every chunk of a collective."""
    if exactly:
        count = min(size, splits)
        return [size // count + (chunk < size % count) for chunk in range(count)]
    chunk = size // splits
    if kind != "AG" and chunk < ranks:
        chunk, size = ranks, ranks * splits
    return [chunk] * -(-size // chunk)


def plan_phases(
    machine: Any, kind: str, size: int, members: list[int], involved: list[bool] | None
) -> list[PhasePlan]:
    """Return the phases of a chunk; a group smaller than the system is one ring in dimension 0."""
    key = {"AR": "all-reduce", "AG": "all-gather", "RS": "reduce-scatter", "A2A": "all-to-all"}[kind]
    names = machine.system[f"{key}-implementation"]
    whole = machine.corrects("exact-chunks")
    if len(members) < machine.ranks:
        own, dimensions = members, [(0, len(members))]
        names = names if len(names) == 1 else ["ring"]
    else:
        flags = involved or [True] * 4
        own, sizes = [], list(enumerate(machine.npus))[: len(names)]
        dimensions = [(d, npus) for d, npus in sizes if npus > 1 and flags[d]]
    aware = machine.system["collective-optimization"] == "localBWAware"

    def phase(at: int, operation: str, size: int, cursor: str) -> PhasePlan:
        dimension = dimensions[at][0]
        return PhasePlan(names[dimension], operation, size, dimension, cursor, own, whole)

    last = len(dimensions) - 1
    if kind == "AR" and aware:
        phases, held = [], [size]
        for at in range(last):
            phases.append(phase(at, "RS", held[-1], "first"))
            held.append(share(held[-1], dimensions[at][1], whole))
        phases.append(phase(last, "AR", held[-1], "first"))
        gathered = held[-1]  # without rounding up, bytes lost while scattering stay lost
        for at in reversed(range(last)):
            phases.append(phase(at, "AG", held[at + 1] if whole else gathered, "last"))
            gathered *= dimensions[at][1]
        return phases
    order = range(last, -1, -1) if kind == "AG" else range(last + 1)
    phases = []
    for at in order:
        phases.append(phase(at, kind, size, "next"))
        if kind == "RS":
            size = share(size, dimensions[at][1], whole)
        elif kind == "AG":
            size *= dimensions[at][1]
    return phases


def share(size: int, members: int, whole: bool) -> int:
    """Return a member's part of a vector; rounded up, no byte is lost."""
    return -(-size // members) if whole else size // members


class Phase(ABC):
    """The shared part of the algorithms: transfers over the endpoint, then messages and receives."""

    def __init__(
        self, rank: Any, plan: PhasePlan, direction: int, tag: int, done: Callable[[], None]
    ) -> None:
        machine = rank.machine
        self._machine, self._rank, self._plan, self._direction = machine, rank.rank, plan, direction
        self._tag, self._done = tag, done
        self._fast = bool(plan.members)
        if plan.members:
            self._ring = plan.members
        else:
            stride, npus = 1, machine.npus[plan.dimension]
            for inner in machine.npus[: plan.dimension]:
                stride *= inner
            own = rank.rank // stride % npus
            self._ring = [rank.rank + (place - own) * stride for place in range(npus)]
        self._place = self._ring.index(rank.rank)
        self.n = len(self._ring)
        self.message = plan.size if plan.operation == "AG" else share(plan.size, self.n, plan.whole_pieces)
        self.credit = self.transfers = self.received = 0

    def transfer(self, reduces: bool) -> None:
        """Transfer over the endpoint, reduce if needed, and go on."""
        self.transfers += 1
        calendar, own = self._machine.calendar, self._rank

        def across() -> None:
            if reduces:
                calendar.own(own, self._machine.reduction_ns(self.message), self.go)
            else:
                self.go()

        calendar.own(own, FAST_ENDPOINT_NS if self._fast else self._machine.endpoint, across)

    def exchange(self, distance: int) -> None:
        """Send so far ahead, and receive from so far behind."""
        target, source = (
            self._ring[(self._place + sign * distance * self._direction) % self.n] for sign in (1, -1)
        )
        transport = self._machine.transport
        transport.send(self._rank, target, self.message, self._tag, lambda: None)
        transport.receive(source, self._rank, self.message, self._tag, self.receive)

    @abstractmethod
    def go(self) -> None:
        """Begin."""

    @abstractmethod
    def receive(self) -> None:
        """Handle a received message."""


class RingPhase(Phase):
    """A ring: one message a step, each after a received one."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        n = self.n
        self._sends = {"AR": 2 * (n - 1), "A2A": n * (n - 1) // 2}.get(self._plan.operation, n - 1)
        self._packets = 0

    def start(self) -> None:
        self._make(False)

    def _make(self, reduces: bool) -> None:
        self._packets += 1
        self.transfer(reduces)

    def go(self) -> None:
        self.credit += 1
        if self._packets and self._sends:
            self._packets -= 1
            self._sends -= 1
            self.credit -= 1
            self.exchange(1)
        if self._sends == 0 and self.credit == 1:
            self._done()

    def receive(self) -> None:
        self.received += 1
        operation = self._plan.operation
        self._make(operation == "RS" or (operation == "AR" and self.received < self.n))


class DirectPhase(Phase):
    """Messages to all others, a window at a time; the second half of an all-reduce waits for the first."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        others = self.n - 1
        window = self._plan.algorithm.removeprefix("direct")
        self._window = min(int(window), others) if window else others
        self._sends = (2 if self._plan.operation == "AR" else 1) * others
        self._packets: list[int] = []

    def start(self) -> None:
        for _ in range(self._window):
            self._make(False)

    def _make(self, reduces: bool) -> None:
        self._packets.append(self.transfers % (self.n - 1) + 1)
        self.transfer(reduces)

    def go(self) -> None:
        self.credit += 1
        others, tries = self.n - 1, 1
        if self._plan.operation == "AR" and self._sends <= others:
            if self.received < others:
                return
            tries = self._window
        for _ in range(tries):
            if self.credit and self._packets and self._sends:
                self._sends -= 1
                self.credit -= 1
                self.exchange(self._packets.pop(0))
        if self._sends == 0 and self.credit == self._window:
            self._done()

    def receive(self) -> None:
        self.received += 1
        period = self._window * (self.n if self._fast else 2)
        cycle, place = divmod(self.transfers, period)
        operation = self._plan.operation
        reduces = place >= self._window and (operation == "RS" or (operation == "AR" and cycle % 2 == 0))
        self._make(reduces)
