"""Recordings that do not belong together are refused, with the reason and the remedy."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import FOLDER

from converters.cli import main

Change = Callable[[dict[str, Any]], None]


def pair(folder: str, rank: int) -> tuple[Path, Path]:
    return FOLDER / folder / f"et_{rank}.json.gz", FOLDER / folder / f"kineto_{rank}.json.gz"


def convert(host: Path, device: Path, folder: Path, *more: str) -> int:
    return main(
        ["pytorch", "--host", str(host), "--device", str(device), "-o", str(folder / "x.0.et"), *more]
    )


def changed(path: Path, target: Path, change: Change) -> Path:
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content)
    target.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    return target


@pytest.mark.deep
@pytest.mark.parametrize(
    ("host", "device", "words"),
    [
        (
            pair("dlrm_8r", 0)[0],
            pair("dlrm_8r", 1)[1],
            ["one is of rank 0 and the other of rank 1", "1,672 of 1,672 operators"],
        ),
        (
            FOLDER / "host_only" / "resnet_1.1.0.json.gz",
            FOLDER / "device_only" / "nccl_ddp.json.gz",
            ["one is of process 1734239 and the other of process 2910249", "(100 %)"],
        ),
    ],
)
def test_recordings_of_two_ranks_or_runs_are_refused_unless_forced(
    host: Path, device: Path, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(host, device, tmp_path) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in [*words, f"does not belong to {host}", "--force"])
    assert not list(tmp_path.iterdir())
    assert convert(host, device, tmp_path, "--force") == 0
    assert f"seem not to belong together: {words[0]}" in capsys.readouterr().out


def test_few_operators_that_link_are_refused_with_their_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def same_process(content: dict[str, Any]) -> None:
        content["pid"] = 59811

    host = changed(FOLDER / "simple_add" / "et.json.gz", tmp_path / "et_0.json.gz", same_process)
    assert convert(host, pair("dlrm_8r", 0)[1], tmp_path) == 2
    assert "only 13 of 36 operators of the smaller one link (36 %)" in capsys.readouterr().err


@pytest.mark.deep
def test_spans_that_do_not_match_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shorter(content: dict[str, Any]) -> None:
        content["finish_ts"] = content["start_ts"] + 30  # milliseconds

    host, device = pair("gloo_mixed_4r", 0)
    assert convert(changed(host, tmp_path / "et_0.json.gz", shorter), device, tmp_path) == 2
    err = capsys.readouterr().err
    assert (
        "linked operators take 159.735 ms in the timeline, and the execution trace was recorded for 30 ms"
        in err
    )


def of_two_ranks(folder: Path, change: Change) -> int:
    for rank in (0, 1):
        for path in pair("gloo_ddp_2r", rank):
            shutil.copy(path, folder)
    changed(folder / "kineto_1.json.gz", folder / "kineto_1.json.gz", change)
    return main(["pytorch", str(folder), "-o", str(folder / "out" / "x"), "--jobs", "1"])


def _larger_world(content: dict[str, Any]) -> None:
    content["distributedInfo"]["world_size"] = 4


def _later_steps(content: dict[str, Any]) -> None:
    for event in content["traceEvents"]:
        event["name"] = event["name"].replace("ProfilerStep#3", "ProfilerStep#4")


def _next_day(content: dict[str, Any]) -> None:
    content["baseTimeNanoseconds"] += 86_400_000_000_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_larger_world, "kineto_1.json.gz: is of a world of 4, and "),
        (_later_steps, "kineto_1.json.gz: is of steps 2, 4, and "),
        (_next_day, "kineto_1.json.gz: was recorded 1 d "),
    ],
)
def test_ranks_of_different_worlds_steps_or_days_are_refused(
    change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert of_two_ranks(tmp_path, change) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "--force" in err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.deep
def test_ranks_without_times_do_not_join_ranks_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("et_0", "kineto_0", "et_1"):
        shutil.copy(FOLDER / "gloo_ddp_2r" / f"{name}.json.gz", tmp_path / "in")
    command = ["pytorch", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    assert main(command) == 2
    err = capsys.readouterr().err
    assert "et_1.json.gz: has no times, so its rank would take none" in err
    assert "a timeline is missing" in err
    assert main([*command, "--force"]) == 0


@pytest.mark.deep
def test_missing_ranks_of_a_world_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pytorch", str(FOLDER / "dlrm_8r"), "-o", str(tmp_path / "out")]) == 0
    assert "note: 2 of 8 ranks of the run are present: groups of all ranks" in capsys.readouterr().out
