"""Folding is exact: every rank has the times of an unfolded run; and ranks that are alike are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import KINDS, ROOTED, SHAPES, network, system
from random_cases import ready_ns

from et_sim.api import run, simulate
from et_sim.basics.errors import StallError
from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.group_rule import GroupRule

ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree", "oneRing", "oneDirect")
BETWEEN_DIMENSIONS = ("ascending", "roundRobin", "offlineGreedy", "offlineGreedyFlex", "onlineGreedy")
WITHIN_DIMENSIONS = ("FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst")


def actors_of(workload: Workload, **machine: Any) -> int:
    """Return the number of actors at the end of a run."""
    return len(run(workload, **machine).outcome.plan.actors)


def random_entries_fold_exactly(data: st.DataObject, key: str, entries: Callable[[int], Any]) -> None:
    """Run with a few entries under a key of the system, drawn by a strategy for the number of ranks."""
    machine = data.draw(machines())
    ranks = int(np.prod(machine["network"]["npus_count"]))
    machine["system"][key] = data.draw(st.lists(entries(ranks), min_size=1, max_size=3))
    assert_folding_is_exact(data.draw(programs(machine)), **machine)


def assert_folding_is_exact(workload: Workload, **machine: Any) -> None:
    folded, unfolded = run(workload, **machine), run(workload, **machine, fold=False)
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    for figure in ("reference_exposed_ns", "exposed_comm_ns", "transfer_ns", "waiting_ns", "idle_ns"):
        assert getattr(folded, figure).tolist() == getattr(unfolded, figure).tolist()
    assert folded.outcome.messages == unfolded.outcome.messages
    assert folded.summary()["per_rank"] == unfolded.summary()["per_rank"]
    assert folded.coverage == unfolded.coverage
    for rank in range(workload.ranks):
        assert _node_times(folded, rank) == _node_times(unfolded, rank)


def _node_times(result: Any, rank: int) -> list[list[int]]:
    plan = result.outcome.plan
    actor = int(plan.actor_of_rank[rank])
    first = int(plan.actors["node_first"][actor])
    count = int(plan.templates["nodes"][plan.actors["template"][actor]])
    nodes = result.outcome.nodes[first : first + count]
    times = [nodes[column].tolist() for column in ("start_ns", "end_ns")]
    return [ready_ns(result.outcome, actor).tolist(), *times]


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a network of one to three dimensions and a system for it."""
    npus = draw(
        st.lists(st.sampled_from((2, 3, 4)), min_size=1, max_size=3).filter(lambda n: np.prod(n) <= 16)
    )
    shapes = [draw(st.sampled_from(SHAPES)) for _ in npus]
    model = draw(st.sampled_from(("analytical", "link")))
    algorithm = draw(st.sampled_from(ALGORITHMS))
    keys = {
        "preferred-dataset-splits": draw(st.sampled_from((1, 2, 5))),
        "active-chunks-per-dimension": draw(st.sampled_from((1, 2, 4))),
        "num-queues-per-dim": draw(st.sampled_from((1, 2))),
        "endpoint-delay": draw(st.sampled_from((0, 10, 500))),
        "local-mem-bw": draw(st.sampled_from((0, 50))),
        "rendezvous-protocol": draw(st.booleans()),
        "collective-optimization": draw(st.sampled_from(("baseline", "localBWAware"))),
        "profile": draw(st.sampled_from(("reference", "corrected"))),
    }
    if keys["profile"] == "corrected":
        keys["inter-dimension-scheduling"] = draw(st.sampled_from(BETWEEN_DIMENSIONS))
        keys["intra-dimension-scheduling"] = draw(st.sampled_from(WITHIN_DIMENSIONS))
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        keys[f"{kind}-implementation"] = (
            [algorithm] if algorithm.startswith("one") else [algorithm] * len(npus)
        )
    keys["all-to-all-implementation"] = ["ring"] * len(npus)
    latency = draw(st.sampled_from((0.0, 10.0, 500.0)))
    return {
        "network": network(shapes, npus, latency=latency),
        "system": system("ring", len(npus), **keys),
        "model": model,
    }


