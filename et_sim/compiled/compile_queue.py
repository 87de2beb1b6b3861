"""Orders of machine code: files of JSON beside it, which a process processes one after the other (`worker`).

A lock shows whether it is running. It takes urgent orders first, and goes on until none is left; a second
process, with a lock of its own, takes urgent orders meanwhile. Both lock the code that they make. If a
process ends without having made an ordered file, the next one is started. Code that cannot be compiled gets a
mark. A failure of the environment, such as a package that is being installed anew, gets none: the order
stays, for a process with a complete environment.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from et_sim.compiled.ownership import read_own
from et_sim.compiled.store import write_whole

WORKER = "et_sim.compiled.worker"
LOCK, SECOND_LOCK, LOG = "lock", "lock-urgent", "worker.log"
MAKING, PROGRESS = ".making", ".progress"
URGENT, PATIENT, FAILED = ".urgent", ".ordered", ".failed"
NO_COMPILER = "numba is not installed (pip install 'et-sim[compile]')"
RETRIED_SECONDS = 3600.0  # after which failed orders are tried again
MOST_STARTS = 3
PAUSE_SECONDS = 0.1
PROCESSES, STOPPED = (
    Path("/proc"),
    "Tt",
)  # the states of processes on Linux, and the letters of stopped ones


class Order(Struct, frozen=True):
    """Machine code that is wanted, and the search paths of its module for a worker of another process."""

    path: Path
    module: str
    function: str
    signature: tuple[Any, ...]
    search_paths: tuple[str, ...]

    def as_bytes(self) -> bytes:
        """Return the order as JSON."""
        from et_sim.compiled.signature_values import values_of

        return json.encode(
            _Written(str(self.path), self.module, self.function, values_of(self.signature), self.search_paths)
        )

    @staticmethod
    def from_bytes(content: bytes) -> Order:
        """Return the order that JSON describes; raise ValueError if it describes none."""
        from et_sim.compiled.signature_values import signature_from

        written = json.decode(content, type=_Written)
        signature = signature_from(written.signature)
        return Order(Path(written.path), written.module, written.function, signature, written.search_paths)


class _Written(Struct, frozen=True):
    """An order in a file."""

    path: str
    module: str
    function: str
    signature: list[Any]
    search_paths: tuple[str, ...]


def order(wanted: Order, is_urgent: bool) -> str | None:
    """Order machine code from another process; return the reason if that is not possible."""
    if reason := failure(wanted.path) or _lacks_compiler(wanted.path):
        return reason
    try:
        target = wanted.path.with_suffix(URGENT if is_urgent else PATIENT)
        write_whole(target, wanted.as_bytes())
        _start_worker(wanted.path.parent, is_urgent)
    except OSError as error:
        return str(error)
    return None


def _lacks_compiler(path: Path) -> str:
    """Return the reason if Numba is missing and the code was not shipped; else an empty text."""
    if find_spec("numba") is not None:
        return ""
    from et_sim.compiled.shipped import is_shipped

    return "" if is_shipped(path) else NO_COMPILER


def search_paths() -> tuple[str, ...]:
    """Return the search paths of this process as absolute paths."""
    return tuple(str(Path(path).absolute()) for path in sys.path if path)


def wait_for(
    wanted: Order, report: Callable[[float, float], None] | None, most_seconds: float = math.inf
) -> str | None:
    """Wait some time for an urgent order; return the reason if it cannot be made.

    `report` gets share and seconds.
    """
    begin = time.monotonic()
    starts = 1
    while not wanted.path.exists() and time.monotonic() - begin < most_seconds:
        if reason := failure(wanted.path):
            return reason
        held = [lock for lock in (LOCK, SECOND_LOCK) if not _is_free(wanted.path.parent, lock)]
        if not held and not wanted.path.exists() and time.monotonic() - begin > starts:
            if starts == MOST_STARTS:
                return _last_line(wanted.path.with_name(LOG))
            starts += 1
            order(wanted, True)
        stopped = [_stopped_holder(wanted.path.with_name(lock)) for lock in held]
        if held and all(stopped):
            holder = stopped[0]
            return f"process {holder}, which compiles, is stopped: kill -CONT {holder} lets it go on"
        if report:
            report(noted_progress(wanted.path), time.monotonic() - begin)
        time.sleep(PAUSE_SECONDS)
    return None


def orders(
    directory: Path, left: Container[Path] = (), endings: Iterable[str] = (URGENT, PATIENT)
) -> Iterator[tuple[Path, bytes]]:
    """Yield files of orders and their content: the urgent ones first, of these the oldest.

    A file is removed before the next one is yielded, unless it is among those in `left`.
    """
    while True:
        found = [file for ending in endings for file in _oldest_first(directory.glob("*" + ending))]
        files = [file for file in found if file not in left]
        if not files:
            return
        with suppress(OSError):
            yield files[0], read_own(files[0])
        if files[0] not in left:
            files[0].unlink(missing_ok=True)


def _oldest_first(files: Iterable[Path]) -> list[Path]:
    """Return files in the order of their times, so that later orders do not delay earlier ones."""
    return sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name))


def _last_line(log: Path) -> str:
    """Return the reason for which the process that compiles ended early."""
    with suppress(OSError, IndexError):
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
        return words if words == NO_COMPILER else f"{words} (see {log})"
    return f"the process that compiles ends early, see {log}"


def failure(path: Path) -> str | None:
    """Return the reason of a recent failure to make code, or None."""
    file = path.with_suffix(FAILED)
    try:
        is_recent = time.time() - file.stat().st_mtime < RETRIED_SECONDS
        return (
            file.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1] if is_recent else None
        )
    except (OSError, IndexError):
        return None


@contextmanager
def locked(directory: Path, lock: str = LOCK) -> Iterator[bool]:
    """Hold a lock in a directory, if it is free."""
    try:
        import fcntl
    except ImportError:  # no locks on this system: at worst, two processes make the same
        yield True
        return
    with (directory / lock).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield True


def _is_free(directory: Path, lock: str) -> bool:
    with locked(directory, lock) as is_free:
        return is_free


def _stopped_holder(lock: Path) -> str:
    """Return the process that holds a lock if a signal has stopped it, else an empty text."""
    with suppress(OSError, IndexError):
        holder = lock.read_text(encoding="ascii")
        state = (PROCESSES / holder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return holder if state in STOPPED else ""
    return ""


def note_progress(path: Path, share: float) -> None:
    """Record the completed share of a file."""
    write_whole(path.with_suffix(PROGRESS), str(share).encode())


def noted_progress(path: Path) -> float:
    """Return the recorded share of a file; 0 if it is not being made."""
    try:
        return float(path.with_suffix(PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0


def _start_worker(directory: Path, is_urgent: bool) -> None:
    if not (is_urgent or _is_free(directory, LOCK)):
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search_paths())}
    command = [sys.executable, "-P", "-m", WORKER, str(directory)]
    with (directory / LOG).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=directory,  # the directory of this process may be deleted before the worker ends
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # it may outlive this process
