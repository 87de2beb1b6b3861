"""Equal ranks that meet only at barriers are one actor, and take the time of all ranks, to the nanosecond."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import network
from sampled_cases import finish, sampled

from et_sim.samples.plans import SampledPlan
from et_sim.trace import GroupRule, TraceBuilder, Workload

A_FEW = 12
FAMILIES: tuple[dict[str, Any], ...] = (
    {"family": "normal", "spread": 0.2},
    {"family": "log-normal", "spread": 0.3},
    {"family": "gamma", "spread": 1.0},
    {"family": "mixture", "parts": [{"weight": 3}, {"weight": 1, "factor": 2, "spread": 0.2}]},
    {"family": "empirical", "factors": [0.5, 1, 1, 2]},
)
SWITCH = {
    "all-reduce-implementation": ["inNetwork"],
    "endpoint-delay": 10,
    "preferred-dataset-splits": 1,
    "profile": "corrected",
}


def without_message_times(sizes: list[int]) -> dict[str, Any]:
    """Return a grid whose messages take no time."""
    return network(["Ring"] * len(sizes), sizes, bandwidth=1e6, latency=0.0)


def rings(dimensions: int) -> dict[str, Any]:
    """Return a system for it."""
    names = ("all-reduce", "all-gather", "reduce-scatter")
    keys = {f"{name}-implementation": ["ring"] * dimensions for name in names}
    return {"profile": "corrected", "endpoint-delay": 0, **keys}


def program(groups: list[str], nanos: list[int]) -> TraceBuilder:
    """Return kernels of these times in a row, each but the first after a meeting of a group."""
    build = TraceBuilder()
    before = [build.compute("work 0", nanos=nanos[0])]
    for number, (group, each) in enumerate(zip(groups, nanos[1:], strict=True)):
        before = [build.collective("all_reduce", 8, group, after=before)]
        before = [build.compute(f"work {number + 1}", nanos=each, after=before)]
        before = [build.compute(f"more {number + 1}", nanos=each // 2, after=before)]
    return build


def job(sizes: list[int], groups: list[str], nanos: list[int]) -> Workload:
    """Return a job of equal ranks on a grid; groups are "" (all), "row" or "column"."""
    rules = {"row": GroupRule(sizes[0]), "column": GroupRule(sizes[-1], sizes[0])}
    used = {name: rule for name, rule in rules.items() if name in groups}
    trace = program(groups, nanos).build()
    return Workload((trace,), np.zeros(math.prod(sizes), np.int32), group_rules=used)


def entries_of(draw: Random) -> list[dict[str, Any]]:
    """Return one to three random entries of variation."""
    entries = []
    for _ in range(draw.randint(1, 3)):
        level = draw.choice(("element", "step", "event"))
        entry = {"kind": "kernel", "level": level, **draw.choice(FAMILIES)}
        if level != "element" and draw.random() < 0.4:
            entry["correlation"] = draw.choice((-0.5, 0.4))
        entries.append(entry)
    return entries


def pair(seed: int) -> tuple[SampledPlan, SampledPlan]:
    """Return the plans of a random job, folded and not."""
    draw = Random(seed)
    if draw.random() < 0.5:
        sizes, names = [draw.randint(2, 5), draw.randint(2, 4)], ("", "row", "column")
        net, keys, model = without_message_times(sizes), rings(2), draw.choice(("analytical", "flow"))
    else:
        sizes, names = [draw.randint(2, 12)], ("",)
        net = network(["Switch"], sizes, latency=float(draw.randint(1, 900)))
        net |= {"in-network": [{"dimension": 0, "latency": draw.randint(0, 300)}]}
        keys, model = SWITCH, "analytical"
    groups = [draw.choice(names) for _ in range(draw.randint(0, 6))]
    nanos = [draw.randint(1, 100_000) for _ in range(len(groups) + 1)]
    work, entries = job(sizes, groups, nanos), entries_of(draw)
    folded, whole = (
        sampled(work, net, *entries, seed=seed, fold=fold, model=model, **keys) for fold in (True, False)
    )
    return folded, whole


def check(seed: int) -> int:
    """Compare samples of a random job; return whether they are those of one actor."""
    folded, whole = pair(seed)
    assert not whole.meets_at_barriers
    for step in (None, 0, 1, 5):
        assert max(finish(folded, step)) == max(finish(whole, step)), (seed, step)
    assert max(finish(folded, 1, (0,))) == max(finish(whole, 1, (0,))), seed
    return int(folded.meets_at_barriers and len(folded.plan.actors) == 1)


def test_random_jobs_take_as_long_as_with_an_actor_for_each_rank() -> None:
    assert sum(check(seed) for seed in range(A_FEW)) >= A_FEW - 2


@pytest.mark.seeds(deep=150, exhaustive=2000, at_a_time=30)
def test_many_random_jobs_take_as_long_as_with_an_actor_for_each_rank(seeds: range) -> None:
    for seed in seeds:
        check(seed)
