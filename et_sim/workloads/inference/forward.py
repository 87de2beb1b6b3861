"""Forward passes of a model, one after the other: kernels and exchanges of every rank.

Tensor-parallel ranks have a share of every layer and of the vocabulary, and all-reduce their outputs after
attention, after the feed-forward part or the experts, and after the embedding. All of them gather the scores
of the next tokens. Each of them has the same share of all experts, or of some of them with an expert axis.

With data-parallel groups, each group of tensor-parallel ranks has a batch of its own, and all groups share
the experts. Every rank sends a share of its group's tokens to the ranks of their experts and gets the outputs
back; ranks that share an expert gather its tokens, and add their outputs. Then the group gathers all outputs.
Groups meet in these exchanges, so that a pass takes as long as the slowest one; a group with an empty batch
computes for the experts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.trace.workload import MadeFor, Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.inference.batch import Batch, GroupBatches, check
from et_sim.workloads.inference.expert_exchange import ExpertExchange
from et_sim.workloads.inference.expert_loads import busiest_rank
from et_sim.workloads.inference.memory import dense_matrices
from et_sim.workloads.inference.mixers import mixer_kernels
from et_sim.workloads.inference.numbers import LayerNumbers
from et_sim.workloads.inference.ranks import (
    REPLICA,
    axes_of_replicas,
    experts_on_rank,
    with_sharers,
)
from et_sim.workloads.kernels import Kernel, element_wise, product
from et_sim.workloads.models.formats import LayerFormats
from et_sim.workloads.models.model import Experts, FeedForward, LayerKind, Model, PredictingModule
from et_sim.workloads.pipeline import Direction
from et_sim.workloads.rank import Rank, make_workload
from et_sim.workloads.training.parts import ModelPart
from et_sim.workloads.training.plan import DATA, PIPELINE, TENSOR, Plan
from et_sim.workloads.training.work import RankWork

TOKEN_BYTES = 8  # size of a token's number


def run_by(engine: str, *, eager: bool = False, launch_ns: float = 0.0, expert_exchange: str = "") -> MadeFor:
    """Return an engine that runs passes with its own kernels and exchanges.

    Kernels of a graph are launched at once. `eager`: they are launched one by one; the host takes `launch_ns`
    for each, and a kernel begins after its own launch.
    """
    host_ns = launch_ns if eager else 0.0
    return MadeFor(engine, launch_ns=host_ns, engine=engine, eager=eager, expert_exchange=expert_exchange)


def make_inference(
    model: Model, plan: Plan, batches: Sequence[GroupBatches], software: MadeFor | None = None
) -> Workload:
    """Return forward passes over batches, one after the other.

    A batch is that of every data-parallel group, or a tuple has one for each of them.
    """
    check(model, plan)
    check_batches(plan, batches)
    plan = with_sharers(model, plan)
    workload = make_workload(
        plan.axes, lambda rank: run_passes(RankWork(rank, plan), model, batches), source=f"<{model.name}>"
    )
    return structs.replace(workload, software=software)


def make_replica(
    model: Model,
    plan: Plan,
    batch: GroupBatches,
    *,
    first: int,
    ranks: int,
    software: MadeFor | None = None,
) -> Workload:
    """Return a pass of one replica, whose first rank is `first`; the other ones of `ranks` do nothing."""
    workload = make_workload(*replica_program(model, plan, batch, first, ranks), source=f"<{model.name}>")
    return structs.replace(workload, software=software)


def replica_program(
    model: Model, plan: Plan, batch: GroupBatches, first: int, ranks: int
) -> tuple[Axes, Callable[[Rank], None]]:
    """Return the axes of all ranks, and the program of a pass of the replica whose first rank is `first`."""
    check(model, plan)
    check_batches(plan, (batch,))
    each = plan.ranks
    number, offset = divmod(first, each)
    if offset or ranks % each:
        raise UsageError(
            f"a replica of {each} ranks cannot begin at rank {first} of {ranks}",
            remedy=f"replicas of this size begin at multiples of {each}, and divide the NPUs of the machine",
        )
    plan = with_sharers(model, plan)

    def program(rank: Rank) -> None:
        if rank.place(REPLICA) == number:
            run_passes(RankWork(rank, plan), model, (batch,))

    return axes_of_replicas(plan, ranks // each), program


def check_batches(plan: Plan, batches: Iterable[GroupBatches]) -> None:
    """Refuse passes without tokens, or with another number of batches than of data-parallel groups."""
    for batch in batches:
        groups = (batch,) if isinstance(batch, Batch) else batch
        if not any(group.tokens for group in groups):
            raise UsageError("a forward pass has no tokens", remedy="give a segment with at least 1 token")
        if not isinstance(batch, Batch) and len(groups) != plan.data:
            raise UsageError(
                f"a pass has {plural(len(groups), 'batch', 'batches')}, but the plan has"
                f" {plural(plan.data, 'group')} of ranks with sequences of their own",
                remedy="give a batch for each group, which may be empty, or one for all",
            )


def run_passes(work: RankWork, model: Model, batches: Sequence[GroupBatches]) -> None:
    """Run the program of a rank."""
    place = work.rank.place(PIPELINE)
    for number, batch in enumerate(batches):
        work.during = f"{Direction.FORWARD} {number}"
        groups = (batch,) * work.plan.data if isinstance(batch, Batch) else batch
        different = list(dict.fromkeys(groups))
        kinds = [different.index(group) for group in groups]
        own = different[work.rank.kind(DATA, kinds) if different[1:] else 0]
        loads = GroupLoads(sum(group.tokens for group in groups), max(group.tokens for group in groups))
        _Pass(work, model, own, loads, place, number).run()


class GroupLoads(NamedTuple):
    """The tokens of all data-parallel groups."""

    total: int
    most: int  # of a group; exchanges have the size of this one, as engines pad the others


class _Pass:
    """One batch in a rank's part of the model."""

    def __init__(
        self, work: RankWork, model: Model, batch: Batch, loads: GroupLoads, place: int, number: int
    ) -> None:
        self.work, self.plan, self.model, self.batch = work, work.plan, model, batch
        self.loads, self.place, self.number = loads, place, number
        self.part = self.plan.part(model, place, 0)
        self.known: dict[tuple[str, LayerKind, int, LayerFormats], tuple[Kernel, ...]] = {}

    def run(self) -> None:
        """Run the pass from tokens or activations of the previous stage to the next tokens."""
        work = self.work
        if self.part.has_embedding:
            work.where = "embedding"
            self._element_wise("embedding", self.batch.tokens * self.model.hidden, 1, 2)
            self._all_reduce("embedding")
            self._join()
        else:
            self._receive(-1, self._activations, 2 * self.number)
        for layer in work.rank.each(self.part.all_layers):
            work.where = f"layer {layer}"
            self._layer(layer)
        work.where = ""
        if self.part.has_head:
            self._head()
        else:
            self._send(1, self._activations, 2 * self.number)
        self._return_tokens()

    def _join(self) -> None:
        """Join the embedding with hidden states, in a module that predicts further tokens."""
        if isinstance(self.model, PredictingModule) and (tokens := self.batch.tokens):
            hidden = self.model.hidden
            self._element_wise("joining norms", 2 * tokens * hidden, 5, 2)
            self.work.then(product("joining", tokens, hidden, 2 * hidden, self.plan.value_bytes).cold())

    @property
    def _activations(self) -> int:
        """Return the bytes that a layer passes to the next one."""
        return self.batch.tokens * self.model.hidden * self.plan.value_bytes

    def _layer(self, layer: int) -> None:
        kind = self.model.kind(layer)
        if kind.mixer:
            self._norm(f"{kind.mixer} norm")
            self._once("mixer", layer, lambda: mixer_kernels(self.model, self.plan, self.batch, layer))
            self._all_reduce(kind.mixer)
            self._output_norm(kind.mixer)
        if not kind.part:
            return
        self._norm("feed-forward norm")
        experts = self.model.experts
        if experts is None or not self.model.has_experts(layer):
            part = self.model.feed_forward
            self._dense(layer, part, "feed-forward", self.batch.tokens, 1, self.plan.tensor)
            self._all_reduce("feed-forward")
        else:
            self._experts(layer, experts)
        self._output_norm("feed-forward")

    def _once(self, role: str, layer: int, kernels: Callable[[], Iterable[Kernel]]) -> None:
        """Run kernels of a layer, which are those of other layers of its kind; without tokens, none."""
        model = self.model
        key = role, model.kind(layer), model.window(layer), model.formats_of(layer)
        if key not in self.known:
            self.known[key] = tuple(kernels())
        self._all(self.known[key])

    def _norm(self, name: str) -> None:
        self._element_wise(name, self.batch.tokens * self.model.hidden, 5, 2)

    def _output_norm(self, name: str) -> None:
        if self.model.half_norms > 1:
            self._norm(f"{name} output norm")

    def _all(self, kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            if kernel.operations:
                self.work.then(kernel)

    def _element_wise(self, name: str, values: int, operations: int, passes: int) -> None:
        if values:
            self.work.then(element_wise(name, values, operations, passes, self.plan.value_bytes))

    def _all_reduce(self, name: str) -> None:
        self.work.exchange("all_reduce", self._activations, TENSOR, f"{name} all-reduce")

    def _dense(self, layer: int, part: FeedForward, name: str, rows: int, copies: int, shares: int) -> None:
        """Run two products and the activation between them; `copies`: the number of experts."""
        numbers, size = LayerNumbers.of(self.model, self.plan, layer), self.plan.value_bytes

        def kernels() -> Iterator[Kernel]:
            up, down = dense_matrices(part, name, self.model.hidden, shares)
            product_of = numbers.experts_product if name == "experts" else numbers.product
            yield product_of(up.name, rows, up.outputs, up.inputs, copies)
            values, passes = rows * copies * down.inputs, 3 if part.is_gated else 2
            yield element_wise(f"{name} activation", values, part.operations, passes, size)
            yield product_of(down.name, rows, down.outputs, down.inputs, copies)

        if rows:
            self._once(name, layer, kernels)

    def _experts(self, layer: int, experts: Experts) -> None:
        """Run the experts of the busiest rank, whose tokens choose by chance; busy ones have equally many."""
        plan, hidden = self.plan, self.model.hidden
        is_one_group = plan.data == 1
        share = 1 if is_one_group else plan.tensor  # of a group's tokens, which all its ranks have
        local, rows, excess = busiest_rank(experts, plan, self.loads.total)
        tokens = -(-self.batch.tokens // share)
        if tokens:
            self.work.then(product("router", tokens, experts.count, hidden, plan.value_bytes).cold())
        if experts.shared:
            self._dense(layer, experts.shared_part, "shared expert", self.batch.tokens, 1, plan.tensor)
        _, sharers = experts_on_rank(experts, plan)
        most = -(-self.loads.most // share)
        exchange = ExpertExchange(plan, experts, hidden, most, rows * local, excess)
        if not is_one_group:
            self._exchange(exchange.there())
        self._dense(layer, experts.expert, "experts", rows, local, sharers)
        if is_one_group:
            self._all_reduce("experts")
            return
        self._exchange(exchange.back())
        if self.batch.tokens:
            size = tokens * hidden * plan.value_bytes
            self.work.exchange("all_gather", size, TENSOR, "experts all-gather")
        if experts.shared:
            self._all_reduce("shared expert")

    def _exchange(self, parts: Iterable[ModelPart]) -> None:
        for part in parts:
            part.forward(self.work)

    def _head(self) -> None:
        """Run the head: scores of all words for sampled sequences, and the sampling."""
        model, plan, sampled = self.model, self.plan, self.batch.sampled
        if not sampled:
            return
        vocabulary = -(-model.vocabulary // plan.tensor)
        self._element_wise("head norm", sampled * model.hidden, 5, 2)
        self.work.then(product("head", sampled, vocabulary, model.hidden, plan.value_bytes).cold())
        self.work.exchange("all_gather", sampled * vocabulary * plan.value_bytes, TENSOR, "scores all-gather")
        self._element_wise("sampling", sampled * model.vocabulary, 5, 2)

    def _return_tokens(self) -> None:
        """Send sampled tokens from the last stage to the first one."""
        stages, size = self.plan.pipeline, self.batch.sampled * TOKEN_BYTES
        if stages == 1 or not size:
            return
        if self.part.has_head:
            self._send(1 - stages, size, 2 * self.number + 1)
        elif self.part.has_embedding:
            self._receive(stages - 1, size, 2 * self.number + 1)

    def _receive(self, distance: int, size: int, tag: int) -> None:
        if not size:
            return
        source = self.work.rank.next(PIPELINE, distance)
        name, after = self.work.name("receive"), self.work.at
        self.work.at = self.work.rank.receive(source, size, tag, name=name, after=after)

    def _send(self, distance: int, size: int, tag: int) -> None:
        if not size:
            return
        to = self.work.rank.next(PIPELINE, distance)
        self.work.rank.send(to, size, tag, name=self.work.name("send"), after=self.work.at)
