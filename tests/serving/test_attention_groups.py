"""Serving with data-parallel attention, and with layers that keep windows or states."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from training_jobs import decoder, with_experts

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.requests import Request
from et_sim.serving.results import Serving
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.models.model import Attention, LayerKind, Recurrence

MACHINE = RunOptions(machine="h100-dgx:2")
EXPERTS = with_experts(sequence=4096)
EMPTY = Batch.of([])


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def pass_ns(model: Model, plan: Plan, batch: GroupBatches) -> int:
    workload = make_inference(model, plan, [batch])
    return int(et_sim.simulate(workload, machine=f"h100-dgx:{plan.ranks}").makespan_ns)


def served(model: Model, *requests: tuple[int, int, int], **setup: Any) -> Serving:
    given = [Request(number, *fields) for number, fields in enumerate(requests)]
    return serve(given, model, Setup(**{"context_step": 1, **setup}), MACHINE)


def test_a_lone_request_waits_for_groups_with_empty_batches() -> None:
    plan = Plan(data=2, expert=2)
    of = served(EXPERTS, (0, 100, 3), plan=plan).requests()
    passes = [
        pass_ns(EXPERTS, plan, (Batch.of([segment]), EMPTY))
        for segment in (Segment(100), Segment(1, 100), Segment(1, 101))
    ]
    assert of["e2e_ns"].tolist() == [sum(passes)]
    assert of["replica"].tolist() == [0]


def test_groups_of_a_replica_begin_and_end_their_passes_together() -> None:
    plan = Plan(data=2, expert=2)
    outcome = served(EXPERTS, (0, 100, 3), (0, 50, 3), (0, 10, 2), plan=plan)
    assert outcome.requests()["replica"].tolist() == [0, 1, 1]
    begun = {(one.start_ns, one.end_ns) for one in outcome.iterations}
    assert len(begun) == len({start for start, _ in begun}) == 3
    first = [one for one in outcome.iterations if one.start_ns == 0]
    assert [one.prefill_tokens for one in first] == [100, 60]
    both = Batch.of([Segment(100)]), Batch.of([Segment(50), Segment(10)])
    assert {one.end_ns for one in first} == {pass_ns(EXPERTS, plan, both)}
    assert outcome.summary()["pools"][0]["data"] == 2


def test_halves_of_batches_hide_exchanges_if_every_group_has_two() -> None:
    plan = Plan(data=2, expert=2, overlap_experts=True)
    outcome = served(EXPERTS, *[(0, 100, 2)] * 4, plan=plan)
    batches = [Batch.of([segment] * 2) for segment in (Segment(100), Segment(1, 100))]
    passes = [pass_ns(EXPERTS, plan, batch) for batch in batches]
    assert set(outcome.requests()["e2e_ns"].tolist()) == {sum(passes)}
    apart = replace(plan, overlap_experts=False)
    assert passes != [pass_ns(EXPERTS, apart, batch) for batch in batches]
    alone, before = (served(EXPERTS, (0, 100, 2), plan=one) for one in (plan, apart))
    assert alone.iterations == before.iterations


def test_one_group_is_none() -> None:
    requests = [(0, 100, 3), (0, 50, 3)]
    alone, group = (
        served(EXPERTS, *requests, plan=plan) for plan in (Plan(tensor=2), Plan(tensor=2, data=1))
    )
    assert alone.iterations == group.iterations


def test_groups_of_separate_replicas_send_caches_to_groups() -> None:
    plan = Plan(data=2, expert=2)
    given = [Request(number, 0, 40, 3) for number in range(4)]
    setup = Setup(plan=plan, replicas=1, prefill_replicas=1)
    outcome = serve(given, EXPERTS, setup, RunOptions(machine="h100-dgx:4"))
    assert outcome.requests()["replica"].tolist() == [0, 1, 0, 1]
    assert sorted(outcome.requests()["decode_replica"].tolist()) == [2, 2, 3, 3]


def test_windows_and_states_bound_the_cache() -> None:
    plan = Plan(tensor=2)
    full = decoder(sequence=4096, attention=Attention(8, 8, 8))
    windows = replace(full, windows=(16, 0))
    states = replace(
        full,
        kinds=(LayerKind("recurrence"), LayerKind()),
        recurrence=Recurrence(8, 8, 8, 8, 4, has_delta_rule=True, chunk=64),
    )
    peaks = [
        served(one, (0, 1000, 2), plan=plan).summary()["peak_cache_bytes"] for one in (full, windows, states)
    ]
    token = 2 * 4 * 8 * 2  # of a layer on a rank
    blocks = -(-1001 // 16) * 16
    assert peaks[0] == 4 * blocks * token
    assert peaks[1] == 2 * (blocks + 16) * token
    assert peaks[2] == 2 * blocks * token + 2 * (4 * 8 * 8 * 4 + 3 * 4 * 8 * 3 * 2)


def test_a_cache_in_a_type_that_the_machine_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="computes in"):
        serve(
            [Request(0, 0, 10, 1)],
            EXPERTS,
            Setup(plan=Plan(cache_type="fp8")),
            RunOptions(machine="a100-dgx-80gb:1"),
        )


def test_groups_without_experts_to_share_are_refused() -> None:
    with pytest.raises(UsageError, match="no experts that groups of ranks could share"):
        served(decoder(sequence=4096), (0, 10, 1), plan=Plan(data=2))
