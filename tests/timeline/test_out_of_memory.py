"""Runs that need more local memory than the machine has: their end, their message, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import ring

import et_sim
from et_sim.api import run
from et_sim.basics.errors import MachineError, OutOfMemoryError
from et_sim.cli import main
from et_sim.compute.device import Device
from et_sim.memory import CLASSES, classes_of
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.drawing.memory import memory_picture
from et_sim.views.summary.memory import memory_peaks
from et_sim.views.view import view_text

NETWORK = ring(4, "50GB/s")
SYSTEM = {"all-reduce-implementation": ["ring"], "local-mem-bw": 50}
FOREVER = 1 << 62


def step(activation: int = 2000) -> et_sim.Trace:
    """Return four layers forward, each followed by a collective beside it, and four backward."""
    build, last = et_sim.TraceBuilder(), []
    for layer in range(4):
        reads = {f"weights {layer}": 1000}
        reads |= {f"activations:{layer - 1}": activation} if layer else {}
        writes = {f"activations:{layer}": activation}
        last = [build.compute(f"forward {layer}", nanos=1000, inputs=reads, outputs=writes, after=last)]
        build.collective("all_reduce", 4096, after=last)
    for layer in reversed(range(4)):
        reads = {f"weights {layer}": 1000, f"activations:{layer}": activation}
        writes = {f"weight {layer} grad": 500}
        last = [build.compute(f"backward {layer}", nanos=1000, inputs=reads, outputs=writes, after=last)]
    return build.build()


WORKLOAD = et_sim.Workload.of([step()] * 3 + [step(3000)])


def ran(capacity: Any = None, when_full: str | None = None, **options: Any) -> et_sim.Result:
    keys: dict[str, Any] = {"track-local-mem": 1} if capacity is None else {"local-mem-capacity": capacity}
    keys |= {} if when_full is None else {"when-full": when_full}
    workload = options.pop("workload", WORKLOAD)
    return run(workload, system=SYSTEM | keys, network=NETWORK, **options)


def test_a_run_stops_where_memory_is_full() -> None:
    result, whole = ran(14_000), ran()
    summary = result.summary()
    assert (summary["status"], summary["makespan_ns"]) == ("out of memory", 3000)
    assert [entry["finish_ns"] for entry in summary["per_rank"]] == [None, None]
    failure = summary["out_of_memory"]
    assert (failure["time_ns"], failure["ranks"], failure["alive_bytes"]) == (3000, "3", 16_000)
    assert (failure["capacity_bytes"], failure["stopped"], failure["tensors"]) == (14_000, True, 8)
    assert failure["by_class"] == {"weights": 4000, "activations": 12_000}
    (allocated,) = failure["allocated"]
    assert allocated == {
        "tensor": "activations:3",
        "class": "activations",
        "bytes": 3000,
        "since_ns": 3000,
        "node": 6,
        "node_name": "forward 3",
    }
    times = [(row["node"], row["start_ns"], row["end_ns"]) for row in result.timeline.to_pylist()]
    cut = [
        (row["node"], row["start_ns"], row["end_ns"] if row["end_ns"] <= 3000 else None)
        for row in whole.timeline.to_pylist()
        if row["start_ns"] <= 3000
    ]
    assert times == cut
    until = [row for row in whole.memory.to_pylist() if row["time_ns"] <= 3000]
    assert result.memory.to_pylist() == until
    assert result.peak_memory_bytes.tolist() == [12_000] * 3 + [16_000]


def test_stalls_of_a_run_that_stopped_at_full_memory_name_the_memory(tmp_path: Path) -> None:
    for capacity, sentence in (
        (14_000, "no rank is stuck: the run ends where memory was full"),
        (None, "no rank is stuck: every node of every rank completed"),
    ):
        write_run(ran(capacity), tmp_path / str(capacity))
        assert view_text("stalls", tmp_path / str(capacity)).strip() == sentence


def test_python_raises_the_error_that_the_command_prints_with_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        et_sim.simulate(WORKLOAD, system=SYSTEM | {"local-mem-capacity": 14_000}, network=NETWORK)
    assert str(caught.value).startswith(
        "rank 3 needs more local memory than the limit of 14000 B at 3 µs: 16000 B on rank 3, when "
        "node 6 \"forward 3\" allocates 'activations:3' (2.93 KiB) (give NPUs more memory"
    )
    et_sim.write_workload(WORKLOAD, tmp_path / "w")
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM | {"local-mem-capacity": "14kB"}))
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    machine = ["--system", str(tmp_path / "system.json"), "--network", str(tmp_path / "network.json")]
    assert main(["run", str(tmp_path / "w"), *machine, "--out", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().err
    assert f"out of memory: {caught.value.cause}" in printed
    assert "allocated at that time: weights 3.91 KiB, activations 11.72 KiB" in printed
    assert 'activations:0: 2.93 KiB, node 0 "forward 0"' in printed
    assert view_text("summary", tmp_path / "run").startswith("OUT OF MEMORY at 3 µs: 16000 B on rank 3, of")
    assert "ends where memory was full" in view_text("stalls", tmp_path / "run")
    peaks = memory_peaks(open_run(tmp_path / "run"))
    assert peaks is not None
    assert peaks[0].as_dict()["by_class"] == {"activations": 12_000, "weights": 4000}
    assert peaks[0].as_dict()["largest"][0]["class"] == "activations"
    assert main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "<b>Out of memory:</b> 16000 B on rank 3 at 3 µs, of 14000 B" in page
    picture = memory_picture(open_run(tmp_path / "run"))
    assert picture in page
    assert ">rank 3:" in picture


@pytest.mark.parametrize("rows", [1, 1 << 16])
def test_ranks_that_need_too_much_at_one_time_are_all_named(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check also rows that are read piece by piece."""
    monkeypatch.setattr("et_sim.timeline.rows.ROWS_AT_ONCE", rows)
    failure = ran(14_000, workload=et_sim.Workload.of([step(3000)] * 4), fold=False).summary()[
        "out_of_memory"
    ]
    assert (failure["time_ns"], failure["ranks"]) == (3000, "0-3")


