"""Verbose records of NCCL's Inspector give the clocks of hosts, with their error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.cli import main

HOSTS, EACH, OPERATIONS = 4, 2, 60
RANKS = HOSTS * EACH
EPOCH_US = 1_700_000_000_000_000
OFFSETS_US = (0.0, 812_000.0, -40_000.0, 3_500.0)
DRIFTS = (0.0, 20e-6, -35e-6, 5e-6)


def logs(
    folder: Path,
    *,
    verbose: bool = True,
    drifts: tuple[float, ...] = DRIFTS,
    offsets: Any = OFFSETS_US,
    kinds: tuple[str, ...] = ("AllReduce",),
) -> None:
    """Write the records of a job of 600 s; ends vary by 3 us. Operations of each kind have their numbers."""
    chance = np.random.default_rng(7)
    true = np.sort(chance.uniform(0, 600e6, OPERATIONS))
    folder.mkdir()
    for rank in range(RANKS):
        host = rank // EACH
        ends = EPOCH_US + true + chance.normal(0, 3, OPERATIONS) + offsets[host] + drifts[host] * true
        lines = []
        for number, end in enumerate(ends.tolist()):
            header = {"id": "0x7f", "rank": rank, "n_ranks": RANKS, "nnodes": HOSTS}
            version = {"inspector_output_format_version": "v4.0", "hostname": f"n{host}", "pid": rank}
            done: dict[str, Any] = {"coll": kinds[number % len(kinds)], "coll_sn": number // len(kinds)}
            done |= {"coll_msg_size_bytes": 1 << 24, "coll_exec_time_us": 100}
            if verbose:
                stops = [{"channel_id": at, "kernel_stop_ts": int(end) - 9 * at} for at in range(3)]
                done["event_trace_ts"] = {"coll_start_ts": 1, "kernel_events": stops}
            lines.append(json.dumps({"header": header, "metadata": version, "coll_perf": done}))
        (folder / f"n{host}-pid{rank}.log").write_text("\n".join(lines))


def clocks(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["recording", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["clocks"]
    return found


def test_offsets_and_drifts_of_hosts_are_found_within_the_stated_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "logs")
    hosts = clocks(tmp_path / "logs", capsys)["hosts"]
    assert [entry["host"] for entry in hosts] == ["n0", "n1", "n2", "n3"]
    # Both sides are known up to a common clock: differences between hosts count.
    for one, other in ((1, 0), (2, 0), (3, 2)):
        drift = (hosts[one]["drift_ppm"] - hosts[other]["drift_ppm"]) * 1e-6
        assert drift == pytest.approx(DRIFTS[one] - DRIFTS[other], abs=2e-8)
        ahead = hosts[one]["ahead_us"] - hosts[other]["ahead_us"]
        error = hosts[one]["error_us"] + hosts[other]["error_us"]
        begin = np.sort(np.random.default_rng(7).uniform(0, 600e6, OPERATIONS))[0]
        expected = OFFSETS_US[one] - OFFSETS_US[other] + (DRIFTS[one] - DRIFTS[other]) * begin
        assert abs(ahead - expected) <= 2 * error
        assert 0 < error < 10


def test_the_report_names_the_clocks_that_are_furthest_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "logs")
    assert main(["recording", str(tmp_path / "logs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("clocks: "))
    assert lines[at].startswith("clocks: ends of 60 operations on 4 hosts agree within ")
    assert lines[at + 1].startswith("  n1: +")
    assert "ppm" in lines[at + 1]
    assert "±" in lines[at + 1]


def test_operations_of_each_kind_are_counted_by_their_own_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "alike")
    logs(tmp_path / "logs", kinds=("AllReduce", "AllGather"))
    found, alike = (clocks(tmp_path / folder, capsys) for folder in ("logs", "alike"))
    ahead = [[entry["ahead_us"] for entry in of["hosts"]] for of in (found, alike)]
    assert ahead[0] == pytest.approx(ahead[1])
    assert len(ahead[0]) == HOSTS


def test_clocks_that_agree_are_left_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs(tmp_path / "logs", drifts=(0.0,) * HOSTS, offsets=(0.0,) * HOSTS)
    found = clocks(tmp_path / "logs", capsys)
    assert {entry["ahead_us"] for entry in found["hosts"]} == {0.0}
    assert found["apart_ns"] < 6000


def test_records_without_times_of_kernels_state_that_clocks_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "logs", verbose=False)
    found = clocks(tmp_path / "logs", capsys)
    assert found["hosts"] == []
    assert "NCCL_INSPECTOR_DUMP_VERBOSE=1" in found["unknown"]


def test_an_operation_that_a_rank_did_not_record_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "logs")
    path = tmp_path / "logs" / "n3-pid7.log"
    path.write_text("\n".join(path.read_text().splitlines()[:2]))
    assert "no communicator has 3 operations" in clocks(tmp_path / "logs", capsys)["unknown"]


def test_hosts_that_share_no_operations_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(tmp_path / "logs")
    for path in (tmp_path / "logs").iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            header = line["header"]
            pair, header["rank"] = divmod(header["rank"], RANKS // 2)
            header |= {"id": f"0x{pair}", "n_ranks": RANKS // 2, "nnodes": HOSTS // 2}
        path.write_text("\n".join(map(json.dumps, lines)))
    found = clocks(tmp_path / "logs", capsys)
    assert found["hosts"] == []
    assert "some hosts share no operations with the others" in found["unknown"]
