"""Reports of Nsight Systems become the job that Kineto's recording of the same events becomes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nsys_files import PROCESS, device_events, kineto_file, nsys_file, nsys_folder

from converters.cli import main
from et_sim.trace import read_trace

TRACES = Path(__file__).parent / "pytorch_traces" / "device_only"
SMALL = TRACES / "alexnet.json.gz"
LARGE = [TRACES / name for name in ("b200_eager.json.gz", "nccl_ddp.json.gz")]


def converted(path: Path, output: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Convert a report, and return what is printed."""
    assert main(["recording", str(path), "-o", output, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def sums_of_sql(path: Path) -> dict[int, int]:
    """Return the nanoseconds of each stream's work, by SQL on the report."""
    with sqlite3.connect(path) as base:
        named = base.execute("SELECT name FROM sqlite_master WHERE name GLOB 'CUPTI*_[KM]E*'").fetchall()
        parts = [f"SELECT streamId AS s, end - start AS d FROM {name}" for (name,) in named]
        query = f"SELECT s, SUM(d) FROM ({' UNION ALL '.join(parts)}) GROUP BY s"
        return dict(base.execute(query).fetchall())


def sums_of_trace(path: Path) -> dict[int, int]:
    """Return the nanoseconds of each stream's work in a trace."""
    trace = read_trace(path)
    chosen = ~trace.is_cpu & ~trace.is_gap & (trace.thread == 0)
    streams = trace.stream[chosen]
    return {int(s): int(trace.duration_ns[chosen][streams == s].sum()) for s in np.unique(streams)}


def check(source: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that both recordings of the same events become the same file."""
    events = device_events(source)
    report = nsys_file(events, folder / "report.sqlite")
    (rank,) = converted(report, str(folder / "n"), capsys)["ranks"]
    assert rank["time"]["replayed_ns"] == rank["time"]["measured_ns"]
    kineto = kineto_file(events, folder / "kineto.json")
    assert main(["pytorch", str(kineto), "-o", str(folder / "k.0.et")]) == 0
    assert (folder / "n.0.et").read_bytes() == (folder / "k.0.et").read_bytes()
    assert sums_of_trace(folder / "n.0.et") == sums_of_sql(report)


def test_a_report_becomes_the_job_of_the_same_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(SMALL, tmp_path, capsys)


@pytest.mark.deep
@pytest.mark.parametrize("source", LARGE, ids=lambda path: path.name)
def test_large_reports_become_the_jobs_of_the_same_events(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(source, tmp_path, capsys)


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return device_events(SMALL)


@pytest.mark.parametrize(
    "without", ["globalPid", "deviceId", "contextId", "bytes", "copyKind", "text", "nameId"]
)
def test_columns_that_a_version_lacks_are_done_without(
    without: str, events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    report = nsys_file(events, tmp_path / "report.sqlite", without=(without,))
    converted(report, str(tmp_path / "job"), capsys)
    assert sums_of_trace(tmp_path / "job.0.et") == sums_of_sql(report)


@pytest.mark.parametrize("missing", ["start", "end", "streamId"])
def test_a_report_without_times_or_streams_is_refused(
    missing: str, events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = nsys_file(events, tmp_path / "report.sqlite", without=(missing,))
    assert main(["recording", str(report), "-o", str(tmp_path / "job")]) == 2
    assert f"has no column {missing}" in capsys.readouterr().err


def test_the_reports_of_several_ranks_are_told_apart_by_names_or_processes(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named, unnamed = tmp_path / "named", tmp_path / "unnamed"
    for folder, names in ((named, ("rank_5", "rank_3")), (unnamed, ("a", "b"))):
        folder.mkdir()
        for at, name in enumerate(names):
            nsys_file(events[: -1 - at], folder / f"{name}.sqlite", process=PROCESS + at)
    ranks = [rank["rank"] for rank in converted(named, str(tmp_path / "n"), capsys)["ranks"]]
    assert sorted(ranks) == [3, 5]
    assert main(["recording", str(unnamed), "-o", str(tmp_path / "u")]) == 0
    assert "ranks are numbered by file" in capsys.readouterr().out
    assert (tmp_path / "u.1.et").exists()


def test_what_a_report_cannot_show_is_stated(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = nsys_file([event for event in events if event["cat"] == "kernel"], tmp_path / "report.sqlite")
    with sqlite3.connect(report) as base:
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, streamId, graphId, globalPid)"
        )
        base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 900, 7, 3, {PROCESS << 24})")
    base.close()
    assert main(["recording", str(report), "-o", str(tmp_path / "job")]) == 0
    printed = capsys.readouterr().out
    assert "record with --cuda-graph-trace=node" in printed
    assert "no calls of CUDA were recorded" in printed
    assert "CUDA graph 3" in read_trace(tmp_path / "job.0.et").names


def test_views_and_virtual_tables_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as base:
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS start FROM c"
        base.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
        base.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs)")
    base.close()
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 2
    assert "the report has no kernels" in capsys.readouterr().err


def test_a_report_whose_tables_are_empty_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = nsys_file([], tmp_path / "report.sqlite")
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 2
    assert "the report has no kernels (record with --trace=cuda)" in capsys.readouterr().err


def test_a_folder_of_parquet_tables_becomes_what_the_sqlite_file_becomes(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = nsys_file(events, tmp_path / "report.sqlite")
    folder = nsys_folder(report, tmp_path / "report_pqtdir")
    (folder / "ANALYSIS_DETAILS.parquet").write_bytes((folder / "StringIds.parquet").read_bytes())
    (rank,) = converted(folder, str(tmp_path / "p"), capsys)["ranks"]
    assert rank["time"]["replayed_ns"] == rank["time"]["measured_ns"]
    converted(report, str(tmp_path / "s"), capsys)
    assert (tmp_path / "p.0.et").read_bytes() == (tmp_path / "s.0.et").read_bytes()


def test_a_folder_of_parquet_folders_has_a_rank_in_each(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (4, 2):
        report = nsys_file(events[:-rank], tmp_path / f"{rank}.sqlite")
        nsys_folder(report, tmp_path / "all" / f"rank_{rank}_pqtdir")
    ranks = [rank["rank"] for rank in converted(tmp_path / "all", str(tmp_path / "job"), capsys)["ranks"]]
    assert sorted(ranks) == [2, 4]


def test_a_damaged_table_of_parquet_is_named(
    events: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = nsys_folder(nsys_file(events, tmp_path / "report.sqlite"), tmp_path / "report")
    table = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    assert main(["recording", str(folder), "-o", str(tmp_path / "job")]) == 2
    refusal = capsys.readouterr().err
    assert "the table is damaged" in refusal
    assert "KERNEL.parquet" in refusal
