"""Memory traffic of a training step beside its products of weights: closed forms, kernel by kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, memory, moved, rows_named, transformer

import et_sim
from et_sim.api import run
from et_sim.trace import NodeKind, Trace
from et_sim.workloads import Model, Plan, make_training, read_model
from et_sim.workloads.models.model import Attention, FeedForward
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import plan_of


def gpt(**given: Any) -> Model:
    """Return a decoder with the parts of a GPT: biases, dropout, learned positions, norms with a shift."""
    return replace(
        decoder(),
        attention=Attention(8, 8, 8, has_bias=True, has_output_bias=True),
        feed_forward=FeedForward(256, is_gated=False, has_bias=True),
        positions=32,
        norm_vectors=2,
        has_dropout=True,
        **given,
    )


def step(model: Model, **how: Any) -> Trace:
    return make_training(model, Plan(**{"micro_batches": 1, **how})).templates[0]


def size_of(trace: Trace, during: str, *endings: str) -> int:
    """Return the bytes of the kernels of a pass whose names have an ending."""
    begins = np.array([name.startswith(during) for name in trace.names], np.bool_)[trace.name]
    ends = np.logical_or.reduce([rows_named(trace, f" {ending}") for ending in endings])
    return int(trace.tensor_bytes[begins & ends].sum())


def test_softmax_and_dropout_move_nine_bytes_for_each_score_forward_and_eleven_backward() -> None:
    trace = step(gpt(), fused_attention=False, batch=3)
    scores = 4 * 3 * 8 * 32 * 32
    assert size_of(trace, "forward", "softmax", "score dropout") == 9 * scores
    assert size_of(trace, "backward", "softmax", "score dropout") == 11 * scores
    assert size_of(trace, "forward", "scores") == 2 * (scores + 4 * 3 * 2 * 32 * 64)
    again = step(gpt(), fused_attention=False, batch=3, recompute="selective")
    assert size_of(again, "backward", "softmax", "score dropout") == 20 * scores


def test_a_layer_moves_the_bytes_of_its_biases_dropout_and_sums() -> None:
    trace, values = step(gpt()), 4 * 32 * 64
    assert size_of(trace, "forward", "attention sum", "feed-forward sum") == 2 * 7 * values
    assert size_of(trace, "backward", "attention sum", "feed-forward sum") == 2 * 13 * values
    assert size_of(trace, "forward", "attention norm") == 4 * values
    assert size_of(trace, "backward", "attention norm") == 10 * values
    assert size_of(trace, "backward", "qkv bias") == 2 * 3 * values
    assert size_of(trace, "forward", "feed-forward activation") == 4 * 4 * values
    assert size_of(trace, "backward", "feed-forward activation") == 4 * 8 * values
    assert size_of(trace, "forward", "rotary") == 0
    scores = 32 * 128  # cast, and passes over them in fp32
    assert size_of(trace, "forward", "loss") == (2 + 9 * 4) * scores
    assert size_of(trace, "backward", "loss") == (2 + 3 * 4) * scores


def test_without_dropout_no_mask_is_read_written_or_kept() -> None:
    plan = Plan(micro_batches=1, dropout=False, fused_attention=False)
    plain = replace(gpt(), has_dropout=False)
    kept, left_out = make_training(gpt(), plan), make_training(plain, replace(plan, dropout=True))
    for mine, expected in zip(kept.templates, left_out.templates, strict=True):
        assert mine.tensor_bytes.tolist() == expected.tensor_bytes.tolist()
        assert mine.launches.tolist() == expected.launches.tolist()
    assert memory(gpt(), plan) == memory(plain, plan)


def test_a_layer_without_biases_and_dropout_moves_less_and_turns_queries_and_keys() -> None:
    trace, values = step(decoder(feed_forward=FeedForward(256, is_gated=True))), 4 * 32 * 64
    assert size_of(trace, "forward", "attention sum") == size_of(trace, "backward", "attention sum")
    assert size_of(trace, "forward", "attention sum") == 6 * values
    assert size_of(trace, "forward", "rotary") == size_of(trace, "backward", "rotary") == 2 * 4 * values
    assert size_of(trace, "forward", "feed-forward activation") == 6 * 4 * values
    assert size_of(trace, "backward", "feed-forward activation") == 10 * 4 * values


@given(st.integers(1, 4), st.sampled_from([2, 4]), st.sampled_from([2, 4]), st.sampled_from([2, 3]))
def test_shared_gradients_are_copied_reduced_and_added_in_every_micro_batch(
    count: int, sum_bytes: int, gradient_bytes: int, zero: int
) -> None:
    """Use Megatron-Core, which does not let products add gradients that replicas share."""
    plan = Plan(
        micro_batches=count, sum_bytes=sum_bytes, gradient_bytes=gradient_bytes, zero=zero, data=2, bucket=1
    )
    model, layers = decoder(), ModelLayers(decoder(), plan)
    weights = model.layers * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    trace = make_training(model, plan).templates[0]
    assert size_of(trace, "backward", "gradients copied") == count * (2 + gradient_bytes) * weights
    before, last = (size_of(trace, during, "sum of shares") for during in ("backward", "step"))
    each = (gradient_bytes + 2 * sum_bytes) * weights // 2
    assert last == (each if count > 1 else 0)
    assert before == max(count - 2, 0) * each
    reduced = trace.comm_bytes[rows_named(trace, "reduce-scatter")].sum()
    assert reduced == count * gradient_bytes * weights


@pytest.mark.parametrize("software", ["megatron-core", "megatron-2021", "deepspeed-zero3", "fsdp1"])
@pytest.mark.parametrize("count", [1, 3])
def test_sharing_gradients_as_well_takes_no_less_time(software: str, count: int) -> None:
    """Expect it where gradients are added and exchanged in the bytes of values."""
    model = replace(read_model("llama3-8b"), layers=2, sequence=2048)
    times = [
        et_sim.simulate(
            make_training(
                model,
                plan_of(
                    {
                        "data": 8,
                        "zero": zero,
                        "micro_batches": count,
                        "software": software,
                        "sum_bytes": 2,
                        "gradient_bytes": 2,
                    }
                ),
            ),
            machine="h100-dgx:8",
        ).makespan_ns
        for zero in (1, 2)
    ]
    assert times[0] <= times[1]


@given(st.integers(1, 4), st.sampled_from([2, 4]), st.sampled_from([0, 1, 2]))
def test_sums_of_gradients_are_read_and_written_in_every_micro_batch(
    count: int, sum_bytes: int, zero: int
) -> None:
    """Use Megatron-Core, whose products add gradients themselves."""
    plan = Plan(micro_batches=count, sum_bytes=sum_bytes, zero=zero, data=2)
    model, layers = decoder(), ModelLayers(decoder(), plan)
    weights = model.layers * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    trace = make_training(model, plan).templates[0]
    times = 0 if zero == 2 else count
    assert size_of(trace, "backward", "sum of gradients") == times * 2 * sum_bytes * weights
    updated = -(-weights // 2) if zero else weights
    assert size_of(trace, "step", "optimizer") == pytest.approx(updated * (7 * sum_bytes + 30), rel=1e-6)


def test_nodes_have_their_number_of_kernels() -> None:
    trace = step(gpt())
    launches = np.where(trace.has("launches"), trace.launches, 1)[trace.kind == NodeKind.COMP]
    names = [trace.names[int(number)] for number in trace.name[trace.kind == NodeKind.COMP]]
    results = {name: int(count) for name, count in zip(names, launches, strict=True)}
    assert results["forward 0 layer 0 attention sum"] == 1
    assert results["backward 0 layer 0 attention sum"] == 3
    assert results["backward 0 layer 0 attention norm"] == 2
    assert results["backward 0 layer 0 sum of gradients"] == 0


@pytest.mark.parametrize("how", [{}, {"sequence_parallel": True}, {"scatter_gather": True}], ids=str)
def test_tensor_parallel_ranks_send_shares_and_gather_them_if_they_need_all(how: dict[str, Any]) -> None:
    count, size = 3, 32 * 64 * 2
    for trace in transformer(pipeline=2, tensor=4, micro_batches=count, **how).templates:
        assert moved(trace)["", "send"] == count * size // (4 if how else 1)
        gathered = int(trace.comm_bytes[rows_named(trace, "received all-gather")].sum())
        assert gathered == (count * size // 4 if "scatter_gather" in how else 0)


def test_stages_that_wait_for_their_messages_take_longer() -> None:
    free, waiting = (
        run(
            transformer(pipeline=2, hidden=256, tflops=0.1, overlap_pipeline=overlaps),
            system=system(profile="corrected"),
            network=network(["Ring"], [2], bandwidth=0.1),
        ).makespan_ns
        for overlaps in (True, False)
    )
    assert free < waiting
