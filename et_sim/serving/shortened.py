"""Times of passes without a simulation of every layer, for groups of ranks with batches of their own.

Groups wait for each other in the exchanges of each layer, so that a pass is no sum of its operations. But
equal layers that follow each other soon take equal times: once all ranks end a layer as much later as they
ended the one before, those that follow begin in the same state. So a few of them are simulated, and the
others take as long as the last one. Layers that differ in turn are taken together.

If ranks do not end so in a pass, it is simulated as a whole. So is the first pass of a plan; if it takes
another time, all its passes are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from et_sim.serving.chains import KernelTimes
from et_sim.serving.layouts import ChainRank, Cuts, GroupChain, GroupsInStep, PassLayout, PlacedChain
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import NoChainError
from et_sim.workloads.inference.batch import Batch
from et_sim.workloads.inference.forward import GroupLoads
from et_sim.workloads.rank import Program
from et_sim.workloads.training.plan import DATA

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
GroupPass = tuple[int, Batch, GroupLoads]  # number of times that cycles are simulated, its batch, and all


def _kept(parts: Sequence[Any], cycles: Sequence[Cycle]) -> tuple[tuple[int, bool], ...]:
    """Return the parts that are simulated, and whether one of the last two times of a cycle ends there."""
    left_out = {number for cycle in cycles for number in cycle.left_out}
    marked = {number for cycle in cycles for number in cycle.ends}
    return tuple((number, number in marked) for number in range(len(parts)) if number not in left_out)


class ShortenedPasses:
    """The passes of a replica whose groups have batches of their own."""

    def __init__(
        self,
        program: GroupProgram,
        labels: Mapping[tuple[Any, ...], Sequence[int]],
        ranks: range,
        kernels: KernelTimes,
        layout: Callable[[Cuts], PassLayout],
    ) -> None:
        """Find cycles among the labels of parts; `ranks` are those of the replica."""
        self._program, self._ranks, self._kernels, self._new_layout = program, ranks, kernels, layout
        tried = [{parts: cycles_of(of, kept) for parts, of in labels.items()} for kept in TRIED]
        self._tried = [cycles for cycles in tried if any(cycles.values())]
        self._is_equal: bool | None = None  # to whole passes; None: there was none yet
        self._begin: dict[Structure, int] = {}  # the number of times that is tried first
        self._chains: dict[GroupPass, GroupChain] = {}
        self._layouts: list[tuple[PassLayout, dict[GroupPass, PlacedChain | None]]] = []

    def pass_ns(self, batches: Batches, simulate: Callable[[], int]) -> int:
        """Return the time of a pass."""
        if self._is_equal is False:
            return simulate()
        shortened = self._first_shortened(batches)
        if shortened is not None and self._is_equal:
            return shortened
        whole = simulate()
        if shortened is not None:
            self._is_equal = whole == shortened
        return whole

    def checked_ns(self, batches: Batches) -> int | None:
        """Return the time of a pass; None if it must be simulated, or no other pass was."""
        return self._first_shortened(batches) if self._is_equal else None

    def check(self, batches: Batches, whole_ns: int) -> None:
        """Compare a pass with its simulation as a whole."""
        self.pass_ns(batches, partial(int, whole_ns))

    def _first_shortened(self, batches: Batches) -> int | None:
        """Return the time by as few layers as do; None if none do. Passes of a structure begin alike."""
        structure = frozenset(map(_structure_of, batches))
        first = self._begin.get(structure, 0)
        for number in range(first, len(self._tried)):
            try:
                time = self._shortened(batches, number)
            except NoChainError:
                return None
            if time is not None:
                self._begin[structure] = number
                return time
        return None

    def _shortened(self, batches: Batches, number: int) -> int | None:
        """Return the time by few layers; None if ranks do not end the last ones with equal delays."""
        loads = GroupLoads.of(batches)
        passes = [(number, batch, loads) for batch in batches]
        self._add_chains(batches, passes)
        marks, end_ns = self._run(passes)
        delays = marks[:, 1::2] - marks[:, ::2]
        if (delays != delays[0]).any():
            return None
        cycles = self._tried[number].values()
        counts = [cycle.times - cycle.kept for of_parts in cycles for cycle in of_parts]
        return end_ns + int((delays[0] * np.array(counts)).sum())

    def _add_chains(self, batches: Batches, passes: Sequence[GroupPass]) -> None:
        """Make the chains of groups that are not known."""
        new = {of_group: group for group, of_group in enumerate(passes) if of_group not in self._chains}
        for (number, *_), group in new.items():
            axes, program = self._program(batches)
            kept = {parts: _kept(parts, cycles) for parts, cycles in self._tried[number].items()}
            place = axes.place(DATA, np.array(self._ranks)).tolist().index(group)
            rank = ChainRank(axes, self._ranks[place], kept)
            program(rank)
            self._chains[passes[group]] = rank.chain
        chains = (self._chains[of_group] for of_group in new)
        self._kernels.add(kernel for chain in chains for part in chain.kernels for kernel in part)

    def _run(self, passes: Sequence[GroupPass]) -> GroupsInStep:
        """Simulate the chains of all groups, in a layout that has all their exchanges."""
        for layout, known in self._layouts:
            placed = self._placed(layout, known, passes)
            if placed is not None:
                return layout.run(placed)
        most = max((self._chains[of_group].kinds for of_group in passes), key=len)
        self._layouts.append((self._new_layout(most), {}))
        placed = self._placed(*self._layouts[-1], passes)
        if placed is None:
            raise NoChainError
        return self._layouts[-1][0].run(placed)

    def _placed(
        self, layout: PassLayout, known: dict[GroupPass, PlacedChain | None], passes: Sequence[GroupPass]
    ) -> list[PlacedChain] | None:
        """Return the chains of all groups in a layout; None if it lacks an exchange."""
        for of_group in passes:
            if of_group not in known:
                known[of_group] = layout.placed(self._chains[of_group], self._kernels.__getitem__)
        placed = [found for of_group in passes if (found := known[of_group]) is not None]
        return placed if len(placed) == len(passes) else None


def _structure_of(batch: Batch) -> tuple[bool, ...]:
    return batch.prefill.segments > 0, batch.decode.segments > 0, batch.sampled > 0
