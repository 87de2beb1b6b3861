"""Serving on a machine: times are those of passes simulated one by one; caches are moved whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from caches import cache_bytes, cache_bytes_of_stage
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import decoder, with_latent_attention

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import CHUNKED, PREFILL_FIRST, Policy
from et_sim.serving.caching import Caching
from et_sim.serving.requests import Request
from et_sim.serving.results import Objectives, Serving
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.memory import weight_bytes_of_stage
from et_sim.workloads.inference.transfers import ReplicaPlace, SentCache, make_transfers, messages
from et_sim.workloads.models.model import Attention

MACHINE = RunOptions(machine="h100-dgx:2")
PLAN = Plan(tensor=2)
MODEL = decoder(sequence=4096)


def pass_ns(*segments: Segment, model: Model = MODEL, plan: Plan = PLAN) -> int:
    """Return the time of a pass, made and simulated by itself."""
    workload = make_inference(model, plan, [Batch.of(segments)])
    return int(et_sim.simulate(workload, machine=f"h100-dgx:{plan.ranks}").makespan_ns)


def served(*requests: tuple[int, int, int], **setup: Any) -> Serving:
    given = [Request(number, *fields) for number, fields in enumerate(requests)]
    options = {"plan": PLAN, "context_step": 1, **setup}
    return serve(given, MODEL, Setup(**options), MACHINE)


def test_one_request_has_its_prompts_time_and_then_that_of_each_token() -> None:
    of = served((0, 100, 4)).requests()
    further = [pass_ns(Segment(1, context)) for context in (100, 101, 102)]
    assert of["ttft_ns"].tolist() == [pass_ns(Segment(100))]
    assert of["e2e_ns"].tolist() == [pass_ns(Segment(100)) + sum(further)]
    assert of["tpot_ns"].tolist() == [sum(further) // 3]


def test_a_prompt_in_parts_takes_the_times_of_its_parts() -> None:
    policy = Policy(CHUNKED, max_batch=4, token_budget=64)
    of = served((0, 100, 1), policy=policy).requests()
    parts = pass_ns(Segment(64, 0, is_sampled=False)) + pass_ns(Segment(36, 64))
    assert of["ttft_ns"].tolist() == [parts]
    assert of["tpot_ns"].tolist() == [None]


def test_of_equal_prompts_the_pass_of_the_last_block_is_left() -> None:
    """Check that a found prompt takes the pass of its last eight tokens after all others."""
    given = [Request(number, number * 10**9, 1000, 2, hashes=(1, 2)) for number in range(2)]
    setup = Setup(plan=PLAN, context_step=1, caching=Caching(10**6))
    of = serve(given, MODEL, setup, MACHINE).requests()
    assert of["hit_tokens"].tolist() == [0, 992]
    assert of["ttft_ns"].tolist() == [pass_ns(Segment(1000)), pass_ns(Segment(8, 992))]
    further = pass_ns(Segment(1, 1000))
    assert (of["e2e_ns"] - of["ttft_ns"]).tolist() == [further, further]


@pytest.mark.deep
def test_a_saturated_replica_gives_a_batch_of_tokens_in_every_pass() -> None:
    outcome = served(*[(0, 8, 17)] * 6, policy=Policy(PREFILL_FIRST, max_batch=6))
    passes = [pass_ns(*[Segment(8)] * 6)]
    passes += [pass_ns(*[Segment(1, 8 + step)] * 6) for step in range(16)]
    assert outcome.summary()["duration_ns"] == sum(passes)
    assert outcome.summary()["output_tokens_per_s"] == round(6 * 17 / (sum(passes) / 1e9), 3)


@pytest.mark.deep
def test_passes_with_equal_sums_are_simulated_once() -> None:
    outcome = served((0, 50, 20), (10**9, 50, 20))
    assert outcome.summary()["passes"] == 40
    assert outcome.summary()["simulated_passes"] == 20


@pytest.mark.deep
def test_rounded_contexts_take_fewer_simulations_and_hardly_longer() -> None:
    exact, rounded = served((0, 100, 30)), served((0, 100, 30), context_step=16)
    assert rounded.summary()["simulated_passes"] == 3  # the prompt; 112 and 128 tokens of context
    at_least, result = exact.summary()["duration_ns"], rounded.summary()["duration_ns"]
    assert at_least <= result < 1.01 * at_least


@pytest.mark.deep
def test_two_replicas_serve_two_requests_as_one_serves_one() -> None:
    given = [Request(number, 0, 50, 10) for number in range(2)]
    setup = Setup(plan=PLAN, replicas=2, context_step=1)
    result = serve(given, MODEL, setup, RunOptions(machine="h100-dgx:4")).requests()
    alone = serve(given[:1], MODEL, setup, RunOptions(machine="h100-dgx:4")).requests()
    assert result["replica"].tolist() == [0, 1]
    assert result["e2e_ns"].tolist() == alone["e2e_ns"].tolist() * 2


@pytest.mark.deep
def test_separate_replicas_add_the_time_of_the_cache_on_its_way() -> None:
    given = [Request(0, 0, 300, 5)]
    options = RunOptions(machine="h100-dgx:4")
    apart = serve(given, MODEL, Setup(plan=PLAN, prefill_replicas=1, context_step=1), options)
    together = serve(given, MODEL, Setup(plan=PLAN, context_step=1), options)
    of, beside = apart.requests(), together.requests()
    sent, _ = make_transfers([(MODEL, SentCache(ReplicaPlace(PLAN, 0), ReplicaPlace(PLAN, 2), 300))], 4)
    took = int(et_sim.simulate(sent, machine="h100-dgx:4").makespan_ns)
    assert of["ttft_ns"].tolist() == beside["ttft_ns"].tolist()
    assert of["transfer_ns"].tolist() == [took]
    assert of["e2e_ns"].tolist() == [beside["e2e_ns"][0] + took]


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([8, 2, 0]),
)
def test_every_rank_gets_all_that_it_caches(
    tensor: int, other_tensor: int, stages: int, other_stages: int, heads: int
) -> None:
    model = replace(MODEL, attention=Attention(8, heads, 8)) if heads else with_latent_attention()
    source = ReplicaPlace(Plan(tensor=tensor, pipeline=stages), 0)
    target = ReplicaPlace(Plan(tensor=other_tensor, pipeline=other_stages), source.plan.ranks)
    sent = messages(model, source, target)
    for stage in range(other_stages):
        for rank in range(other_tensor):
            number = target.first + stage * other_tensor + rank
            got = sum(size for (_, to), size in sent.items() if to == number)
            assert got == 8 * cache_bytes_of_stage(model, target.plan, stage)  # bits
    assert all(sender < target.first for sender, _ in sent)
    if heads >= other_tensor:
        assert sum(sent.values()) == 8 * cache_bytes(model)


def test_the_rest_of_the_memory_is_cache() -> None:
    model = read_model("llama3-8b")
    assert weight_bytes_of_stage(model, Plan(), 0) == 2 * model.weights
    outcome = serve(
        [Request(0, 0, 10, 1)], model, Setup(plan=Plan(tensor=8)), RunOptions(machine="h100-dgx:8")
    )
    (pool,) = outcome.summary()["pools"]
    left = (81_559 * 0.9 - 3976) * (1 << 20) - weight_bytes_of_stage(model, Plan(tensor=8), 0)
    assert left - 16 * 16_384 < pool["cache_bytes"] <= left
    assert pool["token_bytes"] == 16_384


@pytest.mark.deep
def test_percentiles_are_values_that_were_met() -> None:
    outcome = served(*[(number * 10**8, 10 + number, 2) for number in range(10)])
    of, spread = outcome.requests()["ttft_ns"], outcome.summary()["ttft_ns"]
    ordered = np.sort(of)
    assert [spread["p50"], spread["p90"], spread["p99"], spread["max"]] == ordered[[4, 8, 9, 9]].tolist()


@pytest.mark.deep
def test_good_requests_keep_all_objectives() -> None:
    usual = served((0, 100, 4), (10**9, 1000, 4))
    limit = int(usual.requests()["ttft_ns"][0])
    goodput = served((0, 100, 4), (10**9, 1000, 4), objectives=Objectives(ttft_ns=limit)).summary()["goodput"]
    assert (goodput["requests"], goodput["share"], goodput["ttft_limit_ns"]) == (1, 0.5, limit)
    assert usual.summary()["goodput"] is None


def test_times_do_not_depend_on_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    given = [Request(0, 0, 30, 4), Request(1, 5000, 20, 3)]
    folded, unfolded = (
        serve(given, MODEL, Setup(plan=PLAN), replace(MACHINE, fold=fold)) for fold in (True, False)
    )
    assert folded.iterations == unfolded.iterations


@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        ({"plan": Plan(tensor=3)}, "heads: 8 is not a multiple of 3"),
        ({"replicas": 2}, "the replicas need 4 NPUs, but the machine has 2"),
        ({"capacity_bytes": 1000}, "the weights of small take"),
        ({"memory_share": 0.0}, "--memory-share is 0.0"),
        ({"memory_share": 0.5, "cache_tokens": 9000}, "--memory-share and --cache-tokens each give"),
        ({"policy": Policy(block=10**9)}, "a block of 1,000,000,000 tokens takes"),
        ({"context_step": 0}, "--context-step is 0"),
        ({"policy": Policy(block=16), "capacity_bytes": 300_000}, "request 0 needs a cache of"),
    ],
)
def test_an_impossible_setup_is_refused(setup: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        served((0, 1000, 3000), **setup)


def test_failures_at_times_of_a_run_are_refused() -> None:
    described = preset("h100-dgx:2")
    slow = {"failures": [{"gpu": 1, "at": "1ms", "slower": 0.5}]}
    machine = RunOptions(system={**described.system, **slow}, network=described.network)
    with pytest.raises(UsageError, match="passes of a server are simulated one by one"):
        serve([Request(0, 0, 8, 1)], MODEL, Setup(plan=PLAN), machine)


def test_a_share_of_the_memory_below_the_reserved_part_leaves_no_cache() -> None:
    with pytest.raises(UsageError, match="but 0 B are available for weights and cache"):
        served((0, 10, 2), memory_share=0.01)


def test_a_sequence_longer_than_the_model_supports_is_refused() -> None:
    with pytest.raises(UsageError, match="4,097 tokens is longer than the 4,096"):
        served((0, 4000, 97))


def test_a_machine_without_a_memory_needs_a_capacity() -> None:
    known = preset("h100-dgx:2")
    of_memory = ("local-mem-capacity", "local-mem-reserved")
    system = {key: value for key, value in known.system.items() if key not in of_memory}
    options = RunOptions(system=system, network=known.network)
    with pytest.raises(UsageError, match="--capacity"):
        serve([Request(0, 0, 10, 2)], MODEL, Setup(plan=PLAN), options)
