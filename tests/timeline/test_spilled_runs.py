"""Runs whose tensors wait in remote memory where local memory is full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, ring

import et_sim
from et_sim.api import run
from et_sim.basics.errors import MachineError, OutOfMemoryError, TraceError
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.view import view_text

NETWORK = ring(4, "50GB/s")
SYSTEM = {"all-reduce-implementation": ["ring"], "local-mem-bw": 50}
ALONE = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 1}
PER_NODE = ALONE | {
    "memory-type": "PER_NODE_MEMORY_EXPANSION",
    "num-nodes": 2,
    "num-npus-per-node": 2,
}
SHARED = ALONE | {"memory-type": "MEMORY_POOL"}
POOL = {
    "memory-type": "HIERARCHICAL_POOL",
    "chunk": 64,
    "stages": [
        {"name": "link", "count": 4, "bandwidth": 1, "latency": "10ns"},
        {"name": "memory", "count": 1, "bandwidth": 2, "latency": "30ns"},
    ],
}
FREE = ALONE | {"remote-mem-latency": 0, "remote-mem-bw": 0}  # moves take no time


def ran(
    workload: et_sim.Workload, capacity: Any = None, memory: Any = ALONE, **options: Any
) -> et_sim.Result:
    keys: dict[str, Any] = {"track-local-mem": 1}
    if capacity is not None:
        keys = {"local-mem-capacity": capacity, "when-full": "spill"}
    keys |= options.pop("system", {})
    return run(workload, system=SYSTEM | keys, network=NETWORK, memory=memory, **options)


def chain(*steps: tuple[dict[str, int], dict[str, int]], nanos: int = 1000) -> et_sim.Workload:
    """Return the same nodes one after the other on four ranks."""
    build, last = et_sim.TraceBuilder(), []
    for number, (reads, writes) in enumerate(steps):
        last = [build.compute(f"step {number}", nanos=nanos, inputs=reads, outputs=writes, after=last)]
    return et_sim.Workload.of([build.build()] * 4)


FOUR = chain(({}, {"a": 4000}), ({}, {"b": 3000}), ({"b": 3000}, {"c": 2000}), ({"a": 4000, "c": 2000}, {}))


def times(result: et_sim.Result, actor: int = 0) -> dict[str, tuple[int, int]]:
    rows = result.timeline.to_pylist()
    return {row["name"]: (row["start_ns"], row["end_ns"]) for row in rows if row["actor"] == actor}


def test_a_tensor_is_stored_when_another_needs_its_place_and_loaded_before_it_is_read() -> None:
    result = ran(FOUR, 6500)
    assert times(result) == {
        "step 0": (0, 1000),
        "store a": (1000, 5100),  # 4000 bytes at one per ns, and 100 ns
        "step 1": (5100, 6100),  # 3000 of the bytes of a
        "step 2": (6100, 7100),  # 1000 of a's, and 1000 that were free from the start
        "load a": (7100, 11_200),  # b is done with
        "step 3": (11_200, 12_200),
    }
    summary = result.summary()
    assert summary["spilled"] == {"stores": 4, "loads": 4, "stored_bytes": 16_000, "loaded_bytes": 16_000}
    assert result.peak_memory_bytes.tolist() == [6000] * 4
    assert summary["out_of_memory"] is None
    story = [(row["time_ns"], row["event"], row["tensor"], row["node"]) for row in result.memory.to_pylist()]
    assert story == [
        (0, "written", "a", 0),
        (5100, "released", "a", 4),
        (5100, "written", "b", 1),
        (6100, "written", "c", 2),
        (7100, "released", "b", 2),
        (7100, "written", "a", 5),
        (12_200, "released", "a", 3),
        (12_200, "released", "c", 3),
    ]


def test_ranks_that_share_the_memory_take_turns() -> None:
    result = ran(FOUR, 6500, SHARED)
    stores = sorted(times(result, actor)["store a"][1] for actor in range(4))
    assert stores == [5100, 9200, 13_300, 17_400]


def test_fitting_tensors_are_simulated_as_without_the_key() -> None:
    plain = ran(FOUR)
    peak = int(plain.peak_memory_bytes.max())
    result = ran(FOUR, peak)
    assert result.timeline.equals(plain.timeline.replace_schema_metadata(result.timeline.schema.metadata))
    assert result.summary()["spilled"] == {"stores": 0, "loads": 0, "stored_bytes": 0, "loaded_bytes": 0}
    assert result.moved is not None
    assert not result.moved.is_any
    assert "spilled" not in plain.summary()
    assert ran(FOUR, peak - 1).summary()["spilled"]["stores"] == 4


def test_weights_that_do_not_fit_lie_in_remote_memory_from_the_start() -> None:
    result = ran(chain(({"w": 5}, {}), ({"v": 5}, {}), ({"w": 5}, {})), 5)
    assert [name for name in times(result) if name[:4] != "step"] == ["store w", "load v", "load w"]
    assert result.peak_memory_bytes.tolist() == [5] * 4


def test_a_node_that_alone_needs_too_much_is_out_of_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = chain(({}, {"a": 60}), ({}, {"b": 50}), ({"a": 60, "b": 50}, {"c": 10}), ({"c": 10}, {}))
    result = ran(workload, 100)
    summary = result.summary()
    assert (summary["status"], result.stall) == ("out of memory", None)
    failure = summary["out_of_memory"]
    assert failure["too_large"] == {"node": 2, "node_name": "step 2", "bytes": 120}
    assert '; the tensors of node 2 "step 2" alone are 120 B' in str(result.why_stopped())
    with pytest.raises(OutOfMemoryError):
        et_sim.simulate(
            workload,
            system=SYSTEM | {"local-mem-capacity": 100, "when-full": "spill"},
            network=NETWORK,
            memory=ALONE,
        )
    et_sim.write_workload(workload, tmp_path / "w")
    machine = []
    for name, content in (
        ("system", SYSTEM | {"local-mem-capacity": 100, "when-full": "spill"}),
        ("network", NETWORK),
        ("memory", ALONE),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        machine += [f"--{name}", str(tmp_path / f"{name}.json")]
    assert main(["run", str(tmp_path / "w"), *machine, "--out", str(tmp_path / "run")]) == 1
    assert "the tensors of node 2" in capsys.readouterr().err
    assert open_run(tmp_path / "run").summary["status"] == "out of memory"


def test_the_summary_shows_moved_bytes(tmp_path: Path) -> None:
    ran(FOUR, 6500).save(tmp_path / "run")
    assert "spilled      15.62 KiB stored in 4 moves, 15.62 KiB loaded in 4, on all" in view_text(
        "summary", tmp_path / "run"
    )
    ran(FOUR, 64_000).save(tmp_path / "fits")
    assert "spilled      nothing: local memory suffices" in view_text("summary", tmp_path / "fits")


@pytest.mark.parametrize(
    ("memory", "system", "text"),
    [
        (None, {}, 'key "when-full" is "spill", and the machine has no remote memory'),
        ({"memory-type": "NO_MEMORY_EXPANSION"}, {}, "and the machine has no remote memory"),
        (ALONE, {"replay-only": 1}, 'and with "replay-only" nodes take recorded times'),
    ],
)
def test_machines_that_cannot_move_tensors_are_refused(memory: Any, system: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        ran(FOUR, 1 << 40, memory, system=system)
    assert text in str(caught.value)


def test_ids_that_leave_none_for_moves_are_refused() -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", nanos=1, outputs={"a": 6}, node_id=2**64 - 2)
    last = build.compute("last", nanos=1, outputs={"b": 6}, after=[first], node_id=2**64 - 1)
    build.compute("reads", nanos=1, inputs={"a": 6}, after=[last], node_id=5)
    with pytest.raises(TraceError, match="none is left for stores and loads"):
        ran(et_sim.Workload.of([build.build()] * 4), 6)


def test_ranks_whose_ids_are_in_contrary_orders_stall_with_an_explanation() -> None:
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        for group in ("1", "2") if rank % 2 else ("2", "1"):
            build.collective("all_reduce", 64, group, outputs={f"reduced {group}": 64})
        traces.append(build.build())
    workload, groups = et_sim.Workload.of(traces), {"1": [0, 1, 2, 3], "2": [0, 1, 2, 3]}
    assert ran(workload, 128, profile="corrected", groups=groups).is_complete
    stall = ran(workload, 64, profile="corrected", groups=groups).stall
    assert stall is not None
    assert any(
        "number the nodes of all ranks in one order" in remedy for remedy in stall.as_dict()["remedies"]
    )


def stage(rank: int, batches: int, *, receives_first: bool) -> et_sim.Trace:
    """Return one stage of a pipeline, with forward and backward passes in turns."""
    build, ids = et_sim.TraceBuilder(), {}
    number = iter(range(1000))
    early = iter(range(1000, 2000)) if not receives_first else number
    is_last = rank == 3

    def receive(tensor: str, batch: int, source: int) -> list[int]:
        tag = 2 * batch + (tensor == "gradient")
        name = f"{tensor} {batch}"
        return [
            build.receive(source, 64, tag, name=f"receive {name}", outputs={name: 64}, node_id=next(early))
        ]

    schedule = [("f", batch) for batch in range(batches)] + [("b", batch) for batch in range(batches)]
    waits: dict[tuple[str, int], list[int]] = {}
    for direction, batch in schedule if receives_first else []:
        if direction == "f" and rank:
            waits[direction, batch] = receive("input", batch, rank - 1)
        elif direction == "b" and not is_last:
            waits[direction, batch] = receive("gradient", batch, rank + 1)
    last: list[int] = []
    for direction, batch in schedule:
        after = waits.get((direction, batch), [])
        if not after and direction == "f" and rank:
            after = receive("input", batch, rank - 1)
        elif not after and direction == "b" and not is_last:
            after = receive("gradient", batch, rank + 1)
        reads = {"weights": 100}
        if after:
            reads[f"{'input' if direction == 'f' else 'gradient'} {batch}"] = 64
        if direction == "b":
            reads[f"activations {batch}"] = 200
        writes = {f"activations {batch}": 200} if direction == "f" else {f"weights grad {batch}": 50}
        to = rank + 1 if direction == "f" else rank - 1
        out = {f"sent {direction} {batch}": 64} if 0 <= to < 4 else {}
        last = [
            build.compute(
                f"{direction} {batch}",
                nanos=500,
                inputs=reads,
                outputs=writes | out,
                after=[*last, *after],
                node_id=next(number),
            )
        ]
        if out:
            tag = 2 * batch + (direction == "b")
            build.send(
                to, 64, tag, name=f"send {direction} {batch}", inputs=out, after=last, node_id=next(number)
            )
        ids[direction, batch] = last[0]
    build.collective("all_reduce", 4096, after=last, node_id=next(number))
    return build.build()


@pytest.mark.parametrize("receives_first", [False, True])
@pytest.mark.parametrize(
    "system",
    [{}, {"rendezvous-protocol": 1}, {"profile": "corrected"}],
    ids=["reference", "rendezvous", "corrected"],
)
def test_pipelines_complete_with_little_memory(receives_first: bool, system: dict[str, Any]) -> None:
    workload = et_sim.Workload.of([stage(rank, 5, receives_first=receives_first) for rank in range(4)])
    whole = ran(workload, system=system)
    assert whole.is_complete
    for capacity in (500, 1000):
        result = ran(workload, capacity, system=system)
        assert result.is_complete, str(result.stall)
        assert result.summary()["spilled"]["stores"] > 0
        assert int(result.peak_memory_bytes.max()) <= capacity


tensors = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), max_size=3)


@st.composite
def programs(draw: st.DrawFn) -> et_sim.Trace:
    """Draw kernels, host work and collectives; the collectives are the same on all ranks."""
    build, ids = et_sim.TraceBuilder(), []
    for number in range(draw(st.integers(2, 8))):
        after = draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)) if ids else []
        named = {"inputs": draw(tensors), "outputs": draw(tensors), "after": after}
        nanos, kind = (
            draw(st.integers(0, 30)),
            draw(st.sampled_from(("kernel", "host", "concurrent", "load"))),
        )
        if kind == "load":
            ids.append(build.load(draw(st.integers(1, 50)), **named))
        else:
            flags = {"cpu": kind == "host", "concurrent": kind == "concurrent"}
            ids.append(build.compute(f"n{number}", nanos=nanos, **flags, **named))
        if number in (1, 3):
            ids.append(
                build.collective(
                    "all_reduce", 64, after=ids[-1:], inputs=draw(tensors), outputs=draw(tensors)
                )
            )
    if len(ids) < 6:
        ids.append(build.collective("all_reduce", 64, after=ids[-1:]))
    return build.build()


def collectives(trace: et_sim.Trace) -> int:
    return trace.kind_counts.get("COLL", 0)


@given(
    st.lists(programs(), min_size=1, max_size=2),
    st.integers(0, 100),
    st.sampled_from((ALONE, PER_NODE, SHARED, POOL, FREE)),
    st.sampled_from(("reference", "corrected")),
)
def test_memory_holds_live_tensors_and_folding_changes_nothing(
    traces: list[et_sim.Trace], part: int, memory: dict[str, Any], profile: str
) -> None:
    if collectives(traces[0]) != collectives(traces[-1]):
        traces = traces[:1]
    workload = et_sim.Workload.of([traces[rank % len(traces)] for rank in range(4)])
    whole = ran(workload, memory=memory, profile=profile)
    peak = int(whole.peak_memory_bytes.max())
    capacity = max(peak * part // 100, 1)
    result = ran(workload, capacity, memory, profile=profile)
    if result.is_stopped:
        assert result.out_of_memory.too_large is not None
        assert result.out_of_memory.too_large.bytes > capacity
        return
    assert result.is_complete
    assert int(result.peak_memory_bytes.max()) <= capacity
    assert int(result.measurement.coverage["executed"]) >= workload.nodes
    moved = result.summary()["spilled"]
    assert result.coverage["nodes"] == workload.nodes + moved["stores"] + moved["loads"]
    alone = ran(workload, capacity, memory, profile=profile, fold=False)
    assert alone.summary()["per_rank"] == result.summary()["per_rank"]
    assert alone.summary()["spilled"] == moved
    assert alone.coverage == result.coverage


def test_the_other_profile_is_that_of_a_run_in_it() -> None:
    build, last = et_sim.TraceBuilder(), []
    for layer in range(3):
        last = [build.compute("f", nanos=1000, outputs={f"a{layer}": 4000}, after=last)]
        build.collective("all_reduce", 1 << 16, after=last, inputs={f"a{layer}": 4000})
    for layer in reversed(range(3)):
        last = [build.compute("b", nanos=1000, inputs={f"a{layer}": 4000}, after=last)]
    workload = et_sim.Workload.of([build.build()] * 4)
    other = ran(workload, 8000, other_profile=True).summary()["other_profile"]
    assert other["makespan_ns"] == ran(workload, 8000, profile="corrected").makespan_ns
    corrections = {correction["correction"] for correction in other["corrections"]}
    system = {"corrections": dict.fromkeys(corrections, True)}
    assert ran(workload, 8000, system=system).makespan_ns == other["makespan_ns"]


def test_a_job_alone_has_all_of_its_memory() -> None:
    part = et_sim.Workload.of([FOUR.templates[0]] * 2)
    jobs = {"jobs": [{"name": name, "workload": part} for name in ("first", "second")]}
    result = run(
        jobs,
        system=SYSTEM | {"local-mem-capacity": 6500, "when-full": "spill"},
        network=NETWORK,
        memory=SHARED,
        isolated=True,
    )
    alone = run(
        part,
        system=SYSTEM | {"local-mem-capacity": 6500, "when-full": "spill"},
        network=NETWORK | {"npus_count": [2]},
        memory=SHARED,
    )
    for job in result.summary()["jobs"]:
        assert job["alone_ns"] == alone.makespan_ns < job["duration_ns"]


def test_nodes_of_no_time_count_in_the_order_of_dependencies() -> None:
    build = et_sim.TraceBuilder()
    build.compute("reads", nanos=0, inputs={"a": 5}, after=[1])
    build.compute("writes", nanos=0, outputs={"a": 5}, after=[2])
    build.compute("first", nanos=10)
    result = ran(et_sim.Workload.of([build.build()] * 4))
    assert [(row["time_ns"], row["event"]) for row in result.memory.to_pylist()] == [
        (10, "released"),
        (10, "written"),
    ]


@pytest.mark.deep
@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize("plan", ["gpipe", "1f1b --zero 3", "interleaved --chunks 2 --zero 2", "zero-bubble"])
def test_made_training_jobs_complete_with_a_third_of_their_memory(
    plan: str, profile: str, tmp_path: Path
) -> None:
    size = (
        "--layers 8 --hidden 512 --heads 8 --width 2048 --sequence 4096 --vocabulary 8000 --micro-batches 8"
    )
    options = f"{size} --tp 2 --pp 4 --dp 2 --schedule {plan}".split()
    assert main(["make", "transformer", *options, "-o", str(tmp_path / "job")]) == 0
    machine: dict[str, Any] = {
        "network": NETWORK | {"topology": ["Ring"] * 3, "npus_count": [2, 4, 2], "bandwidth": [200, 50, 50]},
        "memory": ALONE | {"remote-mem-bw": 50},
        "profile": profile,
    }
    machine["network"]["latency"] = [500] * 3
    system = algorithms("ring", 3)
    job = str(tmp_path / "job.workload.json")
    whole = run(job, system=system | {"track-local-mem": 1}, **machine)
    capacity = int(whole.peak_memory_bytes.max()) // 3
    result = run(job, system=system | {"local-mem-capacity": capacity, "when-full": "spill"}, **machine)
    assert result.is_complete
    assert int(result.peak_memory_bytes.max()) <= capacity
    assert result.summary()["spilled"]["stores"] > 100
