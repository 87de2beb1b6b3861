"""Programs of ranks as counts of their operations, for programs in which each operation waits for the last.

A rank that counts runs a program as any rank does, but stores each different operation once, with its number
of occurrences. Parts that a program runs one after the other (`Rank.each`), such as layers, are run once for
all parts with equal operations. Which parts these are is found by running all parts in trial programs, whose
sizes have nothing in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.workloads.axes import Axes
from et_sim.workloads.rank import MAIN, Part, Program, Rank, Tensors
from et_sim.workloads.recording import Nodes

_SENT = -1  # stands for a message that was sent


class NoChainError(Exception):
    """An operation that does not wait for the last one, or is of another kind than those that are counted."""


class KernelStep(NamedTuple):
    """A kernel: the options of `Rank.compute`, but its name."""

    micros: int
    num_ops: int | None
    tensor_bytes: int | None
    layer_shape: str | None
    dtype: str | None
    attributes: tuple[tuple[str, int], ...]


class ExchangeStep(NamedTuple):
    """A collective of the ranks along some axes."""

    kind: str
    bytes: int
    axes: tuple[str, ...]


class MessageStep(NamedTuple):
    """A message to the rank at a distance, or from it."""

    is_sent: bool
    distance: int
    bytes: int
    tag: int


Work = dict[KernelStep | ExchangeStep, int]  # with the number of occurrences
Groups = tuple[tuple[Any, int], ...]  # the first of equal parts, and their number
EqualParts = Mapping[tuple[Any, ...], Groups]  # by all parts


class CountedProgram(Struct, frozen=True, eq=False):
    """The operations of ranks with the same program: work between messages, in order."""

    rank: CountingRank
    ranks: tuple[int, ...]
    steps: tuple[Work | MessageStep, ...]

    @property
    def structure(self) -> tuple[Any, ...]:
        """Return the kinds of all operations, without their sizes."""
        return tuple(
            (step.is_sent, step.distance, step.tag) if isinstance(step, MessageStep) else _structure_of(step)
            for step in self.steps
        )


def _structure_of(work: Work) -> tuple[Any, ...]:
    return tuple(
        (step.kind, step.axes, count)
        if isinstance(step, ExchangeStep)
        else ((step.layer_shape or "").partition(" ")[0], step.dtype, step.attributes, count)
        for step, count in work.items()
    )


class CountingRank(Rank):
    """A rank that counts operations, and does not record them."""

    def __init__(self, axes: Axes, rank: int, equal: EqualParts) -> None:
        super().__init__(axes, rank, {}, "<count>")
        self.steps: list[Work | MessageStep] = [{}]
        self.trials: dict[tuple[Any, ...], list[Any]] = {}  # parts -> the work of each
        self._equal = equal
        self._count = 1
        self._at: Nodes = ()

    def each(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the first of equal parts; without trials before, yield all and store the work of each."""
        key = tuple(parts)
        if key in self._equal:
            for part, count in self._equal[key]:
                self._count = count
                yield part
                self._count = 1
            return
        before, trials = self.steps, self.trials.setdefault(key, [])
        for part in key:
            self.steps = [{}]
            yield part
            if len(self.steps) > 1:
                raise NoChainError
            trials.append(self.steps[0])
        self.steps = before
        for work in trials:
            for step, count in work.items():
                self._count = count
                self._add_step(step)
        self._count = 1

    def compute(
        self,
        name: str,  # noqa: ARG002
        *,
        micros: int = 0,
        nanos: int | None = None,
        num_ops: int | None = None,
        tensor_bytes: int | None = None,
        layer_shape: str | None = None,
        dtype: str | None = None,
        after: Nodes = (),
        stream: str | None = MAIN,
        attributes: Mapping[str, int] = MappingProxyType({}),
        inputs: Tensors | None = None,
        outputs: Tensors | None = None,
    ) -> Nodes:
        """Count a kernel."""
        if nanos is not None or inputs or outputs:
            raise NoChainError
        others = tuple(sorted(attributes.items()))
        self._add_step(KernelStep(micros, num_ops, tensor_bytes, layer_shape, dtype, others))
        return self._next(after, stream)

    def collective(
        self,
        kind: str,
        bytes: int,
        over: str | Sequence[str],
        *,
        name: str = "",  # noqa: ARG002
        after: Nodes = (),
        stream: str | None = MAIN,
        priority: int | None = None,
        splits: Sequence[int] | None = None,
        inputs: Tensors | None = None,
        outputs: Tensors | None = None,
    ) -> Nodes:
        """Count a collective; one of a single rank is left out."""
        if priority is not None or splits is not None or inputs or outputs:
            raise NoChainError
        axes = (over,) if isinstance(over, str) else tuple(over)
        axes = self.axes.sorted(axis for axis in axes if self.axes.size(axis) > 1)
        if axes:
            self._add_step(ExchangeStep(kind, bytes, axes))
            return self._next(after, stream)
        self._check(after)
        return self._at

    def send(
        self,
        to: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "send",  # noqa: ARG002
        after: Nodes | None = None,
        stream: str | None = None,
    ) -> Nodes:
        """Add a message that is sent after the last operation; no operation may wait for it."""
        self._add_message(MessageStep(True, to, bytes, tag), after, stream)
        return (_SENT,)

    def receive(
        self,
        source: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "receive",  # noqa: ARG002
        after: Nodes | None = None,
        stream: str | None = None,
    ) -> Nodes:
        """Add a message that the next operation waits for."""
        self._add_message(MessageStep(False, source, bytes, tag), after, stream)
        return self._next(self._at, MAIN)

    def _add_message(self, step: MessageStep, after: Nodes | None, stream: str | None) -> None:
        if after is None or stream is not None:
            raise NoChainError
        self._check(after)
        self.steps += [step, {}]

    def _check(self, after: Nodes) -> None:
        if after != self._at:
            raise NoChainError

    def _next(self, after: Nodes, stream: str | None) -> Nodes:
        """Check that an operation waits for the last one; return the node that stands for it."""
        if stream != MAIN:
            raise NoChainError
        self._check(after)
        self._at = (self._at[0] + 1,) if self._at else (0,)
        return self._at

    def _add_step(self, step: KernelStep | ExchangeStep) -> None:
        work = self.steps[-1]
        assert isinstance(work, dict)
        work[step] = work.get(step, 0) + self._count

    def stands_for(self, rank: Rank) -> bool:
        """Return whether a rank runs the same program; its queries are recorded."""
        return all(rank._query(key, query) == result for key, (query, result) in self.queries.items())