def test_a_reported_overflow_is_a_warning() -> None:
    result, whole = ran("14kB", "report"), ran()
    assert result.summary()["status"] == "complete"
    assert result.timeline.equals(whole.timeline.replace_schema_metadata(result.timeline.schema.metadata))
    assert result.summary()["out_of_memory"]["stopped"] is False
    (warning,) = [
        warning for warning in result.manifest["warnings"] if "more local memory" in warning["text"]
    ]
    assert warning["text"].startswith("rank 3 needs more local memory than the limit of 14000 B at 3 µs")


def test_a_run_whose_last_node_needs_too_much_is_not_complete() -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", nanos=10, outputs={"a": 60})
    build.compute("last", nanos=0, inputs={"a": 60}, outputs={"b": 101}, after=[first])
    result = ran(100, workload=et_sim.Workload.of([build.build()] * 4))
    summary = result.summary()
    assert (summary["status"], summary["makespan_ns"]) == ("out of memory", 10)
    assert result.stall is None


def test_memory_that_suffices_is_no_news() -> None:
    peak = int(ran().peak_memory_bytes.max())
    assert ran(peak).summary()["out_of_memory"] is None
    assert ran(peak - 1).summary()["status"] == "out of memory"


def test_an_overflow_at_the_start_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MachineError) as caught:
        ran(3999)
    assert str(caught.value).startswith(
        '<system>: key "local-mem-capacity" is 3999 B, and a rank holds 4000 B from the start, in tensors '
        "that no node writes: 'weights 0' (1000 B), 'weights 1' (1000 B), 'weights 2' (1000 B)"
    )
    assert ran(3999, "report").summary()["out_of_memory"]["time_ns"] == 0
    et_sim.write_workload(WORKLOAD, tmp_path / "w")
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM | {"local-mem-capacity": 3999}))
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    machine = ["--system", str(tmp_path / "system.json"), "--network", str(tmp_path / "network.json")]
    assert main(["check", str(tmp_path / "w"), *machine]) == 2
    assert 'key "local-mem-capacity" is 3999 B' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"local-mem-capacity": "80"}, ""),
        (
            {"local-mem-capacity": "1GiB", "when-full": "spil"},
            'key "when-full" is "spil" (did you mean',
        ),
        ({"when-full": "stop"}, 'key "when-full" has no effect without "local-mem-capacity"'),
        ({"local-mem-capacity": 9, "track-local-mem": 0}, 'requires "track-local-mem", which is off'),
        ({"local-mem-capacty": 9}, "did you mean 'local-mem-capacity'?"),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys: dict[str, Any], text: str) -> None:
    if not text:
        run(WORKLOAD, system=SYSTEM | keys | {"when-full": "report"}, network=NETWORK)
        return
    with pytest.raises(MachineError) as caught:
        run(WORKLOAD, system=SYSTEM | keys, network=NETWORK)
    assert text in str(caught.value)