Recipe = list[tuple[str, list[int], tuple[Any, ...]]]  # action, earlier parts, details


@st.composite
def recipes(draw: st.DrawFn, ranks: int, groups: list[str]) -> Recipe:
    """Draw collectives, exchanges and computations in an order that is the same on every rank."""
    recipe: Recipe = []
    for number in range(draw(st.integers(1, 6))):
        after = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        what = draw(st.sampled_from(("compute", "collective", "exchange", "invalid")))
        details: tuple[Any, ...] = ()
        if what == "compute":
            kernel = {"concurrent": draw(st.booleans()), "cpu": draw(st.booleans())}
            kernel["exact"] = draw(st.sampled_from((None, None, 0, 999)))
            details = (draw(st.sampled_from((0, 1, 3))), draw(st.booleans()), kernel)
        elif what == "collective":
            kind, group = draw(st.sampled_from(KINDS + ROOTED)), draw(st.sampled_from(("", *groups)))
            details = (kind, draw(st.sampled_from((64, 4096, 100_000))), group, draw(st.booleans()))
        elif what == "exchange":
            details = (draw(st.sampled_from((1, ranks - 1))), draw(st.sampled_from((64, 100_000))))
        recipe.append((what, after, details))
    return recipe


def cook(recipe: Recipe, ranks: int, slower_us: int) -> Trace:
    """Return the recipe as a trace with relative peers, with some computations slower."""
    build = TraceBuilder()
    made: list[list[int]] = []
    for number, (what, after, details) in enumerate(recipe):
        parents = [node for place in after for node in made[place]]
        if what == "compute":
            micros, kernel = details[0] + (slower_us if details[1] else 0), dict(details[2])
            exact = kernel.pop("exact")
            nanos = None if exact is None else 1000 * micros + exact
            kernel |= {"micros": micros, "nanos": nanos, "after": parents}
            made.append([build.compute(f"compute{number}", **kernel)])
        elif what == "collective":
            kind, size, group, concurrent = details
            made.append([build.collective(kind, size, group=group, concurrent=concurrent, after=parents)])
        elif what == "exchange":
            distance, size = details
            send = build.send(distance, size, tag=number, after=parents)
            made.append([send, build.receive(ranks - distance, size, tag=number, after=parents)])
        else:
            made.append([build.invalid(f"instant{number}", after=parents)])
    return build.build()


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, dict[str, Any]]:
    """Draw a workload and a machine for it."""
    machine = draw(machines())
    npus = machine["network"]["npus_count"]
    ranks = int(np.prod(npus))
    rules = {"rows": GroupRule(npus[0], 1), "columns": GroupRule(npus[-1], ranks // npus[-1])}
    if len(npus) > 1:
        rules["both"] = GroupRule((npus[0], npus[-1]), (1, ranks // npus[-1]))
    recipe = draw(recipes(ranks, list(rules)))
    paces = draw(st.integers(1, 3))
    of_rank = np.array(draw(st.lists(st.integers(0, paces - 1), min_size=ranks, max_size=ranks)))
    if draw(st.booleans()):  # often in rows, so that much remains alike
        of_rank = of_rank[np.arange(ranks) // npus[0]]
    return cooked(recipe, paces, of_rank, rules), machine


def cooked(recipe: Any, paces: int, of_rank: Any, rules: dict[str, GroupRule]) -> Workload:
    """Return ranks of several paces that run the same recipe."""
    return Workload(
        tuple(cook(recipe, len(of_rank), slower_us=2 * pace) for pace in range(paces)),
        of_rank.astype(np.int32),
        relative_peers=(True,) * paces,
        group_rules=rules,
    )


@st.composite
def programs(draw: st.DrawFn, machine: dict[str, Any]) -> Workload:
    """Draw one program of all ranks of a machine, with collectives along its first and last dimensions."""
    npus = machine["network"]["npus_count"]
    ranks = int(np.prod(npus))
    rules = {"rows": GroupRule(npus[0], 1), "columns": GroupRule(npus[-1], ranks // npus[-1])}
    trace = cook(draw(recipes(ranks, list(rules))), ranks, slower_us=0)
    return Workload((trace,), np.zeros(ranks, np.int32), relative_peers=(True,), group_rules=rules)


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_workloads_fold_exactly(data: st.DataObject) -> None:
    workload, machine = data.draw(workloads())
    assert_folding_is_exact(workload, **machine)


def data_parallel(ranks: int, layers: int = 3) -> Workload:
    """Return computations and all-reduces, alike on every rank."""
    build = TraceBuilder()
    last: list[int] = []
    for layer in range(layers):
        last = [build.compute(f"layer{layer}", micros=10, after=last)]
        build.collective("all_reduce", 1 << 20, after=last)
    trace = build.build()
    return Workload((trace,), np.zeros(ranks, np.int32))


@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("npus", [[8], [4, 4], [2, 3, 4]])
def test_data_parallel_training_is_one_actor(shape: str, npus: list[int], model: str) -> None:
    on = {"preferred-dataset-splits": 4, "active-chunks-per-dimension": 2}
    machine = {
        "network": network([shape] * len(npus), npus),
        "system": system(dimensions=len(npus), **on),
        "model": model,
    }
    workload = data_parallel(int(np.prod(npus)))
    assert actors_of(workload, **machine) == 1
    assert_folding_is_exact(workload, **machine)


def test_a_pipeline_is_an_actor_per_stage() -> None:
    """Run tensor groups of 2, 3 stages in a chain with different ends, and 4 replicas."""
    width, stages = 8, 3
    traces = []
    for stage in range(stages):
        build = TraceBuilder()
        for batch in range(4):
            came = [build.receive(-width, 4096, tag=batch)] if stage else []
            work = build.compute(f"forward{batch}", micros=20, after=came)
            summed = build.collective("all_reduce", 1 << 16, group="tensor", after=[work])
            if stage < stages - 1:
                build.send(width, 4096, tag=batch, after=[summed])
        build.collective("all_reduce", 1 << 20, group="data")
        traces.append(build.build())
    rules = {"tensor": GroupRule(2, 1), "data": GroupRule(4, 2)}
    workload = Workload(
        tuple(traces),
        np.repeat(np.arange(stages), width).astype(np.int32),
        relative_peers=(True,) * stages,
        group_rules=rules,
    )
    machine = {"network": network(["Switch"], [width * stages]), "system": system()}
    assert actors_of(workload, **machine) == stages
    assert_folding_is_exact(workload, **machine)


def test_equal_traces_with_different_peers_are_one_actor() -> None:
    """Run files per rank with absolute peers and groups of different names."""
    builders = []
    for rank in range(8):
        build = TraceBuilder()
        build.send((rank + 1) % 8, 4096)
        build.receive((rank - 1) % 8, 4096)
        build.collective("all_gather", 4096, group=str(1 + rank % 2))
        builders.append(build.build())
    machine = {
        "network": network(["Ring"], [8]),
        "system": system(),
        "groups": {"1": [0, 2, 4, 6], "2": [1, 3, 5, 7]},
    }
    assert actors_of(Workload.of(builders), **machine) == 1
    assert_folding_is_exact(Workload.of(builders), **machine)


@pytest.mark.parametrize("shape", ["Switch", "FullyConnected"])
@pytest.mark.parametrize("algorithm", ["direct", "halvingDoubling", "ring"])
def test_paths_that_are_declared_alike_are_not_compared(
    shape: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the actors are the same as with a comparison of every path."""
    traces = []
    for micros in (5, 9):
        build = TraceBuilder()
        work = build.compute("work", micros=micros)
        for kind in KINDS[:3]:
            build.collective(kind, 4096, "near", after=[work])
            build.collective(kind, 4096, "far", after=[work])
        traces.append(build.build())
    rules = {"near": GroupRule(4), "far": GroupRule(8, 4)}
    template = np.zeros(32, np.int32)
    template[3::4] = 1
    workload = Workload(tuple(traces), template, group_rules=rules)
    given = {"system": system(algorithm), "network": network([shape], [32])}
    result = run(workload, **given).outcome.plan.actor_of_rank.tolist()
    monkeypatch.setattr("et_sim.fold.axes.are_alike", lambda _paths: False)
    assert run(workload, **given).outcome.plan.actor_of_rank.tolist() == result
    assert len(set(result)) < workload.ranks


def test_ranks_whose_receives_end_in_one_nanosecond_are_one_actor_unless_kernels_follow_each_alone() -> None:
    """Check that the order of two receives has no effect; of two kernels of one lane it decides the first."""

    def program(rank: int, each: bool) -> Trace:
        build = TraceBuilder()
        for step in (1, -1):
            build.send((rank + step) % 4, 10_000, tag=step % 3, attributes={"concurrent": 1})
        received = [build.receive((rank - step) % 4, 10_000, tag=step % 3) for step in (1, -1)]
        for parents in [[node] for node in received] if each else [received]:
            build.compute("kernel", nanos=10, after=parents)
        return build.build()

    machine = {"network": network(["Ring"], [4]), "system": system(), "model": "analytical"}
    for each, actors in ((False, 1), (True, 4)):
        workload = Workload.of([program(rank, each) for rank in range(4)])
        assert actors_of(workload, **machine) == actors
        assert_folding_is_exact(workload, **machine)


def test_a_straggler_is_separated_from_the_rest_of_its_ring() -> None:
    """Check that ranks at each distance from the straggler receive different messages."""
    slow, fast = TraceBuilder(), TraceBuilder()
    for build, micros in ((slow, 50), (fast, 10)):
        work = build.compute("work", micros=micros)
        build.collective("all_reduce", 1 << 20, after=[work])
    traces = (slow.build(), fast.build())
    workload = Workload(traces, np.array([0, 1, 1, 1, 1, 1], np.int32))
    machine = {"network": network(["Ring"], [6]), "system": system()}
    assert actors_of(workload, **machine) == 6
    assert_folding_is_exact(workload, **machine)


def test_ranks_whose_nodes_have_other_names_are_separated() -> None:
    """Check ranks with equal times and different names, which a timeline shows."""
    traces = []
    for name in ("forward", "backward", "forward", "backward"):
        build = TraceBuilder()
        build.compute(name, micros=10)
        traces.append(build.build())
    result = run(Workload.of(traces), network=network(["Ring"], [4]), system=system())
    assert result.outcome.plan.actor_of_rank.tolist() == [0, 1, 0, 1]
    assert [row["name"] for row in result.timeline.to_pylist()] == ["forward", "backward"]


def test_ranks_whose_nodes_run_on_other_streams_are_separated() -> None:
    """Check that ranks are separated by recorded streams, which no other column of a program holds."""
    traces = []
    for second in (7, 20, 7, 20):
        build = TraceBuilder()
        for stream in (7, second):
            build.compute("kernel", micros=10, attributes={"stream": stream}, concurrent=True)
        traces.append(build.build())
    streams = [{"name": f"s{number}", "takes": ["kernels"], "stream": number} for number in (7, 20)]
    machine = {"network": network(["Ring"], [4]), "system": system(streams=streams)}
    assert run(Workload.of(traces), **machine).finish_ns.tolist() == [20_000, 10_000] * 2
    assert_folding_is_exact(Workload.of(traces), **machine)


@pytest.mark.parametrize(("late", "actors"), [((1,), 2), ((1, 2), 3), ((1, 2, 3), 4)])
def test_three_actors_for_four_ranks_are_worth_while(late: tuple[int, ...], actors: int) -> None:
    stragglers = [{"ranks": str(rank), "delay": f"{rank}us"} for rank in late]
    machine = {"network": network(["Ring"], [4]), "system": system(stragglers=stragglers)}
    alone = TraceBuilder()
    alone.compute("kernel", micros=10)
    assert actors_of(Workload((alone.build(),), np.zeros(4, np.int32)), **machine) == actors


def test_groups_of_different_sizes_are_not_folded_together() -> None:
    build = TraceBuilder()
    traces = []
    for name in ("1", "1", "2", "2", "2", "2"):
        build = TraceBuilder()
        build.collective("all_reduce", 1 << 16, group=name)
        traces.append(build.build())
    machine = {
        "network": network(["FullyConnected"], [6]),
        "system": system(),
        "groups": {"1": [0, 1], "2": [2, 3, 4, 5]},
    }
    assert actors_of(Workload.of(traces), **machine) == 2
    assert_folding_is_exact(Workload.of(traces), **machine)


def test_dimensions_of_different_speed_do_not_hinder_folding() -> None:
    net = {"topology": ["Ring", "Switch"], "npus_count": [4, 4], "bandwidth": [100, 10], "latency": [50, 900]}
    machine = {"network": net, "system": system(dimensions=2, **{"preferred-dataset-splits": 8})}
    assert actors_of(data_parallel(16), **machine) == 1
    assert_folding_is_exact(data_parallel(16), **machine)


def test_messages_through_the_system_meet_those_along_its_only_dimension() -> None:
    """Check that pairs of ranks share some links with their ring, but not on all ranks."""
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 12)
    build.collective("all_gather", 1 << 18)
    pairs = {"all-reduce-implementation": ["oneHalvingDoubling"], "active-chunks-per-dimension": 4}
    keys = {**pairs, "corrections": {"concurrent-communication": True}}
    machine = {"network": network(["FullyConnected"], [4]), "system": system(**keys), "model": "link"}
    assert actors_of(Workload.of([build.build()] * 4), **machine) == 2
    assert_folding_is_exact(Workload.of([build.build()] * 4), **machine)


def test_ranks_that_share_a_memory_are_simulated_by_themselves() -> None:
    build = TraceBuilder()
    build.load(1 << 20)
    workload = Workload((build.build(),), np.zeros(4, np.int32))
    pool = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 512}
    machine = {"network": network(["Ring"], [4]), "system": system(), "memory": pool}
    assert actors_of(workload, **machine) == 4
    assert run(workload, **machine).finish_ns.tolist() == [2148, 4296, 6444, 8592]


def test_a_stall_report_on_ranks_simulated_together_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, waiting = TraceBuilder(), TraceBuilder()
    alone.compute("work", micros=1)
    waiting.receive(1, 4096)
    traces = (waiting.build(), alone.build())
    workload = Workload(traces, np.array([0, 1] * 2, np.int32), relative_peers=(True, True))
    machine = {"network": network(["Switch"], [4]), "system": system()}
    with pytest.raises(StallError) as few:
        simulate(workload, **machine)
    assert "ranks 0,2 wait for 4 KiB with tag 0 from ranks 1,3" in few.value.report
    monkeypatch.setattr("et_sim.run.simulation.MOST_RANKS_EXPLAINED", 3)
    with pytest.raises(StallError) as many:
        simulate(workload, **machine)
    cause, _, alike, *_ = many.value.report.splitlines()
    assert cause.startswith("2 of 4 ranks cannot finish: rank 0 expects 4 KiB with tag 0 from rank 1")
    assert alike == (
        "The 4 ranks were simulated as 2 actors: each rank named here is the lowest of its actor, and "
        "represents all of its ranks."
    )


def test_a_million_ranks_equal_the_closed_form() -> None:
    """Run 128 x 128 x 64 rings, one chunk: reduce-scatter in, all-reduce, all-gather out."""
    npus, size, endpoint = [128, 128, 64], 1 << 30, 10
    build = TraceBuilder()
    build.collective("all_reduce", size)
    workload = Workload((build.build(),), np.zeros(int(np.prod(npus)), np.int32))
    result = run(workload, network=network(["Ring"] * 3, npus), system=system(dimensions=3))

    def flight(message: int) -> int:
        return int(500 + message / (50 * 1073741824 / 1e9))

    def reduction(message: int) -> int:
        return 3 * int(message / 50e9 * 1e9)

    first, second, third = size // 128, size // 128**2, size // 128**2 // 64
    inward = sum(endpoint + 127 * (flight(m) + endpoint + reduction(m)) for m in (first, second))
    middle = endpoint + 126 * (flight(third) + endpoint) + 63 * reduction(third)
    outward = sum(endpoint + 127 * (flight(m) + endpoint) for m in (first, second))
    assert result.makespan_ns == inward + middle + outward
    assert result.summary()["folded"] == {"actors": 1, "ranks": 1 << 20}
    assert [entry["ranks"] for entry in result.summary()["per_rank"]] == ["0-1048575"]
