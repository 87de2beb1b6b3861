"""Forward passes of a model, one after the other: kernels and exchanges of every rank.

Tensor-parallel ranks have a share of every layer and of the vocabulary, and all-reduce their outputs after
attention, after the feed-forward part or the experts, and after the embedding. All of them gather the scores
of the next tokens. Each of them has the same share of all experts, or of some of them with an expert axis.

With data-parallel groups, each group of tensor-parallel ranks has a batch of its own, and all groups share
the experts. Every rank sends a share of its group's tokens to the ranks of their experts and gets the outputs
back; ranks that share an expert gather its tokens, and add their outputs. Then the group gathers all outputs.
Groups meet in these exchanges, so that a pass takes as long as the slowest one; a group with an empty batch
computes for the experts only.

If exchanges overlap, each group has its batch in two halves, which take turns in the layers: while one waits
for an exchange, the other one computes. The layers before the first one with experts, and the head, have the
whole batch.

With attention in two parts, a layer has five stages, and one half is two stages ahead of the other: products
before attention; attention and router; dispatch, with the shared expert beside it; experts; combine. All wait
in one stream, so that only the next stage of the other half hides an exchange.

If experts are apart, ranks of attention send tokens to those of experts, which compute nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from et_sim.basics.engine_names import JOINED_SHARED, PADDED_EXPERTS, RESIDUALS
from et_sim.basics.errors import UsageError
from et_sim.trace.workload import MadeFor, Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.exchange_names import DEEPEP
from et_sim.workloads.inference.adapters import with_adapters
from et_sim.workloads.inference.batch import (
    Batch,
    GroupBatches,
    check,
    check_batches,
    halves_of_groups,
    have_prompts,
)
from et_sim.workloads.inference.expert_exchange import ExpertExchange, SentCopies
from et_sim.workloads.inference.expert_loads import busiest_rank, padded_rows
from et_sim.workloads.inference.halves import reserving, take_exchanges, take_stages
from et_sim.workloads.inference.memory import dense_matrices
from et_sim.workloads.inference.mixers import OF_TOKENS, mixer_kernels
from et_sim.workloads.inference.numbers import LayerNumbers
from et_sim.workloads.inference.ranks import (
    REPLICA,
    axes_of_replicas,
    experts_on_rank,
    with_sharers,
)
from et_sim.workloads.inference.separate import SeparateKernels
from et_sim.workloads.kernels import Kernel, element_wise, product
from et_sim.workloads.models.formats import LayerFormats
from et_sim.workloads.models.model import (
    Experts,
    FeedForward,
    LayerKind,
    Model,
    PredictingModule,
    VisionTower,
)
from et_sim.workloads.pipeline import Direction
from et_sim.workloads.rank import Rank, make_workload
from et_sim.workloads.training.parts import ModelPart, Shared, ToExperts
from et_sim.workloads.training.plan import DATA, PIPELINE, TENSOR, Plan
from et_sim.workloads.training.plan_options import AS_VALUES
from et_sim.workloads.training.work import RankWork

TOKEN_BYTES = 8  # size of a token's number


def run_by(
    engine: str,
    *,
    eager: bool = False,
    launch_ns: float = 0.0,
    expert_exchange: str = "",
    separate: tuple[str, ...] = (),
) -> MadeFor:
    """Return an engine that runs passes with its own kernels and exchanges.

    Kernels of a graph are launched at once. `eager`: they are launched one by one; the host takes `launch_ns`
    for each, and a kernel begins after its own launch. `separate`: the engine's kernels that others lack.
    """
    return MadeFor(
        engine,
        launch_ns=launch_ns if eager else 0.0,
        engine=engine,
        eager=eager,
        expert_exchange=expert_exchange,
        separate=separate,
    )


class Encoded(NamedTuple):
    """Images that each data-parallel group encodes before its batches, by the plan of its tower."""

    tower: VisionTower
    plan: Plan
    batch: Batch


def make_inference(
    model: Model,
    plan: Plan,
    batches: Sequence[GroupBatches],
    software: MadeFor | None = None,
    images: Encoded | None = None,
) -> Workload:
    """Return forward passes over batches, one after the other.

    A batch is that of every data-parallel group, or a tuple has one for each of them.
    """
    check(model, plan)
    check_batches(plan, batches)
    plan = with_sharers(model, plan)
    axes = axes_of_replicas(plan, 1) if plan.experts_apart else plan.axes

    def program(rank: Rank) -> None:
        work = RankWork(rank, plan)
        if images is not None and not is_expert_rank(work):
            work.at = _encode(RankWork(rank, images.plan), images)
        run_passes(work, model, batches, software)

    software = reserving(plan, batches, software)
    return structs.replace(make_workload(axes, program, source=f"<{model.name}>"), software=software)


def _encode(work: RankWork, images: Encoded) -> tuple[int, ...]:
    """Run the pass of a tower on a rank; return the nodes that end it."""
    work.during = "images"
    _Pass(work, images.tower, images.batch, (images.batch,), 0, 0).run(())
    return work.at


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
    program = replica_program(model, plan, batch, first, ranks, software)
    workload = make_workload(*program, source=f"<{model.name}>")
    return structs.replace(workload, software=software)


def replica_program(
    model: Model, plan: Plan, batch: GroupBatches, first: int, ranks: int, software: MadeFor | None = None
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
            run_passes(RankWork(rank, plan), model, (batch,), software)

    return axes_of_replicas(plan, ranks // each), program


def run_passes(
    work: RankWork, model: Model, batches: Sequence[GroupBatches], software: MadeFor | None = None
) -> None:
    """Run the program of a rank."""
    place, separate = work.rank.place(PIPELINE), software.separate if software else ()
    for number, batch in enumerate(batches):
        work.during = f"{Direction.FORWARD} {number}"
        groups = (batch,) * work.plan.data if isinstance(batch, Batch) else batch
        at = _place_of_batch(work, groups)
        may_halve = work.plan.overlap_experts and (len(groups) > 1 or work.plan.experts_apart)
        halves = halves_of_groups(groups) if may_halve else ()
        has_parts = work.plan.attention_parts and not have_prompts(groups)
        of_half = partial(_Pass, separate=separate, is_half=True, has_parts=has_parts)
        of_halves = [
            of_half(RankWork(work.rank, work.plan), model, half[at], half, place, number) for half in halves
        ]
        _Pass(work, model, groups[at], groups, place, number, separate=separate).run(of_halves)


def _place_of_batch(work: RankWork, groups: Sequence[Batch]) -> int:
    """Return the place of the first group whose batch equals that of the rank's group."""
    if len(set(groups)) == 1 or is_expert_rank(work):
        return 0
    of_groups = [groups.index(group) for group in groups]
    of_experts = [0] * (work.rank.axes[DATA].size - len(groups))
    return work.rank.kind(DATA, of_groups + of_experts)


