"""Misplaced files are named by kind, and the remedy is the command that takes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from converters.cli import main as convert
from et_sim.cli import main as simulate
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.trace import TraceBuilder, Workload, write_workload

CONTENTS = {
    "a.workload.json": (FileKind.MANIFEST, '{"et_sim_workload": 1, "ranks": 4}'),
    "model.txt": (FileKind.LAYERS, "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n1\n"),
    "kineto.json": (FileKind.RECORDING, '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}'),
    "et.json": (FileKind.RECORDING, '{\n "schema": "1.0.1", "pid": 1, "nodes": []}'),
    "lines.jsonl": (FileKind.JSON_TRACE, '{"et_sim_trace": 1, "version": ""}\n'),
    "algo.xml": (FileKind.ALGORITHM, '<algo name="x">'),
    "jobs.yaml": (FileKind.JOBS, "# two\njobs:\n  - { name: a, workload: step, npus: 0-3 }\n"),
    "jobs.json": (FileKind.JOBS, '{ "jobs": [{"name": "a", "workload": "step"}]}'),
    "net.yml": (FileKind.NETWORK, "# mine\ntopology: [ Ring ]\n"),
    "net1.json": (FileKind.NETWORK, '{"topology-name": "Hierarchical"}'),
    "sys.json": (FileKind.SYSTEM, '{"scheduling-policy": "LIFO"}'),
    "sys.txt": (FileKind.SYSTEM, "scheduling-policy: LIFO\n"),
    "mem.json": (FileKind.MEMORY, '{"memory-type": "MEMORY_POOL"}'),
    "groups.json": (FileKind.GROUPS, '{"tensor": [0, 1]}'),
    "group_of_jobs.json": (FileKind.GROUPS, '{ "jobs": [0, 1],\n "topology": [2], "memory-type": [] }'),
    "large_groups.json": (FileKind.GROUPS, json.dumps({f"topology {n}": [*range(n)] for n in range(2, 200)})),
    "no_groups.json": (FileKind.NETWORK, '{"npus_count": [4], "topology": ["Ring"]}'),
    "notes.txt": (None, "Layers that talk about DATA are not meant.\n"),
    "empty": (None, ""),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with one file of each kind."""
    for name, (_, text) in CONTENTS.items():
        (tmp_path / name).write_text(text)
    build = TraceBuilder()
    build.compute(micros=1)
    write_workload(Workload.of([build.build()]), tmp_path / "job")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_kind_is_recognised_by_its_content_packed_or_not(folder: Path) -> None:
    for name, (kind, text) in CONTENTS.items():
        assert kind_of(folder / name) is kind, name
        (folder / "packed.gz").write_bytes(gzip.compress(text.encode()))
        assert kind_of(folder / "packed.gz") is kind, name
    assert kind_of(folder / "out") is FileKind.RUN
    assert kind_of(folder / "job.0.et") is FileKind.TRACE
    for nothing in ("nowhere", "x" * 5000, "a\0b"):
        assert kind_of(folder / nothing) is None


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("run out --system sys.json --network net.yml", "et-sim inspect out"),
        (
            "check job.0.et",
            "et-sim run job, or one rank with --alone; to read the file: et-convert show job.0.et",
        ),
        ("check kineto.json", "et-convert pytorch kineto.json -o NAME.0.et"),
        ("check lines.jsonl", "et-convert json lines.jsonl -o NAME"),
        ("check net.yml", "pass it to et-sim run with --network net.yml"),
        ("check job --system model.txt", "et-sim run model.txt --system FILE --network FILE"),
        ("check job --groups et.json", "et-convert pytorch et.json -o NAME.0.et"),
        ("inspect a.workload.json", "et-sim run a.workload.json --system FILE --network FILE"),
        ("compare out sys.json", "pass it to et-sim run with --system sys.json"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_simulator_names_the_command_that_takes_it(
    line: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(line.split()) == 2
    assert remedy in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("json kineto.json -o x", "et-convert pytorch kineto.json -o NAME.0.et"),
        ("show out", "et-sim inspect out"),
        ("pytorch model.txt -o x.et", "et-sim run model.txt"),
        ("msccl job.0.et -o x", "et-convert show job.0.et"),
        ("text sys.json -o x --ranks 2", "--system sys.json"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_converter_names_the_command_that_takes_it(
    line: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(line.split()) == 2
    assert remedy in capsys.readouterr().err


def test_a_prefix_may_be_called_like_the_directory_of_a_run(folder: Path) -> None:
    (folder / "job").mkdir()
    (folder / "job" / "run.json").write_text(json.dumps({}))
    assert simulate(["check", "job"]) == 0
