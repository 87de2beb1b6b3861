"""Kept plans: runs that share one give the results of runs that are planned by themselves."""

from __future__ import annotations

import copy
import math
import operator
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import RING_4, network, system
from random_cases import Case, buffered_case, random_case, straggling_case
from small_sweeps import SYSTEM, WORKLOAD, spec

from et_sim.basics.errors import EtSimError
from et_sim.execution import execute
from et_sim.machine import read_machine
from et_sim.run.options import RunOptions
from et_sim.run.planning import KeptPlans, Planner
from et_sim.run.unread import DifferentError, FigureReadError, Reads, Unread, merged
from et_sim.sweeps.evaluate import Evaluator, PointTask, evaluate, figures
from et_sim.sweeps.space import Workshop
from et_sim.sweeps.state import plan_sweep
from et_sim.trace import TraceBuilder, Workload
from et_sim.workloads.microbenchmarks import make_microbenchmark

VARIANTS = 4
FIGURES = {
    "bandwidth": (1.0, 12.5, 50.0, 51.0, 400.0),
    "latency": (0.0, 10.0, 500.0, 2000.0),
    "endpoint-delay": (0, 10, 500),
    "local-mem-bw": (0, 50, 400),
    "num-queues-per-dim": (1, 2),
    "time-factors": ([], [{"kernels": 0.5}], [{"kernels": 0.001}], [{"kernels": 3.0, "ranks": "0"}]),
}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def result_of(workload: Workload, machine: dict[str, Any], planner: Planner) -> Any:
    """Return everything that a run shows, or its refusal."""
    try:
        run = execute(workload, RunOptions(**machine), planner=planner)
    except EtSimError as error:
        return str(error)
    return figures(run), run.summary(), run.timeline.to_pylist()


def changed(draw: Random, machine: dict[str, Any]) -> dict[str, Any]:
    """Return a machine with other figures, in mostly one place."""
    machine = {**machine, "system": dict(machine["system"]), "network": dict(machine["network"])}
    for name in draw.sample(sorted(FIGURES), draw.choice((1, 1, 2))):
        value: Any = draw.choice(FIGURES[name])
        if name not in ("bandwidth", "latency"):
            machine["system"][name] = value
        elif name in machine["network"]:
            given = machine["network"][name]
            machine["network"][name] = [value if draw.random() < 0.7 else one for one in given]
    return machine


def assert_same_with_kept_plans(case: Case, seed: int) -> int:
    """Compare runs on a machine with several figures; return the number of plans that were made."""
    draw, planner = Random(seed), KeptPlans()
    for _ in range(VARIANTS):
        machine = changed(draw, case.machine)
        shared = planner.guarded(partial(result_of, case.workload, machine))
        assert shared == result_of(case.workload, machine, Planner()), seed
    return planner.made


@pytest.mark.parametrize("make", [random_case, straggling_case])
def test_random_runs_with_kept_plans_are_those_without(make: Any) -> None:
    made = sum(assert_same_with_kept_plans(make(seed), seed) for seed in range(3))
    assert made < 3 * VARIANTS


@pytest.mark.seeds(deep=8, exhaustive=704, at_a_time=8)
def test_many_random_runs_with_kept_plans_are_those_without(seeds: range) -> None:
    for seed in seeds:
        for make in (random_case, straggling_case, buffered_case):
            assert_same_with_kept_plans(make(seed), seed)


def rows_and_plans(values: dict[str, list[Any]], **base: Any) -> tuple[list[dict[str, Any]], int]:
    """Evaluate a sweep; compare its rows with those of single runs, and return them with the plans made."""
    usual = {"workload": WORKLOAD, "system": SYSTEM, "network": RING_4}
    plan = plan_sweep(spec(base={**usual, **base}, axes=dict(values)))
    evaluator, workshop = Evaluator(plan.space), Workshop(plan.space.folder)
    rows = [evaluator.row(PointTask(point.digest, point.values)) for point in plan.points]
    alone = [evaluate(plan.space.inputs(point.values), workshop) for point in plan.points]
    assert rows == alone
    return rows, evaluator.planner.made


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_points_with_other_bandwidths_and_latencies_share_a_plan(model: str) -> None:
    axes = {"network.bandwidth[0]": [25, 50.0, 100, 200], "network.latency[0]": [0, 500, 1000]}
    rows, made = rows_and_plans(axes, model=model)
    assert len({row["makespan_ns"] for row in rows}) == len(rows)
    assert made <= 3  # for the first point, for all latencies, and for all bandwidths


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_points_with_other_factors_of_kernels_share_a_plan_and_differ_by_their_kernels(model: str) -> None:
    given = {**SYSTEM, "time-factors": [{"kernels": 1.0}]}
    workload = {**WORKLOAD, "compute-us": 10}
    axes = {"system.time-factors[0].kernels": [1, 0.5, 2, 4]}
    rows, made = rows_and_plans(axes, model=model, system=given, workload=workload)
    first, half, double, fourfold = (row["makespan_ns"] for row in rows)
    assert (half - first, double - first, fourfold - first) == (-5_000, 10_000, 30_000)
    assert made == 1


