"""Products in fewer bits: casts before them, in closed form; all else keeps the bytes of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from training_jobs import decoder, memory, moved, rows_named, transformer, with_experts

from et_sim.basics.errors import UsageError
from et_sim.trace.columns import Trace
from et_sim.workloads import make_training
from et_sim.workloads.inference.batch import Batch, Segment
from et_sim.workloads.inference.forward import make_inference
from et_sim.workloads.inference.memory import weight_bytes_of_stage
from et_sim.workloads.kernels import stored_bytes
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.units import activation_bytes

CASTS = ("weights cast", "inputs cast", "gradients cast")


def of(trace: Trace, ending: str) -> tuple[int, int]:
    """Return the number of nodes whose names have an ending, and their bytes."""
    rows = np.flatnonzero(rows_named(trace, ending))
    return len(rows), int(trace.tensor_bytes[rows].sum())


def test_scales_are_counted() -> None:
    assert stored_bytes(3200, "fp8") == 3300
    assert stored_bytes(3200, "fp4") == 1800
    assert stored_bytes(1, "fp4") == 2


@pytest.mark.parametrize("products", ["fp8", "fp4"])
@pytest.mark.parametrize("zero", [0, 3])
def test_operands_are_cast_before_each_product(products: str, zero: int) -> None:
    plan = {"data": 2, "micro_batches": 2, "zero": zero}
    trace = transformer(products=products, **plan).trace(0)
    plain = transformer(**plan).trace(0)
    model = decoder()
    name, width, inner = "feed-forward down", model.feed_forward.width, model.hidden
    passes = 2 * 2  # micro-batches, there and back
    weights, inputs, gradients = (of(trace, f"layer 0 {name} {cast}") for cast in CASTS)
    casts, copies = (passes, 1) if zero == 3 else (1, 2)
    values = width * inner
    assert weights == (casts, casts * (2 * values + copies * stored_bytes(values, products)))
    values = model.sequence * width
    assert inputs == (2, 2 * (2 * values + 2 * stored_bytes(values, products)))
    values = model.sequence * inner
    assert gradients == (2, 2 * (2 * values + 2 * stored_bytes(values, products)))
    read = stored_bytes(model.sequence * width + width * inner, products)
    assert of(trace, f"layer 0 {name}") == (2, 2 * (read + 2 * model.sequence * inner))
    assert moved(trace) == moved(plain)
    assert trace.num_ops.sum() > plain.num_ops.sum()


def test_only_products_with_weights_compute_in_fewer_bits() -> None:
    trace = transformer(products="fp8").trace(0)
    in_fewer = {name for name in trace.names if (rows_named(trace, name) & (dtypes(trace) == "fp8")).any()}
    kinds = {trace.layer_shapes[at].partition(" ")[0] for at in trace.layer_shape[dtypes(trace) == "fp8"]}
    assert kinds == {"gemm"}
    assert not any("head" in name or "cast" in name or name.endswith("attention") for name in in_fewer)


def dtypes(trace: Trace) -> np.ndarray:
    """Return the sum over all nodes."""
    return np.array(trace.datatypes)[trace.datatype]


def test_numbers_that_products_cannot_have_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        Plan(products="fp9")
    assert "did you mean 'fp8'" in f"{refused.value}"


@pytest.mark.parametrize("products", ["fp8", "fp4"])
def test_casts_are_cut_into_the_chunks_of_products_that_overlap_with_their_exchange(products: str) -> None:
    plan = {"tensor": 2, "sequence_parallel": True, "products": products, "micro_batches": 3}
    whole, cut = (transformer(**plan, tensor_overlap=chunks).trace(0) for chunks in (1, 2))
    for name, chunked in (("up", "inputs"), ("down", "inputs"), ("up", "gradients"), ("down", "gradients")):
        before, after = f"layer 0 feed-forward {name}", f"{chunked} cast"
        count, size = of(whole, f"{before} {after}")
        chunks = [of(cut, f"{before} {after} {number}/2") for number in (1, 2)]
        assert chunks == [(count, size // 2)] * 2
    for name in ("up", "down"):
        ending = f"layer 0 feed-forward {name} weights cast"
        assert of(cut, ending) == of(whole, ending)
    assert cut.num_ops.sum() == whole.num_ops.sum()
    assert moved(cut) == moved(whole)


def test_memory_has_casts_of_weights_and_of_inputs_of_products() -> None:
    model, plan = decoder(), Plan(micro_batches=1, products="fp8")
    plain, cast = memory(model, replace(plan, products="values")), memory(model, plan)
    layers = ModelLayers(model, plan)
    weights = sum(layers.dense_weights(layer) for layer in range(model.layers))
    per_layer = stored_bytes(layers.dense_weights(0), "fp8")
    assert weights % model.layers == 0
    assert cast.weights - plain.weights == 2 * per_layer * model.layers
    width, hidden = model.feed_forward.width, model.hidden
    into = model.sequence * (2 * hidden + width)
    outputs = model.sequence * model.attention.heads * model.attention.value_size
    saved = 2 * into - stored_bytes(into + outputs, "fp8")
    assert (
        activation_bytes(ModelLayers(model, replace(plan, products="values")), 0)
        - activation_bytes(layers, 0)
        == saved
    )
    assert cast.optimizer == plain.optimizer


def test_shares_are_gathered_cast_and_only_transposed_backward() -> None:
    plan = {"data": 4, "zero": 3, "products": "fp8", "micro_batches": 2}
    plain, cast = transformer(**plan).trace(0), transformer(**plan, gather_cast=True).trace(0)
    model = decoder()
    weights = ModelLayers(model, Plan(**plan)).dense_weights(0)
    passes = 2 * 2
    share = weights // 4
    assert of(cast, "layer 0 share cast") == (passes, passes * (2 * share + stored_bytes(share, "fp8")))
    gathers = cast.comm_bytes[rows_named(cast, "layer 0 weights all-gather")].tolist()
    assert gathers == [-(-stored_bytes(weights, "fp8") // 4)] * passes
    head = "forward 0 head weights all-gather"
    assert (
        cast.comm_bytes[rows_named(cast, head)].tolist() == plain.comm_bytes[rows_named(plain, head)].tolist()
    )
    values = model.hidden * model.feed_forward.width
    assert of(cast, "layer 0 feed-forward up weights cast") == (2, 2 * 2 * stored_bytes(values, "fp8"))


def test_experts_that_no_ranks_share_are_cast() -> None:
    plan = {"data": 2, "expert": 2, "zero": 3, "products": "fp8", "micro_batches": 1, "gather_cast": True}
    trace = make_training(with_experts(), Plan(**plan)).trace(0)
    values = ModelLayers(with_experts(), Plan(**plan)).expert_weights(1)
    size = 2 * values + stored_bytes(values, "fp8")
    assert of(trace, "layer 1 expert share cast") == (2, 2 * size)


@pytest.mark.parametrize("how", [{"products": "fp8"}, {"zero": 3}])
def test_casts_are_gathered_only_where_casts_and_shares_are(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        Plan(gather_cast=True, **how)
    assert "gather_cast requires zero 3" in f"{refused.value}"


def test_values_of_a_byte_are_refused() -> None:
    with pytest.raises(UsageError, match="norms, attention and exchanges"):
        transformer(value_bytes=1)
    with pytest.raises(UsageError, match="norms, attention and exchanges"):
        make_inference(decoder(), Plan(value_bytes=1), [Batch.of([Segment(8)])])


def test_inference_casts_inputs_in_the_kernel_before_and_keeps_weights_cast() -> None:
    model, tokens = decoder(), 8
    plain, cast = (Plan(tensor=2, products=products) for products in ("values", "fp8"))
    trace = make_inference(model, cast, [Batch.of([Segment(tokens)])]).trace(0)
    values = tokens * model.feed_forward.width // 2
    read = values + model.feed_forward.width // 2 * model.hidden + 4  # a scale of the matrix
    assert of(trace, "layer 0 feed-forward down") == (1, read + 2 * tokens * model.hidden)
    before = make_inference(model, plain, [Batch.of([Segment(tokens)])]).trace(0)
    assert not rows_named(trace, " cast").any()
    assert len(trace) == len(before)
    assert moved(trace) == moved(before)
    assert weight_bytes_of_stage(model, cast, 0) < 0.8 * weight_bytes_of_stage(model, plain, 0)


def test_numbers_of_inference_are_refused_in_training() -> None:
    for given, text in (
        ({"products": "int4"}, "products is int4, which is for inference"),
        ({"expert_products": "fp8"}, "expert_products is for inference"),
        ({"cache_type": "fp8"}, "cache_type is for inference"),
    ):
        with pytest.raises(UsageError) as refused:
            transformer(**given)
        assert text in f"{refused.value}"
