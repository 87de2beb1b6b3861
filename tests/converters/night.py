"""Remains of a made job of eight ranks: rank 5 comes late to each exchange, and at last never.

    python3 tests/converters/night.py FOLDER

The folder gets the dumps of a hang, records of NCCL's Inspector, and reports of Nsight Systems of two ranks.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from nccl_reports import Work, report

RANKS, LATE, STEPS = 8, 5, 3
BYTES = 256 << 20
COMPUTED_NS, EXCHANGED_NS, LATE_NS = 2_000_000, 2_000_000, 600_000
STEP_NS = COMPUTED_NS + LATE_NS + EXCHANGED_NS
WORLD = 0xABC
EPOCH_NS = 1_700_000_000_000_000_000


def begins() -> list[int]:
    """Return the begin of each step."""
    return [10_000 + step * STEP_NS for step in range(STEPS)]


def exchange(rank: int, begin: int) -> tuple[int, int]:
    """Return begin and end of a rank's exchange in a step: it lasts until the late rank has come."""
    late = LATE_NS if rank == LATE else 0
    return begin + COMPUTED_NS + late, begin + STEP_NS


def write_reports(folder: Path) -> None:
    """Write the reports of two ranks that come in time."""
    folder.mkdir(parents=True)
    for rank in (0, 1):
        work = []
        for step, begin in enumerate(begins()):
            start, end = exchange(rank, begin)
            launch = 2000 + 3000 * step
            work.append(Work(begin, start, launch_ns=launch))
            work.append(Work(start, end, 7, "ncclAllReduce", WORLD, BYTES, launch + 1500))
        report(folder / f"rank_{rank}.sqlite", rank, work, [(WORLD, RANKS, rank)])


def write_records(folder: Path) -> None:
    """Write verbose records of all ranks."""
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        lines = []
        for number, begin in enumerate(begins()):
            start, end = exchange(rank, begin)
            done: dict[str, Any] = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": BYTES}
            done["coll_exec_time_us"] = (end - start) / 1000
            done["event_trace_ts"] = {"kernel_events": [{"kernel_stop_ts": (EPOCH_NS + end) // 1000}]}
            version = {"inspector_output_format_version": "v4.0", "hostname": "node1", "pid": 100 + rank}
            header = {"id": "0xabc", "rank": rank, "n_ranks": RANKS, "nnodes": 1}
            lines.append(json.dumps({"header": header, "metadata": version, "coll_perf": done}))
        (folder / f"node1-pid{100 + rank}.log").write_text("\n".join(lines) + "\n")


def write_dumps(folder: Path) -> None:
    """Write dumps of all ranks; the late one never came to the last exchange."""
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        entries = []
        for number in range(STEPS + (rank != LATE)):
            begin = EPOCH_NS + 10_000 + number * STEP_NS
            over = number < STEPS
            entries.append(
                {
                    "record_id": number,
                    "pg_id": 0,
                    "process_group": ("0", "default_pg"),
                    "collective_seq_id": number + 1,
                    "profiling_name": "nccl:all_reduce",
                    "time_created_ns": begin,
                    "time_discovered_completed_ns": begin + STEP_NS + 40_000_000 if over else None,
                    "state": "completed" if over else "started",
                    "retired": over,
                    "input_sizes": [[BYTES // 4]],
                    "input_dtypes": ["Float"],
                    "frames": [{"name": "step", "filename": "/job/train.py", "line": 88}],
                }
            )
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}}
        content = {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries}
        (folder / f"trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))


if __name__ == "__main__":
    for kind, write in (("dumps", write_dumps), ("inspector", write_records), ("reports", write_reports)):
        write(Path(sys.argv[1]) / kind)
