"""Samples of random runs are the same folded and unfolded, and kept runs the same as fresh ones."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from random_cases import Case, working_case

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.run.options import RunOptions
from et_sim.run.simulation import prepare
from et_sim.samples.plans import SampledPlan

A_FEW = 10
FAMILIES: tuple[dict[str, Any], ...] = (
    {"family": "log-normal", "spread": 0.2},
    {"family": "gamma", "spread": 0.5},
    {"family": "empirical", "factors": [0.5, 1, 1, 2]},
)


def varied(seed: int) -> Case:
    """Return a random case with one or two entries of variation, mostly shared by nodes."""
    draw, case = Random(seed), working_case(seed)
    entries = []
    for _ in range(draw.choice((1, 1, 2))):
        level = draw.choice(("element", "step", "event"))
        entry = {"kind": "kernel", "level": level, **draw.choice(FAMILIES)}
        entry["shared"] = draw.choice(("node", "node", "node", "rank"))
        if level != "element" and draw.random() < 0.3:
            entry["correlation"] = 0.4
        entries.append(entry)
    system = {**case.machine["system"], "variation": entries}
    return Case(case.workload, {**case.machine, "system": system})


def plan_of(case: Case, *, fold: bool) -> SampledPlan:
    task = prepare(case.workload, RunOptions(**case.machine))
    return SampledPlan(task.workload, task.machine, task.network_model(), seed=3, may_fold=fold)


def figures(plan: SampledPlan, step: int | None, *, of_all: bool = False) -> Any:
    """Return the finish time and busy time of every rank, and the number of messages; `of_all`: the time of
    all ranks alone.
    """
    outcome = plan.outcome(step)
    if of_all:
        return int(outcome.finish_ns.max())
    of_rank = outcome.plan.actor_of_rank
    return outcome.finish_ns[of_rank].tolist(), outcome.busy_ns[of_rank].tolist(), int(outcome.messages)


def check(seed: int) -> int:
    """Compare three samples of a case; return whether it was folded."""
    case = varied(seed)
    try:
        folded = plan_of(case, fold=True)
    except EtSimError:
        return 0
    whole = plan_of(case, fold=False)
    was_folded, of_all = folded.is_folded, folded.meets_at_barriers
    result = run(case.workload, **case.machine)
    assert figures(folded, None)[0] == result.finish_ns.tolist(), seed
    for step in (None, 0, 1, 2):
        assert figures(folded, step, of_all=of_all) == figures(whole, step, of_all=of_all), (seed, step)
    alone = figures(plan_of(case, fold=True), 2, of_all=of_all)
    assert alone == figures(whole, 2, of_all=of_all), seed  # not after other steps
    return int(was_folded)


def test_samples_of_random_cases_fold_exactly() -> None:
    assert sum(check(seed) for seed in range(A_FEW)) >= 2


@pytest.mark.seeds(deep=15, exhaustive=2000, at_a_time=15)
def test_samples_of_many_random_cases_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        check(seed)


def test_ranks_that_share_their_draws_are_one_actor() -> None:
    from machines import network
    from sampled_cases import VARIED, sampled

    from et_sim.trace import TraceBuilder, Workload

    build = TraceBuilder()
    work = build.compute("work", micros=10)
    build.collective("all_reduce", 1 << 16, after=[work])
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    grid = network(["Ring", "Ring"], [4, 2])
    rings = {"all-reduce-implementation": ["ring", "ring"]}
    by_node = sampled(workload, grid, {**VARIED, "shared": "node"}, **rings)
    by_rank = sampled(workload, grid, VARIED, **rings)
    assert (len(by_node.plan.actors), len(by_rank.plan.actors)) == (2, 8)
