"""Exchanges between replicas of a model, after which all have the same weights.

- zero 0: gradients are all-reduced, in buckets, while earlier layers still compute.
- zero 1: gradients are reduce-scattered; each replica updates its share of weights, and gathers the others.
- zero 2: gradients are reduce-scattered after every micro-batch, so that no rank keeps all of them. They are
  copied to the buffer of the exchange before, and the shares of micro-batches are added up after it.
- zero 3: weights are shared, too: gathered before a layer needs them, forward and backward.

With `shard`, groups of that many replicas share, and the groups all-reduce their shares.

If two pipelines use the same ranks, two places have the same two parts of the model: each sends the other its
sums of gradients, or its shares of them, and both update the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from et_sim.workloads.kernels import cast, optimizer, passing
from et_sim.workloads.rank import MAIN
from et_sim.workloads.recording import Nodes
from et_sim.workloads.software.description import GRADIENTS, WEIGHTS
from et_sim.workloads.training.plan import PIPELINE, Plan
from et_sim.workloads.training.states import KINDS, Sharing, States, Weights
from et_sim.workloads.training.work import FIRST_RING_TAG, NOTHING, RankWork

GRADIENT_STREAM, WEIGHT_STREAM = "gradients", "weights"
LOSS_BYTES = 4
MIRROR_TAG = 3 * FIRST_RING_TAG
MASTER_COPY_BYTES = 4  # read once more to write weights in the datatype of values


class Replicas:
    """The exchanges of one rank with the other replicas during a step."""

    def __init__(self, work: RankWork) -> None:
        self.work = work
        self.waiting: list[tuple[Weights, Nodes]] = []
        self.reduced: Nodes = ()
        self.reduced_shares: dict[str, Nodes] = {}  # by unit, of the latest micro-batch
        self.added: set[str] = set()  # units whose reduced shares are added to earlier ones
        self.updated: list[Weights] = []
        self.states = States.of(self._plan)

    @property
    def _plan(self) -> Plan:
        return self.work.plan

    def gather(self, weights: Weights, after: Nodes) -> Nodes:
        """Gather all weights of a layer before it needs them."""
        gathers: Nodes = ()
        kept = {} if self._plan.zero == 3 else self.states.weights(weights)
        for (count, sharing, size, kind), whole in zip(
            self._counts((weights,), are_all=self._plan.zero == 3),
            self.states.gathered(weights),
            strict=True,
        ):
            if count and self.states.are_gathered_cast(weights):
                share = -(-count // size)
                values, products = self._plan.value_bytes, self._plan.products
                name = f"{weights.name} {kind}share cast"
                after = self.work.compute(cast(name, share, values, products, 1), after)
            if count and size > 1:
                nodes = self.work.rank.collective(
                    "all_gather",
                    -(-self.states.gathered_bytes(weights, count) // size),
                    sharing.shares,
                    name=f"{self.work.during} {weights.name} {kind}weights all-gather",
                    after=after,
                    stream=WEIGHT_STREAM if WEIGHTS in self._plan.by.shares.beside else MAIN,
                )
                self.work.name_tensors(nodes, kept, whole)
                gathers += nodes
        return gathers

    def split(self, weights: Weights) -> None:
        """Copy gathered weights for the kernels, if the software does."""
        way = self._plan.by.shares.after_gather
        self._copy(
            "weights copied", (weights.dense, weights.expert), way.bytes(self._plan.value_bytes), way.launches
        )

    def _copy(self, name: str, counts: tuple[int, int], moved: int, launches: int) -> None:
        """Move bytes for each of some dense and expert weights, if replicas share them."""
        values = sum(count for count, size in zip(counts, self.states.shares, strict=True) if size > 1)
        if values and moved:
            self.work.then(passing(name, values, moved, launches=launches))

    def ready(self, weights: Weights, since: int, *, is_first: bool, is_last: bool) -> None:
        """Take gradients of a micro-batch, made by kernels since a node; `is_last`: they are complete."""
        self._add_up(weights, is_first=is_first)
        if self._plan.zero >= 2:
            self._add_share((weights,))
            if not is_first:
                self.added.add(weights.name)
            self._copy_gradients(weights)
        after = self.work.rank.last(MAIN)
        self.work.end(self.states.gradients(weights))
        if not is_last and self._plan.zero < 2:
            return
        if is_last:
            self.updated.append(weights)
        for whole in self.states.unreduced(weights):
            self.work.begin(since, writes=whole)
        self.waiting.append((weights, after))
        size = sum(sum(weights.trained) for weights, _ in self.waiting) * self._plan.gradient_bytes
        if size >= self._plan.bucket or self._plan.zero == 3:
            self.flush()

    def _add_up(self, weights: Weights, *, is_first: bool) -> None:
        """Add gradients to the sum over micro-batches.

        Products do so in their own kernels if the software fuses it or the sum has more bytes than values.
        Else separate kernels read the gradients, too, and the first gradients are the sum. Replicas that
        share gradients add reduced shares instead.
        """
        plan, values = self._plan, sum(weights.trained)
        is_fused = plan.by.sums_in_products or plan.sum_bytes > plan.value_bytes
        if plan.zero >= 2 or not values or (is_first and not is_fused):
            return
        moved = 2 * plan.sum_bytes + (0 if is_fused else plan.value_bytes)
        launches = 0 if is_fused else 1
        self.work.then(passing("sum of gradients", values, moved, launches=launches))

    def _copy_gradients(self, weights: Weights) -> None:
        """Copy gradients of a micro-batch to the buffer of their exchange."""
        plan, way = self._plan, self._plan.by.shares.before_reduce
        moved, launches = plan.value_bytes + plan.gradient_bytes, 1
        if way is not None:
            moved, launches = way.bytes(plan.value_bytes), way.launches
        self._copy("gradients copied", weights.trained, moved, launches)

    def _add_share(self, of: Sequence[Weights]) -> None:
        """Add the latest reduced shares of units to the sums of earlier ones; the first ones are the sums."""
        units = [weights for weights in of if weights.name in self.added]
        values = sum(-(-count // size) for count, _, size, _ in self._counts(units))
        if not values:
            return
        moved = 2 * self._plan.sum_bytes + self._plan.gradient_bytes
        nodes = (node for weights in units for node in self.reduced_shares[weights.name])
        after = tuple(dict.fromkeys((*self.work.rank.last(MAIN), *nodes)))
        self.work.at = self.work.compute(passing("sum of shares", values, moved), after)

    def flush(self) -> None:
        """Reduce all waiting gradients as one bucket."""
        if not self.waiting:
            return
        first = self.waiting[0][0].name
        after = tuple(dict.fromkeys(node for _, nodes in self.waiting for node in nodes))
        units = [weights for weights, _ in self.waiting]
        self.reduced_shares |= {weights.name: after for weights in units}
        for number, (count, (shares, equal), parts, kind) in enumerate(self._counts(units)):
            size = count * self._plan.gradient_bytes
            if not size:
                continue
            done = self._reduce("reduce_scatter", size, shares, f"{first} {kind}gradients", after)
            for unit in units:
                self.work.name_tensors(done, self.states.unreduced(unit)[number], NOTHING)
            done = self._reduce("all_reduce", -(-size // parts), equal, f"{first} {kind}gradients", done)
            self.reduced += tuple(node for node in done if node not in self.reduced)
            for unit in units:
                self.reduced_shares[unit.name] += done
        self.waiting = []

    def _reduce(self, kind: str, size: int, axes: Sequence[str], name: str, after: Nodes) -> Nodes:
        if not axes or self._plan.axes.size(*axes) == 1:
            return after
        text = f"{name} {kind.replace('_', '-')}"
        stream = GRADIENT_STREAM if GRADIENTS in self._plan.by.shares.beside else MAIN
        return self.work.rank.collective(kind, size, axes, name=text, after=after, stream=stream)

    def _counts(
        self, of: Sequence[Weights], *, are_all: bool = False
    ) -> Iterator[tuple[int, Sharing, int, str]]:
        """Return the count, axes, number of shares and name of dense weights and experts.

        Only trained weights count, unless `are_all`.
        """
        each = [weights.counts if are_all else weights.trained for weights in of]
        counts = [sum(count[kind] for count in each) for kind in range(len(KINDS))]
        return zip(counts, self.states.shared, self.states.shares, KINDS, strict=True)

    def update(self) -> None:
        """Run the optimizer, then gather the updated weights if only their states are shared."""
        self.flush()
        self._exchange_with_mirror()
        plan, work = self._plan, self.work
        values = sum(-(-count // size) for count, _, size, _ in self._counts(self.updated))
        by = plan.by.optimizer
        moved = math.ceil(by.gradients * plan.sum_bytes + by.states * plan.master_bytes)
        moved += (MASTER_COPY_BYTES + plan.value_bytes) * by.copies
        work.during = "step"
        self._add_share(self.updated)
        if values:
            after = (*work.rank.last(MAIN), *self.reduced)
            work.at = work.compute(optimizer(values, moved, by.launches), after)
            states = [
                keep(unit) for unit in self.updated for keep in (self.states.weights, self.states.gradients)
            ]
            work.end(self.states.optimizer(values), *states)
        if plan.zero in (1, 2) and not plan.by.shares.updated_ahead:
            for weights in reversed(self.updated):
                self.gather(weights, work.at)

    def _exchange_with_mirror(self) -> None:
        """Exchange sums of gradients with the place that has the same parts, and add them."""
        plan, work, rank = self._plan, self.work, self.work.rank
        if not plan.is_dual:
            return
        work.during = "step"
        mirror = rank.at(PIPELINE, plan.pipeline - 1 - rank.place(PIPELINE))
        for tag, (count, _, shares, kind) in enumerate(self._counts(self.updated), start=MIRROR_TAG):
            values = -(-count // shares)
            if not values:
                continue
            size, name = values * plan.gradient_bytes, work.name(f"{kind}gradients of the other pipeline")
            after = (*rank.last(MAIN), *(node for node in self.reduced if node not in rank.last(MAIN)))
            rank.send(mirror, size, tag, name=f"{name} send", after=after)
            work.at = rank.receive(mirror, size, tag, name=f"{name} receive", after=after)
            moved = 2 * plan.sum_bytes + plan.gradient_bytes
            work.then(passing(f"sum of {kind}gradients of both pipelines", values, moved))
