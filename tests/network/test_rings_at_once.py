"""Collectives of rings with links of their own, evaluated at once, are those simulated message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ring_cases import RingCase, seen

from et_sim.api import run
from et_sim.engine import driver
from et_sim.engine.start import KeptStart
from et_sim.machine import read_machine
from et_sim.network.registry import model_on
from et_sim.run.planning import plan_of
from et_sim.run.result import Result
from et_sim.trace import GroupRule, TraceBuilder, Workload

SYSTEM = {
    "profile": "corrected",
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "local-mem-bw": 1e9,
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
}
EIGHT = {"topology": ["Switch"], "npus_count": [8], "bandwidth": ["50GB/s"], "latency": [500.0]}
STEP = 10 + 2_000 + 2 * 500  # endpoint, bytes and the latencies of two links


def was_evaluated(result: Result) -> bool:
    """Return whether a result comes from a run that evaluates rings at once."""
    return len(result.outcome.run.order_marks) > 0


def assert_same(seeds: range, patch: pytest.MonkeyPatch) -> int:
    """Check cases in both ways; return how many were evaluated at once."""
    evaluated = 0
    for seed in seeds:
        case = RingCase(seed)
        result = case.result(patch, ahead=True)
        evaluated += was_evaluated(result)
        shown = seen(result)
        assert shown == seen(case.result(patch, ahead=False)), seed
    return evaluated


def test_random_jobs_are_the_same_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 6 <= assert_same(range(12), monkeypatch) < 12


@pytest.mark.seeds(deep=50, exhaustive=3000, at_a_time=25)
def test_many_random_jobs_are_the_same_evaluated_at_once(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(seeds, monkeypatch)


def assert_alike(seeds: range, patch: pytest.MonkeyPatch) -> int:
    """Check failures after runs, and slow ports as links of the file; return how many cases have these."""
    late = [{"dimension": 0, "port": 0, "at": "1h"}, {"dimension": 0, "port": 1, "at": "2h", "slower": 0.5}]
    compared = 0
    for seed in seeds:
        case = RingCase(seed)
        usual = seen(case.result(patch, ahead=False, failures=[]))
        assert seen(case.result(patch, ahead=False, failures=late)) == usual, seed
        if links := case.slow_ports_as_links():
            compared += 1
            described = case.result(patch, ahead=False, failures=[], links=links)
            assert seen(described) == seen(case.result(patch, ahead=False)), seed
    return compared


def test_times_of_random_jobs_do_not_depend_on_how_links_are_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check a job (44) of which lone flows began later where some part fails."""
    assert assert_alike(range(40, 46), monkeypatch) > 0


