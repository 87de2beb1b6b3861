"""Frozen weights with adapters of a low rank: operations, gradients and memory of trained weights only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, memory, moved, rows_named, with_experts, with_latent_attention

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.trace import Trace
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.operations import model_operations, tokens_of
from et_sim.workloads.training.units import activation_bytes


def products(trace: Trace) -> int:
    """Return the operations of products with weights."""
    return sum(
        int(trace.num_ops[row])
        for row in range(len(trace))
        if trace.layer_shapes[trace.layer_shape[row]].startswith("gemm")
    )


def adapters_of(rank: int) -> int:
    """Return the adapter weights in a layer of the small decoder."""
    return rank * ((64 + 3 * 64) + (64 + 64) + (64 + 256) + (256 + 64))


@given(st.integers(1, 9), st.integers(1, 3))
def test_frozen_weights_cost_four_operations_for_each_token_and_adapters_six(rank: int, count: int) -> None:
    model, plan = decoder(), Plan(lora_rank=rank, micro_batches=count)
    frozen = model.layers * 12 * 64 * 64 + 64 * 128  # layers and head
    tokens = tokens_of(model, plan)
    expected = (4 * frozen + 6 * model.layers * adapters_of(rank)) * tokens
    assert products(make_training(model, plan).trace(0)) == expected
    attention, norms = 12 * model.layers * 64 * model.sequence * tokens, 9 * 64  # which count as weights
    assert model_operations(model, plan) == expected + attention + 4 * norms * tokens


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_replicas_exchange_gradients_of_adapters_only(zero: int) -> None:
    plan = Plan(lora_rank=4, data=4, zero=zero, micro_batches=1)
    traffic = moved(make_training(decoder(), plan).trace(0))
    adapters = 4 * adapters_of(4)
    kind = "reduce_scatter" if zero else "all_reduce"
    assert traffic["data", kind] == 2 * adapters + (0 if zero else 4)  # and the loss
    if zero in (1, 2):
        assert traffic["data", "all_gather"] == 2 * adapters // 4
    if zero == 3:
        layers = ModelLayers(decoder(), plan)
        whole = 4 * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights + adapters
        assert traffic["data", "all_gather"] == 2 * 2 * whole // 4


def test_tied_embeddings_of_a_pipeline_have_no_gradients_to_reduce() -> None:
    workload = make_training(replace(decoder(), is_tied=True), Plan(pipeline=2, lora_rank=2))
    assert not any(rows_named(trace, "tied embedding all-reduce").any() for trace in workload.templates)


@pytest.mark.parametrize(
    "model", [decoder(), with_experts(), with_latent_attention()], ids=["", "moe", "mla"]
)
def test_memory_has_gradients_and_optimizer_of_adapters_only(model: Model) -> None:
    plan = Plan(lora_rank=4, micro_batches=1)
    layers = ModelLayers(model, plan)
    adapters = sum(layers.adapter_weights(layer) for layer in range(model.layers))
    result, whole = memory(model, plan), memory(model, replace(plan, lora_rank=0))
    assert (result.gradients, result.optimizer) == (4 * adapters, 12 * adapters)
    assert result.weights == whole.weights + 2 * adapters


def test_adapters_keep_their_outputs() -> None:
    model, plan = decoder(), Plan(lora_rank=4)
    kept = (activation_bytes(ModelLayers(model, replace(plan, lora_rank=rank)), 0) for rank in (4, 0))
    assert next(kept) - next(kept) == 32 * 4 * 4 * 2  # of four products


def test_frozen_products_in_fewer_bits_are_cast_along_rows_only_and_weights_never() -> None:
    trace = make_training(decoder(), Plan(lora_rank=4, products="fp8", micro_batches=1)).trace(0)
    assert not rows_named(trace, "weights cast").any()
    whole = make_training(decoder(), Plan(products="fp8", micro_batches=1)).trace(0)
    name = "forward 0 layer 0 attention output inputs cast"
    mine, other = (int(of.tensor_bytes[rows_named(of, name)].sum()) for of in (trace, whole))
    assert other - mine == 32 * 64 + 32 * 64 // 32


@pytest.mark.parametrize(
    "how",
    [
        {"tensor": 2, "sequence_parallel": True, "data": 2, "zero": 1},
        {"pipeline": 2, "schedule": "zero-bubble", "recompute": "norms+activation"},
        {"data": 2, "zero": 3, "recompute": "full"},
    ],
    ids=str,
)
def test_jobs_with_adapters_run_and_need_the_planned_memory(how: dict[str, Any]) -> None:
    plan = Plan(lora_rank=2, micro_batches=2, **how)
    done = run(
        make_training(decoder(), plan),
        system=system(**{"profile": "corrected", "track-local-mem": 1}),
        network=network(["FullyConnected"], [plan.ranks], bandwidth=1e6),
    )
    assert done.outcome.is_complete
    assert done.statistics.peak_memory_bytes[0] == memory(decoder(), plan).total


@pytest.mark.parametrize(
    "how", [{"recompute": "op"}, {"tensor": 2, "sequence_parallel": True, "tensor_overlap": 2}]
)
def test_options_without_support_for_adapters_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="does not support products with adapters"):
        Plan(lora_rank=4, **how)
