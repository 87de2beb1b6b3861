"""Passes of groups of ranks with batches of their own, as one plan with other times and sizes.

The ranks of a group run a chain: kernels and exchanges that each wait for the last one. All kernels between
two exchanges are one node, with the sum of their times. So passes with the same exchanges are one plan: other
passes set the durations of its nodes, and the sizes of its collectives. A group with fewer exchanges, such as
one without tokens, has nodes that take no time in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from et_sim.plan.records import Action
from et_sim.run.planning import Plan
from et_sim.trace import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import CountingRank, ExchangeStep, KernelStep, NoChainError, is_among
from et_sim.workloads.rank import Rank, make_workload
from et_sim.workloads.training.plan import DATA, TENSOR

BLOCK, MOST_BLOCKS = 8, 6  # multiples of a unit that are planned together; such blocks of an exchange

KeptParts = Mapping[
    tuple[Any, ...], Sequence[tuple[int, bool]]
]  # by all parts: those that run; is one marked?
Cuts = tuple[tuple[str, tuple[str, ...]] | None, ...]  # kinds and axes of exchanges; None: a mark


class GroupChain(NamedTuple):
    """The operations of a group's ranks: kernels before each cut and after the last one."""

    kernels: tuple[tuple[KernelStep, ...], ...]
    cuts: tuple[ExchangeStep | None, ...]  # None: a mark

    @property
    def kinds(self) -> Cuts:
        """Return the cuts without their sizes."""
        return tuple(cut and (cut.kind, cut.axes) for cut in self.cuts)


