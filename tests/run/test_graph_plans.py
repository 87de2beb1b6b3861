"""Kept plans on graphs: points share a plan where figures of links decide no paths, classes or shares."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from random_cases import random_case, straggling_case
from small_sweeps import SYSTEM

from et_sim.basics.errors import EtSimError
from et_sim.execution import execute
from et_sim.machine.kept_systems import KeptSystems
from et_sim.machine.readers import read_machine
from et_sim.network.graph import tables, wired
from et_sim.network.spread import by_numbers
from et_sim.run.options import RunOptions
from et_sim.run.planning import KeptPlans, Planner
from et_sim.sweeps.evaluate import figures
from et_sim.trace import TraceBuilder, Workload
from et_sim.workloads.microbenchmarks import make_microbenchmark

MODELS = ("analytical", "link", "flow", "packet")
ROUTINGS = ("shortest", "ecmp", "ecmp-ns3", "destination", "spread", "spread")
POINTS = 5
SPEEDS = ("1GB/s", "10GB/s", "25GB/s", "33GB/s", "50GB/s", "51GB/s", "400GB/s")
LATENCIES = ("0ns", "10ns", "500ns", "501ns", "2us")


@pytest.fixture(autouse=True)
def _interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "compiled" not in request.fixturenames:
        monkeypatch.setenv("ET_SIM_COMPILE", "never")


def random_graph(draw: Random, npus: list[int]) -> dict[str, Any]:
    """Return a graph under these dimensions, some of whose links have figures of their own."""
    ranks = int(np.prod(npus))

    def link() -> dict[str, Any]:
        return {"bandwidth": draw.choice(SPEEDS), "latency": draw.choice(LATENCIES)}

    usual = link()
    graphs: list[dict[str, Any]] = [{"generator": "switch", "npus": ranks}]
    graphs.append({"generator": draw.choice(("torus", "mesh")), "sizes": npus if len(npus) > 1 else [ranks]})
    graphs.append({"generator": "fat-tree", "radix": 4, "tiers": 2, "npus": ranks, "uplinks": link()})
    if ranks % 2 == 0:
        leaves = {"generator": "leaf-spine", "npus-per-leaf": ranks // 2, "leaves": 2}
        graphs += [{**leaves, "spines": count, "uplinks": link()} for count in (1, 2, 3)]
        inner, outer = ({"generator": "switch", "npus": count, **link()} for count in (ranks // 2, 2))
        graphs.append({"generator": "nested", "attach": "rails", "copies": 2, "inner": inner, "outer": outer})
    if ranks == 8:
        fly = {"generator": "dragonfly", "groups": 2, "routers-per-group": 2, "npus-per-router": 2}
        graphs.append({**fly, "local-links": link(), "global-links": link()})
        graphs.append(
            {
                "generator": "fat-tree",
                "radix": 4,
                "tiers": 3,
                "npus": 8,
                "uplinks": link(),
                "core-links": link(),
            }
        )
    found: dict[str, Any] = {"logical-dimensions": npus, "routing": draw.choice(ROUTINGS)}
    if draw.random() < 0.2:
        return found | _listed(draw, ranks, link)
    found["graph"] = draw.choice(graphs) | usual
    if found["graph"]["generator"] == "nested":
        found["graph"] = {key: value for key, value in found["graph"].items() if key not in usual}
    if draw.random() < 0.4:
        found["overrides"] = [{"device": f"npu{draw.randrange(ranks)}", **link()}]
    return found


def _listed(draw: Random, ranks: int, link: Any) -> dict[str, Any]:
    """Return switches of different sizes, each pair joined by one or two links."""
    switches = [f"s{number}" for number in range(draw.choice((2, 3)))]
    links = [{"from": f"npu{rank}", "to": draw.choice(switches), **link()} for rank in range(ranks)]
    pairs = [(one, other) for one in switches for other in switches if one < other]
    links += [
        {"from": one, "to": other, "name": f"{one}{other}{at}", **link()}
        for one, other in pairs
        for at in range(draw.choice((1, 2)))
    ]
    return {"npus": ranks, "switches": switches, "links": links}


def _places(content: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield all figures of links, each as an object and its key."""
    left = [content]
    while left:
        value = left.pop(0)
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if isinstance(value, dict):
            yield from ((value, name) for name in ("bandwidth", "latency") if name in value)


def changed(draw: Random, machine: dict[str, Any]) -> dict[str, Any]:
    """Return the machine with other figures of links, and rarely of kernels."""
    machine = copy.deepcopy(machine)
    places = [*_places(machine["network"])]
    for where, name in draw.sample(places, min(len(places), draw.choice((1, 1, 2, len(places))))):
        where[name] = draw.choice(SPEEDS if name == "bandwidth" else LATENCIES)
    if draw.random() < 0.2:
        machine["system"]["time-factors"] = [{"kernels": draw.choice((0.5, 2.0))}]
    return machine


def result_of(workload: Workload, machine: dict[str, Any], fold: bool, planner: Planner) -> Any:
    """Return everything that a run shows, or its refusal."""
    try:
        run = execute(workload, RunOptions(**machine, fold=fold), planner=planner)
    except EtSimError as error:
        return str(error)
    return figures(run), run.summary(), run.timeline.to_pylist()


def assert_as_alone(seed: int, models: tuple[str, ...] = MODELS) -> tuple[int, int]:
    """Compare runs on graphs with several figures; return the number of plans, and of complete runs."""
    draw, planner = Random(seed), KeptPlans()
    case = draw.choice((random_case, straggling_case))(seed)
    npus = case.machine["network"]["npus_count"]
    machine = {**case.machine, "network": random_graph(draw, npus), "model": draw.choice(models)}
    fold, complete = draw.random() < 0.8, 0
    for _ in range(POINTS):
        machine = changed(draw, machine)
        shared = planner.guarded(partial(result_of, case.workload, machine, fold))
        assert shared == result_of(case.workload, machine, fold, Planner()), seed
        complete += not isinstance(shared, str)
    return planner.made, complete


