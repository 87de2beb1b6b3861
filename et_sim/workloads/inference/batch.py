"""What one forward pass works on: new tokens of several sequences, and what each of them has cached.

Kernels depend on sums over the sequences only, so batches with equal sums are equal.

The cache of keys and values: how much of it a token takes. Tensor-parallel ranks have a share of the heads of
keys and values; where there are fewer heads than ranks, some have the same. A compressed cache (MLA) has no
heads, so that each of them has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from et_sim.basics.units import plural
from et_sim.workloads.models.model import Attention, Model
from et_sim.workloads.training.plan import Plan


def cached_values(attention: Attention) -> int:
    """Of a token, in one layer."""
    if attention.latent is not None:
        return attention.latent.value_rank + attention.latent.rotary_size
    return attention.key_heads * (attention.query_size + attention.value_size)


def cached_values_of_rank(attention: Attention, tensor: int) -> int:
    """Of a token, in one layer, on each of the ranks that share it."""
    if attention.latent is not None:
        return cached_values(attention)
    return -(-attention.key_heads // tensor) * (attention.query_size + attention.value_size)


def cache_bytes(model: Model, value_bytes: int = 2) -> int:
    """Of a token, in the whole model, held once."""
    return model.layers * cached_values(model.attention) * value_bytes


def cache_bytes_of_stage(model: Model, plan: Plan, place: int) -> int:
    """Of a token, on a rank at a place along the pipeline."""
    layers = plan.part(model, place, 0).layers
    return layers * cached_values_of_rank(model.attention, plan.tensor) * plan.value_bytes


class Segment(NamedTuple):
    """Tokens of one sequence."""

    tokens: int  # new ones
    context: int = 0  # before them, whose keys and values are cached
    is_sampled: bool = True  # the pass gives the sequence its next token


class Load(NamedTuple):
    """Sums over segments."""

    segments: int = 0
    tokens: int = 0
    keys: int = 0  # that the segments' last tokens see
    pairs: int = 0  # of a token and a key that it sees


class Batch(NamedTuple):
    """Segments of a pass: prompts, or parts of them; and single tokens after what is cached."""

    prefill: Load
    decode: Load
    sampled: int

    @staticmethod
    def of(segments: Iterable[Segment], context_step: int = 1) -> Batch:
        """The batch of some segments. With a step above 1, contexts are rounded up to multiples of it: of
        prompts each one, of single tokens their mean, so that batches differ in fewer ways.
        """
        prefill, singles, context, sampled = [0] * 4, 0, 0, 0
        for tokens, before, is_sampled in segments:
            sampled += is_sampled
            if tokens == 1 and before:
                singles += 1
                context += before
                continue
            rounded = -(-before // context_step) * context_step
            prefill[0] += 1
            prefill[1] += tokens
            prefill[2] += rounded + tokens
            prefill[3] += tokens * rounded + tokens * (tokens + 1) // 2
        if context_step > 1 and singles:
            unit = context_step * singles
            context = -(-context // unit) * unit
        keys = context + singles
        return Batch(Load(*prefill), Load(singles, singles, keys, keys), sampled)

    @property
    def tokens(self) -> int:
        """New ones."""
        return self.prefill.tokens + self.decode.tokens

    def __str__(self) -> str:
        prefill, decode = self.prefill, self.decode
        parts = []
        if prefill.segments:
            parts.append(f"{plural(prefill.segments, 'prompt')} of {plural(prefill.tokens, 'token')}")
        if decode.segments:
            sees = f"sees {decode.keys:,} tokens" if decode.segments == 1 else f"see {decode.keys:,} tokens"
            parts.append(f"a token of {plural(decode.segments, 'sequence')} that {sees}")
        return ", ".join(parts)
