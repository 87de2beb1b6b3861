"""Kernels that software has beside the products of experts: biases, limits, gradients of tokens' weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from training_jobs import decoder, memory, moved, rows_named

from et_sim.trace import Trace
from et_sim.workloads import Model, Plan, make_training, read_model
from et_sim.workloads.models.model import Experts, FeedForward

TOKENS, CHOSEN, WIDTH, HIDDEN, LAYERS, COUNT = 32, 2, 128, 64, 4, 8
ROWS = TOKENS * CHOSEN
PARTS = ("limits", "bias")
PADDED = {None: 1, "fp8": 16, "fp4": 32}  # rows of each expert


def model(**part: Any) -> Model:
    usual = {"is_gated": True, "has_bias": True, "is_clipped": True}
    return replace(decoder(), experts=Experts(COUNT, CHOSEN, FeedForward(WIDTH, **{**usual, **part})))


def step(of: Model, **how: Any) -> Trace:
    usual = {"micro_batches": 1, "software": "megatron-core"}
    return make_training(of, Plan(**{**usual, **how})).templates[0]


def kernels(trace: Trace, during: str, part: str) -> tuple[int, int]:
    """Return the bytes and launches of all layers, with strided kernels."""
    begins = np.array([name.startswith(during) for name in trace.names], np.bool_)[trace.name]
    rows = begins & (rows_named(trace, f" experts {part}") | rows_named(trace, f" experts {part} strided"))
    launches = np.where(trace.has("launches"), trace.launches, 1)
    return int(trace.tensor_bytes[rows].sum()), int(launches[rows].sum())


def test_limits_of_an_activation_are_kernels_before_it() -> None:
    trace, outputs = step(model()), LAYERS * ROWS * WIDTH
    assert kernels(trace, "forward", "limits") == (8 * 2 * outputs, 3 * LAYERS)
    assert kernels(trace, "backward", "limits") == (15 * 2 * outputs, 7 * LAYERS)


def test_kernels_of_halves_of_rows_and_of_repeated_biases_are_strided() -> None:
    trace, size = step(model()), 2
    halves, outputs = LAYERS * ROWS * WIDTH * size, LAYERS * ROWS * HIDDEN * size
    assert kernels(trace, "forward", "limits strided") == (4 * halves, 2 * LAYERS)
    assert kernels(trace, "backward", "limits strided") == (9.5 * halves, 4 * LAYERS)
    assert kernels(trace, "forward", "bias strided") == (outputs, COUNT * LAYERS)
    assert kernels(trace, "backward", "bias strided") == (4 * outputs, 2 * COUNT * LAYERS)
    rows = rows_named(trace, "limits strided")
    assert all(
        shape.endswith(" strided") for shape in {trace.layer_shapes[at] for at in trace.layer_shape[rows]}
    )


def test_the_bias_of_outputs_is_added_for_each_expert() -> None:
    trace, outputs = step(model()), LAYERS * ROWS * HIDDEN
    assert kernels(trace, "forward", "bias") == (6 * 2 * outputs, 2 * COUNT * LAYERS)
    assert kernels(trace, "backward", "bias") == (8 * 2 * outputs, 4 * COUNT * LAYERS)


def test_experts_on_other_ranks_add_their_own_biases() -> None:
    trace = step(model(), data=4, expert=4)
    assert kernels(trace, "forward", "bias") == (6 * 2 * LAYERS * ROWS * HIDDEN, 2 * COUNT // 4 * LAYERS)


@pytest.mark.parametrize(("is_gated", "reads"), [(True, 3), (False, 2)])
def test_gradients_of_weights_read_inputs_and_gradients_of_the_activation_again(
    is_gated: bool, reads: int
) -> None:
    of = model(is_gated=is_gated)
    with_them, without = (
        kernels(step(of, fused_routing=fused), "backward", "activation") for fused in (True, False)
    )
    assert with_them == (without[0] + reads * 2 * LAYERS * ROWS * WIDTH, without[1] + LAYERS)
    fused = step(of, software="maxtext", zero=1)
    assert kernels(fused, "backward", "activation") == without
    assert kernels(step(of), "forward", "activation") == kernels(fused, "forward", "activation")


def test_experts_without_biases_and_limits_have_no_such_kernels() -> None:
    trace = step(model(has_bias=False, is_clipped=False))
    passes = ("forward", "backward")
    assert {kernels(trace, during, part) for during in passes for part in PARTS} == {(0, 0)}


@pytest.mark.parametrize(
    ("plan", "copies"),
    [
        ({"products": "fp8"}, 1),
        ({"products": "fp4"}, 1),
        ({}, 0),
        ({"products": "fp8", "data": 4, "expert": 4}, 1),
        ({"products": "fp8", "data": 4, "expert": 4, "expert_exchange": "deepep", "node_ranks": 2}, 0),
        ({"products": "fp8", "software": "maxtext", "zero": 1}, 0),
    ],
)
def test_rows_are_copied_to_padded_ones_and_back_for_products_in_fewer_bits(
    plan: dict[str, Any], copies: int
) -> None:
    """Expect a read and a write of each value of the rows, padded to 16 or 32, before and after."""
    trace = step(model(), **plan)
    rows = LAYERS * max(ROWS // COUNT * plan.get("data", 1), PADDED[plan.get("products")]) * COUNT
    rows //= plan.get("expert", 1)
    for during in ("forward", "backward"):
        for part in ("padding", "unpadding"):
            assert kernels(trace, during, part) == (copies * 2 * 2 * rows * HIDDEN, copies * LAYERS)


def test_software_that_fuses_them_has_none() -> None:
    trace = step(model(), software="maxtext", zero=1)
    passes = ("forward", "backward")
    assert {kernels(trace, during, part) for during in passes for part in PARTS} == {(0, 0)}


def test_inputs_within_limits_are_kept_beside_those_before_unless_they_are_computed_again() -> None:
    plan = Plan(micro_batches=1, software="megatron-core")
    again = replace(plan, recompute="activation")
    free = replace(model(), experts=Experts(COUNT, CHOSEN, FeedForward(WIDTH, True, has_bias=True)))
    more = LAYERS * ROWS * 2 * WIDTH * 2
    assert memory(model(), plan).activations - memory(free, plan).activations == more
    assert memory(model(), again).activations == memory(free, again).activations
    trace = step(model(), recompute="activation")
    assert kernels(trace, "backward", "limits")[0] == (15 + 8) * 2 * LAYERS * ROWS * WIDTH


def test_gpt_oss_has_limits_and_others_have_none() -> None:
    clipped = {
        name: of.expert.is_clipped
        for name in ("gpt-oss-120b", "gpt-oss-20b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
        if (of := read_model(name).experts)
    }
    assert [name for name, is_clipped in clipped.items() if is_clipped] == ["gpt-oss-120b", "gpt-oss-20b"]


@pytest.mark.parametrize(("recompute", "times"), [("none", 1), ("full", 2)])
def test_ranks_gather_numbers_of_tokens_before_they_send_them(recompute: str, times: int) -> None:
    trace = step(model(), data=4, expert=4, micro_batches=3, recompute=recompute)
    layers = 3 * LAYERS * times
    assert moved(trace)["expert", "all_gather"] == layers * COUNT * 8
    counts = rows_named(trace, " tokens counted")
    assert int(trace.launches[counts].sum()) == 6 * layers
    assert int(trace.tensor_bytes[counts].sum()) == layers * TOKENS * COUNT
    order = [trace.names[at] for at in trace.name.tolist()]
    for before, after in (("tokens counted", "numbers of tokens"), ("numbers of tokens", "to experts")):
        first = next(at for at, name in enumerate(order) if name.endswith(f" {before}"))
        assert first < next(at for at, name in enumerate(order) if name.endswith(f" {after}"))


@pytest.mark.parametrize(
    "how", [{"expert": 1}, {"expert_exchange": "deepep"}, {"software": "torchtitan"}], ids=str
)
def test_other_exchanges_and_other_software_gather_no_numbers_of_tokens(how: dict[str, Any]) -> None:
    trace = step(model(), **{"data": 4, "expert": 4, **how})
    assert ("expert", "all_gather") not in moved(trace)
    assert not rows_named(trace, " tokens counted").any()
