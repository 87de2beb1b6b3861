"""`et-convert expand`, through the command line's own parser."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from expanded_workloads import expanded
from trace_oracle import assert_same_trace

from converters import files
from converters.cli import main
from converters.records import frame, parse, split
from et_sim.trace import GroupRule, TraceBuilder, Workload, read_trace, read_workload, write_manifest


def job(ranks: int = 8) -> Workload:
    build = TraceBuilder()
    build.send(1, 64)
    build.receive(-1, 64)
    build.collective("all_reduce", 1024, "tensor")
    rules = {"tensor": GroupRule(2), "data": GroupRule(4, 2)}
    return Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,), group_rules=rules)


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_manifest(job(), "job.workload.json")
    return "job.workload.json"


def test_every_rank_gets_a_file_and_the_groups_one(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", manifest, "-o", "out/job"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "job.workload.json -> out/job.0.et to out/job.7.et (8)",
        '  groups         6 of rules "tensor", "data" in out/job.groups.json',
        "  run with       et-sim run out/job --groups out/job.groups.json --system FILE --network FILE",
    ]
    whole = expanded(job()).workload
    read = read_workload("out/job")
    for rank in range(8):
        assert_same_trace(read.trace(rank), whole.trace(rank))
    groups = json.loads(Path("out/job.groups.json").read_text(encoding="utf-8"))
    assert groups["1"] == [0, 1]
    assert groups["6"] == [1, 3, 5, 7]


def test_groups_along_axes_and_groups_that_leave_ranks_out_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    member, other = TraceBuilder(), TraceBuilder()
    for build in (member, other):
        build.collective("all_reduce", 1024, "two axes")
    member.collective("all_reduce", 64, "ends")
    rules = {"two axes": GroupRule((2, 2), (1, 4)), "ends": GroupRule(2, 3, 4)}
    of_rank = np.array([1, 0, 0, 1] * 2, np.int32)
    workload = Workload((other.build(), member.build()), of_rank, group_rules=rules)
    write_manifest(workload, "job.workload.json")
    assert main(["expand", "job.workload.json", "-o", "job"]) == 0
    listed = json.loads(Path("job.groups.json").read_text(encoding="utf-8"))
    assert listed == {"1": [0, 1, 4, 5], "2": [2, 3, 6, 7], "3": [0, 3], "4": [4, 7]}
    assert [read_trace(f"job.{rank}.et").group_names for rank in (0, 1, 7)] == [
        ("", "1", "3"),
        ("", "1"),
        ("", "2", "4"),
    ]


def test_some_ranks_can_be_chosen(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", manifest, "-o", "some", "--ranks", "5,0-2/2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "manifest": manifest,
        "prefix": "some",
        "ranks": "0,2,5",
        "files": 3,
        "groups": "some.groups.json",
    }
    assert sorted(path.name for path in Path().glob("some.*.et")) == ["some.0.et", "some.2.et", "some.5.et"]
    assert read_trace("some.5.et").comm_dst[0] == 6
    assert main(["expand", manifest, "-o", "some", "--ranks", "5"]) == 0
    assert "  not written    7 of 8 ranks" in capsys.readouterr().out


def test_no_rules_no_groups_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    build = TraceBuilder()
    build.compute("alone", micros=1)
    write_manifest(Workload.of([build.build()]), "one.workload.json")
    assert main(["expand", "one.workload.json", "-o", "one"]) == 0
    assert capsys.readouterr().out.startswith("one.workload.json -> one.0.et\n")
    assert not Path("one.groups.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["job.workload.json", "-o", "x", "--ranks", "0-8"],
            "--ranks names rank 8, and there are ranks 0 to 7",
        ),
        (["job.workload.json", "-o", "x", "--ranks", "all"], "ranks 'all' cannot be understood"),
        (["many.workload.json", "-o", "x"], "10,000 ranks would be as many files (write at most 4,096 at a"),
        (["other.et", "-o", "x"], "not UTF-8 text"),
        (["none.workload.json", "-o", "x"], "cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(
    manifest: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    write_manifest(job(10_000), "many.workload.json")
    Path("other.et").write_bytes(b"\xff\xfe")
    assert main(["expand", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not list(Path().glob("x.*"))
    assert manifest == "job.workload.json"


def test_an_input_is_not_overwritten(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(Path(manifest).read_text(encoding="utf-8"))
    content["templates"][0]["file"] = "job.3.et"
    Path("job.template0.et").rename("job.3.et")
    Path(manifest).write_text(json.dumps(content), encoding="utf-8")
    assert main(["expand", manifest, "-o", "job"]) == 2
    assert "job.3.et: would be overwritten, and it is an input" in capsys.readouterr().err


def test_progress_is_shown_on_stderr(
    manifest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(["expand", manifest, "-o", "x"]) == 0
    assert "et-convert: 3 of 9 files" in capsys.readouterr().err


def test_show_prints_the_template_of_a_rank(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", manifest, "--rank", "7"]) == 0
    assert capsys.readouterr().out.startswith("job.template0.et, one of 8 ranks: 3 nodes\n")
    assert main(["show", manifest, "--rank", "8"]) == 2
    assert "there is no trace of rank 8 (there are ranks 0 to 7)" in capsys.readouterr().err


def test_repair_takes_no_manifest(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", manifest, "-o", "x"]) == 2
    assert "only trace files are repaired" in capsys.readouterr().err


def test_unknown_fields_are_kept(manifest: str) -> None:
    header, *nodes = parse(split(Path("job.template0.et").read_bytes()), "job")
    for node in nodes:
        node.attr.add(name="rf_id", int64_val=node.id + 7)
        node.start_time_micros = 3
    Path("job.template0.et").write_bytes(frame([header, *nodes]))
    assert main(["expand", manifest, "-o", "out"]) == 0
    for rank in (0, 7):
        _, *written = parse(split(Path(f"out.{rank}.et").read_bytes()), "out")
        assert [node.attr[-1].int64_val for node in written] == [7, 8, 9]
        assert {node.start_time_micros for node in written} == {3}
    whole = expanded(job()).workload
    assert read_trace("out.5.et").comm_dst.tolist() == whole.trace(5).comm_dst.tolist()
