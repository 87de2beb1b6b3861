"""Experts that get different numbers of tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, network
from msgspec import structs

from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.trace import Workload, encode_trace
from et_sim.trace.columns import CollectiveKind
from et_sim.trace.encode import encode_several
from et_sim.trace.group_attributes import has_splits
from et_sim.trace.preflight import find_problems
from et_sim.workloads import make_workload
from et_sim.workloads.models.model import Attention, Experts, FeedForward, Model
from et_sim.workloads.training.expert_loads import tokens_of_experts
from et_sim.workloads.training.figures import figures
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.step import make_training, training_program

MODEL = Model(
    name="small",
    source="a test",
    hidden=256,
    layers=2,
    vocabulary=1024,
    sequence=512,
    attention=Attention(4, 4, 64),
    feed_forward=FeedForward(512, is_gated=True),
    experts=Experts(8, 2, FeedForward(512, is_gated=True)),
)
USUAL: dict[str, Any] = {"data": 4, "expert": 4, "pipeline": 2, "micro_batches": 2}


@given(st.integers(1, 40), st.floats(0, 6), st.integers(0, 5), st.integers(0, 3000), st.integers(1, 8))
def test_tokens_add_up_and_no_expert_gets_a_token_twice(
    experts: int, exponent: float, seed: int, tokens: int, chosen: int
) -> None:
    chosen = min(chosen, experts)
    result = tokens_of_experts(f"zipf:{exponent}", seed, experts, chosen, tokens)
    assert sum(result) == tokens * chosen
    assert max(result) <= tokens
    assert min(result) >= 0
    assert result == tokens_of_experts(f"zipf:{exponent}", seed, experts, chosen, tokens)


def test_zipf_gives_shares_by_rank_of_popularity() -> None:
    shares = sorted(tokens_of_experts("zipf:1", 3, 4, 1, 25 * 12), reverse=True)
    assert shares == [144, 72, 48, 36]  # 1 : 1/2 : 1/3 : 1/4
    assert tokens_of_experts("zipf:1", 0, 64, 1, 999) != tokens_of_experts("zipf:1", 1, 64, 1, 999)
    assert sorted(tokens_of_experts("zipf:20", 0, 4, 2, 100))[-2:] == [100, 100]


def machine(ranks: int) -> dict[str, Any]:
    system = algorithms("direct") | {"preferred-dataset-splits": 1}
    return {"system": system, "network": network(["Switch"], [ranks], 100.0)}


def operations(workload: Workload) -> int:
    counts = workload.ranks_per_template.tolist()
    return sum(n * int(of.num_ops.sum()) for n, of in zip(counts, workload.templates, strict=True))


@pytest.mark.deep
def test_an_even_skew_takes_as_long_as_none() -> None:
    even, none = (make_training(MODEL, Plan(**USUAL, expert_skew=skew)) for skew in ("zipf:0", ""))
    result, expected = run(even, **machine(8)), run(none, **machine(8))
    assert result.finish_ns.tolist() == expected.finish_ns.tolist()
    assert operations(even) == operations(none)


@pytest.mark.deep
def test_a_skewed_job_moves_and_computes_as_much_and_takes_longer() -> None:
    plan = Plan(**USUAL, expert_skew="zipf:1.5")
    skewed, even = make_training(MODEL, plan), make_training(MODEL, Plan(**USUAL))
    assert find_problems(skewed) == []
    assert len(skewed.templates) == 8  # a stage and a place among the ranks of the experts each
    results = [run(workload, **machine(8)) for workload in (skewed, even)]
    assert results[0].makespan_ns > results[1].makespan_ns
    whole = run(skewed, fold=False, **machine(8))
    assert whole.finish_ns.tolist() == results[0].finish_ns.tolist()
    exchanged = [
        sum(
            int(w.trace(rank).comm_bytes[w.trace(rank).comm_type == CollectiveKind.ALL_TO_ALL].sum())
            for rank in range(8)
        )
        for w in (skewed, even)
    ]
    assert exchanged[0] == exchanged[1]
    assert all(has_splits(trace).any() for trace in skewed.templates)
    for kernel in ("experts up", "experts down"):
        work = [_of_kernels(workload, kernel) for workload in (skewed, even)]
        assert work[0] == work[1]


def _of_kernels(workload: Workload, kernel: str) -> int:
    total = 0
    for rank in range(workload.ranks):
        trace = workload.trace(rank)
        which = np.array([kernel in name for name in trace.names])[trace.name]
        total += int(trace.num_ops[which].sum())
    return total


def test_ranks_at_the_same_place_of_the_expert_axis_are_alike() -> None:
    plan = Plan(data=16, expert=4, pipeline=1, micro_batches=1, expert_skew="zipf:1")
    assert len(make_training(MODEL, plan).templates) == 4


def test_the_imbalance_is_that_of_the_busiest(tmp_path: Path) -> None:
    loads = tmp_path / "loads.json"
    loads.write_text(json.dumps([2, 0, 1, 1, 1, 1, 1, 1]))
    imbalance = figures(MODEL, Plan(**USUAL, expert_skew=str(loads)))[0].imbalance
    assert imbalance is not None
    assert (imbalance.expert, imbalance.rank) == (2.0, 1.0)
    assert figures(MODEL, Plan(**USUAL))[0].imbalance is None


def test_the_command_shows_the_imbalance_of_experts(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "mixtral-8x7b", "--layers", "1", "--dp", "8", "--ep", "8", "--micro-batches", "1"]
    assert main(["plan", *options, "--expert-skew", "zipf:1.2"]) == 0
    assert "experts      zipf:1.2: the busiest gets 3.43 times the mean, the busiest rank 3.43" in (
        capsys.readouterr().out
    )
    assert main(["plan", *options, "--expert-skew", "zipf:1.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imbalance"]["expert"] == pytest.approx(3.43, abs=0.01)


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        ("zipf:x", "as in zipf:1.2"),
        ("zipf:-1", "as in zipf:1.2"),
        ("zipf:nan", "as in zipf:1.2"),
        ("nowhere.json", "cannot be read"),
        ("[1, 2]", "does not list loads of 8 experts"),
        ('{"a": 1}', "does not list loads of 8 experts"),
        ("[1, 2, 3, 4, 5, 6, 7, -8]", "does not list loads of 8 experts"),
        ("[1, 0, 0, 0, 0, 0, 0, 0]", "a token takes 2"),
        ("[1, 2", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_loads_that_mean_nothing_are_refused(skew: str, words: str, tmp_path: Path) -> None:
    if skew[0] in "[{":
        (tmp_path / "loads.json").write_text(skew)
        skew = str(tmp_path / "loads.json")
    with pytest.raises(UsageError) as caught:
        make_training(MODEL, Plan(**USUAL, expert_skew=skew))
    assert words in str(caught.value)


def test_loads_are_read_each_time_and_may_be_of_any_size(tmp_path: Path) -> None:
    loads = tmp_path / "loads.json"
    loads.write_text("[1, 0]")
    assert tokens_of_experts(str(loads), 0, 2, 1, 10) == (10, 0)
    loads.write_text(f"[0, {10**400}]")
    assert tokens_of_experts(str(loads), 0, 2, 1, 10) == (0, 10)


def test_a_seed_without_zipf_is_refused() -> None:
    for skew in ("", "loads.json"):
        with pytest.raises(UsageError, match="expert_seed"):
            Plan(**USUAL, expert_skew=skew, expert_seed=3)


def test_expert_skew_requires_experts() -> None:
    from msgspec.structs import replace

    with pytest.raises(UsageError, match="has no experts"):
        make_training(replace(MODEL, experts=None), Plan(data=2, expert_skew="zipf:1"))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"recompute": "full", "micro_batches": 3},
        {"recompute": "norms+moe", "micro_batches": 2},
        {"recompute": "selective", "schedule": "zero-bubble", "products": "fp8"},
        {"zero": 3, "order": "dp-pp"},
        {"tensor": 2, "sequence_parallel": True, "tensor_overlap": 2, "context": 2, "data": 2},
        {"schedule": "interleaved", "chunks": 2, "expert": 8, "data": 8, "micro_batches": 4},
    ],
    ids=lambda more: " ".join(map(str, more.values())) or "usual",
)
def test_a_resized_step_is_the_step_that_the_rank_would_have_recorded(more: dict[str, Any]) -> None:
    plan = Plan(**(USUAL | {"expert_skew": "zipf:1.5"} | more))
    assert len(made_as_rank_by_rank(structs.replace(MODEL, layers=4), plan)) > plan.pipeline


def test_one_kernel_of_a_rank_may_be_two_on_another(tmp_path: Path) -> None:
    """Give the first expert the tokens of the shared one, so that their activations are equal."""
    experts = Experts(4, 1, MODEL.feed_forward, 1)
    (tmp_path / "loads.json").write_text(json.dumps([1, 2, 1, 0]))
    plan = Plan(data=4, expert=4, expert_skew=str(tmp_path / "loads.json"))
    files = made_as_rank_by_rank(structs.replace(MODEL, experts=experts), plan)
    assert len(files) == 3


def made_as_rank_by_rank(model: Model, plan: Plan) -> list[bytes]:
    """Return the files of a job after comparing them with steps that are run rank by rank."""
    result = make_training(model, plan)
    expected = make_workload(plan.axes, lambda rank: training_program(model, plan)(rank))
    assert result.template_of_rank.tolist() == expected.template_of_rank.tolist()
    files = encode_several(result.templates)
    assert files == [encode_trace(template) for template in result.templates]
    assert files == [encode_trace(template) for template in expected.templates]
    return files
