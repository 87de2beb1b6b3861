"""Recordings that are too large for the memory are converted in windows, into what they are as a whole."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytorch_cases import Case, cases, some
from recorded_steps import Steps, complete
from recordings import FOLDER
from test_pytorch_any_timeline import timelines
from windowed import Converted, converted_by

from converters.pytorch.converting import Job, convert
from converters.pytorch.row_file import Overflow
from converters.pytorch.windows import LargeRecording, Sizes
from et_sim.errors import TraceError

WHOLE = Sizes()
ANYWAY = 0  # bytes that fit: every recording is too large
# Its threads wait for much longer than two parts last: which thread a gap waited for is judged by less.
PATIENT = "device_only/nccl_ddp"


def every(*, by_ids: bool = True) -> Any:
    """Cases with a timeline whose operators can be told by ids, or the others."""
    chosen = [case for case in cases() if case.device is not None and (not _is_by_names(case)) == by_ids]
    return some(chosen, 4)


def _is_by_names(case: Case) -> bool:
    return case.host is not None and ("dlrm" in case.name or "1 iteration" in case.name)


def converted(case: Case, folder: Path, sizes: Sizes) -> Converted:
    return converted_by(sizes, folder, host=case.host, device=case.device)


def said(found: Converted) -> dict[str, Any]:
    """The report, without the size, for numbers of nodes differ."""
    return {what: value for what, value in found.report.items() if what != "output_bytes"}


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Receives how many windows each conversion took."""
    found: list[int] = []
    converted_in = LargeRecording.converted

    def counted(self: LargeRecording, *arguments: Any) -> Any:
        found.append(0)
        for rank in converted_in(self, *arguments):
            found[-1] += 1
            yield rank

    monkeypatch.setattr(LargeRecording, "converted", counted)
    return found


@every()
def test_in_windows_a_recording_is_the_same_graph_with_the_same_report(
    case: Case, tmp_path: Path, windows: list[int]
) -> None:
    whole = converted(case, tmp_path, WHOLE)
    assert not windows
    found = converted(case, tmp_path, Sizes(ANYWAY, 2000, 2))
    assert windows[0] >= sum(whole.report["nodes"].values()) // 40_000
    assert found.runs_forward
    if case.name.endswith(PATIENT):
        assert found.report["time"]["replayed_ns"] == whole.report["time"]["replayed_ns"]
        assert found.report["nodes"] == whole.report["nodes"]
        return
    assert found.nodes == whole.nodes
    assert found.links == whole.links
    assert said(found) == said(whole)


@pytest.mark.parametrize("name", ["megatron_tp8/et_1+kineto", "gloo_mixed_4r/et_0+kineto", PATIENT])
def test_windows_that_are_too_short_lose_no_node_and_make_no_circle(
    name: str, tmp_path: Path, windows: list[int]
) -> None:
    case = next(case for case in cases() if case.name == name)
    whole, found = converted(case, tmp_path, WHOLE), converted(case, tmp_path, Sizes(ANYWAY, 500, 1))
    assert windows[0] > 5
    assert found.runs_forward
    for role in ("operator", "marker", "kernel", "copy", "fill", "communication"):
        assert found.report["roles"].get(role, {}).get("nodes") == whole.report["roles"].get(role, {}).get(
            "nodes"
        )
    assert found.report["linkage"] == whole.report["linkage"]
    assert found.report["time"]["measured_ns"] == whole.report["time"]["measured_ns"]
    assert found.report["time"]["devices_busy_ns"] == whole.report["time"]["devices_busy_ns"]


@every(by_ids=False)
def test_operators_that_are_told_by_names_are_the_same_in_windows(
    case: Case, tmp_path: Path, windows: list[int]
) -> None:
    whole, found = (converted(case, tmp_path, sizes) for sizes in (WHOLE, Sizes(ANYWAY, 1000, 1)))
    assert windows[0] > 2
    assert whole.report["linkage"]["method"] == "names, thread by thread"
    assert found.nodes == whole.nodes
    assert found.links == whole.links
    assert said(found) == said(whole)


