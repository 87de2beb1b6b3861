"""Adapters of low rank in forward passes: their products, weights and memory, and the adapters of a batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, with_experts, with_latent_attention

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes
from et_sim.run.options import RunOptions
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.serving.speculation import read_speculation
from et_sim.trace import Trace
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.adapters import adapters_in_use
from et_sim.workloads.inference.memory import adapter_weights, weight_bytes_of_stage
from et_sim.workloads.models.model import FeedForward

BATCH = Batch.of([Segment(5), *[Segment(1, 9)] * 3])
GATED = replace(decoder(), feed_forward=FeedForward(256, is_gated=True))


def kernels(model: Model, plan: Plan, batch: Batch = BATCH) -> list[tuple[str, int, int]]:
    """Return the name, operations and bytes of every kernel of the first rank."""
    return of_trace(make_inference(model, plan, [batch]).trace(0))


def of_trace(trace: Trace) -> list[tuple[str, int, int]]:
    columns = (trace.name, trace.num_ops, trace.tensor_bytes, trace.kind)
    rows = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    return [(trace.names[name], operations, size) for name, operations, size, _ in rows]


def test_weights_of_an_adapter_are_those_that_peft_counts() -> None:
    """Compare with the trainable parameters that PEFT prints for rank 16 beside all matrices of layers."""
    model = read_model("llama3-8b")
    weights = [adapter_weights(model, Plan(lora_rank=16), layer) for layer in range(model.layers)]
    assert sum(weights) == 41_943_040


@pytest.mark.parametrize("model", [decoder(), GATED, with_experts(), with_latent_attention()])
@pytest.mark.parametrize("tensor", [1, 2])
def test_other_kernels_are_those_without_adapters(model: Model, tensor: int) -> None:
    plan = Plan(tensor=tensor)
    every = kernels(model, replace(plan, lora_rank=4, adapters=3))
    assert [row for row in every if " adapter " not in row[0]] == kernels(model, plan)
    assert any(" adapter " in name for name, *_ in every)
    assert not any("experts" in name and "shared" not in name for name, *_ in every if " adapter " in name)


@given(st.integers(1, 64), st.integers(1, 5))
def test_each_token_takes_a_product_into_the_rank_and_one_out_of_it(rank: int, prompts: int) -> None:
    batch = Batch.of([Segment(7)] * prompts)
    rows = [row for row in kernels(GATED, Plan(lora_rank=rank), batch) if " adapter " in row[0]]
    weights = 3 * 64 * rank + rank * 192 + 2 * 64 * rank + 2 * 64 * rank + rank * 512 + 256 * rank + rank * 64
    assert adapter_weights(GATED, Plan(lora_rank=rank), 0) == weights
    tokens, outputs = 7 * prompts, 192 + 64 + 512 + 64
    assert sum(row[1] for row in rows) == GATED.layers * tokens * (2 * weights + outputs)
    inputs, between = 64 + 64 + 64 + 256, rank * (3 + 1 + 2 + 1)
    moved = weights + tokens * (inputs + 2 * between + 2 * outputs)
    assert sum(row[2] for row in rows) == 2 * GATED.layers * moved


@pytest.mark.parametrize(("count", "sequences"), [(1, 5), (2, 3), (3, 4), (5, 3)])
def test_a_batch_uses_as_many_adapters_as_sequences_that_choose_by_chance(count: int, sequences: int) -> None:
    chosen = [len(set(each)) for each in product(range(count), repeat=sequences)]
    mean = sum(chosen) / len(chosen)
    assert adapters_in_use(Plan(lora_rank=1, adapters=count), sequences) == round(mean)


def test_weights_of_the_adapters_in_use_are_read() -> None:
    one, many = (
        sum(size for name, _, size in kernels(GATED, Plan(lora_rank=8, adapters=count)) if "adapter" in name)
        for count in (1, 10**6)
    )
    assert many - one == 3 * 2 * GATED.layers * adapter_weights(GATED, Plan(lora_rank=8), 0)


def test_adapters_take_the_memory_of_all_that_are_held() -> None:
    plan, model = Plan(tensor=2), GATED
    before = weight_bytes_of_stage(model, plan, 0)
    one = weight_bytes_of_stage(model, replace(plan, lora_rank=4), 0)
    assert one - before == 2 * sum(adapter_weights(model, replace(plan, lora_rank=4), at) for at in range(4))
    assert weight_bytes_of_stage(model, replace(plan, lora_rank=4, adapters=9), 0) - before == 9 * (
        one - before
    )


def test_served_passes_have_the_times_of_simulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    plan = Plan(tensor=2, lora_rank=8, adapters=4)
    model, machine = decoder(sequence=4096), "h100-dgx:2"
    given: Any = [Request(number, 0, 100 + number, 3) for number in range(3)]
    of = serve(given, model, Setup(plan=plan, context_step=1), RunOptions(machine=machine))
    contexts = [100 + number for number in range(3)]
    steps = [[Segment(count) for count in contexts]]
    steps += [[Segment(1, count + more) for count in contexts] for more in range(2)]
    passes = [make_inference(model, plan, [Batch.of(step)]) for step in steps]
    assert of.requests()["e2e_ns"].tolist() == [
        sum(int(et_sim.simulate(one, machine=machine).makespan_ns) for one in passes)
    ] * len(given)


def test_a_model_that_makes_drafts_has_no_adapters() -> None:
    model = replace(read_model("deepseek-v3"), sequence=4096)
    speculation = read_speculation("mtp:1", 1.8, model)
    assert speculation is not None
    plan = Plan(data=8, expert=8, lora_rank=8, adapters=4)
    assert speculation.plan(plan) == replace(plan, lora_rank=0, adapters=0)
    assert speculation.weight_bytes(plan) == speculation.weight_bytes(replace(plan, lora_rank=0, adapters=0))


def test_a_number_of_adapters_requires_their_rank() -> None:
    with pytest.raises(UsageError, match="adapters requires lora_rank"):
        kernels(decoder(), Plan(adapters=3))


def test_a_refusal_for_want_of_memory_names_the_adapters() -> None:
    model, plan = decoder(sequence=4096), Plan(lora_rank=16, adapters=40_000_000)
    own = weight_bytes_of_stage(model, Plan(), 0)
    size = format_bytes(weight_bytes_of_stage(model, plan, 0) - own)
    with pytest.raises(
        UsageError, match=f"{size} of them for 40,?000,?000 adapters of rank 16, of each NPU, but"
    ):
        serve("poisson:1,2,30,6", model, Setup(plan=plan), RunOptions(machine="h100-dgx:1"))
    with pytest.raises(UsageError) as refused:
        serve(
            "poisson:1,2,30,6",
            model,
            Setup(plan=Plan(), capacity_bytes=own),
            RunOptions(machine="h100-dgx:1"),
        )
    assert "adapter" not in str(refused.value)
