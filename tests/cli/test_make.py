"""`et-sim make`, through the command line's own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_sim.cli import main
from et_sim.trace import read_workload


def test_make_writes_one_file_per_rank_of_exactly_that_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "deep" / "ar"
    assert main(["make", "all_reduce", "--ranks", "8", "--bytes", "1MiB", "-o", str(prefix)]) == 0
    assert capsys.readouterr().out == (
        f"all_reduce of 1 MiB (1048576 bytes): 8 nodes in {prefix}.0.et to {prefix}.7.et\n"
    )
    workload = read_workload(prefix)
    assert workload.ranks == 8
    assert workload.trace(5).comm_bytes.tolist() == [1 << 20]


def test_make_says_in_json_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(tmp_path / "c")
    arguments = ["make", "compute", "--ranks", "2", "--compute-us", "7", "--repeat", "3", "-o", prefix]
    assert main([*arguments, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == {"prefix": prefix, "kind": "compute", "ranks": 2, "nodes": 6, "bytes": 0}


@pytest.mark.parametrize(
    ("arguments", "said"),
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
            "100,000,000,000 ranks would be as many files (make at most 1,000,000 ranks)",
        ),
        (
            ["barrier", "--ranks", "2", "--repeat", "100000000000"],
            "100,000,000,000 operations on every rank are too many (repeat at most 1,000,000 times)",
        ),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["make", *arguments, "-o", str(tmp_path / "w")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("et-sim: error: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_barrier_needs_no_size(tmp_path: Path) -> None:
    assert main(["make", "barrier", "--ranks", "2", "-o", str(tmp_path / "b")]) == 0
