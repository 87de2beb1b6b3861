"""Streams and overlap: nodes side by side on an NPU, and their slowdown."""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_4

import et_sim
from et_sim.basics.errors import MachineError, UsageError
from et_sim.compute.model import Treatment
from et_sim.engine.nodes.slowing import _rate
from et_sim.machine.system_parts import StreamWork
from et_sim.plan.records import Action
from et_sim.plan.streams import occupation_of, of_work
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.encode import encode_trace
from et_sim.trace.wire import decode

SYSTEM = {"all-reduce-implementation": ["ring"], "local-mem-bw": 50}
ALL_REDUCE_NS = 79540  # of 1 MiB
MIB = 1 << 20


def ran(build: TraceBuilder, **given: Any) -> Result:
    """Return a run, after checking that it is the same folded and unfolded."""
    detail, memory = given.pop("detail", ()), given.pop("memory", None)
    workload = Workload(
        (decode(encode_trace(build.build()), "built"),), np.zeros(4, np.int32), source="built"
    )
    results = [
        et_sim.simulate(
            workload, system=SYSTEM | given, network=RING_4, memory=memory, fold=fold, detail=detail
        )
        for fold in (True, False)
    ]
    assert results[0].finish_ns.tolist() == results[1].finish_ns.tolist()
    return results[0]


def times(result: Result) -> dict[str, tuple[int, int]]:
    rows = result.timeline.to_pylist()
    return {row["name"]: (row["start_ns"], row["end_ns"]) for row in rows if row["actor"] == 0}


def kernels(*nanos: int) -> TraceBuilder:
    build = TraceBuilder()
    for number, duration in enumerate(nanos):
        build.compute(f"k{number}", nanos=duration)
    return build


@pytest.mark.parametrize(("at_a_time", "makespan"), [(1, 1000), (2, 500), (3, 400), (9, 400)])
def test_a_stream_runs_at_most_its_number_of_kernels_at_a_time(at_a_time: int, makespan: int) -> None:
    build = kernels(400, 300, 200, 100)
    result = ran(build, streams=[{"name": "main", "takes": ["kernels"], "at-a-time": at_a_time}])
    assert result.makespan_ns == makespan


def test_kernels_of_two_streams_run_side_by_side() -> None:
    streams = [{"name": name, "takes": ["kernels"], "nodes": name} for name in ("k0", "k1")]
    result = ran(kernels(400, 300, 200, 100), streams=streams)
    # The last two take the compute lane as without streams.
    assert times(result) == {"k0": (0, 400), "k1": (0, 300), "k2": (0, 200), "k3": (200, 300)}
    assert result.timeline["stream"].to_pylist() == ["k0", "k1", None, None]
    assert result.timeline["lane"].to_pylist() == ["compute"] * 4


def test_one_stream_of_each_kind_equals_the_reference() -> None:
    build = kernels(400, 30_000)
    build.compute("host", nanos=700, cpu=True)
    build.collective("all_reduce", MIB)
    build.collective("all_reduce", MIB)
    plain = ran(build)
    streams = [
        {"name": "kernels", "takes": ["kernels"]},
        {"name": "host", "takes": ["host"]},
        {"name": "communication", "takes": ["sends", "collectives", "loads", "stores"]},
    ]
    assert times(ran(build, streams=streams)) == times(plain)
    assert plain.makespan_ns == 2 * ALL_REDUCE_NS


def test_the_first_of_parents_that_end_at_the_same_time_releases_a_node() -> None:
    """Check both orders of begins; of parents with different ends, the last to end releases the node."""
    assert releases({"a": 500, "b": 200}) == "a"  # a begins first, and both end at 500 ns
    assert releases({"a": 200, "b": 500}) == "a"  # b begins first
    assert releases({"a": 200, "b": 501}) == "b"
    assert releases({"a": 501, "b": 200}) == "a"


