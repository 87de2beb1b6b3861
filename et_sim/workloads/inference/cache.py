"""The cache of keys and values: how much of it a token takes.

Tensor-parallel ranks have a share of the heads of keys and values; where there are fewer heads than ranks,
some have the same. A compressed cache (MLA) has no heads, so that each of them has all of it.
"""

from __future__ import annotations

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
