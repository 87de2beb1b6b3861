"""Replicas of a model: what they exchange, so that all have the same weights after the step.

- zero 0: gradients are all-reduced, in buckets, while earlier layers are still at work.
- zero 1: they are reduce-scattered; each replica updates its share of the weights, and gathers the others.
- zero 2: gradients are reduce-scattered after every micro-batch, so that no rank keeps all of them.
- zero 3: weights are shared, too: gathered before a layer needs them, forward and backward.

With `shard`, so many replicas share, and the groups of them all-reduce what they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from et_sim.workloads.kernels import optimizer
from et_sim.workloads.rank import MAIN
from et_sim.workloads.recording import Nodes
from et_sim.workloads.training.plan import (
    CONTEXT,
    DATA,
    EXPERT_DATA,
    REPLICA,
    SHARD,
    Plan,
)
from et_sim.workloads.training.work import Work

GRADIENT_STREAM, WEIGHT_STREAM = "gradients", "weights"
LOSS_BYTES = 4


class Weights(NamedTuple):
    """Some weights of a rank that become ready together."""

    name: str
    dense: int  # that all replicas have
    expert: int  # that only ranks with the same experts have


class Sharing(NamedTuple):
    """Over which axes weights of a sort are shared, and over which the shares are equal."""

    shares: tuple[str, ...]
    equal: tuple[str, ...]


def sharing(plan: Plan) -> tuple[Sharing, Sharing]:
    """Of dense weights, and of experts."""
    axes = plan.axes
    dense = axes.sorted(name for name in (CONTEXT, DATA) if axes.size(name) > 1)
    expert = (EXPERT_DATA,) if plan.expert > 1 else dense
    if not plan.zero:
        return Sharing((), dense), Sharing((), expert)
    if not plan.shard:
        return Sharing(dense, ()), Sharing(expert, ())
    equal = axes.sorted(name for name in (CONTEXT, REPLICA) if axes.size(name) > 1)
    of_dense = Sharing((SHARD,), equal)
    return of_dense, Sharing(expert, ()) if plan.expert > 1 else of_dense


@dataclass(slots=True)
class Replicas:
    """What one rank exchanges with the other replicas during a step."""

    work: Work
    waiting: list[tuple[Weights, Nodes]] = field(default_factory=list)
    reduced: Nodes = ()
    updated: list[Weights] = field(default_factory=list)

    @property
    def _plan(self) -> Plan:
        return self.work.plan

    def gather(self, weights: Weights, after: Nodes) -> Nodes:
        """All weights of a layer, before it needs them."""
        found: Nodes = ()
        for count, (shares, _), sort in self._sorts((weights,)):
            size = self._plan.axes.size(*shares) if shares else 1
            if count and size > 1:
                found += self.work.rank.collective(
                    "all_gather",
                    -(-count * self._plan.value_bytes // size),
                    shares,
                    name=f"{self.work.during} {weights.name} {sort}weights all-gather",
                    after=after,
                    stream=WEIGHT_STREAM,
                )
        return found

    def ready(self, weights: Weights, after: Nodes, *, is_last: bool) -> None:
        """The gradients of a micro-batch are there; `is_last`: they are complete."""
        if not is_last and self._plan.zero < 2:
            return
        if is_last:
            self.updated.append(weights)
        self.waiting.append((weights, after))
        size = sum(one.dense + one.expert for one, _ in self.waiting) * self._plan.gradient_bytes
        if size >= self._plan.bucket or self._plan.zero == 3:
            self.flush()

    def flush(self) -> None:
        """Reduce what is waiting, as one bucket."""
        if not self.waiting:
            return
        first = self.waiting[0][0].name
        after = tuple(dict.fromkeys(node for _, nodes in self.waiting for node in nodes))
        for count, (shares, equal), sort in self._sorts([weights for weights, _ in self.waiting]):
            size = count * self._plan.gradient_bytes
            if not size:
                continue
            done = self._reduce("reduce_scatter", size, shares, f"{first} {sort}gradients", after)
            parts = self._plan.axes.size(*shares) if shares else 1
            done = self._reduce("all_reduce", -(-size // parts), equal, f"{first} {sort}gradients", done)
            self.reduced += tuple(node for node in done if node not in self.reduced)
        self.waiting = []

    def _reduce(self, kind: str, size: int, axes: Sequence[str], name: str, after: Nodes) -> Nodes:
        if not axes or self._plan.axes.size(*axes) == 1:
            return after
        text = f"{name} {kind.replace('_', '-')}"
        return self.work.rank.collective(kind, size, axes, name=text, after=after, stream=GRADIENT_STREAM)

    def _sorts(self, of: Sequence[Weights]) -> tuple[tuple[int, Sharing, str], ...]:
        dense, expert = sharing(self._plan)
        return (
            (sum(one.dense for one in of), dense, ""),
            (sum(one.expert for one in of), expert, "expert "),
        )

    def update(self) -> None:
        """The optimizer; then shares of updated weights are gathered, where they are shared no longer."""
        self.flush()
        plan, work = self._plan, self.work
        values = 0
        for count, (shares, _), _ in self._sorts(self.updated):
            values += -(-count // (plan.axes.size(*shares) if shares else 1))
        passes = plan.gradient_bytes + 2 * plan.master_bytes + plan.value_bytes
        work.during = "step"
        if values:
            after = (*work.rank.last(MAIN), *self.reduced)
            work.at = work.compute(optimizer(values, passes), after)
        if plan.zero in (1, 2):
            for weights in reversed(self.updated):
                self.gather(weights, work.at)
