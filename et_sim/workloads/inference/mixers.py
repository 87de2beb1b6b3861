"""Kernels of attention, and of the recurrences in its place, between the norm and the sum of a layer.

Weights and cached values come from the largest memory (`cold`), since a pass reads them once.

Attention reads the keys and values of each segment once, cached and new ones. Prompts and single tokens are
two kernels. If lengths differ, the shape has the mean lengths, rounded up; operations and bytes are exact.

With a compressed cache (MLA), prompts expand it into keys and values of every head. Single tokens instead
transform their queries to the compressed form, and the outputs back, by the same weights; so do prompts whose
tokens see chosen ones only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from et_sim.basics.kernel_names import FP8_CACHE
from et_sim.trace import shapes
from et_sim.workloads.inference.batch import AttentionSight, Batch, BatchLoad
from et_sim.workloads.inference.memory import key_heads_of_rank
from et_sim.workloads.inference.numbers import LayerNumbers, cache_bits
from et_sim.workloads.inference.separate import SeparateKernels
from et_sim.workloads.kernels import RMS_NORM, Kernel, element_wise, passing
from et_sim.workloads.models.model import RECURRENCE, Attention, Index, Latent, Model, Recurrence, VisionTower
from et_sim.workloads.recurrence import SequenceChunks
from et_sim.workloads.training.plan import Plan

KEY_VALUE_UP = "key-value up"
QUERY_DOWN, KEY_VALUE_DOWN = "query down", "key-value down"
BOTH_DOWN = "query and key-value down"  # one product, as their inputs are the same
OF_PROMPTS, OF_TOKENS = "prefill attention", "decode attention"  # names of kernels
GATE = 6  # operations of a sigmoid times an output
SCORE_BYTES = 4  # size of a score by which tokens are chosen


def mixer_kernels(
    model: Model, plan: Plan, batch: Batch, layer: int, separate: Collection[str] = ()
) -> Iterator[Kernel]:
    """Yield the kernels of a layer's attention, or of the recurrence that replaces it."""
    kind, window, numbers = model.kind(layer), model.window(layer), LayerNumbers.of(model, plan, layer)
    if kind.mixer == RECURRENCE and model.recurrence is not None:
        yield from _recurrence_kernels(model.recurrence.share(plan.tensor), model.hidden, numbers, batch)
    elif kind.mixer:
        index = model.attention.index
        sight = AttentionSight(window, bool(window) and model.in_chunks)
        if index is not None:
            sight = AttentionSight(index.chosen, is_chosen=True)
        core = _AttentionCore(model, plan, separate)
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
        each = singles.tokens // singles.segments
        kept = SequenceChunks(share, singles.segments, each, size)
        yield from kept.decode() if each == 1 else kept.prefill()
    yield numbers.product("recurrence out", batch.tokens, hidden, share.values)


class _AttentionCore:
    """Attention between its products on a rank."""

    def __init__(self, model: Model, plan: Plan, separate: Collection[str] = ()) -> None:
        self.separate = SeparateKernels(separate, plan.value_bytes)
        self.attention = model.attention
        self.heads = self.attention.heads // plan.tensor
        self.key_heads = key_heads_of_rank(self.attention, plan.tensor)
        self.value_bytes, self.cache_bits = plan.value_bytes, cache_bits(model, plan)
        self.is_causal = not isinstance(model, VisionTower)

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
        shape = _shape(load, self.heads, key_heads, width, values, word, is_causal=self.is_causal)
        return Kernel(name, operations, moved, shape).cold()


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
        rotated = batch.tokens * (heads + key_heads) * attention.head_size if has_rotary else 0
        yield from core.separate.positions(rotated, batch.tokens * 2 * key_heads * attention.value_size)
        prefill, decode = batch.seen(sight)
        for name, load in ((OF_PROMPTS, prefill), (OF_TOKENS, decode)):
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
            for load, name in zip(batch.seen(sight), (OF_PROMPTS, OF_TOKENS), strict=True):
                yield from _compressed(attention, attention.latent, core, numbers, load, name)
    yield numbers.product("attention output", batch.tokens, model.hidden, heads * attention.value_size)


def _shape(
    load: BatchLoad, heads: int, key_heads: int, width: int, value_width: int, word: str, *, is_causal: bool
) -> str:
    tokens, keys = -(-load.tokens // load.segments), -(-load.keys // load.segments)
    return shapes.attention(
        load.segments,
        heads,
        tokens,
        keys,
        width,
        key_heads=key_heads,
        value_width=None if value_width == width else value_width,
        causal=is_causal and tokens > 1,
        kernel=word,
    )


def _latent(
    model: Model, latent: Latent, core: _AttentionCore, numbers: LayerNumbers, batch: Batch
) -> Iterator[Kernel]:
    attention, tensor = model.attention, model.attention.heads // core.heads
    matrices = {name: (inputs, outputs) for name, inputs, outputs in attention.projections(model.hidden)}
    has_both = QUERY_DOWN in matrices
    if has_both and numbers.formats.of(QUERY_DOWN) == numbers.formats.of(KEY_VALUE_DOWN):
        (inputs, columns), (_, more) = matrices.pop(QUERY_DOWN), matrices.pop(KEY_VALUE_DOWN)
        yield numbers.product(BOTH_DOWN, batch.tokens, columns + more, inputs, like=QUERY_DOWN)
    for name in (QUERY_DOWN, KEY_VALUE_DOWN):
        if name in matrices:
            inputs, outputs = matrices.pop(name)
            yield numbers.product(name, batch.tokens, outputs, inputs)
    yield from core.separate.latent_norms(batch.tokens, latent)
    for name, (inputs, outputs) in matrices.items():
        if name != KEY_VALUE_UP:
            yield numbers.product(name, batch.tokens, outputs // tensor, inputs)
    rotated, cached = (core.heads + 1) * latent.rotary_size, latent.value_rank + latent.rotary_size
    yield from core.separate.positions(batch.tokens * rotated, batch.tokens * cached, is_latent=True)
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
        yield from core.separate.keys(load, core.heads, attention, latent)
        yield core.kernel(OF_PROMPTS, load)


def _compressed(
    attention: Attention,
    latent: Latent,
    core: _AttentionCore,
    numbers: LayerNumbers,
    load: BatchLoad,
    name: str = OF_TOKENS,
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
