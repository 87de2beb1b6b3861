"""Processes that record: one for each rank, side by side, in torchrun's environment.

Not here: what runs in them (`recorder.process.main`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from et_sim.basics.errors import EtSimError, UsageError
from recorder.recorded import Recorded, Routing, read_recorded

MEETING = "ET_RECORD_MEETING"  # folder through which recorded processes hand each other objects
RECORDED = "ET_RECORD_RANKS"


class ProgramError(EtSimError):
    """The program that is recorded failed; its traceback has been printed."""

    exit_status = 1


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run, and as what."""

    script: str
    arguments: tuple[str, ...]
    world: int
    local_world: int
    host_ns: int
    routing: Routing


def record_ranks(program: Program, ranks: Sequence[int], folder: Path) -> list[Recorded]:
    """Run the program as each of these ranks at once."""
    if not Path(program.script).is_file():
        raise UsageError(f"there is no file {program.script}", remedy="give the training script")
    meeting = folder / "meeting"
    meeting.mkdir(exist_ok=True)
    files = [folder / f"{rank}.recorded" for rank in ranks]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                *("-m", "recorder.process.main", str(file), str(program.host_ns)),
                *(program.routing.skew, str(program.routing.seed), program.script, *program.arguments),
            ],
            env=_environment(program, rank, ranks, meeting),
            stdout=None if rank == ranks[0] else subprocess.DEVNULL,
        )
        for rank, file in zip(ranks, files, strict=True)
    ]
    try:
        failed = _first_failure(processes, ranks)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed is not None:
        rank, status = failed
        raise ProgramError(
            f"the program ended with status {status} on rank {rank}",
            place=program.script,
            remedy="its own message is above",
        )
    return [read_recorded(file) for file in files]


def _first_failure(
    processes: Sequence[subprocess.Popen[bytes]], ranks: Sequence[int]
) -> tuple[int, int] | None:
    """Wait for all; the rank and the status of the first that fails, as soon as it does."""
    left = dict(zip(ranks, processes, strict=True))
    while left:
        for rank, process in list(left.items()):
            try:
                status = process.wait(timeout=0.05 if len(left) > 1 else None)
            except subprocess.TimeoutExpired:
                continue
            del left[rank]
            if status:
                return rank, status
    return None


def _environment(program: Program, rank: int, ranks: Sequence[int], meeting: Path) -> dict[str, str]:
    local = program.local_world
    own = str(Path(__file__).resolve().parents[1])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH", "")))),
        "RANK": str(rank),
        "WORLD_SIZE": str(program.world),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "GROUP_WORLD_SIZE": str(-(-program.world // local)),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "et-record",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        MEETING: str(meeting),
        RECORDED: ",".join(map(str, ranks)),
    }
