"""Times of exchanges and messages of ranks that run one program, each by itself on idle links.

Exchanges of many sizes are simulated in one run, one after the other. All ranks must leave each at the same
time, so that they begin the next one together. Messages of many sizes are sent long after each other.

Sizes are multiples of a unit, the bytes of a token. A run has a block of multiples around those that are
needed, since a run of many takes little longer than a run of one. Where many blocks are needed, they grow.
Each size of many ranks takes longer, so that their blocks begin with fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from et_sim.trace import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import CountedProgram, ExchangeStep, MessageStep, NoChainError, is_among
from et_sim.workloads.rank import Rank, make_workload

BEGIN_NS = 1_000
GAP_NS = 100_000_000  # between messages
LEAD_NS = 20_000  # a receive that waits for so long does not delay its message
BLOCK, BLOCK_OF_MANY = 64, 8  # multiples of the unit that are simulated together, at first; of many ranks
DOUBLED_AFTER, MOST_DOUBLINGS = 3, 4  # blocks of a size, and how often the size doubles
MOST_UNFOLDED = 8  # ranks; the search for equal ones takes longer than their simulation

Ranks = tuple[int, ...]
Groups = tuple[Ranks, ...]


class MessageTimes(NamedTuple):
    """The times from the begin of a message until its sender and its receiver are done."""

    sent_ns: int
    received_ns: int


class KnownExchanges(Struct):
    """The times of exchanges and messages of one machine; None: ranks are not done at the same time.

    They depend on the ranks alone, whatever axes and models these belong to.
    """

    exchanges: dict[tuple[Groups, str, int], int | None] = field(default_factory=dict)
    messages: dict[tuple[Ranks, int, int], MessageTimes | None] = field(default_factory=dict)


class ExchangeTimes:
    """The times of exchanges and messages of a plan, which further ones take from those that are known."""

    def __init__(
        self, axes: Axes, simulate: Callable[[Workload, bool], Any], known: KnownExchanges | None = None
    ) -> None:
        self._axes, self._simulate = axes, simulate
        self._known = known or KnownExchanges()
        self._groups: dict[tuple[Ranks, tuple[str, ...]], Groups] = {}
        self._units: dict[tuple[Any, ...], int] = {}  # common divisors of the bytes of steps
        self._blocks: dict[tuple[Any, ...], int] = {}  # simulated for the same steps

    def ns(self, program: CountedProgram, step: ExchangeStep) -> int:
        """Return the time of an exchange that was added."""
        if (found := self._known.exchanges[self._key(program, step)]) is None:
            raise NoChainError
        return found

    def message(self, program: CountedProgram, step: MessageStep) -> MessageTimes:
        """Return the times of a message that was added."""
        if (found := self._known.messages[program.ranks, step.distance, step.bytes]) is None:
            raise NoChainError
        return found

    def _key(self, program: CountedProgram, step: ExchangeStep) -> tuple[Groups, str, int]:
        key = program.ranks, step.axes
        if key not in self._groups:
            first = np.array(program.ranks)
            for axis in step.axes:
                first = first - self._axes.place(axis, first) * self._axes[axis].stride
            members: dict[int, list[int]] = {}
            for rank, begin in zip(program.ranks, first.tolist(), strict=True):
                members.setdefault(begin, []).append(rank)
            self._groups[key] = tuple(map(tuple, members.values()))
        return self._groups[key], step.kind, step.bytes

    def add(self, programs: Iterable[CountedProgram]) -> None:
        """Simulate the new exchanges and messages of programs."""
        for program in programs:
            exchanges: dict[ExchangeStep, None] = {}
            messages: dict[int, dict[MessageStep, None]] = {}
            for step in exchanges_of(program):
                if self._key(program, step) not in self._known.exchanges:
                    for size in self._block(program.ranks, (step.kind, step.axes), step.bytes):
                        exchanges[step._replace(bytes=size)] = None
            for sent in messages_of(program):
                if (program.ranks, sent.distance, sent.bytes) not in self._known.messages:
                    for size in self._block(program.ranks, (sent.distance, sent.tag), sent.bytes):
                        messages.setdefault(sent.distance, {})[sent._replace(bytes=size)] = None
            self._add_exchanges(program, exchanges)
            for alike in messages.values():
                self._add_messages(program, alike)

    def _block(self, ranks: Ranks, kind: tuple[Any, ...], size: int) -> list[int]:
        """Return a block of sizes around one."""
        key, at_first = (ranks, *kind), BLOCK if len(ranks) <= MOST_UNFOLDED else BLOCK_OF_MANY
        unit = self._units[key] = gcd(self._units.get(key, 0), size)
        before = self._blocks[key] = self._blocks.get(key, -1) + 1
        block = at_first << min(before // DOUBLED_AFTER, MOST_DOUBLINGS)
        first = size // unit // block * block
        sizes = [multiple * unit for multiple in range(max(first, 1), first + block)]
        return [size] if unit == size else sizes

    def _add_exchanges(self, program: CountedProgram, steps: Iterable[ExchangeStep]) -> None:
        known = self._known.exchanges
        new = [step for step in steps if self._key(program, step) not in known]
        times = self._exchanged(program, new) if new else ()
        known.update(zip((self._key(program, step) for step in new), times, strict=True))

    def _add_messages(self, program: CountedProgram, steps: Iterable[MessageStep]) -> None:
        known = self._known.messages
        new = [step for step in steps if (program.ranks, step.distance, step.bytes) not in known]
        times = self._delivered(program, new) if new else ()
        known.update(zip(((program.ranks, step.distance, step.bytes) for step in new), times, strict=True))

    def _exchanged(self, program: CountedProgram, steps: Sequence[ExchangeStep]) -> list[int | None]:
        """Return the time of each exchange; None from the first one that ranks leave at different times."""
        sizes = {
            len(group) == self._axes.size(*step.axes)
            for step in steps
            for group in self._key(program, step)[0]
        }
        if not all(sizes):  # members are among other ranks
            return [None] * len(steps)

        def exchange(rank: Rank) -> None:
            if program.rank.stands_for(rank):
                after = rank.compute("begin", nanos=BEGIN_NS)
                for step in steps:
                    after = rank.collective(step.kind, step.bytes, step.axes, after=after)

        (ends,) = self._ends(exchange, program.ranks)
        is_even = np.logical_and.accumulate((ends == ends[:1]).all(axis=0))
        times = np.diff(ends[0]).tolist()
        return [time if even else None for time, even in zip(times, is_even[1:].tolist(), strict=True)]

    def _delivered(self, program: CountedProgram, steps: Sequence[MessageStep]) -> list[MessageTimes | None]:
        """Return the times of messages over one distance, which all ranks of a program send together."""
        distance = steps[0].distance
        targets = tuple(rank + distance for rank in program.ranks)

        def deliver(rank: Rank) -> None:
            is_sender = program.rank.stands_for(rank)
            for tag, step in enumerate(steps):
                if is_sender:
                    rank.send(distance, step.bytes, tag, after=rank.compute("gap", nanos=GAP_NS))
            if not is_sender and is_among(rank, targets):
                for tag, step in enumerate(steps):
                    rank.receive(-distance, step.bytes, tag, after=())

        sent, received = self._ends(deliver, program.ranks, targets)
        begins = GAP_NS * np.arange(1, len(steps) + 1)
        sent, received = sent[:, 1::2] - begins, received - begins
        is_even = (sent == sent[:1]).all(axis=0) & (received == received[:1]).all(axis=0)
        is_even &= np.maximum(sent[0], received[0]) < GAP_NS
        return [
            MessageTimes(*times) if even else None
            for *times, even in zip(sent[0].tolist(), received[0].tolist(), is_even.tolist(), strict=True)
        ]

    def _ends(self, program: Callable[[Rank], None], *ranks: Ranks) -> list[Any]:
        """Simulate a program; return when each node of ranks ends, a row for each rank."""
        workload = make_workload(self._axes, program, source="<exchanges>")
        outcome = self._simulate(workload, sum(map(len, ranks)) > MOST_UNFOLDED)
        first, template = (outcome.plan.actors[name] for name in ("node_first", "template"))
        counts, of_rank = outcome.plan.templates["nodes"][template], outcome.plan.actor_of_rank
        return [
            np.stack(
                [
                    outcome.nodes["end_ns"][first[actor] : first[actor] + counts[actor]]
                    for actor in of_rank[list(some)].tolist()
                ]
            )
            for some in ranks
        ]


def exchanges_of(program: CountedProgram) -> Iterator[ExchangeStep]:
    """Yield the exchanges of a program."""
    for step in program.steps:
        if isinstance(step, dict):
            yield from (key for key in step if isinstance(key, ExchangeStep))


def messages_of(program: CountedProgram) -> Iterator[MessageStep]:
    """Yield the messages that a program sends."""
    return (step for step in program.steps if isinstance(step, MessageStep) and step.is_sent)