def releases(durations: dict[str, int]) -> str:
    """Return the parent that a child waits for last; the shorter of the two begins at 300 ns."""
    build = TraceBuilder()
    host = build.compute("host", nanos=300, cpu=True)
    late = min(durations, key=lambda name: durations[name])
    parents = [
        build.compute(name, nanos=nanos, concurrent=True, after=[host] if name == late else [])
        for name, nanos in durations.items()
    ]
    build.compute("child", nanos=10, after=parents)
    streams = [{"name": name, "takes": ["kernels"], "nodes": name} for name in "ab"]
    rows = ran(build, streams=streams).timeline.to_pylist()
    child = next(row for row in rows if row["name"] == "child")
    assert child["start_ns"] == max(500, *durations.values())
    return next(row["name"] for row in rows if row["node"] == child["start_cause_node"])


def test_groups_have_streams_of_their_own() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", MIB, name="everybody")
    build.collective("all_reduce", 4096, name="later")
    apart = [{"name": "communication", "takes": ["collectives"], "group": "all", "at-a-time": 2}]
    result = ran(build, streams=apart)
    assert [start for start, _ in times(result).values()] == [0, 0]


def test_nodes_run_on_the_streams_that_they_were_recorded_on() -> None:
    build = TraceBuilder()
    for name, stream in (("a", 7), ("b", 7), ("c", 20)):
        build.compute(name, nanos=100, attributes={"stream": stream}, concurrent=True)
    streams = [{"name": f"s{n}", "takes": ["kernels"], "stream": n} for n in (7, 20)]
    assert times(ran(build, streams=streams)) == {"a": (0, 100), "b": (100, 200), "c": (0, 100)}


def test_a_copy_engine_takes_copies_and_requests_to_remote_memory() -> None:
    build = TraceBuilder()
    build.compute("copy", nanos=1000, attributes={"copy": 1})
    build.load(1000)
    build.compute("kernel", nanos=500)
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 1}
    streams = [{"name": "engine", "takes": ["copies", "loads", "stores"]}]
    assert times(ran(build, streams=streams, memory=memory)) == {
        "copy": (0, 1000),
        "load": (1000, 2100),
        "kernel": (0, 500),
    }


def test_no_stream_takes_receives() -> None:
    build = TraceBuilder()
    build.compute("kernel", nanos=100)
    with pytest.raises(MachineError, match=r'index 0 is "receives"'):
        ran(build, streams=[{"name": "r", "takes": ["receives"]}])