@some((case for case in cases() if case.host and not case.device), 4)
def test_an_execution_trace_alone_is_the_same_graph_in_the_shortest_windows(
    case: Case, tmp_path: Path
) -> None:
    whole = converted(case, tmp_path, WHOLE)
    found = converted(case, tmp_path, Sizes(ANYWAY, 64, 1))
    assert found.runs_forward
    assert found.nodes == whole.nodes
    assert found.links == whole.links
    assert said(found) == said(whole)


def test_the_same_windows_give_the_same_bytes(tmp_path: Path) -> None:
    folder = FOLDER / "gloo_ddp_2r"
    contents = set()
    for _ in range(2):
        job = Job(tmp_path / "rank.0.et", host=folder / "et_0.json.gz", device=folder / "kineto_0.json.gz")
        contents.add(convert(job, None, Sizes(ANYWAY, 1000, 1)).temporary.read_bytes())
    assert len(contents) == 1


def test_progress_grows_until_all_is_done(tmp_path: Path) -> None:
    path = FOLDER / "megatron_tp8" / "kineto_0.json.gz"
    told: list[int] = []
    convert(Job(tmp_path / "rank.0.et", device=path), told.append, Sizes(ANYWAY, 1000, 1))
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size
    assert len({one for one in told if one > 0.7 * told[-1]}) > 3


def test_only_what_the_execution_trace_covers_is_converted_in_windows_too(
    tmp_path: Path, windows: list[int]
) -> None:
    folder = FOLDER / "fake_fsdp2_tp4_1024"
    host, device = folder / "et_5.json.gz", folder / "kineto_5.json.gz"
    half = tmp_path / "et_5.json"
    _keep_half(host, half)
    whole = converted_by(WHOLE, tmp_path, host=half, device=device)
    assert whole.report["remarks"]["calls of the timeline outside of what the execution trace covers"][
        "count"
    ]
    found = converted_by(Sizes(ANYWAY, 2000, 1), tmp_path, host=half, device=device)
    assert windows[0] > 2
    assert found.nodes == whole.nodes
    assert found.links == whole.links
    assert said(found) == said(whole)


def _nodes_of(found: Converted, role: str) -> int:
    return int(found.report["roles"].get(role, {}).get("nodes", 0))


