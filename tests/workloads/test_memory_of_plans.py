"""Memory of a plan, against the activations that Korthikanti et al. (2022) publish for four models.

The figures (shares of figure 7, and GiB of figure 1) are those that Calculon's validation files hold; origin:
arXiv 2205.05198 and calculon-ai/calculon, calculon/llm/validation.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, memory

from et_sim.workloads import Model, Plan, read_model
from et_sim.workloads.models.model import Attention, FeedForward
from et_sim.workloads.training.figures import Memory, figures

GIB = 1 << 30
# hidden, heads, layers, stages, sequences in a micro-batch, chunks, sequences in a step
JOBS = {
    "22B": (6144, 64, 48, 1, 4, 1, 4),
    "175B": (12288, 96, 96, 8, 1, 3, 64),
    "530B": (20480, 128, 105, 35, 1, 3, 280),
    "1T": (25600, 160, 128, 64, 1, 1, 512),
}
ACTIVATIONS_GIB = {
    ("22B", "none"): 59.25,
    ("175B", "none"): 66.84375,
    ("530B", "none"): 114.0234375,
    ("1T", "none"): 131.25,
    ("22B", "seqsel"): 9.5625,
    ("175B", "seqsel"): 12.3515625,
    ("530B", "seqsel"): 23.076171875,
    ("1T", "seqsel"): 26.5625,
}
PERCENT_OF_NONE = {
    "seqsel": (16.18, 18.49, 20.27, 20.27),
    "seq": (66.84, 62.04, 58.31, 58.31),
    "sel": (49.42, 56.53, 62.04, 62.04),
    "full": (7.64, 8.71, 9.42, 9.42),
}
RECOMPUTE = {"none": "none", "seq": "none", "sel": "selective", "seqsel": "selective", "full": "full"}


@cache
def first_stage(name: str, mode: str) -> Memory:
    hidden, heads, layers, stages, batch, chunks, sequences = JOBS[name]
    model = Model(
        name,
        "arXiv 2205.05198",
        hidden,
        layers,
        51_200,
        2048,
        Attention(heads, heads, hidden // heads, has_bias=True, has_output_bias=True),
        FeedForward(4 * hidden, is_gated=False, has_bias=True),
        positions=2048,
        is_tied=True,
        norm_vectors=2,
        has_dropout=True,
    )
    plan = Plan(
        tensor=8,
        pipeline=stages,
        batch=batch,
        micro_batches=min(sequences // batch, 2 * stages),  # more change nothing
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        sequence_parallel=mode.startswith("seq"),
        recompute=RECOMPUTE[mode],
        fused_attention=False,
    )
    return memory(model, plan)


@pytest.mark.parametrize(("name", "mode"), sorted(ACTIVATIONS_GIB))
def test_activations_are_those_of_the_paper(name: str, mode: str) -> None:
    result = first_stage(name, mode).activations / GIB
    assert result == pytest.approx(ACTIVATIONS_GIB[name, mode], rel=0.002)


@pytest.mark.deep
@pytest.mark.parametrize("mode", sorted(PERCENT_OF_NONE))
def test_shares_of_activations_are_those_of_the_paper(mode: str) -> None:
    for name, expected in zip(JOBS, PERCENT_OF_NONE[mode], strict=True):
        share = 100 * first_stage(name, mode).activations / first_stage(name, "none").activations
        assert share == pytest.approx(expected, rel=0.015), name


@given(st.integers(0, 3), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_each_level_of_zero_divides_its_states(zero: int, data: int, tensor: int) -> None:
    model = decoder(hidden=256)
    alone = memory(model, Plan(tensor=tensor))
    shared = memory(model, Plan(tensor=tensor, data=data, zero=zero))
    for name, first in (("optimizer", 1), ("gradients", 2), ("weights", 3)):
        share = data if zero >= first else 1
        assert getattr(shared, name) == pytest.approx(getattr(alone, name) / share, rel=0.001)
    if zero < 2:
        assert shared.activations == alone.activations


def test_states_of_a_model_are_eighteen_bytes_a_weight_of_which_four_are_sums_of_gradients() -> None:
    model = decoder()
    result = memory(model, Plan())
    assert result.weights + result.gradients + result.optimizer == 18 * model.weights
    small = memory(model, Plan(sum_bytes=2))
    assert small.gradients * 2 == result.gradients


def test_recomputed_activations_exist_for_one_layer_at_a_time() -> None:
    model = decoder(vocabulary=8)
    for recompute in ("selective", "full"):
        plan = Plan(recompute=recompute, fused_attention=False)
        result, whole = (
            memory(model, plan),
            memory(model, replace(plan, recompute="none")),
        )
        of_layer = whole.activations // model.layers
        assert result.temporary == of_layer - result.activations // model.layers > 0


def test_gpipe_keeps_the_scores_of_all_micro_batches() -> None:
    model = decoder()
    at_once = memory(model, Plan(micro_batches=6)).temporary
    assert memory(model, Plan(micro_batches=6, schedule="gpipe")).temporary == 6 * at_once


def test_later_stages_keep_fewer_micro_batches() -> None:
    plan = Plan(pipeline=4, micro_batches=8)
    kept = [memory(decoder(), plan, place).activations for place in range(4)]
    assert kept == [kept[3] * count for count in (4, 3, 2, 1)]


# SimuMax v1.2, docs/b200/b200_release_v1.2_summary.md (Apache-2.0): Llama-3-70B of 12 layers on 8 B200, the
# most memory that PyTorch had allocated, in GiB, with 4, 8 and 32 micro-batches.
@pytest.mark.parametrize(
    ("tensor", "pipeline", "data", "measured"),
    [(1, 2, 4, 66.55), (2, 1, 4, 60.68), (4, 1, 2, 39.07), (8, 1, 1, 28.29)],
)
def test_measured_peaks_are_a_few_percent_of_workspace_above_the_plan(
    tensor: int, pipeline: int, data: int, measured: float
) -> None:
    model = replace(read_model("llama3-70b"), layers=12, sequence=4096)
    how: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline, "data": data, "micro_batches": 4}
    plan = Plan(**how, zero=1, sequence_parallel=tensor > 1)
    memories = [stage.memory for stage in figures(model, plan)[0].stages]
    assert 0.96 * measured < max(memory.total for memory in memories) / 2**30 < 0.99 * measured
    with_share = [memory.with_workspace(0.05).with_workspace(0.025) for memory in memories]
    assert max(memory.total for memory in with_share) / 2**30 == pytest.approx(measured, rel=0.01)
