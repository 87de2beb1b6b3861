"""Forward passes of a model, one after the other: kernels and exchanges of every rank.

Tensor-parallel ranks have a share of every layer and of the vocabulary, and all-reduce their outputs after
attention, after the feed-forward part and after the embedding. All of them gather the scores of the next
tokens. Experts are shared in the same way; or, with an expert axis, each is whole on a rank: every rank of
the tensor axis sends a share of the tokens to the ranks of their experts, receives the outputs, and gathers
those of the other tokens.

Weights and cached values come from the largest memory (`cold`), since a pass reads them once.

Attention reads the keys and values of each segment once, cached and new ones. Prompts and single tokens are
two kernels. If lengths differ, the shape has the mean lengths, rounded up; operations and bytes are exact.

With a compressed cache (MLA), prompts expand it into keys and values of every head. Single tokens instead
transform their queries to the compressed form, and the outputs back, by the same weights.

A transfer moves the cache of a sequence from one replica to another: every rank gets its layers and heads
from ranks that have them. If several have them, ranks take turns by their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, structs

from et_sim.basics.errors import UsageError
from et_sim.trace import shapes
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.workload import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.inference.batch import AttentionSight, Batch, BatchLoad, cached_values, check
from et_sim.workloads.kernels import RMS_NORM, Kernel, element_wise, linear, product
from et_sim.workloads.models.model import (
    RECURRENCE,
    Attention,
    Experts,
    FeedForward,
    Latent,
    LayerKind,
    Model,
    Recurrence,
)
from et_sim.workloads.pipeline import Direction
from et_sim.workloads.rank import PROFILE, Rank, make_workload
from et_sim.workloads.recurrence import SequenceChunks
from et_sim.workloads.training.plan import EXPERT, PIPELINE, TENSOR, Plan
from et_sim.workloads.training.work import RankWork

KEY_VALUE_UP = "key-value up"
GATE = 6  # operations of a sigmoid times an output


def mixer_kernels(model: Model, plan: Plan, batch: Batch, kind: LayerKind, window: int) -> Iterator[Kernel]:
    """Yield the kernels of attention, or of the recurrence that replaces it."""
    if kind.mixer == RECURRENCE and model.recurrence is not None:
        yield from _recurrence_kernels(model.recurrence, model.hidden, plan, batch)
    elif kind.mixer:
        sight = AttentionSight(window, bool(window) and model.in_chunks)
        yield from attention_kernels(model, plan, batch, sight, has_rotary=kind.has_rotary)


def _recurrence_kernels(recurrence: Recurrence, hidden: int, plan: Plan, batch: Batch) -> Iterator[Kernel]:
    """Yield the kernels of a recurrence: prompts in chunks, from zero or kept states, and single tokens."""
    share, size = recurrence.share(plan.tensor), plan.value_bytes
    yield from linear("recurrence in", batch.tokens, share.inner, hidden, size, plan.cast_to)
    prompts, singles = batch.prefill, batch.decode
    if prompts.segments:  # of equal length, the mean one, rounded up
        length = -(-prompts.tokens // prompts.segments)
        yield from SequenceChunks(share, prompts.segments, length, size).prefill()
    if singles.segments:
        yield from SequenceChunks(share, singles.segments, 1, size).decode()
    yield from linear("recurrence out", batch.tokens, hidden, share.values, size, plan.cast_to)


def attention_kernels(
    model: Model, plan: Plan, batch: Batch, sight: AttentionSight, *, has_rotary: bool = True
) -> Iterator[Kernel]:
    """Yield the kernels from normalised inputs to the rank's part of the outputs."""
    attention, size = model.attention, plan.value_bytes
    heads = attention.heads // plan.tensor
    if attention.latent is None:
        key_heads = -(-attention.key_heads // plan.tensor)
        columns = (heads * (1 + attention.has_gate) + 2 * key_heads) * attention.head_size
        yield from linear("qkv", batch.tokens, columns, model.hidden, size, plan.cast_to)
        if attention.has_query_norm(has_rotary=has_rotary):
            values = batch.tokens * (heads + key_heads) * attention.head_size
            yield element_wise("query norm", values, RMS_NORM, 2, size)
        prefill, decode = batch.seen(sight)
        for name, load in (("prefill attention", prefill), ("decode attention", decode)):
            if load.segments:
                yield _core(name, load, attention, heads, key_heads, size)
        if attention.has_gate:
            yield element_wise("gate", batch.tokens * heads * attention.value_size, GATE, 3, size)
    else:
        yield from _latent(model, attention.latent, plan, batch, heads)
    rows = heads * attention.value_size
    yield from linear("attention output", batch.tokens, model.hidden, rows, size, plan.cast_to)


def _core(
    name: str, load: BatchLoad, attention: Attention, heads: int, key_heads: int, value_bytes: int
) -> Kernel:
    widths = attention.query_size + attention.value_size
    moved = (heads * load.tokens + key_heads * load.keys) * widths
    operations = 2 * heads * load.pairs * widths
    shape = _shape(load, heads, key_heads, attention.query_size, attention.value_size)
    return Kernel(name, operations, moved * value_bytes, shape).cold()


def _shape(load: BatchLoad, heads: int, key_heads: int, width: int, value_width: int) -> str:
    tokens, keys = -(-load.tokens // load.segments), -(-load.keys // load.segments)
    return shapes.attention(
        load.segments,
        heads,
        tokens,
        keys,
        width,
        key_heads=key_heads,
        value_width=None if value_width == width else value_width,
        causal=tokens > 1,
    )


def _latent(model: Model, latent: Latent, plan: Plan, batch: Batch, heads: int) -> Iterator[Kernel]:
    attention, size = model.attention, plan.value_bytes
    for name, inputs, outputs in attention.projections(model.hidden):
        if name == KEY_VALUE_UP:
            continue
        columns = outputs if name.endswith("down") else outputs // plan.tensor
        yield from linear(name, batch.tokens, columns, inputs, size, plan.cast_to)
    if batch.prefill.segments:
        columns = heads * (attention.head_size + latent.value_size)
        yield from linear(KEY_VALUE_UP, batch.prefill.keys, columns, latent.value_rank, size, plan.cast_to)
        yield _core("prefill attention", batch.prefill, attention, heads, heads, size)
    if batch.decode.segments:
        yield from _absorbed(attention, latent, batch.decode, heads, plan)


def _absorbed(
    attention: Attention, latent: Latent, load: BatchLoad, heads: int, plan: Plan
) -> Iterator[Kernel]:
    """Yield attention in the compressed form: heads share the cache, and values are a part of the keys."""
    rank, width, size = latent.value_rank, cached_values(attention), plan.value_bytes
    yield from linear("query to latent", load.tokens, rank, attention.head_size, size, plan.cast_to, heads)
    moved = heads * load.tokens * (width + rank) + load.keys * width
    operations = 2 * heads * load.pairs * (width + rank)
    shape = _shape(load, heads, 1, width, rank)
    yield Kernel("decode attention", operations, moved * size, shape).cold()
    yield from linear("value from latent", load.tokens, latent.value_size, rank, size, plan.cast_to, heads)


TOKEN_BYTES = 8  # size of a token's number
REPLICA = "replica"


def make_inference(model: Model, plan: Plan, batches: Sequence[Batch]) -> Workload:
    """Return forward passes over batches, one after the other, in every replica alike."""
    check(model, plan)
    check_batches(batches)
    return make_workload(
        plan.axes, lambda rank: run_passes(RankWork(rank, plan), model, batches), source=f"<{model.name}>"
    )


def make_replica(model: Model, plan: Plan, batch: Batch, *, first: int, ranks: int) -> Workload:
    """Return a pass of one replica, whose first rank is `first`; the other ones of `ranks` do nothing."""
    return make_workload(*replica_program(model, plan, batch, first, ranks), source=f"<{model.name}>")


def replica_program(
    model: Model, plan: Plan, batch: Batch, first: int, ranks: int
) -> tuple[Axes, Callable[[Rank], None]]:
    """Return the axes of all ranks, and the program of a pass of the replica whose first rank is `first`."""
    check(model, plan)
    check_batches((batch,))
    each = plan.tensor * plan.pipeline
    number, offset = divmod(first, each)
    if offset or ranks % each:
        raise UsageError(
            f"a replica of {each} ranks cannot begin at rank {first} of {ranks}",
            remedy=f"replicas of this size begin at multiples of {each}, and divide the NPUs of the machine",
        )
    axes = Axes(**{TENSOR: plan.tensor, PIPELINE: plan.pipeline, REPLICA: ranks // each})
    if plan.expert > 1:
        axes = axes.split(TENSOR, **{EXPERT: plan.expert, "expert-data": plan.tensor // plan.expert})

    def program(rank: Rank) -> None:
        if rank.place(REPLICA) == number:
            run_passes(RankWork(rank, plan), model, (batch,))

    return axes, program


def check_batches(batches: Iterable[Batch]) -> None:
    """Refuse batches without tokens."""
    for batch in batches:
        if batch.tokens < 1:
            raise UsageError("a forward pass has no tokens", remedy="give a segment with at least 1 token")


def run_passes(work: RankWork, model: Model, batches: Sequence[Batch]) -> None:
    """Run the program of a rank."""
    place = work.rank.place(PIPELINE)
    for number, batch in enumerate(batches):
        work.during = f"{Direction.FORWARD} {number}"
        _Pass(work, model, batch, place, number).run()


class _Pass:
    """One batch in a rank's part of the model."""

    def __init__(self, work: RankWork, model: Model, batch: Batch, place: int, number: int) -> None:
        self.work, self.plan, self.model, self.batch = work, work.plan, model, batch
        self.place, self.number = place, number
        self.part = self.plan.part(model, place, 0)
        self.dense = tuple(self._dense(model.feed_forward, "feed-forward"))
        self.mixers: dict[tuple[LayerKind, int], tuple[Kernel, ...]] = {}

    def run(self) -> None:
        """Run the pass from tokens or activations of the previous stage to the next tokens."""
        work = self.work
        if self.part.has_embedding:
            work.where = "embedding"
            self._element_wise("embedding", self.batch.tokens * self.model.hidden, 1, 2)
            self._all_reduce("embedding")
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

    @property
    def _activations(self) -> int:
        """Return the bytes that a layer passes to the next one."""
        return self.batch.tokens * self.model.hidden * self.plan.value_bytes

    def _layer(self, layer: int) -> None:
        kind = self.model.kind(layer)
        if kind.mixer:
            self._norm(f"{kind.mixer} norm")
            self._all(self._mixer(kind, self.model.window(layer)))
            self._all_reduce(kind.mixer)
            self._output_norm(kind.mixer)
        if not kind.part:
            return
        self._norm("feed-forward norm")
        experts = self.model.experts
        if experts is None or not self.model.has_experts(layer):
            self._all(self.dense)
            self._all_reduce("feed-forward")
        else:
            self._experts(experts)
        self._output_norm("feed-forward")

    def _mixer(self, kind: LayerKind, window: int) -> tuple[Kernel, ...]:
        if (kind, window) not in self.mixers:
            kernels = mixer_kernels(self.model, self.plan, self.batch, kind, window)
            self.mixers[kind, window] = tuple(kernels)
        return self.mixers[kind, window]

    def _norm(self, name: str) -> None:
        self._element_wise(name, self.batch.tokens * self.model.hidden, 5, 2)

    def _output_norm(self, name: str) -> None:
        if self.model.half_norms > 1:
            self._norm(f"{name} output norm")

    def _all(self, kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            self.work.then(kernel)

    def _element_wise(self, name: str, values: int, operations: int, passes: int) -> None:
        self.work.then(element_wise(name, values, operations, passes, self.plan.value_bytes))

    def _all_reduce(self, name: str) -> None:
        self.work.exchange("all_reduce", self._activations, TENSOR, f"{name} all-reduce")

    def _dense(
        self, part: FeedForward, name: str, *, rows: int | None = None, copies: int = 1, shares: int = 0
    ) -> Iterable[Kernel]:
        """Yield two products and the activation between them; `copies`: the number of experts."""
        hidden, size, shares = self.model.hidden, self.plan.value_bytes, shares or self.plan.tensor
        rows = self.batch.tokens if rows is None else rows
        width, inner = part.width // shares, part.inner // shares
        passes, dtype = 3 if part.is_gated else 2, self.plan.cast_to
        yield from linear(f"{name} up", rows, inner, hidden, size, dtype, copies)
        yield element_wise(f"{name} activation", rows * copies * width, part.operations, passes, size)
        yield from linear(f"{name} down", rows, hidden, width, size, dtype, copies)

    def _experts(self, experts: Experts) -> None:
        """Run experts with tokens spread as evenly as possible: each choice uses another expert."""
        plan, hidden = self.plan, self.model.hidden
        is_spread = plan.expert > 1
        tokens = -(-self.batch.tokens // plan.tensor) if is_spread else self.batch.tokens
        chosen = (
            tokens * experts.chosen * plan.expert
        )  # choices of tokens on all ranks that the experts are spread over
        busy = min(experts.count, chosen)
        local, rows = -(-busy // plan.expert), -(-chosen // busy)
        self.work.then(product("router", tokens, experts.count, hidden, plan.value_bytes).cold())
        if experts.shared:
            whole = structs.replace(experts.expert, width=experts.expert.width * experts.shared)
            self._all(self._dense(whole, "shared expert"))
        size = tokens * experts.chosen * hidden * plan.value_bytes
        if is_spread:
            self.work.exchange("all_to_all", size, EXPERT, "to experts")
        shares = 1 if is_spread else plan.tensor
        self._all(self._dense(experts.expert, "experts", rows=rows, copies=local, shares=shares))
        if not is_spread:
            self._all_reduce("experts")
            return
        self.work.exchange("all_to_all", size, EXPERT, "from experts")
        self.work.exchange("all_gather", tokens * hidden * plan.value_bytes, TENSOR, "experts all-gather")
        if experts.shared:
            self._all_reduce("shared expert")

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
        source = self.work.rank.next(PIPELINE, distance)
        name, after = self.work.name("receive"), self.work.at
        self.work.at = self.work.rank.receive(source, size, tag, name=name, after=after)

    def _send(self, distance: int, size: int, tag: int) -> None:
        to = self.work.rank.next(PIPELINE, distance)
        self.work.rank.send(to, size, tag, name=self.work.name("send"), after=self.work.at)


class ReplicaPlace(Struct, frozen=True):
    """The place of a replica: its ranks are consecutive, tensor-parallel ones first."""

    plan: Plan
    first: int


def messages(model: Model, source: ReplicaPlace, target: ReplicaPlace) -> Counter[tuple[int, int]]:
    """Return the bytes of a token by sending and receiving rank."""
    sizes: Counter[tuple[int, int]] = Counter()
    attention = model.attention
    heads = 1 if attention.latent is not None else attention.key_heads
    size = cached_values(attention) // heads * target.plan.value_bytes
    for stage in range(target.plan.pipeline):
        wanted = target.plan.part(model, stage, 0).all_layers
        for other in range(source.plan.pipeline):
            there = source.plan.part(model, other, 0).all_layers
            both = range(max(wanted.start, there.start), min(wanted.stop, there.stop))
            layers = sum(model.has_attention(layer) for layer in both)
            if not layers:
                continue
            for tensor in range(target.plan.tensor):
                to = target.first + stage * target.plan.tensor + tensor
                for head in _heads(tensor, target.plan.tensor, heads):
                    holders = [
                        receiver
                        for receiver in range(source.plan.tensor)
                        if head in _heads(receiver, source.plan.tensor, heads)
                    ]
                    holder = holders[tensor % len(holders)]
                    sizes[source.first + other * source.plan.tensor + holder, to] += layers * size
    return sizes


def _heads(tensor: int, ranks: int, heads: int) -> range:
    """Return the heads of a tensor-parallel rank."""
    first = tensor * heads // ranks
    return range(first, max((tensor + 1) * heads // ranks, first + 1))


def make_transfer(
    model: Model, source: ReplicaPlace, target: ReplicaPlace, *, tokens: int, ranks: int
) -> Workload:
    """Return the messages of all tokens at once; the other ones of `ranks` do nothing."""
    builders: dict[int, TraceBuilder] = {}
    for (sender, receiver), size in sorted(messages(model, source, target).items()):
        for rank in (sender, receiver):
            builders.setdefault(rank, TraceBuilder(source="<cache>"))
        builders[sender].send(receiver, size * tokens, name="cache send")
        builders[receiver].receive(sender, size * tokens, name="cache receive")
    of_rank = np.zeros(ranks, np.int32)
    for number, rank in enumerate(builders, 1):
        of_rank[rank] = number
    idle = TraceBuilder(source="<cache>").build()
    templates = (idle, *(build.build() for build in builders.values()))
    return Workload(templates, of_rank, "<cache>", profile=PROFILE)
