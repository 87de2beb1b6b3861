"""Whether a model can be spread as a plan says: what is divided among ranks must divide."""

from __future__ import annotations

from et_sim.basics.errors import UsageError
from et_sim.basics.units import plural
from et_sim.workloads.models.model import Model
from et_sim.workloads.recording import MOST_NODES
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.plan import Plan


def check(model: Model, plan: Plan) -> None:
    """Refuse a plan that does not fit the model."""
    plan.check_values()
    _check_stages(model, plan)
    _check_length(model, plan)
    attention, experts = model.attention, model.experts
    sequence = model.sequence
    for what, total, share, by in (
        ("heads", attention.heads, plan.tensor, "tensor-parallel ranks"),
        (
            "the width of the feed-forward part",
            model.feed_forward.width,
            plan.tensor,
            "tensor-parallel ranks",
        ),
        ("tokens of a sequence", sequence, plan.context, "context-parallel ranks"),
        ("experts", experts.count if experts else plan.expert, plan.expert, "expert-parallel ranks"),
    ):
        _check_share(what, total, share, by)
    if plan.sequence_parallel:
        tokens = plan.batch * sequence // plan.context
        _check_share("tokens of a micro-batch", tokens, plan.tensor, "tensor-parallel ranks")
        _check_share("tokens of a rank", tokens // plan.tensor, plan.tensor_overlap, "chunks")
    windows = [model.window(layer) for layer in range(model.layers)] if model.windows else []
    if plan.context > 1 and plan.context_attention == "ring" and any(windows):
        raise UsageError(
            f"{model.name} has layers that see {max(windows)} tokens only, and a ring passes all keys on",
            remedy="choose the context attention all-to-all",
        )
    if plan.context > 1 and plan.context_attention == "all-to-all":
        heads = attention.heads // plan.tensor
        _check_share("heads of a tensor-parallel rank", heads, plan.context, "context-parallel ranks")
    if plan.expert_skew and experts is None:
        raise UsageError(f"{model.name} has no experts", remedy="leave expert_skew out")
    if plan.expert > 1 and experts is None:
        raise UsageError(f"{model.name} has no experts", remedy="leave expert out")
    if experts is not None and plan.tensor > 1 and not plan.sequence_parallel:
        raise UsageError(
            "experts with tensor parallelism need sequence parallelism, so that no two ranks have a token",
            remedy="add sequence_parallel",
        )
    if plan.expert_skew and experts is not None:
        Layers(model, plan).tokens_sent(experts)  # refuses loads that it cannot share out


def _check_share(what: str, total: int, share: int, by: str) -> None:
    if total % share:
        near = max(total // share, 1) * share
        raise UsageError(
            f"{what}: {total}, which {share} {by} do not divide",
            remedy=f"choose another number, or a multiple of {share} such as {near}",
        )


def _check_length(model: Model, plan: Plan) -> None:
    """Refuse what could not be kept, before it is made: a layer is at least a node forward, and one back."""
    layers, stages = plan.layers_of_parts(model), plan.pipeline
    most = max(sum(layers[place::stages]) for place in range(min(stages, len(layers))))
    nodes = 2 * plan.micro_batches * (most + plan.chunks)
    if nodes > MOST_NODES:
        raise UsageError(
            f"{plural(plan.micro_batches, 'micro-batch', 'micro-batches')} of {plural(most, 'layer')}"
            f" are more than {MOST_NODES:,} nodes on a rank",
            remedy="use fewer layers or micro-batches",
        )


def _check_stages(model: Model, plan: Plan) -> None:
    parts, given = plan.parts, plan.stage_layers
    if not given:
        if model.layers % parts:
            raise UsageError(
                f"{model.name} has {model.layers} layers, which {parts} parts of the pipeline do not divide",
                remedy="choose another number, or say with stage_layers how many each part has",
            )
        return
    if len(given) != parts or sum(given) != model.layers or min(given) < 0:
        raise UsageError(
            f"stage_layers are {len(given)} numbers with the sum {sum(given)}",
            remedy=f"give {parts} numbers whose sum is {model.layers}",
        )
