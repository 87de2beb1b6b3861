"""`et-sim make`, through the command line's own parser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from et_sim.basics.terminal import Status
from et_sim.cli import main
from et_sim.cli.progress import Progress
from et_sim.trace import read_workload


def test_make_writes_one_file_per_rank_of_exactly_that_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "deep" / "ar"
    assert main(["make", "all_reduce", "--ranks", "8", "--bytes", "1MiB", "-o", str(prefix)]) == 0
    assert capsys.readouterr().out == (
        f"all_reduce of 1 MiB (1048576 bytes): 8 nodes in {prefix}.0.et to {prefix}.7.et\n"
        f"run it with: et-sim run {prefix} --system FILE --network FILE --profile corrected\n"
    )
    workload = read_workload(prefix)
    assert workload.ranks == 8
    assert workload.trace(5).comm_bytes.tolist() == [1 << 20]


def test_make_lists_its_output_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(tmp_path / "c")
    arguments = ["make", "compute", "--ranks", "2", "--compute-us", "7", "--repeat", "3", "-o", prefix]
    assert main([*arguments, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == {"prefix": prefix, "kind": "compute", "ranks": 2, "nodes": 6, "bytes": 0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["all_reduc", "--ranks", "2", "--bytes", "1"], "did you mean 'all_reduce'?"),
        (["all_reduce", "--ranks", "2"], "all_reduce needs a size (add --bytes"),
        (["all_reduce", "--ranks", "2", "--bytes", "1 parsec"], "'1 parsec'"),
        (["send_receive", "--ranks", "3", "--bytes", "1"], "3 is odd"),
        (["compute", "--ranks", "3"], "needs a duration"),
        (["compute", "--ranks", "3", "--compute-us", "1", "--bytes", "7"], "compute moves no bytes"),
        (["barrier", "--ranks", "3", "--bytes", "7"], "barrier moves no bytes (leave --bytes out)"),
        (
            ["all_reduce", "--ranks", "100000000000", "--bytes", "1"],
            "100,000,000,000 ranks are too many (make at most 16,777,216 ranks)",
        ),
        (
            ["all_reduce", "--ranks", "2000000", "--bytes", "1", "--files"],
            "2,000,000 ranks would be as many files (write at most 1,000,000, or a manifest",
        ),
        (["all_reduce", "--bytes", "1"], "all_reduce needs a number of ranks (add --ranks"),
        (["all_reduce", "--ranks", "2", "--bytes", "1", "--tp", "2"], "--tp is not for all_reduce"),
        (["transforme", "--tp", "2"], "did you mean 'transformer'?"),
        (["barrier", "--ranks", "2", "--zero", "0"], "--zero is not for barrier"),
        (["transformer", "--bytes", "1"], "--bytes is not for transformer"),
        (["transformer", "--tp", "2", "--ranks", "4"], "--ranks is 4, and the plan (tensor 2) makes 2 ranks"),
        (
            ["transformer", "--tp", "2", "--machine", "h100-dgx:8"],
            "--machine is h100-dgx:8, and the plan (tensor 2) makes 2 ranks (leave --machine out",
        ),
        (
            ["transformer", "--pp", "5"],
            "24 layers, no multiple of the 5 parts of the pipeline",
        ),
        (["transformer", "--dp", "99999999"], "99,999,999 ranks are too many"),
        (["transformer", "--micro-batches", "0"], "--micro-batches is 0 (give 1 or more)"),
        (
            ["barrier", "--ranks", "2", "--repeat", "100000000000"],
            "100,000,000,000 operations on every rank are too many (repeat at most 1,000,000 times)",
        ),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["make", *arguments, "-o", str(tmp_path / "w")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("et-sim: error: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_million_ranks_are_a_manifest_and_one_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "big"
    assert main(["make", "all_reduce", "--ranks", "1048576", "--bytes", "1GiB", "-o", str(prefix)]) == 0
    assert capsys.readouterr().out == (
        "all_reduce of 1 GiB (1073741824 bytes): 1048576 nodes on 1048576 ranks\n"
        f"written to {prefix}.workload.json, with 1 template ({prefix}.template0.et)\n"
        f"run it with: et-sim run {prefix}.workload.json --system FILE --network FILE\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.template0.et", "big.workload.json"]
    assert read_workload(f"{prefix}.workload.json").ranks == 1 << 20


@pytest.mark.parametrize("options", [["-o", "NAME.workload.json"], ["--manifest", "-o", "NAME"]])
def test_a_manifest_is_written_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    options = [text.replace("NAME", str(tmp_path / "ring")) for text in options]
    arguments = ["make", "ring_send_receive", "--ranks", "4", "--bytes", "8", *options, "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {
        "manifest": str(tmp_path / "ring.workload.json"),
        "templates": [str(tmp_path / "ring.template0.et")],
        "kind": "ring_send_receive",
        "ranks": 4,
        "nodes": 8,
        "bytes": 8,
    }
    assert read_workload(tmp_path / "ring.workload.json").ranks == 4


@pytest.mark.deep
def test_very_many_ranks_are_files_only_on_request(tmp_path: Path) -> None:
    made = ["make", "all_reduce", "--ranks", "4097", "--bytes", "1"]
    assert main([*made, "-o", str(tmp_path / "f"), "--files"]) == 0
    assert (tmp_path / "f.4096.et").exists()
    assert main([*made, "-o", str(tmp_path / "m")]) == 0
    assert not (tmp_path / "m.0.et").exists()


def test_a_single_rank_and_micro_batch_are_printed_in_the_singular(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["make", "transformer", "--layers", "1", "--hidden", "64", "--micro-batches", "1"]
    assert main([*made, "-o", str(tmp_path / "job")]) == 0
    out = capsys.readouterr().out
    assert ", 1 micro-batch: " in out
    assert " nodes on 1 rank\n" in out


def test_a_transformer_is_a_manifest_or_files_with_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["make", "transformer", "--tp", "2", "--pp", "2", "--dp", "2", "--layers", "2", "--hidden", "64"]
    assert main([*made, "-o", str(tmp_path / "job")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("transformer, tensor 2 x data 2 x pipeline 2, 8 micro-batches: ")
    assert f"with 2 templates ({tmp_path}/job.template0.et to {tmp_path}/job.template1.et)" in out
    assert main([*made, "--files", "-o", str(tmp_path / "each")]) == 0
    assert f"groups in {tmp_path}/each.groups.json" in capsys.readouterr().out
    groups = json.loads((tmp_path / "each.groups.json").read_text(encoding="utf-8"))
    assert groups["1"] == [0, 1]
    assert main(["check", str(tmp_path / "each"), "--groups", str(tmp_path / "each.groups.json")]) == 0
    assert main(["check", str(tmp_path / "job.workload.json")]) == 0


def test_a_barrier_needs_no_size(tmp_path: Path) -> None:
    assert main(["make", "barrier", "--ranks", "2", "-o", str(tmp_path / "b")]) == 0


def _statuses(progress: Progress) -> list[Status]:
    return [progress._status(0) for _ in progress.counted("abcd", 4, "files")]


def test_the_number_of_written_files_is_shown() -> None:
    progress = Progress()
    progress.stage("writing")
    results = [(status.share, status.detail) for status in _statuses(progress)]
    assert results == [(None, ""), (0.25, "1 of 4 files"), (0.5, "2 of 4 files"), (0.75, "3 of 4 files")]


def test_files_that_are_stopped_half_way_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_workload: object, prefix: str) -> Iterator[tuple[Path, bytes]]:
        yield Path(f"{prefix}.0.et"), b""
        raise KeyboardInterrupt

    monkeypatch.setattr("et_sim.trace.files.files_of_ranks", stopped)
    call = ["make", "compute", "--ranks", "12", "--compute-us", "5", "--files", "-o", str(tmp_path / "c")]
    assert main(call) == 130
    assert list(tmp_path.iterdir()) == []


def test_files_of_fewer_ranks_replace_all_of_a_larger_set(tmp_path: Path) -> None:
    for ranks in ("4", "2"):
        made = ["make", "all_reduce", "--bytes", "64", "--ranks", ranks, "--files"]
        assert main([*made, "-o", str(tmp_path / "job")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.0.et", "job.1.et"]
