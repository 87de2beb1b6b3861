"""Equal ranks that meet only at barriers are one actor, and take the time of all ranks, to the nanosecond."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import ROOTED, network
from sampled_cases import VARIED, finish, pipeline, sampled

from et_sim.samples.blame import PathReader
from et_sim.samples.plans import SampledPlan
from et_sim.trace import GroupRule, TraceBuilder, Workload

A_FEW = 12
MEETINGS = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
FAMILIES: tuple[dict[str, Any], ...] = (
    {"family": "normal", "spread": 0.2},
    {"family": "log-normal", "spread": 0.3},
    {"family": "gamma", "spread": 1.0},
    {"family": "mixture", "parts": [{"weight": 3}, {"weight": 1, "factor": 2, "spread": 0.2}]},
    {"family": "empirical", "factors": [0.5, 1, 1, 2]},
)
SWITCH = {
    "all-reduce-implementation": ["inNetwork"],
    "all-gather-implementation": ["inNetwork"],
    "reduce-scatter-implementation": ["inNetwork"],
    "endpoint-delay": 10,
    "preferred-dataset-splits": 1,
}


def without_message_times(sizes: list[int]) -> dict[str, Any]:
    """Return a grid whose messages take no time."""
    return network(["Ring"] * len(sizes), sizes, bandwidth=1e6, latency=0.0)


def rings(dimensions: int) -> dict[str, Any]:
    """Return a system for it."""
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    keys = {f"{name}-implementation": ["ring"] * dimensions for name in names}
    return {"profile": "corrected", "endpoint-delay": 0, **keys}


def program(groups: list[str], nanos: list[int], kinds: tuple[str, ...] = ("all_reduce",)) -> TraceBuilder:
    """Return kernels of these times in a row, each but the first after a meeting of a group; exchanges are of
    these kinds in turn.
    """
    build = TraceBuilder()
    before = [build.compute("work 0", nanos=nanos[0])]
    for number, (group, each) in enumerate(zip(groups, nanos[1:], strict=True)):
        kind = kinds[number % len(kinds)]
        root = 0 if kind in ROOTED and kind != "barrier" else None
        before = [build.collective(kind, 8, group, root=root, after=before)]
        before = [build.compute(f"work {number + 1}", nanos=each, after=before)]
        before = [build.compute(f"more {number + 1}", nanos=each // 2, after=before)]
    return build


def job(
    sizes: list[int], groups: list[str], nanos: list[int], kinds: tuple[str, ...] = ("all_reduce",)
) -> Workload:
    """Return a job of equal ranks on a grid; groups are "" (all), "row" or "column"."""
    rules = {"row": GroupRule(sizes[0]), "column": GroupRule(sizes[-1], sizes[0])}
    used = {name: rule for name, rule in rules.items() if name in groups}
    trace = program(groups, nanos, kinds).build()
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
        kinds = tuple(draw.sample(MEETINGS, len(MEETINGS)))
    else:
        sizes, names = [draw.randint(2, 12)], ("",)
        net = network(["Switch"], sizes, latency=float(draw.randint(1, 900)))
        net |= {"in-network": [{"dimension": 0, "latency": draw.randint(0, 300)}]}
        keys, model, kinds = SWITCH, "analytical", tuple(draw.sample(MEETINGS[:3], 3))
    groups = [draw.choice(names) for _ in range(draw.randint(0, 6))]
    nanos = [draw.randint(1, 100_000) for _ in range(len(groups) + 1)]
    work, entries = job(sizes, groups, nanos, kinds), entries_of(draw)
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


@pytest.mark.seeds(deep=60, exhaustive=2000, at_a_time=30)
def test_many_random_jobs_take_as_long_as_with_an_actor_for_each_rank(seeds: range) -> None:
    for seed in seeds:
        check(seed)


@pytest.mark.parametrize("level", ["element", "step", "event"])
def test_blame_names_the_ranks_that_arrive_last(level: str) -> None:
    """Check that a step is work of these ranks alone, and of one rank if its draws last the step."""
    groups, entry = ["row", "", "column", ""], {**VARIED, "level": level, "spread": 0.3}
    net, work = without_message_times([3, 2]), job([3, 2], groups, [40_000, 30_000, 50_000, 20_000, 45_000])
    plans = [sampled(work, net, entry, fold=fold, **rings(2)) for fold in (True, False)]
    assert [plan.meets_at_barriers for plan in plans] == [True, False]
    for step in range(4):
        of_one, of_each = (PathReader(plan).of(plan.outcome(step)) for plan in plans)
        assert of_one.nominal_ns + sum(of_one.varied_ns.values()) == of_one.step_ns == of_each.step_ns
        if level == "event":
            assert len(of_one.varied_ns) > 1
        else:
            assert of_one.varied_ns == of_each.varied_ns
            assert len(of_one.varied_ns) == 1


def overlapped() -> Workload:
    """Return two kernels in a row, with a meeting of all beside the second one."""
    build = TraceBuilder()
    first = build.compute("first", nanos=30_000)
    build.collective("all_reduce", 8, after=[first])
    build.compute("second", nanos=50_000, after=[first])
    return Workload((build.build(),), np.zeros(6, np.int32))


def test_ranks_that_do_more_than_to_meet_at_barriers_are_simulated_each() -> None:
    """Check messages with a latency, an exchange in several chunks, work beside an exchange, and messages."""
    still, late = without_message_times([3, 2]), network(["Ring"] * 2, [3, 2], latency=100.0)
    meets = job([3, 2], [""], [1000, 2000])
    switch = network(["Switch"], [6]) | {"in-network": [{"dimension": 0, "latency": 100}]}
    chunks = {**SWITCH, "preferred-dataset-splits": 4}
    assert sampled(meets, still, VARIED, **rings(2)).meets_at_barriers
    assert sampled(meets, switch, VARIED, model="analytical", **SWITCH).meets_at_barriers
    for kind in ("broadcast", "reduce", "gather", "scatter", "all_to_all"):
        plan = sampled(job([4], [""], [1000, 2000], (kind,)), without_message_times([4]), VARIED, **rings(1))
        assert not plan.meets_at_barriers, kind
    for plan in (
        sampled(meets, late, VARIED, **rings(2)),
        sampled(meets, switch, VARIED, model="analytical", **chunks),
        sampled(overlapped(), still, VARIED, **rings(2)),
        sampled(pipeline([1000, 2000], 2), network(["Ring"], [2]), VARIED),
    ):
        assert not plan.meets_at_barriers
        assert len(plan.plan.actors) == plan.workload.ranks


@pytest.mark.parametrize("ranks", [1, 64])
def test_a_meeting_of_equal_ranks_ends_with_the_largest_draw(ranks: int) -> None:
    """Check F(t)^n for exponential times: a mean of the n-th harmonic number, and the whole distribution."""
    work, nanos, steps = job([ranks], [""], [1_000_000, 2]), 1_000_000, 200
    plan = sampled(
        work, without_message_times([ranks]), {**VARIED, "family": "gamma", "spread": 1.0}, **rings(1)
    )
    assert plan.meets_at_barriers == (ranks > 1)
    times = np.array([max(finish(plan, step)) for step in range(steps)]) / nanos
    mean = sum(1 / number for number in range(1, ranks + 1))
    deviation = math.sqrt(sum(1 / number**2 for number in range(1, ranks + 1)))
    assert abs(times.mean() - mean) < 3 * deviation / math.sqrt(steps)
    ordered, places = np.sort(times), np.arange(steps + 1) / steps
    expected = (1 - np.exp(-ordered)) ** ranks
    assert max(np.abs(expected - places[1:]).max(), np.abs(expected - places[:-1]).max()) < 1.36 / steps**0.5
