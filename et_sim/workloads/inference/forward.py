"""Forward passes of a model, one after the other: kernels and exchanges of every rank.

Tensor-parallel ranks have a share of every layer and of the vocabulary, and all-reduce their outputs after
attention, after the feed-forward part or the experts, and after the embedding. All of them gather the scores
of the next tokens. Each of them has the same share of all experts, or of some of them with an expert axis.

With data-parallel groups, each group of tensor-parallel ranks has a batch of its own, and all groups share
the experts. Every rank sends a share of its group's tokens to the ranks of their experts and gets the outputs
back; ranks that share an expert gather its tokens, and add their outputs. Then the group gathers all outputs.
Groups meet in these exchanges, so that a pass takes as long as the slowest one; a group with an empty batch
computes for the experts only.

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
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, structs

from et_sim.basics.errors import UsageError
from et_sim.basics.kernel_names import FP8_CACHE
from et_sim.basics.units import plural
from et_sim.trace import shapes
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.workload import MadeFor, Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.inference.batch import AttentionSight, Batch, BatchLoad, GroupBatches, check
from et_sim.workloads.inference.expert_exchange import ExpertExchange
from et_sim.workloads.inference.memory import cached_bits_of_rank, dense_matrices, key_heads_of_rank
from et_sim.workloads.inference.numbers import LayerNumbers, cache_bits
from et_sim.workloads.inference.ranks import REPLICA, axes_of_replicas, experts_on_rank, with_sharers
from et_sim.workloads.kernels import RMS_NORM, Kernel, element_wise, passing, product
from et_sim.workloads.models.formats import LayerFormats
from et_sim.workloads.models.model import (
    RECURRENCE,
    Attention,
    Experts,
    FeedForward,
    Index,
    Latent,
    LayerKind,
    Model,
    Recurrence,
)
from et_sim.workloads.pipeline import Direction
from et_sim.workloads.rank import PROFILE, Rank, make_workload
from et_sim.workloads.recurrence import STATE_BYTES, SequenceChunks
from et_sim.workloads.training.parts import ModelPart
from et_sim.workloads.training.plan import DATA, PIPELINE, TENSOR, Plan
from et_sim.workloads.training.work import RankWork

KEY_VALUE_UP = "key-value up"
GATE = 6  # operations of a sigmoid times an output


def mixer_kernels(model: Model, plan: Plan, batch: Batch, layer: int) -> Iterator[Kernel]:
    """Yield the kernels of a layer's attention, or of the recurrence that replaces it."""
    kind, window, numbers = model.kind(layer), model.window(layer), LayerNumbers.of(model, plan, layer)
    if kind.mixer == RECURRENCE and model.recurrence is not None:
        yield from _recurrence_kernels(model.recurrence.share(plan.tensor), model.hidden, numbers, batch)
    elif kind.mixer:
        index = model.attention.index
        sight = AttentionSight(window, bool(window) and model.in_chunks)
        if index is not None:
            sight = AttentionSight(index.chosen, is_chosen=True)
        core = _AttentionCore(model, plan)
        yield from attention_kernels(model, core, numbers, batch, sight, has_rotary=kind.has_rotary)


