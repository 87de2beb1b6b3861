"""Weights that a rank holds for inference.

Not here: what kernels need while they run.
"""

from __future__ import annotations

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
