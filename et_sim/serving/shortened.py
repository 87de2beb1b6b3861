"""Times of passes without a simulation of every layer, for groups of ranks with batches of their own.

Groups wait for each other in the exchanges of each layer, so that a pass is no sum of its operations. But
equal layers that follow each other soon take equal times: once all ranks end a layer as much later as they
ended the one before, those that follow begin in the same state. So a few of them are simulated, and the
others take as long as the last one. Layers that differ in turn are taken together.

If ranks do not end so in a pass, it is simulated as a whole. So is the first pass of each structure; if it
takes another time, all passes of its structure are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from et_sim.trace import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.inference.batch import Batch
from et_sim.workloads.rank import Program, Rank, make_workload

TRIED = (2, 3, 12)  # times of a cycle that are simulated, until the last two are alike
LONGEST = 8  # layers of a cycle

Batches = tuple[Batch, ...]
Structure = frozenset[tuple[bool, ...]]  # the kinds of batches of all groups
GroupProgram = Callable[[Batches], tuple[Axes, Program]]


class Cycle(NamedTuple):
    """Parts that are equal to those a number of parts before them."""

    first: int
    period: int
    times: int  # that the period occurs
    kept: int  # times that are simulated

    @property
    def left_out(self) -> range:
        """Return the parts that are not simulated."""
        return range(self.first + self.kept * self.period, self.first + self.times * self.period)

    @property
    def ends(self) -> tuple[int, int]:
        """Return the last parts of the last two simulated times of the cycle."""
        end = self.first + self.kept * self.period
        return end - self.period - 1, end - 1


def cycles_of(labels: Sequence[int], kept: int) -> tuple[Cycle, ...]:
    """Return the cycles of parts with these labels, which occur more often than they are simulated."""
    found, at = list[Cycle](), 0
    while at < len(labels):
        cycles = (Cycle(at, period, _count(labels, at, period), kept) for period in range(1, LONGEST + 1))
        best = max(cycles, key=lambda cycle: len(cycle.left_out))
        if best.left_out:
            found.append(best)
            at += best.period * best.times
        else:
            at += 1
    return tuple(found)


def _count(labels: Sequence[int], first: int, period: int) -> int:
    end = first + period
    while end < len(labels) and labels[end] == labels[end - period]:
        end += 1
    return (end - first) // period


Cycles = Mapping[tuple[Any, ...], Sequence[Cycle]]  # by all parts


class _ShortRank(Rank):
    """A rank that runs each cycle a few times, and marks the nodes at which the last two end."""

    def __init__(self, cycles: Cycles, *made: Any) -> None:
        super().__init__(*made)
        self.marks: list[int] = []
        self._cycles = cycles

    def each(self, parts: Any) -> Any:
        """Yield the parts that are simulated."""
        key = tuple(parts)
        cycles = self._cycles.get(key, ())
        left_out = {number for cycle in cycles for number in cycle.left_out}
        marked = {number for cycle in cycles for number in cycle.ends}
        for number, part in enumerate(key):
            if number not in left_out:
                yield part
            if number in marked:
                self.marks.append(len(self.recording) - 1)


class ShortenedPasses:
    """The passes of a replica whose groups have batches of their own."""

    def __init__(
        self,
        program: GroupProgram,
        labels: Mapping[tuple[Any, ...], Sequence[int]],
        ranks: range,
        simulate: Callable[[Workload], Any],
    ) -> None:
        """Find cycles among the labels of parts; `ranks` are those of the replica."""
        self._program, self._ranks, self._simulate = program, ranks, simulate
        tried = [{parts: cycles_of(of, kept) for parts, of in labels.items()} for kept in TRIED]
        self._tried = [cycles for cycles in tried if any(cycles.values())]
        self._is_equal: dict[Structure, bool] = {}
        self._begin: dict[Structure, int] = {}  # the number of times that is tried first

    def pass_ns(self, batches: Batches, simulate: Callable[[], int]) -> int:
        """Return the time of a pass."""
        structure = frozenset(map(_structure_of, batches))
        if not self._is_equal.get(structure, True):
            return simulate()
        shortened = self._first_shortened(structure, batches)
        if shortened is not None and structure in self._is_equal:
            return shortened
        whole = simulate()
        if shortened is not None:
            self._is_equal[structure] = whole == shortened
        return whole

    def _first_shortened(self, structure: Structure, batches: Batches) -> int | None:
        """Return the time by as few layers as do; None if none do. Passes of a structure begin alike."""
        first = self._begin.get(structure, 0)
        for number, cycles in enumerate(self._tried[first:], first):
            if (time := self._shortened(batches, cycles)) is not None:
                self._begin[structure] = number
                return time
        return None

    def _shortened(self, batches: Batches, cycles: Cycles) -> int | None:
        """Return the time by few layers; None if ranks do not end the last ones with equal delays."""
        axes, program = self._program(batches)
        made: dict[int, _ShortRank] = {}

        def rank_of(axes: Axes, number: int, *more: Any) -> Rank:
            return made.setdefault(number, _ShortRank(cycles, axes, number, *more))

        workload = make_workload(axes, program, source="<layers>", rank_of=rank_of)
        marks = {int(workload.template_of_rank[number]): rank.marks for number, rank in made.items()}
        outcome = self._simulate(workload)
        first, of_rank = outcome.plan.actors["node_first"], outcome.plan.actor_of_rank
        ends = np.array(
            [
                outcome.nodes["end_ns"][int(first[of_rank[rank]]) + np.array(of_template, np.int64)]
                for rank in self._ranks
                for of_template in [marks[int(workload.template_of_rank[rank])]]
            ]
        )
        delays = ends[:, 1::2] - ends[:, ::2]
        if (delays != delays[0]).any():
            return None
        counts = [cycle.times - cycle.kept for of_parts in cycles.values() for cycle in of_parts]
        return int(outcome.finish_ns.max(initial=0) + (delays[0] * np.array(counts)).sum())


def _structure_of(batch: Batch) -> tuple[bool, ...]:
    return batch.prefill.segments > 0, batch.decode.segments > 0, batch.sampled > 0
