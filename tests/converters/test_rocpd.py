"""Databases of rocprofv3 become the traces that its results in JSON become."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rocpd_files import IDENTITY, rocpd_file

from converters.cli import main

COPIES = ["MEMORY_COPY_HOST_TO_DEVICE"]


@pytest.fixture
def results() -> dict[str, Any]:
    """Return kernels on two devices and three streams, their launches, and copies."""
    kinds = [
        {"kind": "HIP", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
        {"kind": "C", "operations": COPIES},
    ]
    kernels, calls, copies = [], [], []
    for at in range(12):
        times = {"start_timestamp": 3000 * at + 1500, "end_timestamp": 3000 * at + 2500 + 10 * at}
        info = {"agent_id": {"handle": 5 + at % 2}, "queue_id": {"handle": 1}, "kernel_id": 8 + at % 3}
        common = {"correlation_id": {"internal": at + 1}, "stream_id": {"handle": 1 + at % 3}}
        call = {"start_timestamp": 3000 * at, "end_timestamp": 3000 * at + 900, "thread_id": 70 + at % 2}
        is_copy = at % 4 == 3
        calls.append({**call, **common, "kind": 0, "operation": int(is_copy)})
        if is_copy:
            copies.append({**times, **common, "kind": 1, "operation": 0, "bytes": 1 << at})
        else:
            kernels.append({**times, **common, "dispatch_info": info})
    records = {"kernel_dispatch": kernels, "memory_copy": copies, "hip_api": calls}
    symbols = [{"kernel_id": 8 + at, "formatted_kernel_name": f"gemm{at}"} for at in range(3)]
    tool = {"metadata": {"pid": 77}, "strings": {"buffer_records": kinds}, "kernel_symbols": symbols}
    return {"rocprofiler-sdk-tool": [{**tool, "buffer_records": records}]}


@pytest.mark.parametrize("inline", [True, False], ids=["times in rows", "times apart"])
def test_a_database_becomes_the_trace_of_the_results_in_json(
    inline: bool, results: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "results.json"
    packed.write_text(json.dumps(results))
    base = rocpd_file(results, tmp_path / "results.db", inline=inline)
    for path, name in ((packed, "json"), (base, "base")):
        assert main(["recording", str(path), "-o", str(tmp_path / name), "--json"]) == 0
    printed = capsys.readouterr().out
    assert '"replayed_ns"' in printed
    assert (tmp_path / "base.0.et").read_bytes() == (tmp_path / "json.0.et").read_bytes()


def test_a_database_of_two_processes_is_two_ranks(
    results: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = results["rocprofiler-sdk-tool"]
    other = {**tools[0], "metadata": {"pid": 78}, "kernel_symbols": []}
    base = rocpd_file({"rocprofiler-sdk-tool": [tools[0], other]}, tmp_path / "results.db")
    assert main(["recording", str(base), "-o", str(tmp_path / "job")]) == 0
    assert "ranks are numbered by file and process" in capsys.readouterr().out
    assert (tmp_path / "job.1.et").exists()


@pytest.mark.parametrize("change", ["DROP TABLE", "DELETE FROM"])
def test_a_database_without_kernels_is_refused(
    change: str, results: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rocpd_file(results, tmp_path / "results.db")
    with sqlite3.connect(path) as base:
        base.execute(f"{change} `rocpd_kernel_dispatch{IDENTITY}`")
    base.close()
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 2
    assert "the database has no kernels (record with rocprofv3" in capsys.readouterr().err


def test_kernels_without_times_are_refused(
    results: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rocpd_file(results, tmp_path / "results.db")
    with sqlite3.connect(path) as base:
        base.execute(f'ALTER TABLE `rocpd_kernel_dispatch{IDENTITY}` DROP COLUMN "end"')
    base.close()
    assert main(["recording", str(path), "-o", str(tmp_path / "job")]) == 2
    assert "has no column end_id" in capsys.readouterr().err
