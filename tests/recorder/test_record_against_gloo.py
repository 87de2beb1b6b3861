"""Recorded communication equals that of real processes of the same program, setup included."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from recording_here import PROGRAMS, Recording, needs_torch, record

from et_sim.trace import CollectiveKind, NodeKind

needs_torch()

SECONDS = 1800
WORKER = Path(__file__).parent / "gloo_worker.py"


def _free_port() -> int:
    with socket.socket() as result:
        result.bind(("localhost", 0))
        return int(result.getsockname()[1])


def _really(folder: Path, program: str, arguments: tuple[str, ...], world: int) -> list[list[Any]]:
    """Return the communication of each of the processes."""
    port = _free_port()
    processes = []
    for rank in range(world):
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        own = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "DEVICE": "cpu", "OMP_NUM_THREADS": 1}
        command = [sys.executable, str(WORKER), str(folder / f"{rank}.json"), str(PROGRAMS / program)]
        variables = os.environ | {key: str(value) for key, value in (ranks | own).items()}
        processes.append(Forked([*command, *arguments], variables))
    assert [process.wait(timeout=SECONDS) for process in processes] == [0] * world
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def _recorded(recording: Recording, rank: int) -> list[list[Any]]:
    workload, trace = recording.workload, recording.workload.trace(rank)
    results = []
    for row, kind in enumerate(trace.kind.tolist()):
        size, group = int(trace.comm_bytes[row]), trace.group_names[trace.group[row]]
        members = list(workload.group_rules[group].members(rank)) if group else list(range(workload.ranks))
        if kind == NodeKind.COLL:
            name = CollectiveKind(int(trace.comm_type[row])).name
            root = trace.comm_src[row] if trace.has("comm_src", row) else min(members) - rank
            results.append([name, size, members, int(root + rank) if name == "BROADCAST" else -1])
        elif kind in (NodeKind.SEND, NodeKind.RECV):
            name, away = ("SEND", trace.comm_dst) if kind == NodeKind.SEND else ("RECEIVE", trace.comm_src)
            results.append([name, size, [], int(rank + away[row]) % workload.ranks])
    return results


@pytest.mark.parametrize(
    ("program", "arguments", "world"),
    [
        ("data_parallel.py", (), 2),
        ("data_parallel.py", ("unused",), 2),
        ("sharded.py", ("1",), 2),
        ("sharded.py", ("2",), 4),
        ("careful_loop.py", ("ddp",), 2),
        ("careful_loop.py", ("hsdp",), 4),
        ("experts.py", ("in-turn", "96"), 2),
        ("experts.py", ("in-turn", "97"), 2),
        ("pipelined.py", ("1F1B", "2"), 4),
        ("pipelined.py", ("GPipe", "3"), 3),
        ("pipelined.py", ("Interleaved1F1B", "2"), 2),
        ("pipelined.py", ("InterleavedZeroBubble", "2"), 2),
        ("pipelined.py", ("ZBVZeroBubble", "2"), 2),
    ],
)
def test_every_process_communicates_as_recorded(
    program: str, arguments: tuple[str, ...], world: int, tmp_path: Path
) -> None:
    real = _really(tmp_path, program, arguments, world)
    recording = record(tmp_path, program, *arguments, world=world, options=("--keep-roots",))
    for rank in range(world):
        recorded = _recorded(recording, rank)
        assert [call for call in recorded if call[0] != "BARRIER"] == [
            call for call in real[rank] if call[0] != "BARRIER"
        ]
