"""The cached bytes of a token, while no window is full."""

from __future__ import annotations

from et_sim.workloads.inference.memory import SequenceCache
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan


def cache_bytes(model: Model) -> int:
    """Return the cached bytes of a token in all layers."""
    return cache_bytes_of_stage(model, Plan(), 0)


def cache_bytes_of_stage(model: Model, plan: Plan, place: int) -> int:
    """Return the cached bytes of a token on a rank at a place of the pipeline."""
    return SequenceCache.of(model, plan, place).token_bytes
