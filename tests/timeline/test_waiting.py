"""Waiting is not transfer: waits of communication, their ranks, and the parts of a rank's time."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import network, system
from random_cases import Case, random_case

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.run.result import Result
from et_sim.timeline.waiting.arrivals import CollectiveArrivals
from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.views.summary.parts import PARTS

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
ONE_WAY = ("broadcast", "reduce", "gather", "scatter")
INFINITELY_FAST = {"bandwidth": 1e9, "latency": 0.0}


def machine(npus: int, profile: str = "corrected", **keys: Any) -> dict[str, Any]:
    given = {"profile": profile, "endpoint-delay": 0, "local-mem-bw": 0, **keys}
    return {
        "system": system("ring", **given),
        "network": network(["Ring"], [npus], bandwidth=1.0, latency=10.0),
    }


def rows_of(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.timeline.to_pylist()
    return rows


def sum_of_parts(entry: dict[str, Any]) -> int:
    return sum(entry[part.figure] for part in PARTS)


def expected_waits(result: Result) -> dict[tuple[int, int], tuple[int, set[int]]]:
    """Return the wait of each node of an unfolded run, and the ranks that came last, from single rows."""
    rows = rows_of(result)
    end_of_run = result.outcome.end_ns
    admitted = _admitted(result)
    came: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    start = {(row["actor"], row["node"]): row["start_ns"] for row in rows}
    received = {}
    for row in rows:
        if row["sequence"] is not None and (at := admitted[row["actor"], row["node"]]) is not None:
            came[row["group"], row["sequence"]].append((at, row["actor"]))
        if row["end_cause_node"] is not None:
            received[row["end_cause_actor"], row["end_cause_node"]] = row["start_ns"]
    members = _members(result)
    waits = {}
    for row in rows:
        place, end = (row["actor"], row["node"]), row["end_ns"]
        if row["kind"] in ONE_WAY:
            continue  # their trees determine the ranks that these wait for
        if row["sequence"] is not None:
            there, own = came[row["group"], row["sequence"]], admitted[place]
            if own is None:
                waits[place] = 0, set()
                continue
            missing = members[row["group"], row["actor"]] - {actor for _, actor in there}
            if end is None and missing:
                waits[place] = end_of_run - own, missing
                continue
            last = max(time for time, _ in there if end is None or time <= end)
            waits[place] = last - own, {actor for time, actor in there if time == last}
        elif row["kind"] in ("send", "receive"):
            if row["kind"] == "send":
                met = received.get(place, end_of_run if end is None else end)
                until = met if result.outcome.plan.rendezvous else row["start_ns"]
            elif row["end_cause_node"] is not None:
                until = start[row["end_cause_actor"], row["end_cause_node"]]
            else:
                until = end_of_run if end is None else row["start_ns"]
            stop = end_of_run if end is None else end
            waits[place] = min(max(until, row["start_ns"]), stop) - row["start_ns"], {row["peer"]}
    return waits


def _admitted(result: Result) -> dict[tuple[int, int], int | None]:
    """Return the admission times of collectives of an unfolded run, or issue times without chunks."""
    plan, state, admitted = result.outcome.plan, result.outcome.nodes, {}
    for rank in range(plan.ranks):
        first = int(plan.actors["node_first"][rank])
        for row, node in enumerate(result.workload.trace(rank).node_id.tolist()):
            node_state = state[first + row]
            at = (
                node_state.start_ns
                if node_state.admitted_ns < 0 <= node_state.end_ns
                else node_state.admitted_ns
            )
            admitted[rank, node] = None if at < 0 else int(at)
    return admitted


def _members(result: Result) -> dict[tuple[str, int], set[int]]:
    plan = result.outcome.plan
    members = {}
    for group in range(len(plan.groups)):
        first, count = int(plan.groups[group].members_first), int(plan.groups[group].members)
        ranks = plan.group_ranks[first : first + count].tolist() if count < plan.ranks else range(plan.ranks)
        for rank in ranks:
            members[plan.group_names[group] or "all", rank] = set(ranks)
    return members


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_waits_match_those_of_a_row_by_row_search(first: int) -> None:
    for seed in range(first, first + 20):
        case = random_case(seed)
        try:
            result = run(case.workload, **case.machine, fold=False)
        except EtSimError:
            continue
        expected = expected_waits(result)
        for row in rows_of(result):
            place = row["actor"], row["node"]
            if row["kind"] in ONE_WAY and row["treatment"] == "instant":  # it moves nothing
                assert row["waiting_ns"] is None
                continue
            if row["kind"] in ONE_WAY:
                assert 0 <= row["waiting_ns"] <= (row["end_ns"] or result.outcome.end_ns) - row["start_ns"]
                continue
            if place not in expected:
                assert row["waiting_ns"] is None, (seed, row)
                continue
            waiting, last = expected[place]
            assert row["waiting_ns"] == waiting, (seed, row)
            assert row["waits_for"] == (min(last) if waiting else None), (seed, row)
        for entry in result.summary()["per_rank"]:
            assert sum_of_parts(entry) == result.makespan_ns, seed


def training(draw: Random, ranks: int) -> Workload:
    """Return steps of different length, with collectives and messages to neighbours between them."""
    program = [draw.choice(("compute", "collective", "exchange")) for _ in range(8)]
    traces: list[Trace] = []
    for rank in range(ranks):
        build, last = TraceBuilder(), None
        for number, kind in enumerate(program):
            after = [] if last is None else [last]
            if kind == "compute":
                last = build.compute(micros=draw.randint(0, 9), after=after)
            elif kind == "collective":
                last = build.collective(COLLECTIVES[number % len(COLLECTIVES)], 4096, after=after)
            else:
                send = build.send((rank + 1) % ranks, 4096, tag=number, after=after)
                last = build.receive((rank - 1) % ranks, 4096, tag=number, after=after)
                last = build.compute(micros=1, after=[last, send])
        traces.append(build.build())
    return Workload.of(traces)


@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_with_an_infinitely_fast_network_no_communication_is_exposed(profile: str, model: str) -> None:
    for seed in range(10):
        draw = Random(seed)
        npus = draw.choice((2, 3, 4, 8))
        on = machine(npus, profile) | {"network": network(["Ring"], [npus], **INFINITELY_FAST)}
        result = run(training(draw, npus), **on, model=model)
        assert result.is_complete
        assert not result.exposed_comm_ns.any()
        assert not result.transfer_ns.any()
        assert result.waiting_ns.any() or seed


@pytest.mark.parametrize("policy", ["FIFO", "LIFO"])
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_a_collective_that_is_queued_behind_one_that_waits_transfers_nothing(model: str, policy: str) -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        late = build.compute(micros=100 if rank == 1 else 0, concurrent=True)
        build.collective("all_reduce", 1 << 20, after=[late])
        build.collective("all_reduce", 1 << 19, after=[build.compute(micros=5, concurrent=True)])
        traces.append(build.build())
    keys = {"scheduling-policy": policy, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1}
    on = machine(4, **keys) | {"network": network(["Ring"], [4], **INFINITELY_FAST)}
    result = run(Workload.of(traces), **on, model=model)
    assert not result.exposed_comm_ns.any()
    assert result.waiting_ns.tolist() == [95_000, 0, 95_000, 95_000]
    assert result.summary()["slowest"] == {"ranks": "1", "cost_ns": 95_000}
    queued = {(row["actor"], row["bytes"]): row["queued_ns"] for row in rows_of(result)}
    assert [queued[rank, 1 << 19] for rank in (0, 1)] == [95_000, 0]


def test_a_collective_is_queued_first_and_waits_after_that() -> None:
    traces = []
    for late in (0, 5000):
        build = TraceBuilder()
        build.collective("all_reduce", 1 << 20)
        build.collective("all_reduce", 1 << 19, after=[build.compute(micros=late, cpu=True)])
        traces.append(build.build())
    keys = {"scheduling-policy": "FIFO", "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1}
    result = run(Workload.of(traces), **machine(2, **keys))
    [behind] = [row for row in rows_of(result) if row["actor"] == 0 and row["queued_ns"]]
    assert behind["start_ns"] + behind["queued_ns"] + behind["waiting_ns"] == 5_000_000
    assert result.waiting_ns.tolist() == [behind["waiting_ns"], 0]


def test_the_cost_of_a_straggler_is_waiting_on_the_others() -> None:
    build = TraceBuilder()
    work = build.compute(micros=10)
    build.collective("all_reduce", 1 << 20, after=[work])
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    even = run(workload, **machine(8))
    slow = run(workload, **machine(8, stragglers=[{"ranks": "5", "compute": 1.5}]))
    assert even.summary()["slowest"] is None
    assert not even.waiting_ns.any()
    assert slow.makespan_ns == even.makespan_ns + 5_000
    assert slow.waiting_ns.tolist() == [5_000] * 5 + [0] + [5_000] * 2
    summary = slow.summary()
    assert summary["slowest"] == {"ranks": "5", "cost_ns": 5_000}
    waits_for = {entry["ranks"]: entry["waits_for"] for entry in summary["per_rank"]}
    assert waits_for.pop("5") is None
    assert set(waits_for.values()) == {"5"}


@pytest.mark.parametrize("rendezvous", [False, True])
def test_a_pipeline_stage_waits_for_the_one_before_and_the_last_message_is_transfer(rendezvous: bool) -> None:
    first, second = TraceBuilder(), TraceBuilder()
    first.send(1, 1000, after=[first.compute(micros=7)])
    second.compute(micros=2, after=[second.receive(0, 1000)])
    on = machine(2, **{"rendezvous-protocol": rendezvous})
    result = run(Workload.of([first.build(), second.build()]), **on)
    [receive] = [row for row in rows_of(result) if row["kind"] == "receive"]
    assert (receive["waiting_ns"], receive["waits_for"]) == (7_000, 0)
    assert result.waiting_ns.tolist() == [0, 7_000]
    assert result.exposed_comm_ns[1] == receive["end_ns"] - 7_000
    assert result.early_ns.tolist() == [result.makespan_ns - result.finish_ns[0], 0]


def test_with_rendezvous_a_send_waits_for_its_receive() -> None:
    first, second = TraceBuilder(), TraceBuilder()
    first.send(1, 1000)
    second.receive(0, 1000, after=[second.compute(micros=7)])
    waiting = {}
    for rendezvous in (False, True):
        on = machine(2, **{"rendezvous-protocol": rendezvous})
        waiting[rendezvous] = run(Workload.of([first.build(), second.build()]), **on).waiting_ns.tolist()
    assert waiting == {False: [0, 0], True: [7_000, 0]}


def test_with_rendezvous_a_send_whose_receive_never_comes_waits_to_the_end() -> None:
    builds = [TraceBuilder() for _ in range(4)]
    builds[0].send(1, 1000)
    builds[2].send(3, 1000)
    builds[3].receive(2, 1000, after=[builds[3].compute(micros=7)])
    result = run(
        Workload.of([build.build() for build in builds]), **machine(4, **{"rendezvous-protocol": True})
    )
    waiting = {row["actor"]: row["waiting_ns"] for row in rows_of(result) if row["kind"] == "send"}
    assert waiting == {0: result.outcome.end_ns, 2: 7_000}


def test_a_collective_over_one_dimension_waits_for_the_ranks_along_it_only() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        work = build.compute(micros=5 if rank == 3 else 1)
        build.collective("all_reduce", 4096, involved_dims=[True, False], after=[work])
        traces.append(build.build())
    on = machine(4) | {
        "system": system("ring", 2, profile="corrected"),
        "network": network(["Ring", "Ring"], [2, 2]),
    }
    for fold in (True, False):
        result = run(Workload.of(traces), **on, fold=fold)
        assert result.waiting_ns.tolist() == [0, 0, 4_000, 0]


@pytest.mark.parametrize("late", [0, 3, 7])
def test_in_a_broadcast_ranks_wait_for_those_above_them_only(late: int) -> None:
    def broadcast(slow: int | None) -> Result:
        traces = []
        for rank in range(8):
            build = TraceBuilder()
            work = build.compute(micros=500 if rank == slow else 1)
            build.collective("broadcast", 4096, root=0, after=[work])
            traces.append(build.build())
        return run(Workload.of(traces), **machine(8))

    even, uneven = broadcast(None), broadcast(late)
    held_up = [rank for rank in range(8) if uneven.finish_ns[rank] > even.finish_ns[rank] and rank != late]
    assert [rank for rank in range(8) if uneven.waiting_ns[rank]] == held_up
    assert bool(held_up) == (late != 7)
    assert (uneven.summary()["slowest"] is not None) == (late != 7)


@pytest.mark.parametrize("kind", ONE_WAY)
def test_ranks_that_end_before_the_last_arrival_did_not_wait_for_it(kind: str) -> None:
    traces = []
    for rank in range(8):
        build = TraceBuilder()
        build.collective(kind, 4096, root=0, after=[build.compute(micros=1 + 1000 * (rank == 7))])
        traces.append(build.build())
    result = run(Workload.of(traces), **machine(8))
    early = result.finish_ns < 1_001_000
    assert early.any()
    assert (result.waiting_ns[early] == 0).all()


def test_a_rank_that_never_comes_is_waited_for_to_the_end() -> None:
    builds = [TraceBuilder() for _ in range(3)]
    for build in builds[:2]:
        build.collective("all_reduce", 4096)
    builds[2].compute(micros=3)
    result = run(Workload.of([build.build() for build in builds]), **machine(3))
    assert not result.is_complete
    assert [entry["waits_for"] for entry in result.summary()["per_rank"]] == ["2", None]
    assert [sum_of_parts(entry) for entry in result.summary()["per_rank"]] == [result.outcome.end_ns] * 2


def test_the_host_and_gaps_hide_nothing_and_are_no_computation() -> None:
    builds = [TraceBuilder() for _ in range(2)]
    for rank, build in enumerate(builds):
        build.collective("all_reduce", 100_000)
        build.compute("operator", nanos=30_000, cpu=True, concurrent=True)
        build.compute(
            "gap", nanos=900_000, concurrent=True, attributes={"gap": True, "is_cpu_op": bool(rank)}
        )
    result = run(Workload.of([build.build() for build in builds]), **machine(2))
    kinds = {row["name"]: row["kind"] for row in rows_of(result)}
    assert kinds == {"all_reduce": "all_reduce", "operator": "host", "gap": "gap"}
    assert not result.compute_ns.any()
    assert (result.exposed_comm_ns == result.transfer_ns).all()
    assert (result.host_ns == 900_000 - result.transfer_ns).all()


def test_replayed_nodes_have_unknown_waiting() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 4096, micros=8, after=[build.compute(micros=1)])
    result = run(Workload.of([build.build()] * 2), **machine(2, **{"replay-only": 1}))
    assert {row["waiting_ns"] for row in rows_of(result)} == {None}
    assert result.exposed_comm_ns.tolist() == [8_000, 8_000]


@pytest.mark.deep
def test_the_million_rank_answer_is_that_of_a_rank() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20, after=[build.compute(micros=10)])
    workload = Workload((build.build(),), np.zeros(1 << 20, np.int32))
    on = machine(4) | {
        "system": system("ring", 3, profile="corrected"),
        "network": network(["Ring", "Ring", "Ring"], [128, 128, 64]),
    }
    summary = run(workload, **on).summary()
    [entry] = summary["per_rank"]
    assert (entry["ranks"], entry["waiting_ns"], summary["slowest"]) == ("0-1048575", 0, None)
    assert sum_of_parts(entry) == summary["makespan_ns"]


def test_random_cases_wait_transfer_and_hide() -> None:
    def figures(case: Case) -> list[int]:
        result = run(case.workload, **case.machine)
        names = ("waiting_ns", "exposed_comm_ns", "hidden_comm_ns")
        return [int(getattr(result.statistics, name).sum()) for name in names]

    totals = np.array([figures(random_case(seed)) for seed in range(12)])
    assert ((totals > 0).sum(axis=0) >= 2).all()


def test_arrivals_are_sorted_once_for_all_templates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = []
    for rank in range(8):
        build = TraceBuilder()
        work = build.compute(micros=rank + 1)
        build.collective("all_reduce", 4096, after=[work])
        traces.append(build.build())
    result = run(Workload.of(traces), **machine(8))
    calls: list[Any] = []
    once = CollectiveArrivals.of_lowest_class
    monkeypatch.setattr(
        CollectiveArrivals, "of_lowest_class", lambda *given: calls.append(given) or once(*given)
    )
    assert result.summary()["slowest"] == {"ranks": "7", "cost_ns": 4_000}
    assert len(calls) == 1


def test_every_part_and_total_of_time_is_an_attribute_of_the_result() -> None:
    result = run(training(Random(1), 4), **machine(4))
    (first, *_) = result.summary()["per_rank"]
    totals = ("transfer_ns", "hidden_comm_ns", "communication_ns", "memory_ns", "cpu_ns")
    for name in (*(part.figure for part in PARTS), *totals):
        assert getattr(result, name).shape == (4,), name
        assert getattr(result, name)[0] == first[name], name


@pytest.mark.parametrize("posts", [True, False])
def test_with_rendezvous_a_send_waits_until_its_receive_is_posted_or_to_the_end(posts: bool) -> None:
    """Let a collective be the first node of both ranks; the receive comes after 5 us, if it does."""
    sender, receiver = TraceBuilder(), TraceBuilder()
    for builder in (sender, receiver):
        builder.collective("all_reduce", 8)
    sender.send(1, 1000, 1)
    late = receiver.compute("late", micros=5)
    if posts:
        receiver.receive(0, 1000, 1, after=[late])
    on = machine(2, **{"rendezvous-protocol": True})
    result = run(Workload.of([sender.build(), receiver.build()]), **on)
    (send,) = (row for row in rows_of(result) if row["name"] == "send")
    assert send["waiting_ns"] == (5000 if posts else result.outcome.end_ns)
    assert send["waits_for"] == 1