def beside(*spans: tuple[int, int], duration: int, factor: Fraction) -> int:
    """Return the end of a kernel that begins at 0 if communication is under way in these spans."""
    left, now = Fraction(duration), 0
    for start, end in spans:
        if left <= start - now:
            break
        left -= max(start - now, 0)
        now = max(now, start)
        if left * factor <= end - now:
            return now + -int(-left * factor // 1)
        left -= (end - now) / factor
        now = end
    return now + -int(-left // 1)


@pytest.mark.parametrize("nanos", [1, 100, 66_283, 66_284, 100_000, 300_000])
@pytest.mark.parametrize("factor", [1.2, 1.5, 3, 1.001])
def test_a_kernel_takes_longer_beside_a_collective(nanos: int, factor: float) -> None:
    build = kernels(nanos)
    build.collective("all_reduce", MIB)
    result = ran(build, overlap={"kernels": factor})
    end = beside((0, ALL_REDUCE_NS), duration=nanos, factor=Fraction(str(factor)))
    assert times(result) == {"k0": (0, end), "all_reduce": (0, ALL_REDUCE_NS)}
    assert result.timeline["treatment"].to_pylist()[0] == "replayed"


def test_a_kernel_keeps_all_processors_that_collectives_do_not_hold_and_at_least_half() -> None:
    """Check 132 processors, and 7, where at least half is 4."""
    slowdowns = [SimpleNamespace(alone=number, beside=number - number // 2, each=1) for number in (132, 7)]
    for held, left in (
        (0, (132, 7)),
        (1, (131, 6)),
        (3, (129, 4)),
        (8, (124, 4)),
        (66, (66, 4)),
        (90, (66, 4)),
    ):
        run: Any = SimpleNamespace(
            plan=SimpleNamespace(slowdowns=slowdowns), slowed_actors=[SimpleNamespace(beside=held)]
        )
        assert tuple(_rate(run, 0, factor) for factor in (0, 1)) == left


@pytest.mark.parametrize(
    ("held", "occupied"), [((3, 0), [-3, 0, 1]), ((0, 5), [0, -5, 1]), ((3, 5), [-3, -5, 1])]
)
def test_kernels_are_slowed_if_some_of_the_collectives_hold_processors(
    held: tuple[int, int], occupied: list[int]
) -> None:
    """Check a template with two collectives and a kernel on 132 processors."""
    nodes = np.zeros(3, [("action", "i8"), ("detail", "i8"), ("treatment", "i8"), ("busy", "i8")])
    nodes["action"] = [Action.COLLECTIVE, Action.COLLECTIVE, Action.DELAY]
    nodes["detail"] = [0, 1, -1]
    nodes["treatment"], nodes["busy"] = Treatment.MODELLED, [0, 0, 1]
    part: Any = SimpleNamespace(nodes=nodes, rows=slice(0, 3))
    of_kernels = np.array([0, 0, 132], np.float32)
    occupation, slowdowns = occupation_of([part], of_kernels, np.array(held))
    assert occupation.tolist() == occupied
    assert [(row.alone, row.beside, row.each) for row in slowdowns] == [(132, 66, 1)]
    for nothing in (np.zeros(2, np.int64), np.zeros(0, np.int64)):
        assert [len(table) for table in occupation_of([part], of_kernels, nothing)] == [0, 0]


def test_many_changes_round_no_more_than_one() -> None:
    """Check that communication that stops and restarts 20 times costs as much as all of it at once."""
    build = TraceBuilder()
    build.compute("kernel", nanos=1_000_000)
    before = None
    for _ in range(20):
        after = [] if before is None else [before]
        pause = build.compute("pause", nanos=777, after=after, cpu=True)
        before = build.collective("all_reduce", 4096, after=[pause])
    result = ran(build, overlap={"kernels": 1.3})
    spent = [
        (row["start_ns"], row["end_ns"])
        for row in result.timeline.to_pylist()
        if row["name"] == "all_reduce" and row["actor"] == 0
    ]
    assert times(result)["kernel"][1] == beside(*spent, duration=1_000_000, factor=Fraction("1.3"))


def test_kernels_that_overlap_nothing_take_their_time_and_a_factor_of_one_changes_nothing() -> None:
    build = kernels(500)
    build.collective("all_reduce", MIB, after=[0])
    assert times(ran(build, overlap={"kernels": 2})) == times(ran(build))
    build = kernels(500)
    build.collective("all_reduce", MIB)
    assert times(ran(build, overlap={"kernels": 1})) == times(ran(build))


def test_copies_are_slowed_by_a_factor_of_their_own() -> None:
    build = kernels(1000)
    build.compute("copy", nanos=1000, attributes={"copy": 1})
    build.collective("all_reduce", MIB)
    streams = [{"name": "engine", "takes": ["copies"]}]
    result = ran(build, streams=streams, overlap={"kernels": 1.5, "copies": 1.1})
    assert (times(result)["k0"], times(result)["copy"]) == ((0, 1500), (0, 1100))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 4))
def test_kernels_side_by_side_take_longer_each(nanos: list[int], at_a_time: int) -> None:
    build = kernels(*nanos)
    build.collective("all_reduce", MIB)  # which lasts longer than all of them
    streams = [{"name": "main", "takes": ["kernels"], "at-a-time": at_a_time}]
    result = ran(build, streams=streams, overlap={"kernels": 1.5})
    free, expected = [0] * at_a_time, {}
    for number, duration in enumerate(nanos):
        start = heappop(free)
        expected[f"k{number}"] = start, start + -(-3 * duration // 2)
        heappush(free, expected[f"k{number}"][1])
    assert times(result) == expected | {"all_reduce": (0, ALL_REDUCE_NS)}


def test_time_lost_to_communication_is_a_cause_of_its_own() -> None:
    build = kernels(10_000)
    build.collective("all_reduce", MIB, after=[0])
    last = build.compute("beside", nanos=100_000, after=[0])
    build.compute("last", nanos=1000, after=[last])
    result = ran(build, overlap={"kernels": 1.2}, detail="path")
    path = result.critical_path()
    assert path["causes"] == {"compute": 111_000, "contention": 13_257}
    assert sum(path["causes"].values()) == result.makespan_ns
    assert not path["sensitivities_are_exact"]


def test_places_of_a_stream_are_on_the_path() -> None:
    result = ran(
        kernels(400, 300, 200, 100),
        streams=[{"name": "main", "takes": ["kernels"], "at-a-time": 2}],
        detail="path",
    )
    assert result.critical_path()["causes"] == {"compute": 500}
    hops = [hop["name"] for hop in result.critical_path()["hops"]]
    assert hops in (["k0", "k3"], ["k1", "k2"])  # both take as long


@pytest.mark.parametrize("key", ["streams", "overlap"])
def test_a_model_with_a_processor_of_its_own_refuses_both(key: str) -> None:
    given = {"streams": [{"name": "main", "takes": ["kernels"]}], "overlap": {"kernels": 1.2}}[key]
    network = {"loggops": {"npus": 1, "L": 1000, "o": 200, "g": 5, "G": 0.04, "O": 0, "S": 65535}}
    alone = TraceBuilder()
    alone.compute("k", nanos=5)
    workload = Workload((alone.build(),), np.zeros(1, np.int32), source="built")
    with pytest.raises(UsageError, match=f'a processor per rank.*"{key}"'):
        et_sim.simulate(workload, system=SYSTEM | {key: given}, network=network, model="loggops")


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=12),
    st.integers(1, 4),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_a_stream_serves_in_ascending_order_as_a_queue_with_servers(
    nanos: list[int], at_a_time: int, chained: list[bool]
) -> None:
    """Compare with an independent simulation of nodes in order, each after its predecessor or without one."""
    build, parents = TraceBuilder(), []
    for number, duration in enumerate(nanos):
        parents.append(number - 1 if number and chained[number] else None)
        build.compute(f"k{number}", nanos=duration, after=[] if parents[-1] is None else [parents[-1]])
    result = ran(build, streams=[{"name": "main", "takes": ["kernels"], "at-a-time": at_a_time}])
    ends: dict[int, int] = {}
    waiting, running, now = set(range(len(nanos))), dict[int, int](), 0
    while waiting or running:
        for node in sorted(waiting):
            is_ready = parents[node] is None or ends.get(parents[node], now + 1) <= now
            if is_ready and len(running) < at_a_time:
                running[node] = now + nanos[node]
                waiting.discard(node)
        now = min(running.values())
        for node in [under_way for under_way, end in running.items() if end == now]:
            ends[node] = running.pop(node)
    assert [times(result)[f"k{n}"][1] for n in range(len(nanos))] == [ends[n] for n in range(len(nanos))]


def test_a_node_is_of_one_kind_of_work_at_most() -> None:
    build = TraceBuilder()
    build.compute("kernel", nanos=1)
    build.compute("copy", nanos=1, attributes={"copy": 1})
    build.compute("host", nanos=1, cpu=True)
    build.collective("all_reduce", 64)
    build.send(1, 64)
    build.receive(1, 64)
    build.load(64)
    build.store(64)
    trace = build.build()
    works = {work: np.flatnonzero(of_work(trace, work)).tolist() for work in StreamWork}
    assert works == {
        StreamWork.KERNELS: [0],
        StreamWork.COPIES: [1],
        StreamWork.HOST: [2],
        StreamWork.COLLECTIVES: [3],
        StreamWork.SENDS: [4],
        StreamWork.LOADS: [6],
        StreamWork.STORES: [7],
    }
