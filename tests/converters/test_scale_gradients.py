"""Replicas of one recorded replica reduce the given gradients; one recorded rank may represent many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_pytorch_causality import Timeline
from test_scale import SYSTEM

import et_sim
from converters.cli import main
from et_sim.trace import GroupRule, TraceBuilder, Workload, read_workload, write_workload
from et_sim.trace.columns import NodeKind
from et_sim.trace.preflight import find_problems

RECORDING = Path(__file__).parent / "pytorch_traces" / "fake_fsdp2_tp4_1024"

pytestmark = pytest.mark.usefixtures("in_a_folder")


def replica(*, iterations: int = 1, passes: int = 1) -> None:
    """Write two tensor-parallel ranks: 20 us forward, 30 and 10 us backward, 5 us of an optimizer."""
    build = TraceBuilder()
    build.process_groups({"7": [0, 1]})
    done: list[int] = []
    for step in range(iterations):
        if iterations > 1:
            done = [build.compute(f"ProfilerStep#{step}", micros=0, after=done)]
        for _ in range(passes):
            done = [build.compute("forward", micros=20, after=done)]
            done = [build.collective("all_reduce", 1000, "7", after=done)]
            done = [build.compute("backward of layer 1", micros=30, after=done)]
            done = [build.compute("backward of layer 0", micros=10, after=done)]
        done = [build.compute("optimizer", micros=5, after=done)]
    write_workload(Workload.of([build.build()] * 2), "one")


def scale(*options: str) -> int:
    return main(["scale", *options, "-o", "many"])


def makespan_ns(named: str, data: int, bytes_per_ns: float, **keys: Any) -> int:
    """Simulate a machine whose network is free within a replica, and only takes time per byte between
    replicas.
    """
    dims, speeds = [2, data][:data], ["1e6GB/s", f"{bytes_per_ns}GB/s"][:data]
    network = {"topology": ["Ring"] * len(dims), "npus_count": dims, "bandwidth": speeds}
    network["latency"] = [0] * len(dims)
    system = SYSTEM | {"all-reduce-implementation": ["ring"] * len(dims), "endpoint-delay": 0}
    system |= {"active-chunks-per-dimension": 1, "preferred-dataset-splits": 1, "profile": "corrected"}
    return et_sim.simulate(named, system=system, network=network, **keys).makespan_ns


def reduced(named: str = "many.workload.json") -> list[tuple[int, list[str]]]:
    """Return bytes of all-reduces among replicas, and the nodes before them."""
    (trace,) = read_workload(named).templates
    rows = [
        row
        for row in range(len(trace))
        if trace.kind[row] == NodeKind.COLL and "grad" in trace.node_name(row)
    ]
    return [
        (int(trace.comm_bytes[row]), [trace.node_name(parent) for parent in trace.parents(row)])
        for row in rows
    ]


@pytest.mark.usefixtures("warm_engine")
def test_replicas_take_the_recorded_time_and_their_exposed_all_reduces() -> None:
    """Expect buckets of 4, 4 and 2 KB after 30, 40 and 40 us of backward, at 0.1 bytes/ns."""
    replica()
    assert scale("one", "--to", "dp=2", "--gradients", "10kB", "--bucket", "4kB") == 0
    alone = makespan_ns("one", 1, 1)
    assert alone == pytest.approx(65_000, abs=50)
    assert makespan_ns("many.workload.json", 2, 1e6) == pytest.approx(alone, abs=500)
    slow = makespan_ns("many.workload.json", 2, 0.1)
    assert slow == pytest.approx(20_000 + 30_000 + (4_000 + 4_000 + 2_000) * 10 + 5_000, abs=500)
    assert makespan_ns("many.workload.json", 2, 0.1, fold=False) == slow


def test_buckets_come_after_the_backward_work_that_makes_them_and_after_each_other() -> None:
    replica()
    assert scale("one", "--to", "dp=8", "--gradients", "10kB", "--bucket", "4kB") == 0
    first, last, before = "backward of layer 1", "backward of layer 0", "gradients all-reduce"
    assert reduced() == [(4000, [first]), (4000, [last, before]), (2000, [last, before])]
    many = read_workload("many.workload.json")
    assert many.group_rules == {"like-7": GroupRule(2), "dp": GroupRule(8, 2)}
    assert (many.ranks, len(many.templates), find_problems(many)) == (16, 1, [])
    (trace,) = many.templates
    (optimizer,) = (row for row in range(len(trace)) if trace.node_name(row) == "optimizer")
    assert before in {trace.node_name(parent) for parent in trace.parents(optimizer)}


def test_a_plan_names_the_same_ranks_and_writes_the_same_bytes_again() -> None:
    replica()
    contents = []
    for _ in range(2):
        assert scale("one", "--from", "tp=2", "--to", "dp=8", "--gradients", "1MB") == 0
        contents.append([path.read_bytes() for path in sorted(Path().glob("many*"))])
    assert contents[0] == contents[1]
    assert read_workload("many.workload.json").group_rules == {"tp": GroupRule(2), "dp": GroupRule(8, 2)}
    assert [size for size, _ in reduced()] == [1_000_000]  # less than a bucket


def test_gradients_are_reduced_in_each_iteration_and_in_the_last_of_its_passes() -> None:
    replica(iterations=3, passes=2)
    options = ["--to", "dp=2", "--gradients", "8kB", "--bucket", "4kB"]
    assert scale("one", *options) == 0
    assert len(reduced()) == 6
    first = {name for _, names in reduced() for name in names[:1]}
    assert scale("one", *options, "--micro-batches", "2") == 0
    assert first == {"backward of layer 0"}  # half of all gradients when the first pass ends
    assert [names[0] for _, names in reduced()] == ["backward of layer 1", "backward of layer 0"] * 3


def test_kernels_are_of_the_backward_pass_that_launched_them(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path)
    timeline.operator("aten::mm", 0, 10)
    timeline.launch("gemm", 2, 6, 20)
    timeline.operator("autograd::engine::evaluate_function: MmBackward0", 20, 20)
    timeline.operator("aten::mm", 22, 10)
    timeline.launch("gemm again", 24, 30, 40)
    timeline.operator("step", 50, 10)
    timeline.launch("update", 52, 72, 5)
    timeline.converted()
    assert main(["pytorch", "--device", str(timeline.path), "-o", "one.et"]) == 0
    assert scale("one.et", "--to", "dp=4", "--gradients", "1MB") == 0
    assert reduced() == [(1_000_000, ["gemm again"])]
    (trace,) = read_workload("many.workload.json").templates
    (update,) = (row for row in range(len(trace)) if trace.node_name(row) == "update")
    assert "gradients all-reduce" in {trace.node_name(parent) for parent in trace.parents(update)}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--to", "dp=4"], "give the bytes that each rank reduces: --gradients SIZE"),
        (["--to", "dp=4", "--bucket", "1MB"], "--bucket and --micro-batches require --gradients"),
        (["--to", "dp=4", "--gradients", "1MB", "--bucket", "0"], "--bucket is 0 (give more than 0)"),
        (["--to", "dp=4", "--gradients", "1MB", "--micro-batches", "0"], "--micro-batches is 0"),
        (["--to", "dp=4", "--gradients", "some"], "some"),
        (["--from", "dp=2", "--to", "dp=4", "--gradients", "1MB"], "dp does not grow from 1"),
        (["--to", "tp=4"], "--to tp=4 is given without --from"),
        (["--from", "tp=2"], "--from without --to is for one recorded rank of many"),
        (["--order", "tp-dp"], "--order is given without --from"),
        (["--from", "tp=2", "--to", "dp=2", "--rank", "1"], "--rank is for one recorded rank of many"),
    ],
)
def test_missing_values_are_requested(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replica()
    assert scale("one", *options) == 2
    assert sentence in capsys.readouterr().err
    assert list(Path().glob("many*")) == []


def test_zero_gradients_keep_replicas_independent() -> None:
    replica()
    assert scale("one", "--to", "dp=4", "--gradients", "0") == 0
    assert reduced() == []


def one_rank(*, stages: int = 1) -> None:
    """Write rank 5 of 4 tensor-parallel ranks x 2 replicas (or stages)."""
    build = TraceBuilder()
    build.process_groups({"1": [4, 5, 6, 7], "2": [1, 5]})
    done = [build.collective("all_gather", 1024, "2")]
    done = [build.collective("all_reduce", 64, "1", after=done)]
    if stages > 1:
        build.send(1, 64, after=done)
    write_workload(Workload.of([build.build()]), "five")


def test_one_recorded_rank_represents_all_of_its_job() -> None:
    one_rank()
    assert scale("five", "--from", "tp=4,dp=2", "--rank", "5") == 0
    whole = read_workload("many.workload.json")
    assert whole.group_rules == {"dp": GroupRule(2, 4), "tp": GroupRule(4)}
    assert (whole.ranks, len(whole.templates), find_problems(whole)) == (8, 1, [])
    assert scale("five", "--from", "tp=4,dp=2", "--to", "dp=8", "--rank", "5") == 0
    grown = read_workload("many.workload.json")
    assert grown.group_rules == {"dp": GroupRule(8, 4), "tp": GroupRule(4)}
    assert sorted(grown.templates[0].comm_bytes.tolist()) == [0, 64, 256]  # shares of the gather are smaller


def test_a_recording_holds_its_rank_and_its_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline(tmp_path)  # of rank 0 of 4
    timeline.operator("aten::mm", 0, 10)
    timeline.converted()
    assert main(["pytorch", "--device", str(timeline.path), "-o", "one.et"]) == 0
    assert scale("one.et", "--from", "tp=2,dp=4") == 2
    assert "is one of 4 ranks, and --from are 8" in capsys.readouterr().err
    assert scale("one.et", "--from", "tp=2,dp=2", "--to", "dp=4") == 0
    assert read_workload("many.workload.json").ranks == 8


@pytest.mark.deep
def test_a_recorded_rank_of_1024_becomes_its_job() -> None:
    files = [
        f"--{kind}={RECORDING / name}"
        for kind, name in (("host", "et_5.json.gz"), ("device", "kineto_5.json.gz"))
    ]
    assert main(["pytorch", *files, "-o", "five.et"]) == 0
    assert scale("five.et", "--from", "tp=4,dp=256") == 0
    whole = read_workload("many.workload.json")
    assert whole.group_rules == {"dp": GroupRule(256, 4), "tp": GroupRule(4)}
    assert (whole.ranks, len(whole.templates), find_problems(whole)) == (1024, 1, [])


@pytest.mark.parametrize(
    ("stages", "options", "sentence"),
    [
        (1, ["--from", "tp=4,dp=2"], "does not state its rank of the 8"),
        (1, ["--from", "tp=4,dp=2", "--rank", "8"], "is rank 8 of the 8"),
        (1, ["--from", "tp=4,dp=2", "--rank", "0"], "has the members"),
        (1, ["--from", "tp=4,pp=2", "--rank", "5"], "is of one stage of several"),
        (2, ["--from", "tp=4,dp=2", "--rank", "5"], "sends or receives messages"),
    ],
)
def test_a_rank_that_cannot_stand_for_all_is_refused(
    stages: int, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one_rank(stages=stages)
    assert scale("five", *options) == 2
    assert sentence in capsys.readouterr().err
