"""Rollouts: batches that follow each other, and the weights that are sent between them."""

from __future__ import annotations

from typing import Any

import pytest
from training_jobs import decoder

import et_sim
from et_sim import TraceBuilder, Workload
from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.clients import Client
from et_sim.serving.requests import Request
from et_sim.serving.results import Serving
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Plan
from et_sim.workloads.inference.memory import weight_bytes_of_stage

MODEL = decoder(sequence=4096)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def served(given: Any, npus: int = 2, **setup: Any) -> Serving:
    return serve(given, MODEL, Setup(**{"plan": Plan(), **setup}), RunOptions(machine=f"h100-dgx:{npus}"))


def figures(serving: Serving) -> dict[str, Any]:
    return {
        name: getattr(column, "values", column).tolist()
        for name, column in serving.requests().items()
        if name not in ("tpot_ns", "decode_replica", "transfer_ns")
    }


def test_one_batch_without_weights_is_requests_that_arrive_together() -> None:
    alone = served("rollout:30,6,4,1")
    together = served([Request(number, 0, 30, 6) for number in range(4)])
    assert figures(alone) == figures(together)
    assert alone.iterations == together.iterations
    rollout = alone.summary()["rollout"]
    assert rollout["batch_ns"] == max(alone.requests()["finish_ns"])
    assert (rollout["batches"], rollout["weights_ns"], rollout["weights_share"]) == (1, 0, 0)


def test_one_batch_is_a_closed_loop_of_as_many_requests() -> None:
    loop = served("closed:30,6,4", client=Client(concurrency=4, warm_up=0))
    assert figures(served("rollout:30,6,4,1")) == figures(loop)


def sent_ns(size: int, npus: int, targets: int) -> int:
    """Return the time of messages of a rank to others."""
    builders = [TraceBuilder() for _ in range(npus)]
    for target in range(targets):
        builders[targets].send(target, size, target, after=[])
        builders[target].receive(targets, size, target)
    workload = Workload.of([builder.build() for builder in builders])
    return int(et_sim.simulate(workload, machine=f"h100-dgx:{npus}").makespan_ns)


@pytest.mark.parametrize(("npus", "replicas"), [(2, 1), (4, 3)])
def test_a_batch_begins_when_replicas_have_the_weights(npus: int, replicas: int) -> None:
    outcome = served("rollout:30,6,4,3", npus, replicas=replicas, sends_weights=True)
    of, took = outcome.requests(), sent_ns(weight_bytes_of_stage(MODEL, Plan(), 0), npus, replicas)
    ends = [int(of["finish_ns"][number * 4 : number * 4 + 4].max()) for number in range(3)]
    assert of["arrival_ns"].tolist() == [0] * 4 + [ends[0] + took] * 4 + [ends[1] + took] * 4
    rollout = outcome.summary()["rollout"]
    assert rollout["weights_ns"] == took
    batches = ends[0] + (ends[1] - ends[0] - took) + (ends[2] - ends[1] - took)
    assert rollout["weights_share"] == pytest.approx(2 * took / (2 * took + batches), abs=1e-4)


def test_the_tail_is_the_time_after_nine_tenths_of_the_requests() -> None:
    outcome = served("rollout:30,60,10,1", client=Client(lengths=0.1, seed=3))
    finish = sorted(outcome.requests()["finish_ns"].tolist())
    rollout = outcome.summary()["rollout"]
    assert rollout["tail_share"] == pytest.approx((finish[-1] - finish[-2]) / finish[-1], abs=1e-4)
    assert rollout["tail_share"] > 0


def test_a_replica_without_requests_is_idle() -> None:
    outcome = served("rollout:30,6,1,1", 4, replicas=2)
    assert outcome.summary()["rollout"]["idle_share"] == 0.5


@pytest.mark.parametrize(
    ("given", "setup", "cause"),
    [
        ("rollout:30,6,4", {}, "is not rollout:PROMPT,OUTPUT,COUNT,BATCHES"),
        ("rollout:30,6,4,0", {}, "BATCHES is 0"),
        ("rollout:30,6,9999999,9", {}, "too many requests"),
        ("rollout:30,6,4,2", {"client": Client(concurrency=2)}, "--concurrency is given"),
        ("rollout:30,6,4,2", {"client": Client(rate=2.0)}, "--rate is for requests"),
        ("rollout:30,6,4,1", {"sends_weights": True}, "--send-weights has no effect: no batch follows"),
        ("poisson:2,4,30,6", {"sends_weights": True}, "--send-weights has no effect: no batch follows"),
        ("rollout:30,6,4,2", {"replicas": 2, "sends_weights": True}, "requires 1 rank"),
        (
            "rollout:30,6,4,2",
            {"plan": Plan(), "decode_plan": Plan(tensor=2), "prefill_replicas": 1, "sends_weights": True},
            "requires replicas of one plan",
        ),
    ],
)
def test_rollouts_that_cannot_be_served_are_refused(given: str, setup: dict[str, Any], cause: str) -> None:
    with pytest.raises(UsageError) as refused:
        served(given, 4 if "decode_plan" in setup else 2, **setup)
    assert cause in str(refused.value)
