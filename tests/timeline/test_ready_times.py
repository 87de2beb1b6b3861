"""A node is ready when its last parent ends, or when its rank begins, whatever it waits for afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from machines import network, system
from random_cases import Case, random_case, straggling_case

from et_sim.api import run
from et_sim.trace import TraceBuilder, Workload


@pytest.mark.parametrize("late_us", [0, 7])
def test_a_node_that_waits_for_its_lane_was_ready_before(late_us: int) -> None:
    build = TraceBuilder()
    long = build.compute("long", micros=10)
    parents = [build.compute(f"host{micros}", micros=micros, cpu=True) for micros in (2, 3)]
    build.compute("short", micros=1, after=parents)
    late = {"stragglers": [{"ranks": "all", "delay": f"{late_us}us"}]} if late_us else {}
    result = run(
        Workload.of([build.build()] * 2), system=system("ring", **late), network=network(["Ring"], [2])
    )
    begin = 1000 * late_us
    rows = {row["name"]: row for row in result.timeline.to_pylist()}
    assert (rows["short"]["ready_ns"], rows["short"]["start_ns"]) == (begin + 5000, begin + 10_000)
    assert (rows["short"]["start_cause"], rows["short"]["start_cause_node"]) == ("lane", long)
    assert (rows["host3"]["ready_ns"], rows["host3"]["start_ns"]) == (begin, begin + 2000)


@pytest.mark.parametrize("build", [random_case, straggling_case])
@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.deep) for n in range(12, 90))]
)
def test_ready_times_are_the_ends_of_the_last_parents(build: Callable[[int], Case], seed: int) -> None:
    case = build(seed)
    result = run(case.workload, **case.machine, fold=False)
    rows = result.timeline.to_pylist()
    end = {(row["actor"], row["node"]): row["end_ns"] for row in rows}
    starts = result.outcome.plan.actors["start_ns"]
    for row in rows:
        trace = result.workload.trace(row["actor"])
        parents = trace.parents(trace.node_id.tolist().index(row["node"]))
        ended = [end[row["actor"], int(trace.node_id[parent])] for parent in parents]
        assert row["ready_ns"] == max(ended, default=int(starts[row["actor"]]))