class ChainRank(CountingRank):
    """A rank that lists the operations of some parts, and marks the ends of some."""

    def __init__(self, axes: Axes, rank: int, kept: KeptParts) -> None:
        super().__init__(axes, rank, {})
        self._kept = kept
        self._kernels: list[list[KernelStep]] = [[]]
        self._cuts: list[ExchangeStep | None] = []

    @property
    def chain(self) -> GroupChain:
        """Return the operations so far."""
        return GroupChain(tuple(map(tuple, self._kernels)), tuple(self._cuts))

    def each(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Yield the parts that run."""
        key = tuple(parts)
        for number, is_marked in self._kept.get(key, [(number, False) for number in range(len(key))]):
            yield key[number]
            if is_marked:
                self._cut(None)

    def _add_step(self, step: KernelStep | ExchangeStep) -> None:
        if isinstance(step, ExchangeStep):
            self._cut(step)
        else:
            self._kernels[-1].append(step)

    def _cut(self, cut: ExchangeStep | None) -> None:
        self._cuts.append(cut)
        self._kernels.append([])

    def _add_message(self, *_: Any) -> None:
        raise NoChainError


class PlacedChain(NamedTuple):
    """A group's chain in a layout."""

    times: Any  # of kernels, in nanoseconds
    sizes: tuple[int, ...]  # of exchanges; 0: the group has none there


class GroupsInStep(NamedTuple):
    """The times at which ranks end the marked parts of a pass, and the whole pass."""

    marks_ns: Any  # a row per rank
    end_ns: int


class PassLayout:
    """The plan of all passes with the same exchanges."""

    def __init__(
        self, axes: Axes, ranks: range, cuts: Cuts, plan_of: Callable[[Workload], Plan], simulate: Any
    ) -> None:
        """Plan a pass of the ranks of a replica; `simulate` runs a plan."""
        self.cuts, self._ranks, self._simulate = cuts, ranks, simulate
        self._groups = axes.place(DATA, np.array(ranks))
        workload = make_workload(axes, self._program, source="<layers>")
        self._plan = plan_of(workload)
        lowering = self._plan.lowering
        self._nodes, self._collectives = lowering.nodes, lowering.collectives
        template = workload.template_of_rank[np.array(ranks)[self._first_of_groups]]
        first = lowering.templates["node_first"][template].astype(np.int64)[:, None]
        is_exchange = np.array([cut is not None for cut in cuts], np.int64)
        before = np.arange(len(cuts) + 1) + np.append(0, np.cumsum(is_exchange))
        self._kernels = first + before
        self._exchanges = first + before[:-1][is_exchange > 0] + 1
        self._marks = before[:-1][is_exchange == 0]
        self._rows = self._nodes["detail"][self._exchanges].astype(np.int64)
        self._requests = self._collectives.places(set(self._rows.ravel().tolist()))
        self._known: dict[tuple[int, int], int] = {}  # rows of collectives of other sizes
        self._planned = 0  # collectives
        exchanges = self._rows.T.tolist()
        self._alike = [{replace(self._requests[place], size=0) for place in places} for places in exchanges]
        self._units = [0] * len(exchanges)  # common divisors of sizes
        self._blocks = [set[int]() for _ in exchanges]  # of multiples that were added around sizes

    @property
    def _first_of_groups(self) -> Any:
        return np.unique(self._groups, return_index=True)[1]

    def _program(self, rank: Rank) -> None:
        """Run the chain with sizes that differ wherever those of passes may."""
        if not is_among(rank, self._ranks):
            return
        group, cuts = rank.place(DATA), len(self.cuts)
        nodes = rank.compute("kernels", nanos=1 + group)  # so that each group has a program of its own
        for number, cut in enumerate(self.cuts):
            if cut is not None:
                kind, axes = cut
                size = 1 + number + cuts * (1 + group if axes == (TENSOR,) else 0)
                nodes = rank.collective(kind, size << 10, axes, after=nodes)
            nodes = rank.compute("kernels", nanos=1, after=nodes)

    def placed(self, chain: GroupChain, times: Callable[[KernelStep], int]) -> PlacedChain | None:
        """Return a chain in this layout; None if it has other exchanges."""
        sums, sizes, at = np.zeros(len(self.cuts) + 1, np.int64), list[int](), 0
        kinds = chain.kinds
        for number, kind in enumerate(self.cuts):
            is_here = at < len(kinds) and kinds[at] == kind
            if is_here:
                sums[number] = sum(map(times, chain.kernels[at]))
            if kind is not None:
                cut = chain.cuts[at] if is_here else None
                sizes.append(cut.bytes if cut is not None else 0)
            at += is_here
        if at < len(kinds):
            return None
        sums[-1] = sum(map(times, chain.kernels[-1]))
        return PlacedChain(sums, tuple(sizes))

    def run(self, groups: Sequence[PlacedChain]) -> GroupsInStep:
        """Simulate a pass."""
        nodes = self._nodes.copy()
        nodes["duration_ns"][self._kernels] = [group.times for group in groups]
        sizes = np.array([group.sizes for group in groups], np.int64)
        nodes["action"][self._exchanges] = np.where(sizes > 0, Action.COLLECTIVE, Action.DELAY)
        nodes["duration_ns"][self._exchanges] = 0
        self._put(sizes)
        outcome = self._simulate(self._with(nodes))
        first, of_rank = outcome.plan.actors["node_first"], outcome.plan.actor_of_rank
        ends = outcome.nodes["end_ns"][first[of_rank[np.array(self._ranks)]][:, None] + self._marks]
        return GroupsInStep(ends, int(outcome.finish_ns.max(initial=0)))

    def _put(self, sizes: Any) -> None:
        """Set the sizes of all exchanges, by group; 0: it has none there."""
        size_at = dict[int, int]()
        for place, size in zip(self._rows.ravel().tolist(), sizes.ravel().tolist(), strict=True):
            if size_at.setdefault(place, size) != size:
                raise NoChainError  # members would exchange different sizes
        rows = {place: self._row(place, size) for place, size in size_at.items() if size}
        if len(self._collectives) > self._planned:
            for exchange, of_groups in enumerate(sizes.T.tolist()):
                self._add_around(exchange, set(of_groups) - {0})
        self._collectives.put(rows)

    def _add_around(self, exchange: int, sizes: Collection[int]) -> None:
        """Add the multiples of a unit around sizes, which other passes may have, to the next plan."""
        unit = self._units[exchange] = gcd(self._units[exchange], *sizes)
        known, requests = self._blocks[exchange], self._alike[exchange]
        new = {size // unit // BLOCK * BLOCK for size in sizes if size > unit} - known
        if len(known) + len(new) > MOST_BLOCKS:
            return
        known |= new
        for first in sorted(new):
            for multiple in range(max(first, 1), first + BLOCK + 1):
                for request in requests:
                    self._collectives.add(replace(request, size=multiple * unit))

    def _row(self, place: int, size: int) -> int:
        """Return the row of a collective of a size that may take a place."""
        if (place, size) not in self._known:
            row = self._collectives.add(replace(self._requests[place], size=size))
            if row is None:  # too small for the algorithm to send any
                raise NoChainError
            self._known[place, size] = row
        return self._known[place, size]

    def _with(self, nodes: Any) -> Plan:
        """Return the plan with other nodes, made anew if there are new collectives."""
        plan, lowering = self._plan, self._plan.lowering
        lowering.nodes = nodes
        if len(self._collectives) > self._planned:
            self._planned = len(self._collectives)
            self._plan = plan.assembled()
            return self._plan
        return plan.with_content()
