"""Sampled plans of small workloads, for tests of samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.run.options import RunOptions
from et_sim.run.simulation import prepare
from et_sim.samples.plans import SampledPlan
from et_sim.trace import TraceBuilder, Workload

VARIED: dict[str, Any] = {"kind": "kernel", "level": "event", "family": "log-normal", "spread": 0.1}


def sampled(
    workload: Workload,
    network: dict[str, Any],
    *entries: dict[str, Any],
    seed: int = 7,
    fold: bool = True,
    model: str | None = None,
    **system: Any,
) -> SampledPlan:
    """Return the plan of samples on a machine with these entries of variation."""
    keys = {**system, "variation": [*entries]}
    task = prepare(workload, RunOptions(system=keys, network=network, model=model))
    return SampledPlan(task.workload, task.machine, task.network_model(), seed=seed, may_fold=fold)


def finish(plan: SampledPlan, step: int | None, without: tuple[int, ...] = ()) -> list[int]:
    """Return the finish time of each rank."""
    outcome = plan.outcome(step, without)
    return [int(ns) for ns in outcome.finish_ns[outcome.plan.actor_of_rank]]


def independent(ranks: int, nanos: int) -> Workload:
    """Return one kernel on each rank, and nothing else."""
    build = TraceBuilder()
    build.compute("work", nanos=nanos)
    return Workload((build.build(),), np.zeros(ranks, np.int32))


def pipeline(nanos: list[int], micro_batches: int) -> Workload:
    """Return the forward passes of a pipeline with a stage on each rank."""
    traces = []
    for rank, stage_ns in enumerate(nanos):
        build, before = TraceBuilder(), list[int]()
        for number in range(micro_batches):
            came = [build.receive(rank - 1, 1, tag=number, after=[])] if rank else []
            work = build.compute(f"pass {number}", nanos=stage_ns, after=[*before, *came])
            if rank + 1 < len(nanos):
                build.send(rank + 1, 1, tag=number, after=[work])
            before = [work]
        traces.append(build.build())
    return Workload(tuple(traces), np.arange(len(nanos), dtype=np.int32))
