"""`et-convert pytorch`: files, folders, options, refusals; the same bytes each time, no remains."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from recordings import FOLDER, parsed

from converters.cli import main
from converters.pytorch.converting import ConversionJob, convert
from converters.pytorch.folders import convert_all
from et_sim.basics.errors import TraceError
from et_sim.trace import read_trace, read_workload

HOST, DEVICE = FOLDER / "dlrm_8r" / "et_0.json.gz", FOLDER / "dlrm_8r" / "kineto_0.json.gz"


def printed_error(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip()


def test_a_pair_becomes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "dlrm.0.et"
    assert main(["pytorch", "--host", str(HOST), "--device", str(DEVICE), "-o", str(output)]) == 0
    out = capsys.readouterr().out
    assert "1,672 of 1,672 operators" in out
    assert f"nodes            {len(read_trace(output)):,}: " in out
    assert [path.name for path in tmp_path.iterdir()] == ["dlrm.0.et"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_becomes_a_file_for_each_rank(tmp_path: Path, jobs: str) -> None:
    report = tmp_path / "report.json"
    arguments = ["pytorch", str(FOLDER / "dlrm_8r"), "-o", str(tmp_path / "dlrm"), "--jobs", jobs]
    assert main([*arguments, "--report", str(report)]) == 0
    assert read_workload(tmp_path / "dlrm").ranks == 2
    assert [rank["rank"] for rank in json.loads(report.read_text())["ranks"]] == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dlrm.0.et", "dlrm.1.et", "report.json"]


@pytest.mark.deep
def test_the_same_recordings_give_the_same_bytes_with_any_number_at_once(tmp_path: Path) -> None:
    for jobs in ("1", "2"):
        assert main(["pytorch", str(FOLDER / "gloo_ddp_2r"), "-o", str(tmp_path / jobs), "--jobs", jobs]) == 0
    for rank in (0, 1):
        assert (tmp_path / f"1.{rank}.et").read_bytes() == (tmp_path / f"2.{rank}.et").read_bytes()


@pytest.mark.deep
def test_single_files_are_identified_by_their_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, path in enumerate((HOST, DEVICE, FOLDER / "dlrm_8r_linked" / "dlrm_eg_0_plus.json.gz")):
        assert main(["pytorch", str(path), "-o", str(tmp_path / f"x.{number}.et.gz"), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)["ranks"][0]
        assert report["timed"] == (number > 0)
        assert len(read_trace(tmp_path / f"x.{number}.et.gz")) == sum(report["nodes"].values())


@pytest.mark.deep
def test_kinds_of_dependencies_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = [
        "pytorch",
        "--host",
        str(HOST),
        "--device",
        str(DEVICE),
        "-o",
        str(tmp_path / "x.0.et"),
        "--json",
    ]
    kinds = (
        "thread-order",
        "call-tree",
        "launch",
        "stream-order",
        "event-wait",
        "sync",
        "cross-thread",
        "data",
    )
    for kind in kinds:
        assert main([*common, "--without", kind]) == 0
        report = json.loads(capsys.readouterr().out)["ranks"][0]
        assert kind not in report["dependencies"]
        assert report["time"]["late_nodes"] == 0
    assert main([*common, "--without", ",".join(kinds)]) == 0
    report = json.loads(capsys.readouterr().out)["ranks"][0]
    assert report["dependencies"] == {}
    assert report["time"]["replayed_ns"] < report["time"]["measured_ns"]


def test_a_folder_with_one_recording_of_no_rank_is_rank_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(FOLDER / "simple_add" / "et.json.gz", tmp_path / "in")
    shutil.copy(FOLDER / "simple_add" / "kineto.json.gz", tmp_path / "in")
    assert main(["pytorch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert "36 of 36 operators" in capsys.readouterr().out
    assert (tmp_path / "out.0.et").is_file()


@pytest.mark.deep
def test_missing_ranks_and_other_files_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(FOLDER / "fake_fsdp2_tp4_1024" / "et_5.json.gz", tmp_path / "in")
    (tmp_path / "in" / "system.json").write_text("{}")
    assert main(["pytorch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "5 of ranks 0 to 5 have no recording, the first is 0" in out
    assert "system.json is no recording" in out


def test_two_recordings_of_one_rank_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for name in ("et_3.json.gz", "et_rank3.json.gz"):
        shutil.copy(HOST, tmp_path / "in" / name)
    assert main(["pytorch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 2
    assert "is of rank 3, as is" in printed_error(capsys)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ([], "the input is missing or ambiguous"),
        (["FOLDER", "--host", "HOST"], "the input is missing or ambiguous"),
        (["missing.json"], "does not exist"),
        (
            ["HOST", "--without", "steam-order"],
            "there is no kind of dependencies 'steam-order' (did you mean 'stream-order'?",
        ),
        (["HOST", "--jobs", "0"], "--jobs is 0"),
        (["EMPTY"], "holds no execution trace of PyTorch and no Kineto timeline"),
        (["OTHER"], "is no recording of PyTorch"),
        (["--device", "HOST"], "is an execution trace of PyTorch, not a Kineto timeline"),
        (["--host", "DEVICE"], "Kineto"),
        (["NOTHING"], "holds no operator, no call of a runtime and no kernel"),
    ],
)
def test_senseless_arguments_are_refused_in_a_sentence(
    arguments: list[str], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "nothing_0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    places = {
        "HOST": HOST,
        "DEVICE": DEVICE,
        "FOLDER": FOLDER / "dlrm_8r",
        "EMPTY": tmp_path / "empty",
        "OTHER": tmp_path / "other.json",
        "NOTHING": tmp_path / "nothing_0.json",
    }
    named = [str(places.get(word, word)) for word in arguments]
    assert main(["pytorch", *named, "-o", str(tmp_path / "out.0.et")]) == 2
    message = printed_error(capsys)
    assert cause in message
    assert message.startswith("et-convert: error: ")
    assert message.count("\n") == 0
    assert not list(tmp_path.glob("*out*"))


def test_the_output_of_one_rank_is_a_trace_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pytorch", str(HOST), "-o", str(tmp_path / "prefix")]) == 2
    assert "does not end in .et" in printed_error(capsys)


def test_an_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = tmp_path / "recording.et"
    copied.write_bytes(gzip.decompress(HOST.read_bytes()))
    assert main(["pytorch", str(copied), "-o", str(copied)]) == 2
    assert "would be overwritten" in printed_error(capsys)
    assert copied.read_bytes() == gzip.decompress(HOST.read_bytes())


DDP = FOLDER / "gloo_ddp_2r"


@pytest.mark.deep
def test_the_same_recordings_give_the_same_bytes(tmp_path: Path) -> None:
    contents = set()
    for _ in range(2):
        job = ConversionJob(
            tmp_path / "rank.0.et", host=DDP / "et_0.json.gz", device=DDP / "kineto_0.json.gz"
        )
        contents.add(convert(job, tmp_path / "draft").draft.read_bytes())
    assert len(contents) == 1


def test_progress_grows_until_all_is_done(tmp_path: Path) -> None:
    path = FOLDER / "megatron_tp8" / "kineto_0.json.gz"
    results: list[int] = []
    convert(ConversionJob(tmp_path / "rank.0.et", device=path), tmp_path / "draft", results.append)
    assert results == sorted(results)
    assert results[-1] == path.stat().st_size


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("converters.pytorch.converting.report_on", fail)
    with pytest.raises(KeyboardInterrupt):
        convert_all(
            [ConversionJob(tmp_path / "out" / "rank.0.et", device=DDP / "kineto_0.json.gz")],
            1,
            lambda _: None,
        )
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.deep
def test_only_the_span_of_the_execution_trace_is_converted(tmp_path: Path) -> None:
    folder, half = FOLDER / "fake_fsdp2_tp4_1024", tmp_path / "et_5.json"
    content = parsed(folder / "et_5.json.gz")
    content["nodes"] = [node for node in content["nodes"] if node["id"] < len(content["nodes"]) // 2]
    half.write_text(json.dumps(content, default=float))
    job = ConversionJob(tmp_path / "rank.5.et", host=half, device=folder / "kineto_5.json.gz")
    done = convert(job, tmp_path / "draft")
    left_out = done.report["remarks"]["calls of the timeline outside of the execution trace's span"]
    assert left_out["count"] > 1000
    assert done.report["linkage"]["linked"] == done.report["linkage"]["host_operators"]


@pytest.mark.parametrize("alone", [True, False])
def test_ids_that_are_used_twice_are_refused(alone: bool, tmp_path: Path) -> None:
    content, host = parsed(DDP / "et_0.json.gz"), tmp_path / "et_0.json"
    content["nodes"][-1]["id"] = content["nodes"][5]["id"]
    host.write_text(json.dumps(content, default=float))
    job = ConversionJob(tmp_path / "rank.0.et", host=host, device=None if alone else DDP / "kineto_0.json.gz")
    with pytest.raises(TraceError, match="1 node ids are used more than once"):
        convert(job, tmp_path / "draft")


def test_an_empty_timeline_beside_an_execution_trace_is_refused(tmp_path: Path) -> None:
    device = tmp_path / "kineto_0.json"
    device.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    with pytest.raises(TraceError, match="holds no operator"):
        convert(
            ConversionJob(tmp_path / "rank.0.et", host=DDP / "et_0.json.gz", device=device),
            tmp_path / "draft",
        )
