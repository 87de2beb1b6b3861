"""Operations of a training step, counted as in published figures of MFU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import ring
from msgspec import structs
from msgspec.structs import replace

import et_sim
from et_sim.cli import main
from et_sim.trace.manifest import read_manifest, write_manifest
from et_sim.trace.workload import Step
from et_sim.workloads import Plan, make_training, read_model
from et_sim.workloads.training.operations import model_operations, tokens_of, unmasked_operations

SMALL = replace(read_model("gpt2"), layers=2, sequence=128, vocabulary=1024)
ONE = Plan(micro_batches=2)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-405b", "llama2-70b"])
def test_a_dense_model_needs_six_operations_for_each_weight_and_token_and_those_of_attention(
    name: str,
) -> None:
    model, plan = read_model(name), Plan(data=4)
    tokens, width = tokens_of(model, plan), model.attention.heads * model.attention.head_size
    looked_up = 0 if model.is_tied else model.vocabulary * model.hidden
    products = 6 * (model.weights - looked_up - model.positions * model.hidden) * tokens
    attention = 12 * model.layers * width * model.sequence * tokens
    assert model_operations(model, plan) == products + attention
    assert 6 * model.weights * tokens == pytest.approx(products, rel=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tensor": 2, "sequence_parallel": True},
        {"pipeline": 2},
        {"data": 4, "zero": 3},
        {"context": 2},
        {"context": 2, "context_attention": "all-to-all"},
    ],
    ids=str,
)
def test_model_operations_of_a_sequence_do_not_depend_on_the_plan(change: dict[str, Any]) -> None:
    plan = replace(ONE, **change)
    step, alone = make_training(SMALL, plan).step, make_training(SMALL, ONE).step
    assert step is not None
    assert alone is not None
    assert step.model_operations == model_operations(SMALL, ONE) * plan.data
    assert step.hardware_operations == pytest.approx((alone.hardware_operations or 0) * plan.data, rel=0.01)


@pytest.mark.parametrize("name", ["llama3-8b", "gpt2"])
@pytest.mark.parametrize("document", [0, 64, 256])
def test_unmasked_operations_leave_out_pairs_hidden_by_masks_and_documents(name: str, document: int) -> None:
    model = replace(read_model(name), sequence=1024)
    plan = Plan(data=2, micro_batches=3, document_tokens=document)
    seen = (document or 1024) + 1  # keys of both ends of a document, whose mean is that of all queries
    attention = 12 * model.layers * model.attention.heads * model.attention.head_size * tokens_of(model, plan)
    hidden = model_operations(model, plan) - unmasked_operations(model, plan)
    assert hidden == attention * 1024 - attention * seen // 2
    everything = replace(plan, causal=False, document_tokens=0)
    assert unmasked_operations(model, everything) == model_operations(model, everything)
    step = make_training(replace(model, layers=1), plan).step
    assert step is not None
    assert step.unmasked_operations == unmasked_operations(replace(model, layers=1), plan)


def test_hardware_operations_count_recomputation_and_leave_masked_scores_out() -> None:
    none, selective, full = (
        make_training(SMALL, replace(ONE, recompute=how)).step for how in ("none", "selective", "full")
    )
    unmasked = make_training(SMALL, replace(ONE, causal=False)).step
    assert none is not None
    assert selective is not None
    assert full is not None
    assert unmasked is not None
    operations = [figures.hardware_operations or 0 for figures in (none, selective, full)]
    assert operations[0] < operations[1] < operations[2]
    skipped = SMALL.sequence * (SMALL.sequence - 1) // 2  # pairs of a query and a later key
    products = 2 + 5  # scores and their sums; on the way back both again, and three gradients
    width = SMALL.attention.heads * SMALL.attention.head_size
    sequences = tokens_of(SMALL, ONE) // SMALL.sequence
    apart = 2 * sequences * SMALL.layers * skipped * width * products
    of_products = (unmasked.hardware_operations or 0) - operations[0]
    assert of_products == pytest.approx(apart, rel=0.05)  # and a few for each score besides


@pytest.mark.parametrize("sequence", [128, 2048])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_hfu_is_the_share_of_the_peak_that_kernels_use_in_the_time_that_they_take(
    sequence: int, recompute: str
) -> None:
    model = replace(SMALL, sequence=sequence, positions=2048)
    result = _ran(make_training(model, replace(ONE, data=2, recompute=recompute)), compute=ROOFLINE)
    [entry] = result.summary()["per_rank"]
    used = entry["compute_utilisation"] * entry["compute_ns"] / result.makespan_ns
    assert result.throughput["hfu"] == pytest.approx(used, rel=1e-3)
    assert result.throughput["hfu"] <= 1


def test_a_manifest_keeps_the_operations_of_a_step(tmp_path: Path) -> None:
    made = make_training(SMALL, ONE)
    write_manifest(made, tmp_path / "a.workload.json")
    assert read_manifest(tmp_path / "a.workload.json").step == made.step


def _ran(workload: et_sim.Workload, **system: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        return et_sim.simulate(
            workload,
            system={"all-reduce-implementation": ["ring"], **system},
            network=ring(2, "50GB/s"),
        )


ROOFLINE = {
    "model": "roofline",
    "peaks": {"bf16": 100, "fp8": 200},
    "memory": [{"name": "HBM", "bandwidth": 1e3}],
}
COSTS = {"busy-watts": 700, "idle-watts": 100, "price-per-hour": 3.6, "currency": "EUR"}


def test_a_run_of_a_made_job_shows_tokens_per_second_mfu_and_costs(tmp_path: Path) -> None:
    job = make_training(SMALL, replace(ONE, data=2))
    result = _ran(job, compute=ROOFLINE, costs=COSTS)
    outcome, seconds = result.throughput, result.makespan_ns / 1e9
    step = job.step or Step(1)
    assert outcome["tokens_per_s"] == pytest.approx(step.tokens / seconds)
    assert outcome["tokens_per_s_per_rank"] == pytest.approx(step.tokens / seconds / 2)
    assert outcome["tflops_per_rank"] == pytest.approx((step.model_operations or 0) / seconds / 2 / 1e12)
    assert outcome["mfu"] == pytest.approx(outcome["tflops_per_rank"] / 100)
    assert 0 < outcome["mfu"] < 1
    assert 0 < outcome["hfu"] < 1
    assert outcome["price_per_million_tokens"] == pytest.approx(2 * seconds * 0.001 * 1e6 / step.tokens)
    result.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["throughput"] == outcome


def test_mfu_requires_a_peak_and_throughput_requires_tokens() -> None:
    job = make_training(SMALL, replace(ONE, data=2))
    throughput = _ran(job).throughput
    assert throughput["mfu"] is None
    assert throughput["tflops_per_rank"] > 0
    assert _ran(structs.replace(job, step=None)).throughput is None
    fp8 = structs.replace(job, step=Step(1000, 10**12, None, "fp8"))
    assert _ran(fp8, compute=ROOFLINE).throughput["peak_tflops"] == 200


@pytest.mark.parametrize(
    "word", ["mfu", "HFU", "tokens/s", "tokens/s/GPU", "tflops_per_rank", "price_per_million_tokens"]
)
def test_explain_describes_each_figure(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert "figure of a step" in capsys.readouterr().out
