"""Launch of the processes that record: one for each rank, in parallel, in torchrun's environment.

The version of PyTorch is checked first, without importing it: the device and the modes use its internals,
which change.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from et_sim.basics.errors import EtSimError, UsageError
from recorder.recorded import ExpertRouting, RankRecording, read_recorded

LEAST, BELOW = (2, 13), (2, 16)


def check_torch(*, force: bool) -> str:
    """Return the installed version; refuse a missing one and, unless forced, an unsupported one."""
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise UsageError(
            "PyTorch is not installed",
            remedy="install the extra: pip install 'et-sim[record]'; the wheel for CPUs is enough",
        ) from None
    if not is_supported(found) and not force:
        raise UsageError(
            f"PyTorch {found} is installed, and {_text(LEAST)} to below {_text(BELOW)} are supported",
            remedy="install one of these, or try with --force",
        )
    return found


def is_supported(version: str) -> bool:
    """Return whether recordings are tested with a version."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    return LEAST <= numbers < BELOW


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


MEETING = "ET_RECORD_MEETING"  # folder through which recorded processes exchange objects
RECORDED = "ET_RECORD_RANKS"
KEEP = "ET_RECORD_KEEP"  # not empty: processes write their recording although the program fails


class ProgramError(EtSimError):
    """A failure of the recorded program; its traceback has been printed."""

    exit_status = 1


class Program(Struct, frozen=True):
    """The program to run, and its settings."""

    script: str
    arguments: tuple[str, ...]
    world: int
    local_world: int
    host_ns: int
    routing: ExpertRouting
    keep: bool = False


def record_ranks(program: Program, ranks: Sequence[int], folder: Path) -> list[RankRecording]:
    """Run the program as each of these ranks at once."""
    if not Path(program.script).is_file():
        raise UsageError(f"there is no file {program.script}", remedy="give the training script")
    meeting = folder / "meeting"
    meeting.mkdir(exist_ok=True)
    files = [folder / f"{rank}.recorded" for rank in ranks]
    with _ending_by_exception():
        return _recorded(program, ranks, meeting, files)


@contextmanager
def _ending_by_exception() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that started processes are ended, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _recorded(
    program: Program, ranks: Sequence[int], meeting: Path, files: Sequence[Path]
) -> list[RankRecording]:
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
        failed = None if program.keep else _first_failure(processes, ranks)
        for process in processes if program.keep else ():
            process.wait()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed is not None:
        rank, status = failed
        ended = f"the program ended with status {status} on rank {rank}"
        if status < 0:
            ended = f"the program was ended by {signal.Signals(-status).name} on rank {rank}"
        remedy = "its own message is above" if status > 0 else "PyTorch may have printed the reason above"
        remedy += "; --keep keeps the work before it"
        raise ProgramError(ended, place=program.script, remedy=remedy)
    for rank, file in zip(ranks, files, strict=True):
        if not file.exists():
            raise ProgramError(
                f"the program left without an end on rank {rank}",
                place=program.script,
                remedy="end it by sys.exit, not by os._exit",
            )
    return [read_recorded(file) for file in files]


def _first_failure(
    processes: Sequence[subprocess.Popen[bytes]], ranks: Sequence[int]
) -> tuple[int, int] | None:
    """Wait for all processes; return the rank and the status of the first failure at once."""
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
        KEEP: "yes" if program.keep else "",
    }