def _keep_half(host: Path, target: Path) -> None:
    """Write an execution trace without the later half of its nodes."""
    from recordings import parsed

    content = parsed(host)
    content["nodes"] = [node for node in content["nodes"] if node["id"] < len(content["nodes"]) // 2]
    target.write_text(json.dumps(content, default=float))


@given(timelines(), st.integers(1, 20), st.integers(1, 3))
def test_any_timeline_has_all_its_nodes_in_windows(
    events: list[dict[str, Any]], part_rows: int, parts: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "kineto_0.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        try:
            whole = converted_by(WHOLE, folder, device=path)
        except TraceError:  # as the test of whole timelines allows
            with pytest.raises(TraceError, match="holds no operator"):
                converted_by(Sizes(ANYWAY, part_rows, parts), folder, device=path)
            return
        found = converted_by(Sizes(ANYWAY, part_rows, parts), folder, device=path)
    assert found.runs_forward
    for role in ("operator", "marker", "kernel", "fill"):
        assert _nodes_of(found, role) == _nodes_of(whole, role) or "communication" in whole.report["roles"]


def of_events(events: list[dict[str, Any]], folder: Path, sizes: Sizes) -> Converted:
    path = folder / "kineto_0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return converted_by(sizes, folder, device=path)


def same(events: list[dict[str, Any]], folder: Path, sizes: Sizes) -> Converted:
    """Converted in windows, which is the same as converted as a whole."""
    whole, found = of_events(events, folder, WHOLE), of_events(events, folder, sizes)
    assert found.runs_forward
    assert found.nodes == whole.nodes
    assert found.links == whole.links
    assert said(found) == said(whole)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("behind", [10, 300])
def test_steps_whose_threads_and_devices_wait_are_the_same_in_windows(
    seed: int, behind: int, tmp_path: Path, windows: list[int]
) -> None:
    same(Steps(seed, behind).record(3, 20), tmp_path, Sizes(ANYWAY, 200, 1 + seed % 2))
    assert windows[0] > 1


def ticks(begin: int, number: int) -> list[dict[str, Any]]:
    """Operators of a thread of their own, to fill parts."""
    return [complete("cpu_op", "aten::tick", 9, begin + 10 * at, 8) for at in range(number)]


def kernel(begin: int, lasts: int, correlation: int) -> dict[str, Any]:
    return complete("kernel", "gemm", 7, begin, lasts, device=0, stream=7, correlation=correlation)


@pytest.mark.parametrize("begins", range(150, 260, 10))
def test_a_call_that_waits_into_the_next_window_comes_after_what_it_waited_for(
    begins: int, tmp_path: Path
) -> None:
    waits = [
        complete("cuda_runtime", "cudaLaunchKernel", 1, begins, 5, correlation=1),
        complete("cuda_runtime", "cudaDeviceSynchronize", 1, begins + 10, 101, correlation=2),
        kernel(begins + 90, 20, 1),
        complete("cpu_op", "aten::add", 1, begins + 120, 20),
    ]
    found = same([*ticks(0, 60), *waits], tmp_path, Sizes(ANYWAY, 20, 1))
    assert found.report["dependencies"]["sync"] == 1
    assert "dependencies that reach back too far" not in found.report["remarks"]


def test_a_thread_goes_on_after_a_launch_long_ago_and_its_operator(tmp_path: Path) -> None:
    """What the launch started is as long ago, and around it an annotation goes on."""
    before = [
        complete("user_annotation", "ProfilerStep#1", 1, 0, 2000),
        complete("cpu_op", "aten::mm", 1, 1, 30),
        complete("cuda_runtime", "cudaLaunchKernel", 1, 5, 10, correlation=1),
        kernel(12, 20, 1),
    ]
    events = [*before, *ticks(40, 90), complete("cpu_op", "aten::add", 1, 1500, 20)]
    for event in events[4:-1]:  # short ones: the thread does not seem to wait for them
        event["dur"] = 1
    found = same(events, tmp_path, Sizes(ANYWAY, 10, 1))
    assert found.report["time"]["early_nodes"] == 0


def test_a_thread_that_ends_long_before_the_recording_waits_for_the_others_to_the_end(tmp_path: Path) -> None:
    open_until_the_end = complete("user_annotation", "ProfilerStep#1", 1, 0, 300)
    events = [open_until_the_end, complete("cpu_op", "aten::mm", 1, 1, 30), *ticks(40, 26)]
    found = same(events, tmp_path, Sizes(ANYWAY, 20, 1))
    assert found.report["dependencies"]["cross-thread"] == 2


@pytest.mark.parametrize("sizes", [WHOLE, Sizes(ANYWAY, 300, 1)])
@pytest.mark.parametrize("alone", [True, False])
def test_ids_that_are_used_twice_are_refused_however_far_apart(
    sizes: Sizes, alone: bool, tmp_path: Path
) -> None:
    from recordings import parsed

    content = parsed(FOLDER / "gloo_ddp_2r" / "et_0.json.gz")
    content["nodes"][-1]["id"] = content["nodes"][5]["id"]
    host = tmp_path / "et_0.json"
    host.write_text(json.dumps(content, default=float))
    device = None if alone else FOLDER / "gloo_ddp_2r" / "kineto_0.json.gz"
    with pytest.raises(TraceError, match="1 node ids are used more than once"):
        converted_by(sizes, tmp_path, host=host, device=device)


def test_the_first_operators_without_partner_are_the_same_in_windows(tmp_path: Path) -> None:
    """Whatever thread they are of, and however the nodes of the execution trace are ordered."""
    from recordings import parsed

    host, device = tmp_path / "et_0.json", tmp_path / "kineto_0.json"
    nodes, events = (parsed(FOLDER / "gloo_ddp_2r" / f"{kind}_0.json.gz") for kind in ("et", "kineto"))
    operators = [node for node in nodes["nodes"] if node["name"].startswith("aten::")]
    for at, node in enumerate(operators[5::100]):
        node["name"] = f"aten::renamed_{at}"
    nodes["nodes"].sort(key=lambda node: (node["name"].startswith("aten::renamed"), -node["id"]))
    host.write_text(json.dumps(nodes, default=float))
    called = [event for event in events["traceEvents"] if str(event.get("name")).startswith("aten::")]
    for at, event in enumerate(sorted(called, key=lambda event: -float(event["ts"]))[3::90]):
        event["name"] = f"aten::called_{at}"
    device.write_text(json.dumps(events, default=float))
    files = {"host": host, "device": device}
    whole, found = (converted_by(sizes, tmp_path, **files) for sizes in (WHOLE, Sizes(ANYWAY, 1500, 1)))
    assert len(whole.report["linkage"]["device_orphans"]) == 5
    assert len(whole.report["linkage"]["host_orphans"]) == 5
    assert found.report["linkage"] == whole.report["linkage"]


def test_an_empty_timeline_beside_a_large_execution_trace_is_refused(tmp_path: Path) -> None:
    host, device = FOLDER / "gloo_ddp_2r" / "et_0.json.gz", tmp_path / "kineto_0.json"
    device.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    with pytest.raises(TraceError, match="holds no operator"):
        converted_by(Sizes(ANYWAY, 300, 1), tmp_path, host=host, device=device)


def test_rows_come_back_as_they_were_put(tmp_path: Path) -> None:
    kind = np.dtype([("number", np.int64), ("name", np.int32)])
    with Overflow(tmp_path, 1) as overflow:
        rows = overflow.table("some", kind)
        rows.append({"number": np.arange(300_000), "name": np.arange(300_000) % 7})
        assert len(rows) == 300_000
        assert rows.rows(299_990, 300_000)["number"].tolist() == list(range(299_990, 300_000))
        assert np.array_equal(np.concatenate(list(rows.chunks()))["number"], np.arange(300_000))
        assert not list(tmp_path.iterdir())  # nobody sees the file


def test_a_folder_that_takes_no_temporary_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        Overflow(tmp_path / "file", 1) as overflow,
        pytest.raises(TraceError, match=r"takes no temporary file"),
    ):
        overflow.table("some", np.dtype([("number", np.int64)]))


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("converters.pytorch.windows.emitted.Emitted.add", fail)
    path = FOLDER / "gloo_ddp_2r" / "kineto_0.json.gz"
    with pytest.raises(KeyboardInterrupt):
        convert(Job(tmp_path / "out" / "rank.0.et", device=path), None, Sizes(ANYWAY, 1000, 1))
    assert not list((tmp_path / "out").iterdir())


def test_names_are_told_apart_by_how_often_they_occur() -> None:
    from converters.pytorch.linking import telling_names, usual_shift

    ours, theirs = np.array([1, 3, 2, 0, 5]), np.array([2, 3, 2, 0, 5, 9])
    assert telling_names(ours, theirs).tolist() == [1, 2, 4]
    here = np.array([1, 1, 1, 2, 2]), np.array([10, 30, 20, 11, 12])
    there = np.array([2, 2, 1, 1, 1]), np.array([1012, 1011, 1030, 1010, 1021])
    assert usual_shift(np.array([1, 2]), here, there) == 1000
    assert usual_shift(np.array([], np.int64), here, there) is None