def _recurrence_kernels(
    share: Recurrence, hidden: int, numbers: LayerNumbers, batch: Batch
) -> Iterator[Kernel]:
    """Yield the kernels of a recurrence: prompts in chunks, from zero or kept states, and single tokens."""
    size = numbers.value_bytes
    yield numbers.product("recurrence in", batch.tokens, share.inner, hidden)
    prompts, singles = batch.prefill, batch.decode
    if prompts.segments:  # of equal length, the mean one, rounded up
        length = -(-prompts.tokens // prompts.segments)
        yield from SequenceChunks(share, prompts.segments, length, size).prefill()
    if singles.segments:
        yield from SequenceChunks(share, singles.segments, 1, size).decode()
    yield numbers.product("recurrence out", batch.tokens, hidden, share.values)


class _AttentionCore:
    """Attention between its products on a rank."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self.attention = model.attention
        self.heads = self.attention.heads // plan.tensor
        self.key_heads = key_heads_of_rank(self.attention, plan.tensor)
        self.value_bytes, self.cache_bits = plan.value_bytes, cache_bits(model, plan)

    def kernel(self, name: str, load: BatchLoad) -> Kernel:
        """Return attention of whole keys and values."""
        attention = self.attention
        key_heads = self.heads if attention.latent is not None else self.key_heads
        bits = 8 * self.value_bytes if attention.latent is not None else self.cache_bits
        return self._kernel(name, load, key_heads, bits, attention.query_size, attention.value_size)

    def compressed(self, name: str, load: BatchLoad, latent: Latent) -> Kernel:
        """Return attention in the compressed form: heads share the cache; values are a part of the keys."""
        width, rank = latent.value_rank + latent.rotary_size, latent.value_rank
        return self._kernel(name, load, 1, self.cache_bits, width, rank, width)

    def _kernel(
        self, name: str, load: BatchLoad, key_heads: int, bits: int, width: int, values: int, cached: int = 0
    ) -> Kernel:
        """Return attention; `cached`: cached values of a key and its value (default: both widths)."""
        cached = cached or width + values
        moved = self.heads * load.tokens * (width + values) * self.value_bytes
        moved += -(-key_heads * load.keys * cached * bits // 8)
        operations = 2 * self.heads * load.pairs * (width + values)
        word = FP8_CACHE if bits == 8 else ""
        return Kernel(
            name, operations, moved, _shape(load, self.heads, key_heads, width, values, word)
        ).cold()


def attention_kernels(
    model: Model,
    core: _AttentionCore,
    numbers: LayerNumbers,
    batch: Batch,
    sight: AttentionSight,
    *,
    has_rotary: bool = True,
) -> Iterator[Kernel]:
    """Yield the kernels from normalised inputs to the rank's part of the outputs."""
    attention, size, heads, key_heads = model.attention, numbers.value_bytes, core.heads, core.key_heads
    if attention.latent is None:
        columns = (heads * (1 + attention.has_gate) + 2 * key_heads) * attention.head_size
        yield numbers.product("qkv", batch.tokens, columns, model.hidden)
        if attention.has_query_norm(has_rotary=has_rotary):
            values = batch.tokens * (heads + key_heads) * attention.head_size
            yield element_wise("query norm", values, RMS_NORM, 2, size)
        prefill, decode = batch.seen(sight)
        for name, load in (("prefill attention", prefill), ("decode attention", decode)):
            if load.segments:
                yield core.kernel(name, load)
        if attention.has_gate:
            yield element_wise("gate", batch.tokens * heads * attention.value_size, GATE, 3, size)
    else:
        yield from _latent(model, attention.latent, core, numbers, batch)
        if attention.index is None:
            yield from _expanded(attention, attention.latent, core, numbers, batch.prefill)
            yield from _compressed(attention, attention.latent, core, numbers, batch.decode)
        else:
            yield from _choice(attention.index, numbers, batch)
            for load, name in zip(batch.seen(sight), ("prefill attention", "decode attention"), strict=True):
                yield from _compressed(attention, attention.latent, core, numbers, load, name)
    yield numbers.product("attention output", batch.tokens, model.hidden, heads * attention.value_size)


def _shape(load: BatchLoad, heads: int, key_heads: int, width: int, value_width: int, word: str) -> str:
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
        kernel=word,
    )


def _latent(
    model: Model, latent: Latent, core: _AttentionCore, numbers: LayerNumbers, batch: Batch
) -> Iterator[Kernel]:
    attention, tensor = model.attention, model.attention.heads // core.heads
    for name, inputs, outputs in attention.projections(model.hidden):
        if name != KEY_VALUE_UP:
            columns = outputs if name.endswith("down") else outputs // tensor
            yield numbers.product(name, batch.tokens, columns, inputs)
    index = attention.index
    for name, inputs, outputs in index.projections(model.hidden, latent.query_rank) if index else ():
        yield numbers.product(name, batch.tokens, outputs, inputs)


def _expanded(
    attention: Attention, latent: Latent, core: _AttentionCore, numbers: LayerNumbers, load: BatchLoad
) -> Iterator[Kernel]:
    """Yield attention with keys and values of every head, from the compressed cache."""
    if load.segments:
        columns = core.heads * (attention.head_size + latent.value_size)
        yield numbers.product(KEY_VALUE_UP, load.keys, columns, latent.value_rank)
        yield core.kernel("prefill attention", load)


def _compressed(
    attention: Attention,
    latent: Latent,
    core: _AttentionCore,
    numbers: LayerNumbers,
    load: BatchLoad,
    name: str = "decode attention",
) -> Iterator[Kernel]:
    """Yield attention in the compressed form, between products of queries and of outputs."""
    if load.segments:
        rank, size = latent.value_rank, attention.head_size
        more: dict[str, Any] = {"copies": core.heads, "like": KEY_VALUE_UP}
        yield numbers.product("query to latent", load.tokens, rank, size, **more)
        yield core.compressed(name, load, latent)
        yield numbers.product("value from latent", load.tokens, latent.value_size, rank, **more)


