"""Attention and experts on different ranks: tokens cross, and nothing else differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, moved, rows_named, with_experts

import et_sim
from et_sim.api import run
from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.trace import Workload
from et_sim.trace.preflight import find_problems
from et_sim.workloads import Batch, Model, Plan, Segment, make_inference
from et_sim.workloads.inference.batch import GroupBatches
from et_sim.workloads.inference.memory import weight_bytes_of_experts, weight_bytes_of_stage
from et_sim.workloads.inference.transfers import ReplicaPlace, make_weights

MIXED = Batch.of([Segment(40), Segment(24), *[Segment(1, 30)] * 6])
APART = Plan(data=2, expert=2, experts_apart=True, tflops=1e-2)


def made(plan: Plan, batch: GroupBatches = MIXED, model: Model | None = None) -> Workload:
    return make_inference(model or with_experts(), plan, [batch])


def finish(workload: Workload, bandwidth: float = 1e9, latency: float = 0.0) -> Any:
    machine = system("direct", **{"endpoint-delay": 0})
    of = network(["FullyConnected"], [workload.ranks], bandwidth, latency)
    return run(workload, system=machine, network=of).finish_ns


def operations(workload: Workload, rank: int, *names: str) -> int:
    trace = workload.trace(rank)
    return sum(int(np.asarray(trace.num_ops)[rows_named(trace, name)].sum()) for name in names)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("batch", [MIXED, Batch.of([Segment(1, 9)] * 5)])
def test_with_infinite_links_and_as_many_ranks_of_experts_nothing_takes_longer(
    count: int, batch: Batch
) -> None:
    plan = replace(APART, data=count, expert=count)
    together = finish(made(replace(plan, experts_apart=False), batch)).max()
    assert finish(made(plan, batch))[:count].tolist() == [together] * count


def test_slower_links_make_a_pass_longer() -> None:
    ends = [finish(made(APART), bandwidth, 500.0).max() for bandwidth in (50.0, 0.5, 0.05)]
    assert finish(made(APART)).max() < ends[0] < ends[1] < ends[2]


@pytest.mark.parametrize(
    "plan",
    [
        APART,
        replace(APART, data=4),
        replace(APART, expert=8),
        replace(APART, tensor=2, expert=4),
        replace(APART, tensor=4, data=1, expert=4),
        replace(APART, data=1, expert=1),
    ],
)
def test_tokens_cross_to_the_ranks_of_experts_and_back(plan: Plan) -> None:
    workload = made(plan)
    attention = plan.tensor * plan.data
    assert workload.ranks == plan.ranks == attention + plan.expert
    assert find_problems(workload) == []
    assert finish(workload, 50.0, 500.0).min() > 0
    tokens = -(-MIXED.tokens // plan.tensor)
    rows = 3 * plan.expert * -(-2 * tokens // plan.expert)
    sent = [moved(workload.trace(rank)) for rank in (0, attention)]
    crossed = [sum(size for (_, kind), size in of.items() if kind == "all_to_all") for of in sent]
    assert crossed == [rows * 128, rows * 128 * attention // plan.expert]


def test_experts_compute_on_their_ranks_alone() -> None:
    workload, together = made(APART), made(replace(APART, experts_apart=False))
    routed, others = (
        (" experts up", " experts down"),
        ("attention", "qkv", "router", "head", "shared expert up"),
    )
    assert operations(workload, 0, *routed) == operations(workload, 2, *others) == 0
    assert operations(workload, 2, *routed) == operations(together, 0, *routed) > 0
    assert operations(workload, 0, *others) == operations(together, 0, *others)


def test_halves_let_both_kinds_of_ranks_compute_at_the_same_time() -> None:
    whole, halves = (finish(made(replace(APART, overlap_experts=on))).max() for on in (False, True))
    assert halves < 0.8 * whole


def test_weights_of_experts_are_on_their_ranks_alone() -> None:
    model = with_experts()
    assert model.experts is not None
    routed = 3 * 8 * model.experts.expert.weights(64) * 2
    together = weight_bytes_of_stage(model, replace(APART, experts_apart=False), 0)
    assert weight_bytes_of_stage(model, APART, 0) == together - routed // 2
    assert weight_bytes_of_experts(model, APART) == routed // 2
    assert weight_bytes_of_experts(model, replace(APART, expert=8)) == routed // 8
    assert weight_bytes_of_experts(model, replace(APART, redundant_experts=8)) == routed


def test_served_passes_have_the_times_of_simulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    model = with_experts(sequence=4096)
    of = serve(
        [Request(number, 0, 100, 2) for number in range(4)],
        model,
        Setup(plan=APART, context_step=1),
        RunOptions(machine="h100-dgx:4"),
    )
    passes = [made(APART, Batch.of([segment] * 2), model) for segment in (Segment(100), Segment(1, 100))]
    took = [int(et_sim.simulate(one, machine="h100-dgx:4").makespan_ns) for one in passes]
    assert set(of.requests()["e2e_ns"].tolist()) == {sum(took)}


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (decoder(), {}, "has no experts"),
        (with_experts(), {"pipeline": 2}, "experts_apart does not support pipeline 2"),
        (with_experts(), {"expert_exchange": "deepep"}, "does not support expert_exchange deepep"),
        (with_experts(), {"expert_nodes": 2}, "does not support expert_nodes 2"),
        (with_experts(), {"order": "dp-tp"}, "does not support order dp-tp"),
        (with_experts(), {"tensor": 4}, "expert, a multiple of tensor: 2 is not one of 4"),
        (with_experts(), {"expert": 3}, "experts: 8 is not a multiple of 3"),
    ],
)
def test_plans_that_cannot_be_apart_are_refused(model: Model, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(replace(APART, **given), model=model)


def test_replicas_that_do_not_divide_the_machine_are_refused_with_their_axes() -> None:
    options = RunOptions(machine="h100-dgx:8")
    with pytest.raises(UsageError, match=r"5 ranks of a replica.*--tp times --dp, plus --ep, divides 8"):
        serve([Request(0, 0, 10, 1)], with_experts(), Setup(plan=replace(APART, data=3)), options)


def test_experts_that_do_not_fit_their_ranks_are_refused() -> None:
    model = replace(with_experts(sequence=4096), vocabulary=128)
    bytes_of_experts = weight_bytes_of_experts(model, APART)
    setup = Setup(plan=APART, capacity_bytes=bytes_of_experts - 1)
    with pytest.raises(UsageError, match="of each NPU that has experts alone"):
        serve([Request(0, 0, 10, 1)], model, setup, RunOptions(machine="h100-dgx:4"))


def test_new_weights_of_ranks_with_experts_alone_are_those_of_experts() -> None:
    model = with_experts()
    source, target = (ReplicaPlace(APART, first) for first in (0, APART.ranks))
    sent = make_weights(model, source, [target], 2 * APART.ranks)
    sizes = [int(np.asarray(sent.trace(rank).comm_bytes).sum()) for rank in range(APART.ranks)]
    stage, experts = weight_bytes_of_stage(model, APART, 0), weight_bytes_of_experts(model, APART)
    assert sizes == [stage] * 2 + [experts] * 2
