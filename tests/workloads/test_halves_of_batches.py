"""Batches in two halves that take turns: while one half waits for its exchange, the other one computes."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from msgspec.structs import astuple, replace
from training_jobs import decoder, rows_named, with_experts

from et_sim.api import run
from et_sim.basics.errors import FieldError, UsageError
from et_sim.trace import Workload
from et_sim.trace.preflight import find_problems
from et_sim.trace.workload import MadeFor
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.batch import AttentionSight, GroupBatches
from et_sim.workloads.inference.forward import run_by

PLAN = Plan(data=2, expert=2, tflops=1e-2, overlap_experts=True)
MIXED = Batch.of([Segment(40), Segment(24), *[Segment(1, 30)] * 6])


def made(batch: GroupBatches, plan: Plan = PLAN, model: Model | None = None) -> Workload:
    return make_inference(model or with_experts(), plan, [batch])


def rows(workload: Workload, bandwidth: float) -> list[dict[str, Any]]:
    """Return the rows of the first rank."""
    machine = {"system": system(profile="corrected"), "network": network(["Ring"], [2], bandwidth)}
    return [row for row in run(workload, **machine).timeline.to_pylist() if row["actor"] == 0]


def end(workload: Workload, ranks: int = 2, bandwidth: float = 50.0, latency: float = 500.0) -> int:
    machine = {"system": system(), "network": network(["FullyConnected"], [ranks], bandwidth, latency)}
    return int(run(workload, **machine).finish_ns.max())


def stages_of(batch: Batch, bandwidth: float) -> dict[str, dict[str, int]]:
    """Return the times of a pass that is in one part, by layer and stage."""
    times: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows(made(batch, replace(PLAN, overlap_experts=False)), bandwidth):
        _, _, place = row["name"].partition("forward 0 ")
        layer = place.split()[1] if place.startswith("layer") else place.split()[0]
        stage = "before"
        for name in ("shared expert", "to experts", "from experts", "experts"):
            if name in place:
                stage = name
                break
        times[layer][stage] += row["end_ns"] - row["start_ns"]
    return times


@pytest.mark.parametrize("bandwidth", [0.003, 0.01, 0.03, 1.0])
def test_halves_take_turns_at_each_exchange_with_experts(bandwidth: float) -> None:
    whole = stages_of(MIXED, bandwidth)
    halves = [stages_of(half, bandwidth) for half in MIXED.halves()]
    now = whole["embedding"]["before"] + whole["0"]["before"]
    link, arrived = 0, [0, 0]
    for layer in ("1", "2", "3"):
        for at, half in enumerate(halves):
            if layer != "1":
                now = max(now + half[str(int(layer) - 1)]["shared expert"], arrived[at])
            now += half[layer]["before"]
            link = arrived[at] = max(now, link) + half[layer]["to experts"]
        for at, half in enumerate(halves):
            now = max(now, arrived[at]) + half[layer]["experts"]
            link = arrived[at] = max(now, link) + half[layer]["from experts"]
    for half in halves:
        now += half["3"]["shared expert"]
    expected = max(now, link) + whole["head"]["before"] + whole["sampling"]["before"]
    assert max(row["end_ns"] for row in rows(made(MIXED), bandwidth)) == expected


@pytest.mark.parametrize("exchange", ["hierarchical", "deepep"])
def test_outputs_of_a_half_leave_while_experts_of_the_other_half_compute(exchange: str) -> None:
    plan = replace(PLAN, data=4, expert=4, node_ranks=2, expert_exchange=exchange)
    machine = {"system": system(), "network": network(["FullyConnected"], [4], 50.0)}
    ran = [row for row in run(made(MIXED, plan), **machine).timeline.to_pylist() if row["actor"] == 0]
    layer = [row for row in ran if "layer 2" in row["name"]]
    leaves = min(row["start_ns"] for row in layer if "from experts" in row["name"])
    done = sorted(row["end_ns"] for row in layer if "experts down" in row["name"])
    assert len(done) == 2
    assert done[0] <= leaves < done[1]


PARTS = replace(PLAN, attention_parts=True)
TOKENS = Batch.of([Segment(1, 30 + 7 * number) for number in range(7)])
STAGES = (
    ("qkv", "attention norm"),
    ("decode attention", "attention output", "feed-forward norm", "router"),
    ("to experts sent", "shared expert"),
    ("to experts received", "from experts sent"),
    ("from experts received",),
)


@pytest.mark.parametrize("bandwidth", [0.001, 0.01, 1.0])
@pytest.mark.parametrize("attention_parts", [False, True])
def test_exchanges_of_both_halves_follow_each_other(bandwidth: float, attention_parts: bool) -> None:
    batch = TOKENS if attention_parts else MIXED
    ran = rows(made(batch, replace(PLAN, attention_parts=attention_parts)), bandwidth)
    exchanges = sorted((row["start_ns"], row["end_ns"]) for row in ran if row["kind"] == "all_to_all")
    assert len(exchanges) >= 4
    assert all(before[1] <= after[0] for before, after in pairwise(exchanges))


def stage_of(name: str) -> int:
    for number, parts in enumerate(STAGES):
        if any(part in name for part in parts):
            return number
    assert "experts up" in name or "experts activation" in name or "experts down" in name
    return 3


def test_with_attention_in_parts_halves_take_turns_at_five_stages() -> None:
    workload = made(TOKENS, PARTS)
    ran = sorted(rows(workload, 0.01), key=lambda row: row["node"])
    kernels = [row for row in ran if row["kind"] == "compute"]
    begun = [row["start_ns"] for row in kernels]
    assert begun == sorted(begun)
    layers = [row["name"] for row in kernels if any(f"layer {layer} " in row["name"] for layer in (1, 2, 3))]
    stages: list[int] = []
    for name in layers:
        if stages[-1:] != [stage_of(name)]:
            stages.append(stage_of(name))
    half = [0, 1, 2, 3, 4] * 3
    expected = half[:2]
    for ahead, behind in zip(half[2:], half, strict=False):
        expected += [ahead, behind]
    assert stages == expected + half[-2:]
    for row in kernels:  # each begins as soon as the one before has ended, and copies have arrived
        ends = [other["end_ns"] for other in ran if other["node"] < row["node"]]
        arrived = max(ends) if "received" in row["name"] else 0
        before = max((other["end_ns"] for other in kernels if other["node"] < row["node"]), default=0)
        if "layer" in row["name"] and "received" not in row["name"]:
            assert row["start_ns"] == before
        assert before <= row["start_ns"] <= max(before, arrived)


def test_copies_travel_from_the_begin_of_the_kernel_that_sends_them() -> None:
    ran = sorted(rows(made(TOKENS, PARTS), 0.01), key=lambda row: row["node"])
    for way in ("to experts", "from experts"):
        travels = [row["start_ns"] for row in ran if row["name"].endswith(f"layer 2 {way}")]
        sends = [row["start_ns"] for row in ran if row["name"].endswith(f"layer 2 {way} sent")]
        assert travels == sends
        assert len(sends) == 2


def test_attention_in_parts_does_the_work_of_the_whole_batch() -> None:
    parts, whole = (made(TOKENS, one) for one in (PARTS, replace(PLAN, overlap_experts=False)))
    assert find_problems(parts) == []
    for name in ("decode attention", " qkv", "head", "shared expert down"):
        once, twice = (
            int(made.trace(0).num_ops[rows_named(made.trace(0), name)].sum()) for made in (whole, parts)
        )
        assert once == twice


def test_prompts_take_turns_at_exchanges_only() -> None:
    of_one_token = Batch.of([Segment(1), *[Segment(1, 30)] * 6])  # one half has no prompt
    for batch in (MIXED, (MIXED, TOKENS), of_one_token, (TOKENS, of_one_token)):
        assert end(made(batch, PARTS)) == end(made(batch, PLAN))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"attention_parts": True}, "requires overlap_experts"),
        ({"attention_parts": True, "overlap_experts": True}, "requires expert, 2 or more"),
        (
            {
                "attention_parts": True,
                "overlap_experts": True,
                "data": 8,
                "expert": 8,
                "expert_exchange": "deepep",
            },
            "does not support expert_exchange deepep",
        ),
        (
            {"attention_parts": True, "overlap_experts": True, "expert": 2, "experts_apart": True},
            "does not support attention_parts",
        ),
    ],
)
def test_attention_in_parts_is_refused_where_no_exchange_runs_beside_it(
    changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(FieldError, match=cause):
        Plan(**changes)


def test_exchanges_of_halves_of_prompts_hold_processors_throughout() -> None:
    plan = replace(PLAN, data=4, expert=4, node_ranks=2, expert_exchange="deepep")
    for batch, reserved in ((MIXED, 20), ((MIXED, *[TOKENS] * 3), 20), (TOKENS, 0)):
        software = made(batch, plan).software
        assert (software.reserved if software else 0) == reserved
    for other in (PARTS, replace(plan, overlap_experts=False), replace(plan, expert_exchange="hierarchical")):
        assert made(MIXED, other).software is None
    engine = made_by_engine(plan)
    assert (engine.name, engine.reserved) == ("sglang", 20)


def made_by_engine(plan: Plan) -> MadeFor:
    software = make_inference(with_experts(), plan, [MIXED], run_by("sglang")).software
    assert software is not None
    return software


def test_kernels_that_compute_take_longer_on_fewer_processors_and_others_as_long() -> None:
    device = {"model": "roofline", "peaks": {"bf16": 1}, "dtype": "bf16", "processors": 100}
    device["memory"] = [{"name": "HBM", "bandwidth": 1000}]
    fast = {**device, "peaks": {"bf16": 1000}, "memory": [{"name": "HBM", "bandwidth": 1}]}
    for compute, factor in ((device, 1.25), (fast, 1.0)):
        times = []
        for reserved in (0, 20):
            software = MadeFor("x", reserved=reserved)
            workload = make_inference(decoder(), Plan(), [Batch.of([Segment(64)])], software)
            machine = {"system": {"compute": compute}, "network": network(["Ring"], [1])}
            times.append(int(run(workload, **machine).finish_ns.max()))
        assert times[1] == pytest.approx(factor * times[0], rel=1e-3)


def test_exchanges_are_hidden_by_the_other_half() -> None:
    """Show that halves are faster if the exchange takes as long as computing, and not if it takes no time."""
    apart = replace(PLAN, overlap_experts=False)
    assert end(made(MIXED), bandwidth=0.02) < 0.8 * end(made(MIXED, apart), bandwidth=0.02)
    at_once = {"bandwidth": 1e9, "latency": 0.0}
    assert end(made(MIXED), **at_once) >= end(made(MIXED, apart), **at_once)


@pytest.mark.parametrize(
    ("plan", "batch"),
    [
        (PLAN, Batch.of([Segment(1, 9)])),
        (PLAN, (MIXED, Batch.of([]))),
        (PLAN, (MIXED, Batch.of([Segment(1, 9)]))),
        (Plan(tensor=2, expert=2, overlap_experts=True), MIXED),
    ],
)
def test_without_two_halves_or_an_exchange_a_pass_is_as_before(plan: Plan, batch: GroupBatches) -> None:
    before = replace(plan, overlap_experts=False)
    assert end(made(batch, plan)) == end(made(batch, before))
    assert len(made(batch, plan).trace(0)) == len(made(batch, before).trace(0))


@pytest.mark.parametrize(
    "changes",
    [
        {"data": 4, "expert": 2},
        {"tensor": 2, "expert": 2},
        {"tensor": 2, "expert": 4},
        {"pipeline": 2},
        {"data": 4, "expert": 4, "node_ranks": 2, "expert_exchange": "hierarchical"},
        {"data": 4, "expert": 4, "node_ranks": 2, "expert_exchange": "deepep"},
    ],
)
def test_halves_do_the_work_of_the_whole_batch(changes: dict[str, Any]) -> None:
    plan = replace(PLAN, **changes)
    batches = (*[MIXED] * (plan.data - 1), Batch.of([Segment(17), Segment(1, 5), Segment(1, 6)]))
    workload, whole = (made(batches, one) for one in (plan, replace(plan, overlap_experts=False)))
    assert find_problems(workload) == []
    assert end(workload, plan.ranks) > 0
    for rank in range(plan.ranks):
        traces = workload.trace(rank), whole.trace(rank)
        for name in ("prefill attention", "decode attention", " qkv", "head", "shared expert down"):
            parts, once = (int(trace.num_ops[rows_named(trace, name)].sum()) for trace in traces)
            assert parts == once


def test_a_model_without_experts_has_no_exchange_to_hide() -> None:
    with pytest.raises(UsageError, match="has no experts"):
        made(MIXED, Plan(overlap_experts=True), decoder())


@given(st.integers(2, 40), st.integers(0, 99), st.integers(0, 3))
def test_halves_of_equal_segments_are_batches_of_half_of_them(tokens: int, before: int, pairs: int) -> None:
    prompts, singles = [Segment(tokens, before)] * pairs, [Segment(1, before + 1)] * pairs
    twice = Batch.of([*prompts, *prompts, *singles, *singles])
    assert twice.halves() == (Batch.of([*prompts, *singles]),) * 2


@given(st.integers(4, 99), st.integers(0, 99), st.sampled_from([0, 8, 33, 500]))
def test_a_lone_prompt_is_cut_in_two_parts(tokens: int, before: int, window: int) -> None:
    sights = [AttentionSight(window)] if window else []
    first, second = Batch.of([Segment(tokens, before)], sights=sights).halves()
    cut = -(-tokens // 2)
    parts = [
        Batch.of([segment], sights=sights)
        for segment in (Segment(cut, before), Segment(tokens - cut, before + cut, is_sampled=False))
    ]
    assert (first.prefill, second.prefill) == (parts[0].prefill, parts[1].prefill)
    if before >= window > 0:
        assert (first.within, second.within) == (parts[0].within, parts[1].within)


@given(
    st.lists(st.builds(Segment, st.integers(2, 50), st.integers(0, 50)), max_size=7),
    st.lists(st.builds(Segment, st.just(1), st.integers(1, 50)), max_size=7),
    st.sampled_from([AttentionSight(), AttentionSight(8), AttentionSight(16, in_chunks=True)]),
)
def test_halves_share_all_tokens_and_pairs(
    prompts: list[Segment], singles: list[Segment], sight: AttentionSight
) -> None:
    batch = Batch.of([*prompts, *singles], sights=[sight] if sight.window else [])
    halves = batch.halves()
    assert abs(halves[0].prefill.tokens - halves[1].prefill.tokens) <= 1
    assert abs(halves[0].decode.tokens - halves[1].decode.tokens) <= 1
    assert sum(half.sampled for half in halves) == batch.sampled
    for whole, parts in zip(
        batch.seen(sight), zip(*(half.seen(sight) for half in halves), strict=True), strict=True
    ):
        sums = [sum(values) for values in zip(*map(astuple, parts), strict=True)]
        assert (sums[1], sums[3]) == (whole.tokens, whole.pairs)
        assert whole.segments <= sums[0] <= whole.segments + 1
        assert sums[2] >= whole.keys - (whole.segments > 0) * whole.tokens
        assert all(min(astuple(part)) >= 0 for part in parts)