@pytest.mark.seeds(deep=30, exhaustive=1500, at_a_time=30)
def test_times_of_many_random_jobs_do_not_depend_on_how_links_are_described(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_alike(seeds, monkeypatch)


def of_eight(build: TraceBuilder, failures: Sequence[Any] = (), **keys: Any) -> Result:
    """Return a run of one program on eight ranks behind a switch, with messages evaluated at once."""
    network = EIGHT | ({"failures": [*failures]} if failures else {})
    workload = Workload(
        (build.build(),),
        np.zeros(8, np.int32),
        relative_peers=(True,),
        group_rules={"pairs": GroupRule(2), "all": GroupRule(8)},
    )
    return run(workload, model="flow", fold=False, system=SYSTEM | keys, network=network)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs with few messages evaluate rings at once."""
    monkeypatch.setattr(driver, "FEWEST_TO_GO_AHEAD", 0)


@pytest.mark.usefixtures("ahead")
def test_a_ring_takes_its_steps_one_after_the_other() -> None:
    build = TraceBuilder()
    build.collective("all_gather", 100_000, group="all")
    result = of_eight(build)
    assert was_evaluated(result)
    assert result.finish_ns.tolist() == [10 + 7 * STEP] * 8
    assert result.outcome.messages == 7 * 8
    assert result.outcome.load is not None
    assert set(result.outcome.load.bytes.tolist()) == {7 * 100_000}


@pytest.mark.usefixtures("ahead")
def test_each_rank_waits_for_the_late_one_over_all_steps_between() -> None:
    build = TraceBuilder()
    build.collective("all_gather", 100_000, group="all")
    result = of_eight(build, stragglers=[{"ranks": "3", "delay": "1ms"}])
    assert was_evaluated(result)
    late = 1_000_000 + 10
    for behind in range(1, 8):  # the first message of the late rank goes on to all others
        assert result.finish_ns[(3 + behind) % 8] >= late + behind * STEP, behind
    assert result.finish_ns[3] == late + 7 * 2_000  # all that it has to wait for is that its bytes leave
    assert result.finish_ns[4] == late + 7 * 2_000 + 2 * 500 + 10  # its link to rank 4 carries all seven


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize(
    ("when", "is_evaluated"),
    [({"at": "0s"}, True), ({"at": "0s", "for": "1h"}, False), ({"at": "1ns"}, False)],
)
def test_a_ring_over_a_link_that_stays_slow_is_evaluated_at_once(
    when: dict[str, str], is_evaluated: bool
) -> None:
    build = TraceBuilder()
    build.collective("all_gather", 100_000, group="all")
    slow = {"dimension": 0, "from": 3, "to": "switch"}
    result = of_eight(build, [{**slow, **when, "slower": 0.5}])
    assert was_evaluated(result) == is_evaluated
    assert result.is_complete
    assert result.finish_ns[4] == 10 + 7 * 4_000 + 2 * 500 + 10  # its link carries all seven at half speed
    assert result.outcome.load is not None
    assert set(result.outcome.load.bytes.tolist()) == {7 * 100_000}


@pytest.mark.usefixtures("ahead")
def test_a_last_message_that_has_left_before_its_receiver_starts_is_simulated_like_every_message() -> None:
    """Check pairs whose late rank starts while the only message to it is on its way."""
    build = TraceBuilder()
    build.collective("all_gather", 100_000, group="pairs")
    late = 2_500  # the message leaves at 2,010 ns, and arrives at 3,010
    result = of_eight(build, stragglers=[{"ranks": "1,3,5,7", "delay": f"{late}ns"}])
    assert not was_evaluated(result)
    assert result.finish_ns.tolist() == [late + 10 + STEP, late + 10 + 2_000] * 4


@pytest.mark.usefixtures("ahead")
def test_a_group_on_the_links_of_another_one_has_every_message_simulated() -> None:
    build = TraceBuilder()
    first = build.collective("all_gather", 100_000, group="all")
    build.collective("all_gather", 100_000, group="pairs", after=[first])
    result = of_eight(build)
    assert not was_evaluated(result)
    assert result.finish_ns.tolist() == [10 + 7 * STEP + 10 + STEP] * 8


@pytest.mark.usefixtures("ahead")
def test_sends_over_the_dimension_of_a_ring_have_every_message_simulated() -> None:
    build = TraceBuilder()
    first = build.collective("all_gather", 100_000, group="all")
    build.send(1, 1_000, after=[first])
    build.receive(7, 1_000, after=[first])
    result = of_eight(build)
    assert result.is_complete
    assert not was_evaluated(result)


@pytest.mark.usefixtures("ahead")
def test_a_start_kept_without_the_order_of_events_has_every_message_simulated() -> None:
    """Check runs on a graph, and then one on a grid, whose rings are evaluated at once otherwise."""
    build = TraceBuilder()
    build.collective("all_gather", 100_000)
    speed = {"bandwidth": "50GB/s", "latency": "500ns"}
    switch = {"graph": {"generator": "switch", "npus": 8, **speed}, "logical-dimensions": [8]}
    grid, graph = (read_machine(system=SYSTEM, network=each) for each in (EIGHT, switch))
    model = model_on("flow", grid.network)
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    plan = plan_of(workload, grid, model, may_fold=False).lowered
    kept = KeptStart()
    for machine in (*(graph,) * 5, grid):  # the pools of a kept start suffice after some runs
        outcome = driver.run_plan(plan, machine.network, model, kept=kept)
        assert outcome is not None
        assert outcome.finish_ns.tolist() == [10 + 7 * STEP] * 8
        assert len(outcome.run.network.rings) == 0
    alone = driver.run_plan(plan, grid.network, model)
    assert alone is not None
    assert len(alone.run.network.rings) > 0


@pytest.mark.usefixtures("ahead")
def test_a_ring_that_a_member_never_joins_stalls_as_with_every_message() -> None:
    with_it, without = TraceBuilder(), TraceBuilder()
    with_it.collective("all_gather", 100_000, group="all")
    without.compute("other", micros=1)
    workload = Workload(
        (with_it.build(), without.build()),
        np.array([0] * 7 + [1], np.int32),
        group_rules={"all": GroupRule(8)},
    )
    result = run(workload, model="flow", fold=False, system=SYSTEM, network=EIGHT)
    assert not result.is_complete
    assert not was_evaluated(result)


def test_a_message_on_links_of_its_own_begins_at_once_though_another_ends_in_the_same_nanosecond() -> None:
    traces = [TraceBuilder() for _ in range(4)]
    traces[0].send(1, 1_000)  # ends at 333 1/3 ns
    traces[1].receive(0, 1_000)
    traces[2].send(3, 32, after=[traces[2].compute("work", nanos=333)])
    traces[3].receive(2, 32)
    network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": ["3GB/s"], "latency": [500.0]}
    result = run(Workload.of([each.build() for each in traces]), model="flow", system=SYSTEM, network=network)
    assert result.finish_ns.tolist()[1] == 333 + 1_000
    assert result.finish_ns.tolist()[3] == 333 + 10 + 1_000  # and two thirds
