"""What one forward pass works on: new tokens of several sequences, and what each of them has cached.

Kernels depend on sums over the sequences only, so batches with equal sums are equal. Whether a model can be
served as a plan says, and what it is asked to work on, is checked here.

The cache of keys and values: how much of it a token takes. Tensor-parallel ranks have a share of the heads of
keys and values; where there are fewer heads than ranks, several have the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.workloads.kernels import stored_bytes
from et_sim.workloads.models.model import Attention, Model
from et_sim.workloads.training.layers import Layers
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


def weight_bytes_of_stage(model: Model, plan: Plan, place: int) -> int:
    """Of a rank at a place along the pipeline; those of layers as products read them."""
    layers, part = Layers(model, plan), plan.part(model, place, 0)
    ends = layers.embedding_weights * part.has_embedding + layers.head_weights * part.has_head
    weights = 0
    shares = plan.tensor if plan.expert == 1 else 1  # of every expert
    for layer in part.all_layers:
        weights += layers.dense_weights(layer) + -(-layers.expert_weights(layer) // shares)
    of_layers = stored_bytes(weights, plan.cast_to) if plan.cast_to else weights * plan.value_bytes
    return ends * plan.value_bytes + of_layers


def check(model: Model, plan: Plan) -> None:
    """Refuse a plan that does not fit the model."""
    plan.check_values()
    if model.is_encoder:
        raise UsageError(
            f"{model.name} is an encoder, which gives no tokens one after the other",
            remedy="choose a decoder, such as llama3-8b",
        )
    if any(model.window(layer) for layer in range(model.layers)):
        raise UsageError(
            f"{model.name} has layers that see {max(model.windows)} tokens only, and these passes see all",
            remedy='train it, or say "sliding_window": null in a copy of its config.json',
        )
    plan.check_stages(model)
    _check_shares(model, plan)


def _check_shares(model: Model, plan: Plan) -> None:
    attention, experts, tensor = model.attention, model.experts, plan.tensor
    _check_share("heads", attention.heads, tensor, "tensor-parallel ranks")
    if attention.latent is None and tensor % attention.key_heads:
        _check_share("heads of keys and values", attention.key_heads, tensor, "tensor-parallel ranks")
    _check_share(
        "the width of the feed-forward part", model.feed_forward.width, tensor, "tensor-parallel ranks"
    )
    if experts is None:
        if plan.expert > 1:
            raise UsageError(f"{model.name} has no experts", remedy="leave expert out")
        return
    if plan.expert_skew:
        raise UsageError("expert_skew is for training", remedy="leave expert_skew out")
    _check_share("experts", experts.count, plan.expert, "expert-parallel ranks")
    if plan.expert == 1:
        _check_share("the width of an expert", experts.expert.width, tensor, "tensor-parallel ranks")


def _check_share(quantity: str, total: int, share: int, by: str) -> None:
    if total % share:
        raise UsageError(
            f"{quantity}: {total}, which {share} {by} do not divide",
            remedy=f"choose a divisor of {total}",
        )


def check_length(model: Model, tokens: int) -> None:
    """Refuse a sequence longer than the model is made for."""
    if tokens > model.sequence:
        raise UsageError(
            f"a sequence of {tokens:,} tokens is longer than the {model.sequence:,} that {model.name} is"
            " made for",
            remedy=f"shorten it, or give --sequence {tokens}",
        )
