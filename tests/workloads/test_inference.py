"""Inference: caches, weights, operations equal closed forms; bytes read determine the time of a token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from caches import cache_bytes, cache_bytes_of_stage
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, network, system
from msgspec.structs import replace
from training_jobs import decoder, moved, rows_named, with_experts, with_latent_attention

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.machine.presets import preset
from et_sim.trace import Trace
from et_sim.trace.preflight import find_problems
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.batch import BatchLoad
from et_sim.workloads.inference.forward import make_replica
from et_sim.workloads.models.model import Attention


def machine(ranks: int) -> dict[str, Any]:
    """Return a machine without kernel times, which takes those of the trace."""
    return {"system": system(), "network": network(["FullyConnected"], [ranks])}


def one_pass(model: Model, plan: Plan, *segments: Segment) -> Trace:
    return make_inference(model, plan, [Batch.of(segments)]).templates[0]


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("llama2-7b", 512 << 10),  # 32 layers x 2 x 32 heads x 128 x 2 bytes
        ("llama2-70b", 320 << 10),
        ("llama3-8b", 128 << 10),
        ("llama3-70b", 320 << 10),
        ("gpt3-175b", 4_718_592),
        ("mixtral-8x7b", 128 << 10),
        ("deepseek-v3", 70_272),  # 61 layers x (512 + 64) x 2 bytes
    ],
)
def test_a_tokens_cache_is_as_large_as_published(model: str, size: int) -> None:
    assert cache_bytes(read_model(model)) == size


def test_ranks_share_the_heads_of_a_cache_and_repeat_the_others() -> None:
    model = read_model("llama3-8b")  # 8 heads of keys and values
    assert cache_bytes_of_stage(model, Plan(tensor=4), 0) == cache_bytes(model) // 4
    assert cache_bytes_of_stage(model, Plan(tensor=16), 0) == cache_bytes(model) // 8
    assert cache_bytes_of_stage(model, Plan(tensor=8, pipeline=4), 3) == cache_bytes(model) // 32
    compressed = read_model("deepseek-v3")
    assert cache_bytes_of_stage(compressed, Plan(tensor=8), 0) == cache_bytes(compressed)


def test_a_decode_step_reads_every_cached_value_once() -> None:
    model, contexts = read_model("llama3-8b"), (100, 1000, 5000)
    for tensor in (1, 4, 8):
        trace = one_pass(model, Plan(tensor=tensor), *(Segment(1, context) for context in contexts))
        attention = rows_named(trace, "decode attention")
        queries_and_outputs = len(contexts) * model.attention.heads // tensor * 2 * 128 * 2
        cached = (sum(contexts) + len(contexts)) * cache_bytes_of_stage(model, Plan(tensor=tensor), 0)
        assert trace.tensor_bytes[attention].sum() == cached + model.layers * queries_and_outputs
        keys = sum(contexts) + len(contexts)
        assert trace.num_ops[attention].sum() == model.layers * keys * 4 * 4096 // tensor


def test_a_decode_step_of_compressed_attention_reads_the_compressed_cache() -> None:
    model = read_model("deepseek-v3")
    trace = one_pass(model, Plan(tensor=8, expert=8), Segment(1, 999), Segment(1, 2999))
    attention = rows_named(trace, "decode attention")
    queries_and_outputs = 2 * 16 * (576 + 512) * 2 * model.layers
    assert trace.tensor_bytes[attention].sum() == 4000 * cache_bytes(model) + queries_and_outputs
    assert trace.num_ops[attention].sum() == model.layers * 2 * 4000 * 16 * (576 + 512)


@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-6.7b"])
def test_weights_are_read_once_in_a_step(name: str) -> None:
    """Count K x N weights, and K + N other values, in products of one row and K inputs."""
    model = replace(read_model(name), layers=2)
    trace = one_pass(model, Plan(), Segment(1, 10))
    read = total = 0
    for shape, size in zip(trace.layer_shape.tolist(), trace.tensor_bytes.tolist(), strict=True):
        kind, *numbers = trace.layer_shapes[shape].split()
        if kind == "gemm":
            rows, columns, inner = map(int, numbers)
            read += columns * inner * 2
            total += size
            assert rows == 1
    others = 2 * model.norm_weights * model.layers + model.norm_weights
    biases = model.layers * (model.attention.has_bias * 4 * model.hidden)
    biases += model.layers * model.feed_forward.has_bias * (model.feed_forward.inner + model.hidden)
    not_read = (model.positions + model.vocabulary * (not model.is_tied)) * model.hidden
    assert read == 2 * (model.weights - others - biases - not_read)
    assert read < total < 1.01 * read


@given(
    prompts=st.lists(st.integers(1, 30), max_size=4),
    contexts=st.lists(st.integers(1, 30), max_size=4),
    tensor=st.sampled_from([1, 2, 4, 8]),
)
def test_operations_follow_from_weights_and_pairs(
    prompts: list[int], contexts: list[int], tensor: int
) -> None:
    segments = [Segment(length) for length in prompts] + [Segment(1, length) for length in contexts]
    if not segments:
        return
    model = decoder()
    workload = make_inference(model, Plan(tensor=tensor), [Batch.of(segments)])
    trace = workload.templates[0]
    tokens = sum(prompts) + len(contexts)
    of_layer = 2 * (4 * 64 * 64 + 2 * 64 * 256) * tokens
    pairs = sum(length * (length + 1) // 2 for length in prompts) + sum(contexts) + len(contexts)
    head = 2 * len(segments) * 64 * 128
    products = np.array([shape.startswith("gemm") for shape in trace.layer_shapes])[trace.layer_shape]
    assert trace.num_ops[products].sum() * tensor == 4 * of_layer + head
    assert trace.num_ops[rows_named(trace, " attention")].sum() * tensor == 4 * pairs * 4 * 64
    if tensor > 1:
        reduced = (2 * 4 + 1) * tokens * 64 * 2
        assert moved(trace)["tensor", "all_reduce"] == reduced
        assert moved(trace)["tensor", "all_gather"] == len(segments) * 128 // tensor * 2


def test_experts_get_tokens_and_give_them_back() -> None:
    model = with_experts()
    trace = one_pass(model, Plan(tensor=2, data=2, expert=4), *[Segment(1, 5)] * 8)
    tokens, layers = 4, 3  # of each rank of the tensor axis; with experts
    assert moved(trace)["expert", "all_to_all"] == 2 * layers * tokens * 2 * 64 * 2
    assert moved(trace)["tensor", "all_gather"] == layers * tokens * 64 * 2 + 8 * 64 * 2
    assert moved(trace)["tensor", "all_reduce"] == (1 + 4 + 1 + 3) * 8 * 64 * 2


def test_few_tokens_read_only_the_experts_that_they_take() -> None:
    model = with_experts()

    def read(*segments: Segment) -> int:
        trace = one_pass(model, Plan(), *segments)
        shapes = [trace.layer_shapes[shape] for shape in trace.layer_shape[rows_named(trace, "experts up")]]
        return int([*shapes[0].split(" x "), "1"][1])

    assert read(Segment(1, 5)) == 2
    assert read(*[Segment(1, 5)] * 3) == round(8 * (1 - (6 / 8) ** 3)) == 5  # some take the same ones
    assert read(*[Segment(1, 5)] * 40) == 8


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (decoder(), Plan(tensor=2, pipeline=2, data=2)),
        (decoder(), Plan(pipeline=4)),
        (decoder(), Plan(pipeline=2, stage_layers=(3, 1))),
        (with_experts(), Plan(tensor=2)),
        (with_experts(), Plan(tensor=2, data=2, expert=4, pipeline=2)),
        (with_latent_attention(), Plan(tensor=4)),
        (replace(decoder(), attention=Attention(8, 2, 8)), Plan(tensor=8)),
    ],
)
def test_every_pass_is_sound_completes_and_folds(model: Model, plan: Plan) -> None:
    batches = [
        Batch.of([Segment(7), Segment(3, 4, is_sampled=False), Segment(1, 9)]),
        Batch.of([Segment(1, 3)]),
    ]
    workload = make_inference(model, plan, batches)
    assert find_problems(workload) == []
    folded = run(workload, **machine(plan.ranks))
    unfolded = run(workload, **machine(plan.ranks), fold=False)
    assert folded.summary()["status"] == "complete"
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


def test_one_replica_works_and_the_other_ranks_do_nothing() -> None:
    model, plan = decoder(), Plan(tensor=2, pipeline=2)
    batch = Batch.of([Segment(5)])
    workload = make_replica(model, plan, batch, first=4, ranks=8)
    finish = run(workload, **machine(8)).finish_ns
    assert (finish[:4] == 0).all()
    alone = run(make_inference(model, plan, [batch]), **machine(4))
    assert finish[4:].tolist() == alone.finish_ns.tolist()
    with pytest.raises(UsageError, match="cannot begin at rank 2 of 8"):
        make_replica(model, plan, batch, first=2, ranks=8)


@pytest.mark.deep
def test_a_decode_step_takes_as_long_as_its_weights_and_its_cache_from_memory() -> None:
    model = replace(read_model("llama3-70b"), layers=8)
    known = preset("h100-dgx:8")
    without_launches = {**known.system["compute"], "launch-overhead": "0ns", "kinds": {}}
    batch = Batch.of([Segment(1, 4000)] * 32)
    workload = make_inference(model, Plan(tensor=8), [batch])
    result = run(
        workload,
        system={**known.system, "compute": without_launches, "library": "none", **algorithms("ring")},
        network={**known.network, "bandwidth": ["100TB/s"], "latency": ["0ns"]},
    )
    weights = (model.weights - model.embedding_weights) * 2 / 8
    cached = 32 * 4001 * cache_bytes(model) / 8
    parts = known.system["compute"]["memory-efficiency"]
    at_least_ns = weights / (3350 * parts["gemm"]) + cached / (3350 * parts["attention"])
    assert at_least_ns < result.makespan_ns < 1.08 * at_least_ns  # activations and scores


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.sampled_from([1, 2, 16, 128]))
def test_rounding_sees_more_but_less_than_a_step_for_each_sequence(contexts: list[int], step: int) -> None:
    exact = Batch.of(Segment(1, context) for context in contexts).decode
    rounded = Batch.of((Segment(1, context) for context in contexts), step).decode
    assert exact == BatchLoad(len(contexts), len(contexts), *[sum(contexts) + len(contexts)] * 2)
    assert 0 <= rounded.keys - exact.keys < step * len(contexts)
    assert rounded.segments == exact.segments
    parts = Batch.of([Segment(3, context) for context in contexts], step).prefill
    assert parts.pairs - 3 * (parts.keys - parts.tokens) == 6 * len(contexts)


def test_a_pass_over_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no tokens"):
        make_inference(decoder(), Plan(), [Batch.of([])])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(tensor=3), "heads: 8 is not a multiple of 3"),
        (Plan(pipeline=3), "3 parts of the pipeline"),
        (Plan(data=2, expert=2), "no experts"),
        (Plan(pipeline=2, stage_layers=(1, 1)), "sum 2"),
    ],
)
def test_shares_that_do_not_divide_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_inference(decoder(), plan, [Batch.of([Segment(4)])])