def is_among(rank: Rank, ranks: Sequence[int]) -> bool:
    """Return whether a rank is one of some ranks; the query is recorded."""
    return bool(rank._query(("among", tuple(ranks)), lambda rank: np.isin(rank, ranks)))


def counted_programs(
    axes: Axes, program: Program, equal: Mapping[int, EqualParts] = MappingProxyType({})
) -> list[CountedProgram]:
    """Return the operations of all ranks, but for those that do nothing.

    `equal` has equal parts by the lowest rank of a program.
    """
    every, left = np.arange(axes.ranks), np.ones(axes.ranks, np.bool_)
    counted = []
    while left.any():
        at = int(np.argmax(left))
        rank = CountingRank(axes, at, equal.get(at, {}))
        program(rank)
        alike = left.copy()
        for query, result in rank.queries.values():
            alike &= query(every) == result
        if rank.steps != [{}]:
            counted.append(CountedProgram(rank, tuple(np.flatnonzero(alike).tolist()), tuple(rank.steps)))
        left &= ~alike
    return counted


def labels_of_parts(
    axes: Axes, trials: Sequence[Program]
) -> dict[int, dict[tuple[Any, ...], tuple[int, ...]]]:
    """Return a label of each part of the programs of ranks, by the lowest rank of each.

    Parts with a label are equal in all trials.
    """
    works: dict[int, dict[tuple[Any, ...], list[tuple[Any, ...]]]] = {}
    for trial in trials:
        for counted in counted_programs(axes, trial):
            for parts, of_parts in counted.rank.trials.items():
                before = works.setdefault(counted.ranks[0], {}).setdefault(parts, [()] * len(parts))
                now = [frozenset(work.items()) for work in of_parts]
                before[:] = [(*one, other) for one, other in zip(before, now, strict=True)]
    return {
        rank: {parts: _numbered(of_parts) for parts, of_parts in of_rank.items()}
        for rank, of_rank in works.items()
    }


def _numbered(works: Sequence[Any]) -> tuple[int, ...]:
    """Return the number of each work among those that differ."""
    numbers: dict[Any, int] = {}
    return tuple(numbers.setdefault(work, len(numbers)) for work in works)


def equal_parts(axes: Axes, trials: Sequence[Program]) -> dict[int, EqualParts]:
    """Return the equal parts of the programs of ranks, by the lowest rank of each; equal in all trials."""
    return {
        rank: {parts: _groups(parts, labels) for parts, labels in of_rank.items()}
        for rank, of_rank in labels_of_parts(axes, trials).items()
    }


def _groups(parts: Sequence[Any], labels: Sequence[int]) -> Groups:
    """Return the first part with each label, and the number of such parts."""
    first: dict[int, Any] = {}
    for part, label in zip(parts, labels, strict=True):
        first.setdefault(label, part)
    counts = Counter(labels)
    return tuple((part, counts[label]) for label, part in first.items())
