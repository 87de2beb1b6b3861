"""One rank, from its files to a file: always the same, said while it goes on, and leaving nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import FOLDER, parsed

from converters.pytorch.converting import Job, convert
from converters.pytorch.folders import convert_all
from et_sim.basics.errors import TraceError

DDP = FOLDER / "gloo_ddp_2r"


def test_the_same_recordings_give_the_same_bytes(tmp_path: Path) -> None:
    contents = set()
    for _ in range(2):
        job = Job(tmp_path / "rank.0.et", host=DDP / "et_0.json.gz", device=DDP / "kineto_0.json.gz")
        contents.add(convert(job, tmp_path / "draft").draft.read_bytes())
    assert len(contents) == 1


def test_progress_grows_until_all_is_done(tmp_path: Path) -> None:
    path = FOLDER / "megatron_tp8" / "kineto_0.json.gz"
    told: list[int] = []
    convert(Job(tmp_path / "rank.0.et", device=path), tmp_path / "draft", told.append)
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("converters.pytorch.converting.report_on", fail)
    with pytest.raises(KeyboardInterrupt):
        convert_all([Job(tmp_path / "out" / "rank.0.et", device=DDP / "kineto_0.json.gz")], 1, lambda _: None)
    assert not list((tmp_path / "out").iterdir())


def test_only_what_the_execution_trace_covers_is_converted(tmp_path: Path) -> None:
    folder, half = FOLDER / "fake_fsdp2_tp4_1024", tmp_path / "et_5.json"
    content = parsed(folder / "et_5.json.gz")
    content["nodes"] = [node for node in content["nodes"] if node["id"] < len(content["nodes"]) // 2]
    half.write_text(json.dumps(content, default=float))
    job = Job(tmp_path / "rank.5.et", host=half, device=folder / "kineto_5.json.gz")
    done = convert(job, tmp_path / "draft")
    left_out = done.report["remarks"]["calls of the timeline outside of what the execution trace covers"]
    assert left_out["count"] > 1000
    assert done.report["linkage"]["linked"] == done.report["linkage"]["host_operators"]


@pytest.mark.parametrize("alone", [True, False])
def test_ids_that_are_used_twice_are_refused(alone: bool, tmp_path: Path) -> None:
    content, host = parsed(DDP / "et_0.json.gz"), tmp_path / "et_0.json"
    content["nodes"][-1]["id"] = content["nodes"][5]["id"]
    host.write_text(json.dumps(content, default=float))
    job = Job(tmp_path / "rank.0.et", host=host, device=None if alone else DDP / "kineto_0.json.gz")
    with pytest.raises(TraceError, match="1 node ids are used more than once"):
        convert(job, tmp_path / "draft")


def test_an_empty_timeline_beside_an_execution_trace_is_refused(tmp_path: Path) -> None:
    device = tmp_path / "kineto_0.json"
    device.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    with pytest.raises(TraceError, match="holds no operator"):
        convert(Job(tmp_path / "rank.0.et", host=DDP / "et_0.json.gz", device=device), tmp_path / "draft")
