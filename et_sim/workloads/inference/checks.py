"""Whether a model can be served as a plan says, and what it is asked to work on."""

from __future__ import annotations

from et_sim.basics.errors import UsageError
from et_sim.workloads.kernels import stored_bytes
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.plan import Plan


def weight_bytes_of_stage(model: Model, plan: Plan, place: int) -> int:
    """Of a rank at a place along the pipeline; those of layers as products read them."""
    layers, part = Layers(model, plan), plan.part(model, place, 0)
    ends = layers.embedding_weights * part.has_embedding + layers.head_weights * part.has_head
    found = 0
    shares = plan.tensor if plan.expert == 1 else 1  # of every expert
    for layer in part.all_layers:
        found += layers.dense_weights(layer) + -(-layers.expert_weights(layer) // shares)
    of_layers = stored_bytes(found, plan.cast_to) if plan.cast_to else found * plan.value_bytes
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
    if not plan.stage_layers and model.layers % plan.pipeline:
        raise UsageError(
            f"{model.name} has {model.layers} layers, which {plan.pipeline} stages do not divide",
            remedy="choose another number, or say with stage_layers how many each has",
        )
    given = plan.stage_layers
    if given and (len(given) != plan.pipeline or sum(given) != model.layers or min(given) < 0):
        raise UsageError(
            f"stage_layers are {len(given)} numbers with the sum {sum(given)}",
            remedy=f"give {plan.pipeline} numbers whose sum is {model.layers}",
        )
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


def _check_share(what: str, total: int, share: int, by: str) -> None:
    if total % share:
        raise UsageError(
            f"{what}: {total}, which {share} {by} do not divide",
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
