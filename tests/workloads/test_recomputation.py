"""Recomputation by modules, by operators and of some layers: kernels that run again, and memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, rows_named, with_experts, with_latent_attention

from et_sim.basics.errors import UsageError
from et_sim.trace import Trace
from et_sim.trace.tensors import tensor_uses
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.models.model import Attention, FeedForward
from et_sim.workloads.training.figures import most_memory
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.units import activation_bytes

DENSE = ("core-attention", "norms", "activation", "mlp")


def gated(**given: Any) -> Model:
    """Return a model with eight heads that share two pairs of keys and values, and a gate."""
    usual = {"attention": Attention(8, 2, 8), "feed_forward": FeedForward(128, is_gated=True)}
    return decoder(**{**usual, **given})


def again(model: Model, **how: Any) -> Trace:
    return make_training(model, Plan(**{"micro_batches": 1, **how})).templates[0]


def kernels_again(trace: Trace, layer: int = 0) -> list[str]:
    """Return the nodes of a layer that run again in its backward pass, in order."""
    before = f"backward 0 layer {layer} again "
    names = (trace.names[number] for number in trace.name.tolist())
    return [name.removeprefix(before) for name in names if name.startswith(before)]


@pytest.mark.parametrize(
    ("recompute", "kernels"),
    [
        ("none", []),
        ("selective", ["attention"]),
        ("core-attention", ["attention"]),
        ("norms", ["attention norm", "feed-forward norm"]),
        ("activation", ["feed-forward activation"]),
        ("mlp", ["feed-forward up", "feed-forward activation", "feed-forward down"]),
        ("activation+norms", ["attention norm", "feed-forward norm", "feed-forward activation"]),
    ],
)
def test_modules_run_again_in_the_order_of_the_layer(recompute: str, kernels: list[str]) -> None:
    assert kernels_again(again(gated(), recompute=recompute)) == kernels


def test_up_projections_of_latent_attention_and_positions_run_again() -> None:
    trace = again(with_latent_attention(), recompute="mla-up")
    assert kernels_again(trace) == ["query up", "key-value up", "rotary"]


def test_experts_run_again_with_their_exchanges() -> None:
    model, how = with_experts(), {"data": 2, "expert": 2}
    trace = again(model, recompute="moe", **how)
    forward = [
        name.removeprefix("forward 0 layer 1 ")
        for name in (trace.names[number] for number in trace.name.tolist())
        if name.startswith("forward 0 layer 1 ")
    ]
    behind = forward[forward.index("attention sum") + 1 :]
    parts = [name for name in behind if not name.endswith((" norm", " sum"))]
    assert kernels_again(trace, 1) == parts
    assert "to experts" in parts
    assert kernels_again(trace, 0) == []  # which has none
    shared = kernels_again(again(model, recompute="shared-experts", **how), 1)
    assert shared == ["shared expert up", "shared expert activation", "shared expert down"]


def test_by_operators_every_second_product_runs_again_and_no_attention() -> None:
    model = gated()
    trace = again(model, recompute="op")
    assert kernels_again(trace) == [
        "attention norm",
        "qkv",
        "split",
        "rotary",
        "attention output",
        "attention sum",
        "feed-forward norm",
        "feed-forward up",
        "feed-forward activation",
    ]
    begins = np.array([name.startswith("backward 0 layer 0 again") for name in trace.names])[trace.name]
    operations = {
        ending: int(trace.num_ops[begins & rows_named(trace, f" {ending}")].sum())
        for ending in ("qkv", "attention output", "feed-forward up")
    }
    keys, inputs = 2 * 8, 128  # of keys, and one of both inputs of the gate
    assert operations == {
        "qkv": 2 * 32 * 64 * keys,
        "attention output": 2 * 32 * 64 * 64,
        "feed-forward up": 2 * 32 * 64 * inputs,
    }
    layers = ModelLayers(model, Plan(recompute="op"))
    kept = 64 + (64 + 16) + 64 + 128 + 64  # input, queries and values, attention, gate, the last product
    assert activation_bytes(layers, 0) == 32 * kept * 2


def test_by_operators_products_in_fewer_bits_all_run_again() -> None:
    plan = Plan(recompute="op", products="fp8", micro_batches=1)
    trace = make_training(gated(), plan).templates[0]
    begins = np.array([name.startswith("backward 0 layer 0 again") for name in trace.names])[trace.name]
    up = int(trace.num_ops[begins & rows_named(trace, " feed-forward up")].sum())
    assert up == 2 * 32 * 64 * 2 * 128
    assert activation_bytes(ModelLayers(gated(), plan), 0) == 32 * (64 + 64) * 2


def test_where_outputs_are_reduced_and_scattered_their_product_does_not_run_again() -> None:
    trace = again(gated(), recompute="op", tensor=2, sequence_parallel=True)
    names = kernels_again(trace)
    assert "attention output" not in names
    assert "attention reduce-scatter" not in names
    assert {"attention all-gather", "feed-forward all-gather"} <= set(names)
    chunks = again(gated(), recompute="op", tensor=2, sequence_parallel=True, tensor_overlap=2)
    assert kernels_again(chunks) == names


@pytest.mark.parametrize("recompute", ["selective", "op", "full", "norms+mlp"])
@pytest.mark.parametrize(
    ("layers", "chosen"), [("", [0, 1, 2, 3]), ("every:2", [0, 2]), ("every:3", [0, 2]), ("first:1", [0, 2])]
)
def test_some_layers_of_each_stage_are_recomputed(recompute: str, layers: str, chosen: list[int]) -> None:
    plan = Plan(pipeline=2, micro_batches=2, recompute=recompute, recompute_layers=layers)
    workload = make_training(decoder(), plan)
    result = [
        layer
        for layer in range(4)
        if any(kernels_again(workload.trace(rank), layer) for rank in range(workload.ranks))
    ]
    assert result == chosen


def test_a_run_of_layers_keeps_one_input_and_is_computed_again_at_once() -> None:
    """Expect the operations of a step without runs, and fewer inputs that wait for the backward pass."""
    single, runs = (
        make_training(decoder(), Plan(recompute="full", recompute_layers=layers, micro_batches=2)).trace(0)
        for layers in ("", "uniform:3")
    )
    assert single.num_ops.sum() == runs.num_ops.sum()
    names = [runs.names[int(number)] for number in runs.name]
    again = [
        name.split(" again ")[0] for name in names if name.startswith("backward 0") and " again " in name
    ]
    assert list(dict.fromkeys(again)) == [f"backward 0 layer {layer}" for layer in (3, 0, 1, 2)]
    last_again = max(at for at, name in enumerate(names) if name.startswith("backward 0 layer 2 again"))
    first_back = min(at for at, name in enumerate(names) if name.startswith("backward 0 layer 2 feed"))
    assert last_again < first_back
    kept, wanted = (
        {name for name in tensor_uses(trace, "here").names if name.startswith("activations:")}
        for trace in (runs, single)
    )
    assert kept == {name for name in wanted if "layer 0" in name or "layer 3" in name}
    memory = [most_memory(trace) for trace in (single, runs)]
    whole, layer = (
        activation_bytes(ModelLayers(decoder(), Plan(recompute=how)), 0) for how in ("none", "full")
    )
    assert memory[0].activations - memory[1].activations >= 2 * layer
    assert memory[1].temporary - memory[0].temporary >= 2 * (whole - layer)


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_tensors_of_runs_are_written_before_they_are_read(schedule: str) -> None:
    plan = Plan(
        recompute="full", recompute_layers="uniform:2", micro_batches=4, pipeline=2, schedule=schedule
    )
    for trace in make_training(decoder(), plan).templates:
        uses, written = tensor_uses(trace, "here"), set[int]()
        for tensor, is_write in zip(uses.tensor.tolist(), uses.is_write.tolist(), strict=True):
            if uses.names[tensor].startswith("temporary:layer"):
                assert is_write or tensor in written
                written |= {tensor} if is_write else set()


def subsets(words: Iterable[str]) -> list[tuple[str, ...]]:
    words = tuple(words)
    return [chosen for count in range(1, len(words) + 1) for chosen in combinations(words, count)]


@given(
    st.sampled_from(subsets(("norms", "activation", "core-attention"))),
    st.booleans(),
    st.sampled_from([{}, {"tensor": 2, "sequence_parallel": True}, {"context": 2}, {"products": "fp8"}]),
)
def test_savings_of_modules_add_up(modules: tuple[str, ...], is_fused: bool, how: dict[str, Any]) -> None:
    plan = Plan(fused_attention=is_fused, **how)
    model = gated()

    def spared(recompute: str) -> int:
        changed = replace(plan, recompute=recompute)
        return activation_bytes(ModelLayers(model, plan), 0) - activation_bytes(
            ModelLayers(model, changed), 0
        )

    apart = sum(spared(module) for module in modules)
    assert spared("+".join(modules)) == pytest.approx(apart, abs=len(modules))  # a byte of scales for 32


def test_each_module_saves_its_outputs() -> None:
    model, plan = gated(), Plan()

    def spared(model: Model, recompute: str) -> int:
        sizes = (
            activation_bytes(ModelLayers(model, replace(plan, recompute=how)), 1)
            for how in ("none", recompute)
        )
        whole, rest = sizes
        return whole - rest

    assert spared(model, "norms") == 2 * 32 * 64 * 2
    assert spared(model, "activation") == 32 * 128 * 2
    assert spared(model, "mlp") == spared(model, "mlp+activation") == 32 * 3 * 128 * 2
    assert spared(model, "selective") == 0  # fused, it keeps no scores
    latent = with_latent_attention()
    assert spared(latent, "mla-up") == 32 * (2 * 8 * latent.attention.query_size + 8 * 8) * 2
    experts = with_experts()
    assert spared(experts, "shared-experts") == 32 * 3 * 128 * 2
    assert spared(experts, "moe") == 32 * (3 * 128 + 2 * (64 + 3 * 128)) * 2


@pytest.mark.parametrize(
    ("model", "how", "message"),
    [
        (decoder(), {"recompute": "norm"}, "recompute is 'norm' (did you mean 'norms'?)"),
        (
            decoder(),
            {"recompute": "norms+full"},
            "recompute is 'norms+full' (known: none, selective, full, op",
        ),
        (decoder(), {"recompute": "norms+norms"}, "recompute names norms twice"),
        (decoder(), {"recompute": "moe"}, "recompute names moe, which small lacks (leave it out)"),
        (decoder(), {"recompute": "mla-up"}, "recompute names mla-up, which small lacks"),
        (
            with_experts(),
            {"recompute": "op"},
            "does not support experts, whose products are one operator: small",
        ),
        (
            decoder(),
            {"recompute": "full", "recompute_layers": "2"},
            "recompute_layers is '2' (give every:N, first:N or uniform:N",
        ),
        (
            decoder(),
            {"recompute": "full", "recompute_layers": "every:0"},
            "recompute_layers is 'every:0' (give every:N",
        ),
        (
            decoder(),
            {"recompute_layers": "every:2"},
            "recompute_layers is every:2, but nothing is recomputed",
        ),
        (
            decoder(),
            {"recompute": "selective", "recompute_layers": "uniform:2"},
            "recompute_layers uniform:2 requires recompute full, and recompute is selective",
        ),
        (
            decoder(),
            {"recompute": "full", "recompute_layers": "uniform:2", "zero": 3, "data": 2},
            "recompute_layers is uniform:2, and zero is 3 (give every:N or first:N, or give zero 0, 1 or 2)",
        ),
        (
            decoder(),
            {"recompute": "full", "recompute_layers": "uniform:2", "offload_activations": True},
            "recompute_layers is uniform:2, and offload_activations is given",
        ),
    ],
)
def test_invalid_recomputation_is_refused(model: Model, how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_training(model, Plan(**how))
    assert message in str(caught.value)