def _choice(index: Index, numbers: LayerNumbers, batch: Batch) -> Iterator[Kernel]:
    """Yield the scores of all pairs of a token and one before it, and the choice of the highest of them."""
    is_cast = not numbers.types or "fp8" in numbers.types
    for load in (batch.prefill, batch.decode):
        if not load.segments:
            continue
        rows, keys = -(-load.tokens // load.segments), -(-load.keys // load.segments)
        operations = 2 * load.pairs * index.heads * index.size
        moved = load.tokens * index.heads * index.size * (1 if is_cast else numbers.value_bytes)
        moved += load.keys * index.cached_bits // 8 + load.pairs * SCORE_BYTES
        shape = shapes.gemm(rows * index.heads, keys, index.size, count=load.segments)
        yield Kernel("index scores", operations, moved, shape, dtype="fp8" if is_cast else "").cold()
        yield passing("index choice", load.pairs, SCORE_BYTES)


SCORE_BYTES = 4  # size of a score by which tokens are chosen
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
        own = groups[0] if len(set(groups)) == 1 else groups[work.rank.place(DATA)]
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
        """Run experts with tokens spread as evenly as possible: each choice uses another expert or copy."""
        plan, hidden = self.plan, self.model.hidden
        is_one_group = plan.data == 1
        share = 1 if is_one_group else plan.tensor  # of a group's tokens, which all its ranks have
        chosen = self.loads.total * experts.chosen
        busy = min(experts.count + plan.redundant_experts, chosen)
        local, rows = -(-busy // plan.expert), -(-chosen // busy)
        tokens = -(-self.batch.tokens // share)
        if tokens:
            self.work.then(product("router", tokens, experts.count, hidden, plan.value_bytes).cold())
        if experts.shared:
            self._dense(layer, experts.shared_part, "shared expert", self.batch.tokens, 1, plan.tensor)
        _, sharers = experts_on_rank(experts, plan)
        most = -(-self.loads.most // share)
        exchange = ExpertExchange(plan, experts, hidden, most, rows * local)
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


class ReplicaPlace(Struct, frozen=True):
    """The place of a replica: its ranks are consecutive, tensor-parallel ones first."""

    plan: Plan
    first: int
    group: int = 0  # data-parallel group that has the sequence

    def rank(self, stage: int, tensor: int) -> int:
        """Return the rank at a place."""
        return self.first + (stage * self.plan.data + self.group) * self.plan.tensor + tensor


def messages(
    model: Model, source: ReplicaPlace, target: ReplicaPlace, tokens: int = 1
) -> Counter[tuple[int, int]]:
    """Return the bits of the cache of a sequence by sending and receiving rank."""
    sizes: Counter[tuple[int, int]] = Counter()
    for stage in range(target.plan.pipeline):
        wanted = target.plan.part(model, stage, 0).all_layers
        for other in range(source.plan.pipeline):
            there = source.plan.part(model, other, 0).all_layers
            both = range(max(wanted.start, there.start), min(wanted.stop, there.stop))
            for heads, bits in _cached_heads(model, target.plan, both, tokens).items():
                for tensor in range(target.plan.tensor):
                    for head in _heads(tensor, target.plan.tensor, heads):
                        holders = [
                            receiver
                            for receiver in range(source.plan.tensor)
                            if head in _heads(receiver, source.plan.tensor, heads)
                        ]
                        holder = source.rank(other, holders[tensor % len(holders)])
                        sizes[holder, target.rank(stage, tensor)] += bits
    return sizes


def _cached_heads(model: Model, plan: Plan, layers: Iterable[int], tokens: int) -> Counter[int]:
    """Return the cached bits of each head in some layers, by the number of heads that ranks share."""
    bits: Counter[int] = Counter()
    attention, states, whole = model.attention, model.recurrence, structs.replace(plan, tensor=1, expert=1)
    heads = 1 if attention.latent is not None else attention.key_heads
    for layer in layers:
        if model.has_attention(layer):
            kept = min(tokens, model.window(layer) or tokens)
            bits[heads] += kept * cached_bits_of_rank(model, whole) // heads
        elif model.kind(layer).mixer and states is not None:
            kept = states.channels * (states.convolution - 1) * plan.value_bytes // states.heads
            bits[states.heads] += 8 * (states.key_size * states.value_size * STATE_BYTES + kept)
    return bits


def _heads(tensor: int, ranks: int, heads: int) -> range:
    """Return the heads of a tensor-parallel rank."""
    first = tensor * heads // ranks
    return range(first, max((tensor + 1) * heads // ranks, first + 1))


def make_transfer(
    model: Model, source: ReplicaPlace, target: ReplicaPlace, *, tokens: int, ranks: int
) -> Workload:
    """Return the messages of a sequence of some tokens, all at once; the other ones of `ranks` do nothing."""
    builders: dict[int, TraceBuilder] = {}
    for (sender, receiver), size in sorted(messages(model, source, target, tokens).items()):
        for rank in (sender, receiver):
            builders.setdefault(rank, TraceBuilder(source="<cache>"))
        moved = -(-size // 8)
        builders[sender].send(receiver, moved, name="cache send")
        builders[receiver].receive(sender, moved, name="cache receive")
    of_rank = np.zeros(ranks, np.int32)
    for number, rank in enumerate(builders, 1):
        of_rank[rank] = number
    idle = TraceBuilder(source="<cache>").build()
    templates = (idle, *(build.build() for build in builders.values()))
    return Workload(templates, of_rank, "<cache>", profile=PROFILE)
