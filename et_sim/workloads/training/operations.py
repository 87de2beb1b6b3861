"""Model operations of a training step, counted as in published figures of MFU.

They follow Chowdhery et al. (PaLM, 2022, appendix B) and, for the layers, Narayanan et al. (Megatron, 2021):
a token costs 6 operations for each weight that it is multiplied with, 2 forward and 4 backward, and
12 x layers x width x sequence for scores and their sums. Every query counts for every key, masked or not:
published figures do not halve causal attention. In a layer with a window, keys are those of the window.
Unmasked operations count only the scores that a query sees: causal, and within its document. Weights that are
only looked up (the embedding, unless the head shares it) are in no product. A recurrent layer costs three
times the operations that change its state token by token. Frozen weights cost 4, since they get no gradients;
adapters beside them cost 6.

Hardware operations are those that kernels execute: with recomputed activations, and without the masked scores
that a fused kernel skips. A kernel executes no more than its peak allows, so HFU is never above 100 %; it is
below MFU if masked scores are more than recomputation.
"""

from __future__ import annotations

from et_sim.trace.columns import NodeKind
from et_sim.trace.workload import Step, Workload
from et_sim.workloads.models.model import RECURRENCE, Model
from et_sim.workloads.recurrence import STATE_OPERATIONS
from et_sim.workloads.training.attention import sight_of
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import Plan


def tokens_of(model: Model, plan: Plan) -> int:
    """Return the tokens of a step, in all replicas."""
    return plan.data * plan.micro_batches * plan.batch * model.sequence


def model_operations(model: Model, plan: Plan) -> int:
    """Return the model operations of a step."""
    sequences = tokens_of(model, plan) // model.sequence
    width = model.attention.query_size + model.attention.value_size
    scores = sum(_all_pairs(model, layer) for layer in range(model.layers) if model.has_attention(layer))
    adapters, each = 0, 6
    if plan.lora_rank:
        layers, each = ModelLayers(model, Plan(lora_rank=plan.lora_rank)), 4
        adapters = sum(layers.adapter_weights(layer) for layer in range(model.layers))
    return (
        (each * _multiplied(model) + 6 * adapters) * tokens_of(model, plan)
        + 6 * sequences * scores * model.attention.heads * width
        + 3 * _of_states(model) * tokens_of(model, plan)
    )


def unmasked_operations(model: Model, plan: Plan) -> int:
    """Return the model operations of a step without masked scores."""
    sequences = tokens_of(model, plan) // model.sequence
    width = model.attention.query_size + model.attention.value_size
    masked = sum(
        _all_pairs(model, layer) - sight_of(model, plan, model.window(layer)).pairs(model.sequence)
        for layer in range(model.layers)
        if model.has_attention(layer)
    )
    return model_operations(model, plan) - 6 * sequences * masked * model.attention.heads * width


def _of_states(model: Model) -> int:
    """Return forward operations of a token in recurrent layers: each value decays, changes, and is read."""
    if model.recurrence is None:
        return 0
    layers = sum(model.kind(layer).mixer == RECURRENCE for layer in range(model.layers))
    return layers * model.recurrence.state * STATE_OPERATIONS


def datatype_of(plan: Plan) -> str:
    """Return the datatype of products with weights; empty if it has no name."""
    return plan.cast_to or plan.values


def step_of(model: Model, plan: Plan, workload: Workload) -> Step:
    """Return the tokens and operations of a plan's workload."""
    counts = workload.ranks_per_template.tolist()
    executed = sum(
        count * int(trace.num_ops[trace.kind == NodeKind.COMP].sum())
        for count, trace in zip(counts, workload.templates, strict=True)
    )
    operations = model_operations(model, plan)
    unmasked, kinds = unmasked_operations(model, plan), _kinds(model, plan)
    return Step(tokens_of(model, plan), operations, executed, datatype_of(plan), unmasked, kinds)


LONG = 32768  # least tokens of a long sequence


def _kinds(model: Model, plan: Plan) -> str:
    """Return words for the kind of job and plan."""
    words = {
        "training": True,
        "experts": model.experts is not None,
        "long-sequences": model.sequence >= LONG or plan.context > 1,
    }
    return " ".join(word for word, holds in words.items() if holds)


def _multiplied(model: Model) -> int:
    """Return the weights that a token is multiplied with."""
    looked_up = model.embedding_weights - (model.vocabulary * model.hidden if model.is_tied else 0)
    return model.active_weights - looked_up


def _all_pairs(model: Model, layer: int) -> int:
    """Return the pairs of queries and keys of a sequence, masked ones included."""
    return model.sequence * (model.window(layer) or model.sequence)