NAMES = ("weights:a", "b.grad", "activations:c", "d", "tmp e")
tensors = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 100), max_size=3)


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "nanos": draw(st.integers(1, 5)),
            "cpu": draw(st.booleans()),
            "after": draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else [],
            "inputs": draw(tensors),
            "outputs": draw(tensors),
        }
        for number in range(draw(st.integers(1, 6)))
    ]


def alive_at(nodes: list[tuple[int, int, dict[str, int], dict[str, int]]], time: int) -> dict[str, int]:
    """Return bytes by class just after `time`, by completing nodes one after the other."""
    size: dict[str, int] = {}
    values: dict[str, list[list[int]]] = {}  # tensor -> its values as [since, until]
    for start, end, reads, writes in sorted(nodes, key=lambda node: (node[1], node[0])):
        for tensor, count in reads.items():
            size.setdefault(tensor, count)
            values.setdefault(tensor, [[0, end]])[-1][1] = end
        for tensor, count in writes.items():
            size.setdefault(tensor, count)
            lives = values.setdefault(tensor, [])
            if lives and lives[-1][1] == FOREVER:
                lives[-1][1] = start
            lives.append([start, FOREVER])
    alive = [name for name, lives in values.items() if any(since <= time < until for since, until in lives)]
    classes = [CLASSES[number] for number in classes_of(alive)] if alive else []
    return {
        kind: sum(size[name] for name, own in zip(alive, classes, strict=True) if own == kind)
        for kind in set(classes)
    }


@given(programs(), st.integers(1, 400))
def test_footprint_by_class_and_the_stop_match_a_recount(
    program: list[dict[str, Any]], capacity: int
) -> None:
    build = et_sim.TraceBuilder()
    for node in program:
        build.compute("n", **node)
    workload = et_sim.Workload.of([build.build()] * 4)
    whole = ran(workload=workload)
    rows = [row for row in whole.timeline.to_pylist() if row["actor"] == 0]
    nodes = [
        (row["start_ns"], row["end_ns"], program[row["node"]]["inputs"], program[row["node"]]["outputs"])
        for row in rows
    ]
    at = {time: alive_at(nodes, time) for time in range(whole.makespan_ns + 1)}
    sums: dict[str, int] = {}
    changes = [row for row in whole.memory.to_pylist() if row["actor"] == 0]
    for time, expected in at.items():
        for row in changes:
            if row["time_ns"] == time:
                sums[row["class"]] = sums.get(row["class"], 0) + row["delta_bytes"]
        assert {name: size for name, size in sums.items() if size} == expected, time
    first = next((time for time, alive in at.items() if sum(alive.values()) > capacity), None)
    reported = ran(capacity, "report", workload=workload).summary()["out_of_memory"]
    assert (reported and reported["time_ns"]) == first
    if reported:
        assert reported["by_class"] == at[first]


@pytest.mark.parametrize("names_tensors", [True, False])
def test_kernels_are_timed_once_to_plan_and_to_describe_them(
    monkeypatch: pytest.MonkeyPatch, names_tensors: bool
) -> None:
    calls: list[int] = []
    durations = Device.durations

    def counted(device: Device, trace: et_sim.Trace, rows: Any, rank: int = 0) -> Any:
        calls.append(len(rows))
        return durations(device, trace, rows, rank)

    monkeypatch.setattr(Device, "durations", counted)
    build = et_sim.TraceBuilder()
    tensors = {"activations:0": 2000} if names_tensors else {}
    kernel = build.compute("kernel", layer_shape="gemm 4096 4096 4096", dtype="bf16", outputs=tensors)
    build.collective("all_reduce", 1 << 20, after=[kernel])
    result = run(et_sim.Workload.of([build.build()] * 8), machine="h100-dgx:8")
    result.summary()
    assert result.is_complete
    assert (result.peak_memory_bytes > 0).all() == names_tensors
    assert calls == [1]