LEAVES = {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 2, "bandwidth": "50GB/s"}
TREE = {"generator": "fat-tree", "radix": 4, "tiers": 3, "npus": 4, "bandwidth": "50GB/s"}
UPLINKS = {"uplinks": {"bandwidth": "40GB/s"}, "latency": "500ns"}


def swept(graph: dict[str, Any], values: list[dict[str, Any]], model: str, **keys: Any) -> KeptPlans:
    """Compare runs on a graph with several figures with those alone; return the planner of the former."""
    planner, workload = KeptPlans(), make_microbenchmark("all_reduce", ranks=4, size=1 << 14)
    ends = set()
    for value in values:
        network = {"graph": graph | value, "logical-dimensions": [4], **keys}
        machine = {"network": network, "system": SYSTEM, "model": model}
        shared = planner.guarded(partial(result_of, workload, machine, True))
        assert shared == result_of(workload, machine, True, Planner())
        ends.add(shared[0]["makespan_ns"])
    assert len(ends) > 1
    return planner


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("graph", [LEAVES, TREE])
def test_points_with_other_figures_of_links_share_a_plan(graph: dict[str, Any], model: str) -> None:
    speeds = [{**UPLINKS, "uplinks": {"bandwidth": f"{10 + 7 * number}GB/s"}} for number in range(4)]
    assert swept(graph, speeds, model).made <= 2  # for the first point, and for all of them
    latencies = [{**UPLINKS, "latency": f"{100 * number}ns"} for number in range(4)]
    assert swept(graph, latencies, model, routing="ecmp").made <= 3  # one where all links have no latency


def test_uplinks_as_fast_as_other_links_are_planned_for_themselves() -> None:
    values = [{**UPLINKS, "uplinks": {"bandwidth": speed}} for speed in ("20GB/s", "30GB/s", "50GB/s")]
    assert swept(LEAVES, values, "flow").made == 3
    assert swept(LEAVES, [*values, {**UPLINKS, "uplinks": {"bandwidth": "60GB/s"}}], "flow").made == 4


def test_shares_by_bandwidths_that_differ_are_planned_for_each_bandwidth() -> None:
    def spines(speed: int) -> dict[str, Any]:
        return {"between": ["leaf0", "spine0"], "bandwidth": f"{speed}GB/s"}

    network = {"graph": {**LEAVES, "latency": "1us"}, "logical-dimensions": [4]}
    kept, planner, made = KeptSystems(), KeptPlans(), []
    workload = make_microbenchmark("all_to_all", ranks=4, size=1 << 20)
    for speed in (10, 20, 30):
        given: dict[str, Any] = {"network": {**network, "overrides": [spines(speed)]}, "system": SYSTEM}
        machine = {**given, "model": "flow"}
        shared = planner.guarded(partial(result_of, workload, machine, True))
        assert shared == result_of(workload, machine, True, Planner())
        made.append(planner.made)
        found = read_machine(**given, systems=kept).network
        assert by_numbers(found) is found
    assert made[-1] > made[-2] > made[-3]


def test_figures_are_written_into_the_tables_of_the_point_before_and_not_of_the_first() -> None:
    def machine(slow: int, speed: int) -> dict[str, Any]:
        graph = {**LEAVES, "spines": 4, "bandwidth": f"{speed}GB/s", **UPLINKS}
        slower = {"link": f"npu{slow}->*", "bandwidth": "5GB/s"}
        network = {"graph": graph, "logical-dimensions": [4], "routing": "ecmp", "overrides": [slower]}
        return {"network": network, "system": SYSTEM, "model": "flow"}

    planner, builders = KeptPlans(), [TraceBuilder() for _ in range(4)]
    builders[0].send(1, 1 << 16)
    builders[1].receive(0, 1 << 16)
    workload = Workload.of([build.build() for build in builders])
    for slow, speed in ((0, 50), (0, 51), (0, 52), (1, 52), (1, 53), (1, 54), (0, 54), (0, 55)):
        point = machine(slow, speed)
        shared = planner.guarded(partial(result_of, workload, point, False))
        assert shared == result_of(workload, point, False, Planner()), (slow, speed)
    assert planner.made < 4


def test_a_graph_with_other_figures_has_the_tables_of_one_read_anew() -> None:
    kept = KeptSystems()
    for latency in ("1us", "2us", "3us"):
        network = {"graph": {**LEAVES, "latency": latency}, "logical-dimensions": [4]}
        again = read_machine(system=SYSTEM, network=network, systems=kept).network
        anew = read_machine(system=SYSTEM, network=network).network
        assert (wired(again).graph.kept is None, wired(anew).graph.kept is None) == (False, True)
        one, other = tables(again), tables(anew)
        assert np.array_equal(one.speeds, other.speeds)
        assert np.array_equal(one.speed_of, other.speed_of)
        for name in one.routes.__struct_fields__:
            assert np.array_equal(getattr(one.routes, name), getattr(other.routes, name)), name


def test_random_runs_on_graphs_with_kept_plans_are_those_alone() -> None:
    counts = [assert_as_alone(seed, MODELS[:3]) for seed in (0, 2)]
    assert sum(made for made, _ in counts) < sum(complete for _, complete in counts)


@pytest.mark.seeds(deep=20, exhaustive=2_000, at_a_time=10)
def test_many_random_runs_on_graphs_with_kept_plans_are_those_alone(seeds: range) -> None:
    for seed in seeds:
        assert_as_alone(seed)