def is_expert_rank(work: RankWork) -> bool:
    """Return whether a rank has experts alone."""
    return work.plan.experts_apart and work.rank.is_from(DATA, work.plan.data)


class GroupLoads(NamedTuple):
    """All that the pass of a data-parallel group depends on of all groups."""

    total: int  # tokens
    most: int  # of a group; exchanges have the size of this one, as engines pad the others
    have_prompts: bool

    @classmethod
    def of(cls, groups: Sequence[Batch]) -> GroupLoads:
        """Return the loads of groups with these batches."""
        tokens = [group.tokens for group in groups]
        return cls(sum(tokens), max(tokens), have_prompts(groups))


class _Pass:
    """One batch in a rank's part of the model."""

    def __init__(
        self,
        work: RankWork,
        model: Model,
        batch: Batch,
        groups: Sequence[Batch],
        place: int,
        number: int,
        *,
        separate: tuple[str, ...] = (),
        is_half: bool = False,
        has_parts: bool = False,
    ) -> None:
        self.work, self.plan, self.model, self.batch = work, work.plan, model, batch
        self.loads = GroupLoads.of(groups)
        self.place, self.number, self.is_half, self.has_parts = place, number, is_half, has_parts
        self.is_expert_rank = is_expert_rank(work)
        by_deepep = self.plan.expert_exchange == DEEPEP and self.loads.have_prompts
        casts = {"casts_experts": by_deepep, "casts_sent": self.plan.dispatch != AS_VALUES}
        self.separate = SeparateKernels(separate, self.plan.value_bytes, **casts)
        self.part = self.plan.part(model, place, 0)
        self.known: dict[tuple[str, LayerKind, int, LayerFormats], tuple[Kernel, ...]] = {}

    def run(self, halves: Sequence[_Pass]) -> None:
        """Run the pass from tokens or activations of the previous stage to the next tokens.

        Halves of the batch, if there are any, run the layers from the first to the last one with experts.
        """
        work = self.work
        if not self.is_expert_rank:
            self._enter()
        layers = self.part.all_layers
        routed = [layer for layer in layers if self.model.has_experts(layer)] if halves else []
        if routed:
            between = range(routed[0], routed[-1] + 1)
            self._run_layers(range(layers.start, between.start))
            take_turns = take_stages if halves[0].has_parts else take_exchanges
            take_turns(work, [(half.work, half._layers(between)) for half in halves])
            layers = range(between.stop, layers.stop)
        self._run_layers(layers)
        work.where = ""
        if not self.is_expert_rank:
            self._leave()

    def _enter(self) -> None:
        """Take tokens, patches of images, or activations of the previous stage."""
        if isinstance(self.model, VisionTower):
            self._product("patch embedding", self.batch.tokens, self.model.hidden, self.model.patch_values)
        elif self.part.has_embedding:
            self.work.where = "embedding"
            self._element_wise("embedding", self.batch.tokens * self.model.hidden, 1, 2)
            self._all_reduce("embedding")
            self._join()
        else:
            self._receive(-1, self._activations, 2 * self.number)

    def _leave(self) -> None:
        """Return the next tokens, those of images, or activations for the next stage."""
        if isinstance(self.model, VisionTower):
            self._project(self.model)
        elif self.part.has_head:
            self._head()
        else:
            self._send(1, self._activations, 2 * self.number)
        self._return_tokens()

    def _run_layers(self, layers: Sequence[int]) -> None:
        deque(self._layers(layers), maxlen=0)

    def _layers(self, layers: Sequence[int]) -> Iterator[None]:
        """Run layers; yield while tokens are exchanged with their experts, or at the end of a stage."""
        for layer in self.work.rank.each(layers):
            self.work.where = f"layer {layer}"
            yield from self._layer(layer)

    def _join(self) -> None:
        """Join the embedding with hidden states, in a module that predicts further tokens."""
        if isinstance(self.model, PredictingModule) and (tokens := self.batch.tokens):
            hidden = self.model.hidden
            self._element_wise("joining norms", 2 * tokens * hidden, 5, 2)
            self.work.then(product("joining", tokens, hidden, 2 * hidden, self.plan.value_bytes).cold())

    def _project(self, tower: VisionTower) -> None:
        """Turn the patches of images into tokens of the language model."""
        images = self.batch.prefill.segments
        tokens = (self.batch.tokens - images * tower.own_tokens) // tower.patches
        self._norm("tower norm")
        for number, (inputs, outputs) in enumerate(tower.projections):
            self._product(f"projection {number}", tokens, outputs, inputs)

    def _product(self, name: str, rows: int, outputs: int, inputs: int) -> None:
        self.work.then(product(name, rows, outputs, inputs, self.plan.value_bytes).cold())

    @property
    def _activations(self) -> int:
        """Return the bytes that a layer passes to the next one."""
        return self.batch.tokens * self.model.hidden * self.plan.value_bytes

    def _layer(self, layer: int) -> Iterator[None]:
        kind = self.model.kind(layer)
        if self.is_expert_rank:
            if self.model.experts is not None and self.model.has_experts(layer):
                yield from self._experts(layer, self.model.experts)
            return
        if kind.mixer:
            self._norm(f"{kind.mixer} norm")
            yield from self._mixer(layer)
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
            yield from self._experts(layer, experts)
        self._output_norm("feed-forward")

    def _mixer(self, layer: int) -> Iterator[None]:
        """Run attention or what replaces it; yield before attention if it has parts."""
        of, words = (self.model, self.plan, self.batch, layer), self.separate.words
        kernels = self._known("mixer", layer, lambda: mixer_kernels(*of, words))
        for kernel in kernels:
            if kernel.name == OF_TOKENS and self.has_parts:
                yield
            self._all((kernel,))

    def _once(self, role: str, layer: int, kernels: Callable[[], Iterable[Kernel]]) -> None:
        """Run kernels of a layer."""
        self._all(self._known(role, layer, kernels))

    def _known(self, role: str, layer: int, kernels: Callable[[], Iterable[Kernel]]) -> tuple[Kernel, ...]:
        """Return kernels of a layer, which are those of other layers of its kind; without tokens, none."""
        model = self.model
        key = role, model.kind(layer), model.window(layer), model.formats_of(layer)
        if key not in self.known:
            every = self.separate.with_casts(kernels())
            self.known[key] = tuple(with_adapters(every, model, self.plan, self.batch, layer))
        return self.known[key]

    def _norm(self, name: str, *, is_of_outputs: bool = False) -> None:
        passes = 4 if RESIDUALS in self.separate.words and not is_of_outputs else 2
        self._element_wise(name, self.batch.tokens * self.model.hidden, 5, passes)

    def _output_norm(self, name: str) -> None:
        if self.model.half_norms > 1:
            self._norm(f"{name} output norm", is_of_outputs=True)

    def _all(self, kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            if kernel.operations:
                self.work.then(kernel)

    def _element_wise(self, name: str, values: int, operations: int, passes: int) -> None:
        if values:
            self.work.then(element_wise(name, values, operations, passes, self.plan.value_bytes))

    def _all_reduce(self, name: str) -> None:
        self.work.exchange("all_reduce", self._activations, TENSOR, f"{name} all-reduce")

    def _dense(
        self,
        layer: int,
        part: FeedForward,
        name: str,
        rows: int,
        copies: int,
        shares: int,
        shared_rows: int = 0,
    ) -> None:
        """Run two products and the activation between them.

        `copies`: the number of experts; `shared_rows`: those of the shared expert among them.
        """
        numbers, size = LayerNumbers.of(self.model, self.plan, layer), self.plan.value_bytes
        more = (shared_rows,) if shared_rows else ()

        def kernels() -> Iterator[Kernel]:
            up, down = dense_matrices(part, name, self.model.hidden, shares)
            product_of = numbers.experts_product if name == "experts" else numbers.product
            yield product_of(up.name, rows, up.outputs, up.inputs, copies, *more)
            values, passes = (rows * copies + shared_rows) * down.inputs, 3 if part.is_gated else 2
            yield element_wise(f"{name} activation", values, part.operations, passes, size)
            yield product_of(down.name, rows, down.outputs, down.inputs, copies, *more)

        if rows:
            self._once(name, layer, kernels)

    def _experts(self, layer: int, experts: Experts) -> Iterator[None]:
        """Run the experts of the busiest rank, whose tokens choose by chance; busy ones have equally many.

        The shared expert runs before the exchange, or beside the way back if the batch is in halves; beside
        the way there if attention is in parts.
        """
        plan, hidden = self.plan, self.model.hidden
        is_one_group = plan.data == 1 and not plan.experts_apart
        share = 1 if is_one_group else plan.tensor  # of a group's tokens, which all its ranks have
        local, rows, excess = busiest_rank(experts, plan, self.loads.total)
        tokens, given = -(-self.batch.tokens // share), self.work.at
        if tokens and not self.is_expert_rank:
            self.work.then(product("router", tokens, experts.count, hidden, plan.value_bytes).cold())
        joins = self._joins_shared_expert(layer, experts)
        if not self.is_half and not joins:
            self._shared_expert(layer, experts)
        _, sharers = experts_on_rank(experts, plan)
        most = -(-self.loads.most // share)
        exchange = ExpertExchange(plan, experts, hidden, most, rows * local, excess, self.is_expert_rank)
        if tokens and not self.is_expert_rank:
            self._all(self.separate.sent(tokens, hidden))
        if self.has_parts:
            yield
            yield from self._send_copies(
                exchange.there(), exchange.ends_there(), lambda: self._shared_expert(layer, experts)
            )
        elif not is_one_group:
            yield from self._exchange(exchange.there())
        if self.is_expert_rank or not plan.experts_apart:
            own = self.batch.tokens if joins else 0
            if self._pads_experts(layer):
                local, _ = experts_on_rank(experts, plan)
                rows = padded_rows(self.loads.total * experts.chosen, local)
            self._dense(layer, experts.expert, "experts", rows, local, sharers, own)
        if is_one_group:
            self._all_reduce("experts")
            return
        if self.has_parts:
            yield from self._send_copies(exchange.back(), exchange.ends_back(), lambda: None)
            yield
        else:
            yield from self._exchange(exchange.back())
        if self.is_half and not self.has_parts:
            back, self.work.at = self.work.at, given
            self._shared_expert(layer, experts)
            self.work.at += back
        if self.batch.tokens and not self.is_expert_rank:
            size = tokens * hidden * plan.value_bytes
            self.work.exchange("all_gather", size, TENSOR, "experts all-gather")
        if experts.shared and not self.is_expert_rank:
            self._all_reduce("shared expert")
            self._all(self.separate.sums(self.batch.tokens, hidden))

    def _pads_experts(self, layer: int) -> bool:
        """Return whether every expert has whole blocks of rows, those that no token chooses, too."""
        of = LayerNumbers.of(self.model, self.plan, layer)
        return PADDED_EXPERTS in self.separate.words and of.has_block_scales("experts up")

    def _joins_shared_expert(self, layer: int, experts: Experts) -> bool:
        """Return whether the shared expert is one more expert of the grouped products."""
        if experts.shared != 1 or self.plan.data > 1 or self.plan.expert > 1:
            return False
        formats = LayerNumbers.of(self.model, self.plan, layer).formats
        are_alike = all(
            formats.of(f"experts {of}") == formats.of(f"shared expert {of}") for of in ("up", "down")
        )
        return are_alike and JOINED_SHARED in self.separate.words

    def _shared_expert(self, layer: int, experts: Experts) -> None:
        if experts.shared and not self.is_expert_rank:
            self._dense(layer, experts.shared_part, "shared expert", self.batch.tokens, 1, self.plan.tensor)

    def _exchange(self, parts: Iterable[ModelPart]) -> Iterator[None]:
        """Run the parts of an exchange; yield while tokens are sent."""
        for part in parts:
            part.forward(self.work)
            if isinstance(part, ToExperts) or (isinstance(part, Shared) and self.plan.expert_tensor > 1):
                yield

    def _send_copies(
        self, parts: Iterable[ModelPart], ends: SentCopies, beside: Callable[[], None]
    ) -> Iterator[None]:
        """Run an exchange beside other kernels, and those at its ends; yield while copies travel.

        Copies travel from the begin of the kernel that sends them.
        """
        work = self.work
        for part in parts:
            given = work.at
            part.forward(work)
            if isinstance(part, ToExperts):
                travelled, work.at = work.at, given
                work.then(ends.sent)
                name = work.name(f"{ends.sent.name}, each")
                work.at = work.rank.compute(name, nanos=ends.sending_ns, after=work.at)
                beside()
                yield
                work.at = tuple(dict.fromkeys((*work.at, *travelled)))
                work.then(ends.received)

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