def test_programs_that_become_equal_by_a_factor_are_folded_again() -> None:
    builders = TraceBuilder(), TraceBuilder()
    for micros, build in enumerate(builders, 3):
        build.compute("work", micros=micros)
    workload = Workload(tuple(build.build() for build in builders), np.arange(4, dtype=np.int32) % 2)
    planner, actors = KeptPlans(), []
    for factor in (1, 2, 0.0001, 1):
        machine = {"system": {**SYSTEM, "time-factors": [{"kernels": factor}]}, "network": RING_4}
        shared = planner.guarded(partial(result_of, workload, machine))
        assert shared == result_of(workload, machine, Planner())
        actors.append(shared[1]["folded"]["actors"])
    assert actors == [2, 2, 1, 2]
    assert planner.made == 2


@pytest.mark.deep
def test_descriptions_that_change_in_place_between_runs_have_their_new_figures() -> None:
    machine: dict[str, Any] = {"system": {**SYSTEM}, "network": copy.deepcopy(RING_4)}
    workload, planner = make_microbenchmark("all_reduce", ranks=4, size=1 << 14), KeptPlans()
    ends = []
    for delay, latency in ((0, 500), (1000, 500), (1000, 900)):
        machine["system"]["endpoint-delay"], machine["network"]["latency"][0] = delay, latency
        shared = planner.guarded(partial(result_of, workload, machine))
        assert shared == result_of(workload, machine, Planner())
        ends.append(shared[0]["makespan_ns"])
    assert ends[0] < ends[1] < ends[2]


def test_algorithms_are_planned_for_each() -> None:
    names = ["ring", "direct", "halvingDoubling"]
    rows, made = rows_and_plans({"system.all-reduce-implementation[0]": names})
    assert len({row["makespan_ns"] for row in rows}) == made == 3


def test_orders_by_bandwidth_are_planned_for_each_bandwidth() -> None:
    greedy = {"inter-dimension-scheduling": "offlineGreedy", "preferred-dataset-splits": 8}
    machine = {
        "system": system("ring", 2, profile="corrected", **greedy),
        "network": network(["Ring", "Ring"], [2, 2], bandwidth=50.0),
    }
    axes = {"network.bandwidth[0]": [1, 50, 400], "network.latency[0]": [0, 500, 1000]}
    _, made = rows_and_plans(axes, **machine)
    assert 3 < made <= 7  # at least one for each bandwidth, and fewer than points


def test_a_workload_is_made_once_although_it_varies_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = make_microbenchmark

    def counted(kind: str, **named: Any) -> Workload:
        made.append(str(named["size"]))
        return real(kind, **named)

    monkeypatch.setattr("et_sim.recipes.recipe.make_microbenchmark", counted)
    sizes = [1024 * (number + 1) for number in range(9)]
    plan = plan_sweep(spec(axes={"network.bandwidth[0]": [25, 50, 100], "workload.bytes": sizes}))
    from et_sim.sweeps.sweep import SweepResult

    table = SweepResult(plan, None, workers=1, dask=None, keep="none", progress=False).table
    assert table["status"].to_pylist() == ["complete"] * 27
    assert sorted(made) == sorted(map(str, sizes))


def test_an_unread_figure_refuses_every_read() -> None:
    reads: list[Any] = [
        lambda figure: figure + 1,
        lambda figure: 2.0 / figure,
        lambda figure: figure == 1,
        lambda figure: figure > 1,
        lambda figure: bool(figure),
        lambda figure: float(figure),
        lambda figure: int(figure),
        lambda figure: math.isfinite(figure),
        lambda figure: max(figure, 1.0),
        lambda figure: f"{figure}",
        lambda figure: str(figure),
        lambda figure: {figure: 1},
        lambda figure: isinstance(figure, float),
        lambda figure: figure.value,
        lambda figure: list(figure),
        lambda figure: 1 in figure,
        lambda figure: len(figure),
        lambda figure: figure[0],
        lambda figure: np.asarray(figure),
        lambda figure: np.array([1.0, figure], np.float64),
        lambda figure: np.array([1.0, figure]),
        lambda figure: np.zeros(2) + figure,
        lambda figure: operator.imul(np.zeros(2), figure),
        lambda figure: figure(1, key=2),
        lambda figure: np.zeros(2).__setitem__(0, figure),
        lambda figure: sorted([figure, figure]),
    ]
    for read in reads:
        reads = Reads()
        with pytest.raises((FigureReadError, ValueError)):
            read(Unread(".x", reads.note))
        assert reads.paths == {".x"}


def test_a_common_machine_hides_the_figures_that_differ() -> None:
    first, second = (read_machine(system=SYSTEM, network={**RING_4, "bandwidth": [at]}) for at in (25, 50))
    reads = Reads()
    common = merged(first, second, reads)
    assert common.network.grid.dimensions[0].npus == 4
    with pytest.raises(FigureReadError, match=r"network\.fabric\.dimensions\[0\]\.bandwidth"):
        _ = common.network.fabric.dimensions[0].bandwidth + 1
    assert merged(common, second, reads) is common
    with pytest.raises(DifferentError, match=r"bandwidth"):
        merged(first, second, reads)


def test_machines_that_differ_in_a_choice_have_nothing_in_common() -> None:
    first, second = (
        read_machine(system={**SYSTEM, "scheduling-policy": at}, network=RING_4) for at in ("LIFO", "FIFO")
    )
    with pytest.raises(DifferentError, match=r"\.policy"):
        merged(first, second, Reads())
