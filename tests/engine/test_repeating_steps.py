"""Steps and chunks that repeat are skipped, and results are as if each had been simulated."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import SHAPES, collective, network, ring, system
from msgspec.structs import replace
from random_runs import EAGER

from et_sim.api import run
from et_sim.basics.errors import StallError
from et_sim.engine import driver
from et_sim.engine.repeats import advance, alike, search
from et_sim.engine.state.run import NEVER, NONE, QUEUE_ORDER
from et_sim.network import link_repeats
from et_sim.plan.records import NO_LIMIT
from et_sim.run import simulation
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload

MODELS = ("analytical", "link")
KINDS = ("all_reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SHORT_RING = {"endpoint-delay": 10, "preferred-dataset-splits": 2}
MACHINES = st.sampled_from([(8,), (13,), (16,), (8, 2), (5, 3), (2, 4), (4, 4), (3, 2, 2)])


def simulated(workload: Workload, *, skips: bool = True, is_eager: bool = False, **machine: Any) -> Result:
    """Return a run of all ranks, with repeated steps skipped or not."""

    def begun(*args: Any, **keys: Any) -> Any:
        made = new_run(*args, **keys)
        if not skips:
            made.repeats["is_on"], made.repeats["due"] = 0, NEVER
        return made

    new_run = driver.new_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "new_run", begun)
        if is_eager:  # machine code has them in it
            patch.setenv("ET_SIM_COMPILE", "never")
            for name, value in EAGER.items():
                patch.setattr(search, name, value)
        return run(workload, fold=False, **machine)


def skipped(result: Result) -> int:
    """Return the number of messages that were not simulated one by one."""
    return int(result.outcome.run.repeats[0].skipped)


def figures(result: Result) -> dict[str, Any]:
    """Return all results of a run."""
    outcome = result.outcome
    assert outcome.is_complete
    return {
        "timeline": result.timeline.to_pylist(),
        "nodes": outcome.nodes.tolist(),
        "end": (outcome.end_ns, outcome.messages, outcome.finish_ns.tolist()),
        "links": None if outcome.load is None else outcome.load.bytes.tolist(),
        "phases": None if result.phases is None else np.concatenate([*result.phases.blocks()]).tolist(),
    }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize("detail", ["nodes", "phases"])
@pytest.mark.parametrize("shape", SHAPES)
def test_most_steps_of_a_ring_are_skipped(model: str, profile: str, detail: str, shape: str) -> None:
    machine: dict[str, Any] = {
        "system": system(profile=profile, **SHORT_RING),
        "network": network([shape], [24]),
        "model": model,
        "detail": detail,
    }
    result = simulated(collective(24, "all_reduce"), is_eager=True, **machine)
    one_by_one = simulated(collective(24, "all_reduce"), skips=False, **machine)
    assert figures(result) == figures(one_by_one)
    assert skipped(one_by_one) == 0
    if model == "analytical" or shape != "Switch":  # on its way through a switch, a message does not turn
        assert 2 * skipped(result) > result.outcome.messages


TORI = [((4, 2), "Ring", "ring"), ((4, 2), "FullyConnected", "halvingDoubling"), ((3, 2, 2), "Ring", "ring")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize(("sizes", "shape", "algorithm"), TORI)
def test_most_chunks_of_a_torus_are_skipped(
    model: str, profile: str, sizes: tuple[int, ...], shape: str, algorithm: str
) -> None:
    """Run chunks that follow each other from one dimension to the next, one at a time in each."""
    count, chunks = len(sizes), {"preferred-dataset-splits": 16}
    machine: dict[str, Any] = {
        "system": system(algorithm, count, profile=profile, **chunks),
        "network": network([shape] * count, list(sizes)),
        "model": model,
    }
    workload = collective(int(np.prod(sizes)), "all_reduce")
    result = simulated(workload, is_eager=True, **machine)
    assert figures(result) == figures(simulated(workload, skips=False, **machine))
    assert 2 * skipped(result) > result.outcome.messages


def test_chunks_are_simulated_one_by_one_where_each_phase_is_logged() -> None:
    machine: dict[str, Any] = {
        "system": system("ring", 2, **{"preferred-dataset-splits": 16}),
        "network": network(["Ring", "Ring"], [4, 2]),
    }
    result = simulated(collective(8, "all_reduce"), is_eager=True, detail="phases", **machine)
    one_by_one = simulated(collective(8, "all_reduce"), skips=False, detail="phases", **machine)
    assert figures(result) == figures(one_by_one)
    assert len(figures(result)["phases"]) == 8 * 16 * 3  # reduce-scatter, all-reduce, all-gather


@pytest.mark.deep
def test_nothing_is_passed_beyond_the_end_of_a_computation() -> None:
    """Run a computation that ends at different times within the steps, followed by a second collective."""
    for nanos in range(20_000, 20_600, 37):
        builders = [TraceBuilder() for _ in range(16)]
        for builder in builders:
            builder.collective("all_reduce", 1 << 20, group="1")
        done = builders[3].compute(nanos=nanos)
        builders[3].collective("all_reduce", 1 << 20, group="2", after=[done])
        builders[4].collective("all_reduce", 1 << 20, group="2")
        machine: dict[str, Any] = {
            "system": system(profile="corrected", **SHORT_RING),
            "network": ring(16),
            "groups": {"1": list(range(16)), "2": [3, 4]},
        }
        workload = Workload.of([builder.build() for builder in builders])
        result = simulated(workload, is_eager=True, **machine)
        assert figures(result) == figures(simulated(workload, skips=False, **machine))
        assert skipped(result) > 0


@pytest.mark.parametrize("detail", ["messages", "links", "path"])
def test_every_step_is_simulated_where_messages_are_recorded(detail: str) -> None:
    machine = {"system": system(**SHORT_RING), "network": ring(16), "detail": detail}
    assert skipped(simulated(collective(16, "all_reduce"), is_eager=True, **machine)) == 0


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7, 0.9])
def test_a_run_that_ends_early_has_done_as_much(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, machine = collective(16, "all_reduce"), {"system": system(**SHORT_RING), "network": ring(16)}
    run_plan = driver.run_plan
    until = {"until_ns": int(part * simulated(workload, skips=False, **machine).makespan_ns)}
    monkeypatch.setattr(simulation, "run_plan", lambda *args, **keys: run_plan(*args, **keys | until))
    result, one_by_one = (
        simulated(workload, skips=skips, is_eager=True, **machine).outcome.run for skips in (True, False)
    )
    for name in ("now", "delivered", "completed"):
        assert result.clock[0][name] == one_by_one.clock[0][name]
    assert result.repeats[0].skipped > 0


@pytest.mark.deep
@pytest.mark.parametrize("model", MODELS)
def test_machine_code_skips_the_same_steps_as_interpreted_code(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {"system": system(**SHORT_RING), "network": ring(40), "model": model}
    results = []
    for mode in ("now", "never"):
        monkeypatch.setenv("ET_SIM_COMPILE", mode)
        result = simulated(collective(40, "all_reduce"), **machine)
        results.append((skipped(result), figures(result)))
    assert results[0] == results[1]
    assert results[0][0] > 0


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, dict[str, Any]]:
    """Draw collectives of all or of groups, in sequence or side by side, with computation between."""
    sizes = draw(MACHINES)
    ranks = int(np.prod(sizes))
    shapes = [draw(st.sampled_from(SHAPES)) for _ in sizes]
    net = network(shapes, list(sizes))
    net["bandwidth"] = [draw(st.sampled_from([50.0, 50.0, 37.5])) for _ in sizes]
    net["latency"] = [draw(st.sampled_from([500.0, 0.0, 1234.0])) for _ in sizes]
    keys: dict[str, Any] = {
        "profile": draw(st.sampled_from(["reference", "corrected"])),
        "scheduling-policy": draw(st.sampled_from(["LIFO", "FIFO"])),
        "preferred-dataset-splits": draw(st.sampled_from([1, 2, 3, 9, 16])),
        "active-chunks-per-dimension": draw(st.sampled_from([1, 2, 3])),
        "num-queues-per-dim": draw(st.sampled_from([1, 2])),
        "endpoint-delay": draw(st.sampled_from([0, 10, 500])),
        "local-mem-bw": draw(st.sampled_from([0, 1, 50])),
    }
    if draw(st.booleans()):
        keys["stragglers"] = [{"ranks": draw(st.sampled_from(["0", f"0-{ranks - 1}/2"])), "delay": "77ns"}]
    by = draw(st.sampled_from([0, 1, 2]))  # no groups, neighbours, or every other rank
    group_of = [str(1 + (rank * 2 // ranks if by == 1 else rank % 2)) if by else "" for rank in range(ranks)]
    groups = {name: [rank for rank in range(ranks) if group_of[rank] == name] for name in set(group_of)}
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(KINDS),
                st.sampled_from([1 << 16, 1 << 20, 100_001]),
                st.booleans(),  # beside the others
                st.booleans(),  # in a group
                st.integers(0, 40_000),  # of computation before it
                st.booleans(),  # which takes longer at some ranks
            ),
            min_size=1,
            max_size=2,
        )
    )
    traces = []
    for rank in range(ranks):
        builder, last = TraceBuilder(), list[int]()
        for kind, size, is_beside, in_group, nanos, differs in steps:
            after = [] if is_beside else last
            if nanos:
                after = [builder.compute(nanos=nanos * (1 + differs * (rank % 3)), after=after)]
            group = {"group": group_of[rank]} if in_group and by else {}
            last = [builder.collective(kind, size, after=after, **group)]
        traces.append(builder.build())
    machine = {"system": system("ring", len(sizes), **keys), "network": net}
    if by:
        machine["groups"] = groups
    return Workload.of(traces), machine


@pytest.mark.deep
@settings(max_examples=max(settings.default.max_examples // 4, 10))
@given(cases(), st.sampled_from(MODELS), st.sampled_from(["nodes", "phases"]))
def test_all_is_as_if_every_step_had_been_simulated(
    case: tuple[Workload, dict[str, Any]], model: str, detail: str
) -> None:
    workload, machine = case
    try:
        one_by_one = simulated(workload, skips=False, model=model, detail=detail, **machine)
    except StallError:  # ranks that issue in different orders
        with pytest.raises(StallError):
            simulated(workload, is_eager=True, model=model, **machine)
        return
    result = simulated(workload, is_eager=True, model=model, detail=detail, **machine)
    if not one_by_one.outcome.is_complete:  # queues of several ranks wait for each other
        assert not result.outcome.is_complete
        assert result.outcome.messages == one_by_one.outcome.messages
        return
    assert figures(result) == figures(one_by_one)
    folded = run(workload, model=model, **machine)
    assert result.finish_ns.tolist() == folded.finish_ns.tolist()


@pytest.mark.parametrize(
    ("later", "turns"),
    [
        ({}, True),
        ({"busy": 0}, False),
        ({"free_ns": 9}, False),
        ({"free_rest": 1}, False),
        ({"bytes": 80}, False),
        ({"bytes": 80, "bytes_before": 20}, True),
        ({"speed": 2}, False),
    ],
)
def test_a_link_takes_the_place_of_another_in_the_same_state(
    later: dict[str, int], turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_repeats, "turn", lambda *_: True)
    state = {
        "speed": 1,
        "busy": 1,
        "head": NONE,
        "free_ns": 5,
        "free_rest": 0,
        "bytes": 70,
        "bytes_before": 10,
    }
    links = [SimpleNamespace(**state), SimpleNamespace(**state | later)]
    run: Any = SimpleNamespace(network=SimpleNamespace(links=links))
    assert link_repeats._turns(run, 0, 1) is turns


@pytest.mark.parametrize(("other", "turns"), [((1, 2), True), ((1, 3), False), ((5, 4), False)])
def test_ways_of_as_many_links_with_as_many_bytes_exchange_places(
    other: tuple[int, int], turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = cycle((0, 1))
    monkeypatch.setattr(link_repeats, "turn", lambda *_: True)
    monkeypatch.setattr(link_repeats, "take_row", lambda *_: next(rows))
    monkeypatch.setattr(link_repeats, "give_row", lambda *_: None)
    machine = {"system": system("ring"), "network": network(["Ring"], [6])}
    ended = simulated(collective(6, "all_gather"), model="link", **machine).outcome.run
    ended = replace(ended, messages=np.zeros(2, ended.messages.dtype).view(np.recarray))
    assert link_repeats.ways_turn(ended, 0, 1, *other, 0) is turns
    assert link_repeats.ways_turn(ended, *other, 0, 1, 0) is turns


LIST = {"tree_first": NONE, "custom_first": NONE, "own_steps": 0, "half": 0, "window": NO_LIMIT}


@pytest.mark.parametrize(
    ("other", "turns"),
    [({}, True), ({"tree_first": 0}, False), ({"custom_first": 0}, False), ({"own_steps": 1}, False)],
)
def test_chunks_are_alike_only_if_members_follow_one_list_in_all_phases(
    other: dict[str, int], turns: bool
) -> None:
    programs = [SimpleNamespace(step_first=0, step_period=0, **LIST | keys) for keys in ({}, other)]
    run: Any = SimpleNamespace(
        visits=[SimpleNamespace(running=0, phase_first=0)],
        running=[SimpleNamespace(collective=0)],
        plan=SimpleNamespace(
            collectives=[SimpleNamespace(phases=2)],
            phases=[SimpleNamespace(program=0), SimpleNamespace(program=1)],
            programs=programs,
        ),
    )
    assert alike._chunk_turns(run, 0) is turns


@pytest.mark.parametrize(("other", "periods"), [(3, 2), (5, 4), (8, 6)])
def test_periods_end_before_the_first_waiting_chunk_that_goes_another_way(other: int, periods: int) -> None:
    """Compare eight waiting chunks, from 0, with seven, after one has started."""
    queues = np.zeros((9, 2), np.int64)
    queues[other, 1] = 1
    repeats = SimpleNamespace(comparison=1, advances=0, periods=NEVER)
    run: Any = SimpleNamespace(
        visits=[SimpleNamespace(running=0, phase_first=0, next=row) for row in (*range(1, 8), NONE)],
        running=[SimpleNamespace(priority=0)],
        running_turns=[SimpleNamespace(advanced=0, advance=0)],
        repeats=[repeats],
        picture=[0, 1, 2, 3, 7, 0],
        plan=SimpleNamespace(settings={QUEUE_ORDER: advance.PRIORITY}),
        phase_log=(),
        chunk_queue=queues,
    )
    assert advance.limit_by_queue(run, 0, SimpleNamespace(waiting=1, started=1, tail=7))
    assert repeats.periods == periods
