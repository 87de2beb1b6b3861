"""Explained part of the longest path of converted recordings: exact figures of small runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import network, ring

from et_sim.api import run
from et_sim.run.result import Result
from et_sim.trace import Trace, TraceBuilder, Workload

SYSTEM = {
    "profile": "corrected",
    "all-reduce-implementation": ["ring"],
    "scheduling-policy": "FIFO",
    "collective-optimization": "baseline",
    "endpoint-delay": 10,
    "preferred-dataset-splits": 1,
    "active-chunks-per-dimension": 1,
}


def ran(*traces: Trace, replay: bool = False, ranks: int = 0, **keys: Any) -> Result:
    ranks = ranks or len(traces)
    template = np.arange(ranks, dtype=np.int32) % len(traces)
    system = SYSTEM | {"replay-only": int(replay)} | {key.replace("_", "-"): v for key, v in keys.items()}
    return run(Workload(traces, template), system=system, network=ring(ranks, 1))


def gap(build: TraceBuilder, name: str, nanos: int, after: list[int]) -> int:
    return build.compute(name, nanos=nanos, cpu=True, concurrent=True, after=after, attributes={"gap": 1})


def alone(gap_ns: int = 5_000) -> Trace:
    """Return a kernel, a gap, an operator, and beside them a shorter path."""
    build = TraceBuilder()
    first = build.compute("kernel", nanos=10_000, concurrent=True)
    build.compute("beside", nanos=12_000, concurrent=True)
    waits = gap(build, "gap of thread 1", gap_ns, [first])
    build.compute("operator", nanos=3_000, cpu=True, concurrent=True, after=[waits])
    return build.build()


def test_the_path_is_that_of_the_last_node_and_its_gaps_are_named() -> None:
    assert ran(alone()).explained == {
        "path_ns": 18_000,
        "gaps_ns": 5_000,
        "spent_ns": {"kernels": 10_000, "operators": 3_000, "gaps": 5_000},
        "gaps": [{"ranks": "0", "name": "gap of thread 1", "ns": 5_000}],
        "longest": [
            {"ranks": "0", "name": "gap of thread 1", "ns": 5_000, "start_ns": 10_000, "before": "operator"}
        ],
    }


def test_nodes_off_the_path_do_not_count() -> None:
    explained = ran(alone(), time_factors=[{"kernels": 9, "name": "beside"}]).explained
    assert explained is not None
    assert (explained["spent_ns"], explained["gaps"]) == ({"kernels": 108_000}, [])


def test_a_lane_that_was_occupied_is_on_the_path() -> None:
    build = TraceBuilder()
    build.compute("first", nanos=10_000)
    build.compute("second", nanos=20_000)  # takes its turn
    gap(build, "gap", 1_000, [])
    explained = ran(build.build()).explained
    assert explained is not None
    assert explained["spent_ns"] == {"kernels": 30_000}


@pytest.mark.parametrize("late", [0, 1])
def test_the_path_goes_to_the_rank_that_came_last_to_an_exchange_without_a_time(late: int) -> None:
    traces = []
    for rank in range(2):
        build = TraceBuilder()
        before = gap(build, "gap", 50_000 if rank == late else 10_000, [])
        build.compute("kernel", nanos=7_000, after=[build.collective("all_reduce", 8, after=[before])])
        traces.append(build.build())
    still = network(["Ring"], [2], bandwidth=1e6, latency=0.0)
    system = SYSTEM | {"endpoint-delay": 0}
    result = run(Workload(tuple(traces), np.arange(2, dtype=np.int32)), system=system, network=still)
    assert result.explained is not None
    assert result.explained["spent_ns"] == {"kernels": 7_000, "gaps": 50_000}
    assert [entry["ranks"] for entry in result.explained["gaps"]] == [str(late)]


@pytest.mark.parametrize("late", [0, 1])
def test_a_wait_in_a_collective_is_explained_by_the_last_member(late: int) -> None:
    def member(nanos: int) -> Trace:
        build = TraceBuilder()
        begin = gap(build, "gap of thread 1", nanos, [])
        summed = build.collective("all_reduce", 1 << 20, name="sum", after=[begin], concurrent=True)
        build.compute("after", nanos=7_000, concurrent=True, after=[summed])
        return build.build()

    explained = ran(*(member(50_000 if rank == late else 2_000) for rank in range(2))).explained
    assert explained is not None
    spent = explained["spent_ns"]
    assert (explained["gaps"][0]["ranks"], spent["gaps"], spent["kernels"]) == (str(late), 50_000, 7_000)
    assert sum(spent.values()) == explained["path_ns"]
    assert explained["longest"][0]["before"] == "sum"


def test_a_wait_for_a_message_is_explained_by_its_sender() -> None:
    sender, receiver = TraceBuilder(), TraceBuilder()
    begin = gap(sender, "stream gap of stream 7", 40_000, [])
    sender.send(1, 1 << 10, after=[begin])
    came = receiver.receive(0, 1 << 10, after=[gap(receiver, "gap of thread 1", 3_000, [])])
    receiver.compute("after", nanos=9_000, concurrent=True, after=[came])
    explained = ran(sender.build(), receiver.build()).explained
    assert explained is not None
    assert explained["gaps"] == [{"ranks": "0", "name": "stream gap of stream 7", "ns": 40_000}]
    assert explained["spent_ns"]["kernels"] == 9_000
    assert sum(explained["spent_ns"].values()) == explained["path_ns"]


def test_a_late_start_is_no_gap() -> None:
    explained = ran(alone(), stragglers=[{"ranks": "0", "delay": 400}]).explained
    assert explained is not None
    assert (explained["path_ns"], explained["spent_ns"]["other"], explained["gaps_ns"]) == (
        18_400,
        400,
        5_000,
    )


def test_folded_ranks_have_the_same_explanation() -> None:
    build = TraceBuilder()
    begin = gap(build, "gap of thread 1", 50_000, [])
    build.collective("all_reduce", 1 << 20, after=[begin], concurrent=True)
    trace = build.build()
    machine = {"system": SYSTEM, "network": ring(8, 1)}
    folded, single = (run(Workload((trace,), np.zeros(8, np.int32)), fold=fold, **machine) for fold in (1, 0))
    assert (folded.summary()["folded"]["actors"], single.summary()["folded"]["actors"]) == (1, 8)
    for explained in (folded.explained, single.explained):
        assert explained is not None
        assert explained["spent_ns"]["gaps"] == 50_000
        assert sum(explained["spent_ns"].values()) == explained["path_ns"] == folded.makespan_ns


def test_traces_without_gaps_have_no_explanation() -> None:
    build = TraceBuilder()
    build.compute("kernel", nanos=10)
    result = ran(build.build())
    assert result.explained is None
    assert result.summary()["explained"] is None


def test_a_changed_machine_is_doubted_where_too_little_is_explained() -> None:
    def doubts(gap_ns: int, **keys: Any) -> list[str]:
        warnings = ran(alone(gap_ns), replay=True, **keys).manifest["warnings"]
        return [warning["text"] for warning in warnings if "doubtful" in warning["text"]]

    faster = {"time_factors": [{"kernels": 0.5}]}
    assert doubts(50_000) == []
    assert doubts(50_000, time_factors=[{"kernels": 1}]) == []
    assert doubts(1_000, **faster) == []
    (doubt,) = doubts(50_000, **faster)
    assert doubt.startswith("86 % of the longest path are gaps that the recording does not explain")
    assert doubt.endswith('(the longest: gap of thread 1 before "operator" of rank 0)')


def test_simulated_communication_is_a_change_and_replayed_is_none() -> None:
    build = TraceBuilder()
    begin = gap(build, "gap", 50_000_000, [])
    build.collective("all_reduce", 64, nanos=5, after=[begin], concurrent=True)
    trace = build.build()
    for ranks, replay, count in ((2, True, 0), (2, False, 1), (1, False, 1)):
        texts = [warning["text"] for warning in ran(trace, ranks=ranks, replay=replay).manifest["warnings"]]
        assert sum("doubtful" in text for text in texts) == count
