"""Dumps of a hang become the job without it: what the step would have been, if each rank had come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import et_sim
from converters.cli import main
from et_sim.trace import TraceBuilder, Workload, read_trace, read_workload
from et_sim.trace.columns import NodeKind

DUMPS = Path(__file__).parent / "data" / "flight_recorder"
RANKS, GAP_NS = 4, 5000
NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM = {
    **{f"{name}-implementation": ["ring"] for name in NAMES},
    "endpoint-delay": 10,
    "profile": "corrected",
}
NETWORK = {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": [50.0], "latency": [500.0]}


def entry(number: int, name: str, elements: int, time_ns: int, **more: Any) -> dict[str, Any]:
    """Return an entry of a dump."""
    shapes = {"input_sizes": [[elements]], "input_dtypes": ["BFloat16"], "output_sizes": [[elements]]}
    group = {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number}
    place = {"record_id": number, "profiling_name": f"nccl:{name}", "time_created_ns": time_ns}
    return {**shapes, **group, **place, "state": "completed", **more}


def dumps(folder: Path, entries: list[list[dict[str, Any]]]) -> Path:
    """Write the dumps of all ranks as JSON."""
    folder.mkdir()
    for rank, own in enumerate(entries):
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(entries))))}}
        content = {"version": "2.9", "pg_config": config, "entries": own}
        (folder / f"trace_rank_{rank}.json").write_text(json.dumps(content))
    return folder


def steps(rank: int) -> list[dict[str, Any]]:
    """Return three operations, each later than the one before by a gap."""
    late = 17 * rank  # clocks and hosts differ
    return [
        entry(number, name, 1 << 15, number * GAP_NS + late)
        for number, name in enumerate(("all_reduce", "reduce_scatter_tensor", "all_reduce"), 1)
    ]


def simulated(workload: Workload) -> int:
    """Return the nanoseconds of a workload on a ring."""
    return int(et_sim.simulate(workload, system=SYSTEM, network=NETWORK).makespan_ns)


@pytest.mark.parametrize("hangs", [False, True], ids=["whole", "one rank never came"])
def test_the_step_is_that_of_the_same_operations(
    hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    entries = [steps(rank) for rank in range(RANKS)]
    if hangs:
        del entries[2][-1]
        for own in (entries[0], entries[1], entries[3]):
            own[-1]["state"] = "started"
    folder = dumps(tmp_path / "dumps", entries)
    assert main(["recording", str(folder), "-o", str(tmp_path / "job")]) == 0
    assert ("added at the end" in capsys.readouterr().out) == hangs
    build = TraceBuilder(source="direct")
    host: list[int] = []
    last: list[int] = []
    for number, kind in enumerate(("all_reduce", "reduce_scatter", "all_reduce")):
        if number:
            host = [build.compute("host", nanos=GAP_NS, cpu=True, after=host)]
        last = [build.collective(kind, 1 << 16, after=[*host, *last])]
    direct = Workload.of([build.build()] * RANKS)
    assert simulated(read_workload(tmp_path / "job")) == simulated(direct)


@pytest.mark.parametrize("kind", ["missing", "crossed", "overwritten"])
def test_hangs_of_real_jobs_become_jobs(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(DUMPS / kind), "-o", str(tmp_path / "job")]) == 0
    assert "added at the end" in capsys.readouterr().out
    counts = [int((read_trace(tmp_path / f"job.{rank}.et").kind == NodeKind.COLL).sum()) for rank in range(3)]
    assert min(counts) >= 3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("order", "rank 1 came to broadcast, and ranks 0,2 to all_reduce"),
        ("size", "with 8 Float"),
        ("dead", "rank 1 left no dump"),
    ],
)
def test_ranks_that_disagree_or_left_no_dump_make_no_job(
    kind: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recording", str(DUMPS / kind), "-o", str(tmp_path / "job")]) == 2
    assert expected in capsys.readouterr().err


def test_messages_with_both_ends_are_kept_and_others_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = []
    for rank in range(2):
        own = [entry(1, "all_reduce", 8, 1000)]
        for at in range(1, 3 - rank):
            name = "send 0->1" if rank == 0 else "recv 1<-0"
            own.append(entry(1, name, 64 * at, 1000 + at, record_id=1 + at, p2p_seq_id=at, is_p2p=True))
        entries.append(own)
    folder = dumps(tmp_path / "dumps", entries)
    assert main(["recording", str(folder), "-o", str(tmp_path / "job")]) == 0
    assert "1 x messages without their other half: left out" in capsys.readouterr().out
    sender, receiver = (read_trace(tmp_path / f"job.{rank}.et") for rank in range(2))
    sent, got = sender.kind == NodeKind.SEND, receiver.kind == NodeKind.RECV
    assert sender.comm_bytes[sent].tolist() == receiver.comm_bytes[got].tolist() == [128]
    assert sender.comm_dst[sent].tolist() == [1]
    assert receiver.comm_src[got].tolist() == [0]
    assert sender.comm_tag[sent].tolist() == receiver.comm_tag[got].tolist()


def test_operations_that_older_buffers_lost_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [steps(rank) for rank in range(RANKS)]
    del entries[1][0]
    folder = dumps(tmp_path / "dumps", entries)
    assert main(["recording", str(folder), "-o", str(tmp_path / "job")]) == 0
    assert "1 x operations that are not in the buffers of all members" in capsys.readouterr().out
    kinds = [read_trace(tmp_path / f"job.{rank}.et").kind for rank in range(RANKS)]
    assert [int(np.sum(kind == NodeKind.COLL)) for kind in kinds] == [2] * RANKS
