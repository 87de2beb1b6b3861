"""Attention of a forward pass over what is cached and what is new, on one rank.

Each segment's keys and values are read once. Prompts and single tokens are two kernels. Of several lengths,
the shape in words has the mean ones, rounded up; operations and bytes are exact.

With a compressed cache (MLA), prompts unfold it into keys and values of every head; single tokens do not, but
take their queries to the compressed form, and what they find there back, by the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from et_sim.trace import shapes
from et_sim.workloads.inference.batch import Batch, Load, cached_values
from et_sim.workloads.kernels import Kernel, linear
from et_sim.workloads.models.model import Attention, Latent, Model
from et_sim.workloads.training.plan import Plan

KEY_VALUE_UP = "key-value up"


def attention_kernels(model: Model, plan: Plan, batch: Batch) -> Iterator[Kernel]:
    """From normalised inputs to the part of the outputs that a rank has."""
    attention, size = model.attention, plan.value_bytes
    heads = attention.heads // plan.tensor
    if attention.latent is None:
        key_heads = -(-attention.key_heads // plan.tensor)
        columns = (heads + 2 * key_heads) * attention.head_size
        yield from linear("qkv", batch.tokens, columns, model.hidden, size, plan.cast_to)
        for name, load in (("prefill attention", batch.prefill), ("decode attention", batch.decode)):
            if load.segments:
                yield _core(name, load, attention, heads, key_heads, size)
    else:
        yield from _latent(model, attention.latent, plan, batch, heads)
    rows = heads * attention.value_size
    yield from linear("attention output", batch.tokens, model.hidden, rows, size, plan.cast_to)


def _core(
    name: str, load: Load, attention: Attention, heads: int, key_heads: int, value_bytes: int
) -> Kernel:
    widths = attention.query_size + attention.value_size
    moved = (heads * load.tokens + key_heads * load.keys) * widths
    operations = 2 * heads * load.pairs * widths
    shape = _shape(load, heads, key_heads, attention.query_size, attention.value_size)
    return Kernel(name, operations, moved * value_bytes, shape).cold()


def _shape(load: Load, heads: int, key_heads: int, width: int, value_width: int) -> str:
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


def _absorbed(attention: Attention, latent: Latent, load: Load, heads: int, plan: Plan) -> Iterator[Kernel]:
    """In the compressed form, all heads share what is cached; values are a part of the keys."""
    rank, width, size = latent.value_rank, cached_values(attention), plan.value_bytes
    yield from linear("query to latent", load.tokens, rank, attention.head_size, size, plan.cast_to, heads)
    moved = heads * load.tokens * (width + rank) + load.keys * width
    operations = 2 * heads * load.pairs * (width + rank)
    shape = _shape(load, heads, 1, width, rank)
    yield Kernel("decode attention", operations, moved * size, shape).cold()
    yield from linear("value from latent", load.tokens, latent.value_size, rank, size, plan.cast_to, heads)
