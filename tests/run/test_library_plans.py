"""Kept plans on machines with a collective library: bandwidths and latencies change its choices."""

from __future__ import annotations

import functools
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.execution import execute
from et_sim.machine.presets import preset
from et_sim.plan.lowering import assemble
from et_sim.plan.members import Actors
from et_sim.run.options import RunOptions
from et_sim.run.planning import KeptPlans, Planner, plan_of
from et_sim.run.simulation import prepare
from et_sim.sweeps.evaluate import figures
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.workload import MadeFor

MACHINES = ("h100-dgx:8", "h100-dgx:16", "a100-dgx-80gb:16", "mi300x-node:8", "a100-quad:8", "b200-dgx:16")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
MODELS = ("analytical", "link", "flow")
POINTS = 7
TAKES_MEMORY = MadeFor("x", expert_exchange="deepep", reserved=20)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


@functools.cache
def given(machine: str) -> dict[str, dict[str, Any]]:
    """Return the files of a preset machine."""
    known = preset(machine)
    return {"system": dict(known.system), "network": dict(known.network)}


def random_job(draw: Random, ranks: int) -> tuple[Workload, dict[str, list[int]]]:
    """Return a workload of kernels and collectives of all ranks and of groups, and the groups."""
    size = draw.choice((2, 4))
    groups = {"near": [*range(size)], "far": [*range(0, ranks, size)], "uneven": [0, 1, 2, ranks - 1]}
    calls = [
        (draw.choice(KINDS), draw.choice((8, 4096, 1 << 18, 3 << 20, 1 << 26)), draw.choice(("", *groups)))
        for _ in range(draw.randint(1, 3))
    ]
    builders = [TraceBuilder() for _ in range(ranks)]
    for rank, build in enumerate(builders):
        for kind, volume, group in calls:
            if group and rank not in groups[group]:
                continue
            before = build.compute("work", num_ops=1000 << 20 + rank % 2, tensor_bytes=1 << 20)
            more = {} if not group else {"group": group}
            build.collective(kind, volume, after=[before], **more)
    return Workload.of([build.build() for build in builders]), groups


def changed(
    draw: Random, machine: dict[str, dict[str, Any]], side: int, what: str
) -> dict[str, dict[str, Any]]:
    """Return a machine with other figures, of which some are near the given ones."""
    system, network = dict(machine["system"]), dict(machine["network"])
    if what != "latency":
        number, unit = str(network["bandwidth"][side]).split("G")
        factor = draw.choice((0.5, 0.99, 0.995, 1.0, 1.01, 1.02, 1.3))
        network["bandwidth"] = [*network["bandwidth"]]
        network["bandwidth"][side] = f"{float(number) * factor}G{unit}"
    if what != "bandwidth":
        network["latency"] = [*network["latency"]]
        network["latency"][side] = f"{draw.choice((0, 50, 251, 600, 5000))}ns"
    if what == "all":
        system["time-factors"] = [{"kernels": draw.choice((0.5, 1.0, 2.0))}]
    return {"system": system, "network": network}


def shown(
    workload: Workload, groups: Any, machine: dict[str, Any], model: str, planner: Planner, *, fold: bool
) -> Any:
    """Return everything that a run shows, or its refusal."""
    options = RunOptions(**machine, groups=groups, model=model, fold=fold)
    try:
        run = execute(workload, options, planner=planner)
    except EtSimError as error:
        return str(error)
    return figures(run), run.summary(), run.timeline.to_pylist()


def assert_as_alone(seed: int, software: MadeFor | None = None) -> tuple[int, int]:
    """Compare runs with kept plans with runs alone; return the number of plans and of runs."""
    draw, planner = Random(seed), KeptPlans()
    name, model = draw.choice(MACHINES), draw.choice(MODELS)
    machine = given(name)
    workload, groups = random_job(draw, int(name.rpartition(":")[2]))
    workload = replace(workload, software=software)
    side = draw.randrange(len(machine["network"]["npus_count"]))
    what, fold = draw.choice(("bandwidth", "latency", "all")), draw.random() < 0.7
    if draw.random() < 0.3:  # messages are copied in the time of their flight
        machine = {**machine, "system": {**machine["system"], "local-mem-bw": 5}}
    sides = len(machine["network"]["npus_count"])
    turns = draw.random() < 0.5  # between the links of a node and those of others
    for point in range(POINTS):
        side = point % sides if turns else side
        other = changed(draw, machine, side, what)
        shared = planner.guarded(partial(shown, workload, groups, other, model, fold=fold))
        assert shared == shown(workload, groups, other, model, Planner(), fold=fold), seed
    return planner.made, POINTS


def test_runs_with_kept_plans_of_a_library_are_those_alone() -> None:
    counts = [assert_as_alone(seed) for seed in (3, 4)]
    assert sum(made for made, _ in counts) < sum(runs for _, runs in counts)


def test_exchanges_that_take_memory_take_the_part_of_their_point_with_kept_plans() -> None:
    build = TraceBuilder()
    build.compute("work", layer_shape="layernorm 16384 8192", dtype="bf16")
    build.collective("all_to_all", 64 << 20)
    workload = Workload((build.build(),), np.zeros(16, np.int32), software=TAKES_MEMORY)
    planner, ends = KeptPlans(), []
    for bandwidth in ("380Gbps", "390Gbps", "400Gbps", "380Gbps"):
        machine = with_rails(bandwidth)
        kept = planner.guarded(partial(shown, workload, None, machine, "analytical", fold=True))
        assert kept == shown(workload, None, machine, "analytical", Planner(), fold=True)
        ends.append(next(row["end_ns"] for row in kept[2] if row["name"] == "work"))
    assert planner.made == 2  # the second one is for all bandwidths
    assert ends[0] == ends[3] < ends[1] < ends[2]


def test_a_plan_at_other_paces_has_the_tables_of_one_made_anew() -> None:
    workload, groups = random_job(Random(21), 16)
    slow, fast = (
        prepare(workload, RunOptions(**with_rails(bandwidth), groups=groups, model="flow"))
        for bandwidth in ("390Gbps", "400Gbps")
    )
    first, anew = (
        plan_of(task.workload, task.machine, task.network_model(), may_fold=True) for task in (slow, fast)
    )
    again = first.on(fast.machine)
    assert again is not None
    for name in ("programs", "transfers", "steps", "phases", "collectives", "slowing", "slowdowns"):
        assert np.array_equal(getattr(again.lowered, name), getattr(anew.lowered, name)), name
    assert again.lowered.library_choices == anew.lowered.library_choices
    assert not np.array_equal(first.lowered.transfers, again.lowered.transfers)
    every = Actors.one_per_rank(16, ())
    assert np.array_equal(assemble(again.lowering, every).transfers, assemble(anew.lowering, every).transfers)


def with_rails(bandwidth: str) -> dict[str, Any]:
    """Return the files of two nodes whose cards have a bandwidth."""
    machine = given("h100-dgx:16")
    return {**machine, "network": {**machine["network"], "bandwidth": ["450GB/s", bandwidth]}}


@pytest.mark.seeds(deep=20, exhaustive=2_000, at_a_time=10)
def test_many_runs_with_kept_plans_of_a_library_are_those_alone(seeds: range) -> None:
    for seed in seeds:
        assert_as_alone(seed, TAKES_MEMORY if seed % 2 else None)
