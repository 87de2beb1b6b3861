"""The process that makes machine code: `python -m et_sim.compiled.worker DIRECTORY`.

It passes each order to a new process, which frees its memory (300 MB) when it ends.

A package that is being removed or installed anew fails to be imported, or Python itself is gone: that is no
fault of the code. Both processes then end without a mark, and the order stays.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.compiled.compile_queue import (
    FAILED,
    LOCK,
    MAKING,
    NO_COMPILER,
    PATIENT,
    PAUSE_SECONDS,
    PROGRESS,
    SECOND_LOCK,
    URGENT,
    WORKER,
    Order,
    locked,
    note_progress,
    orders,
)
from et_sim.compiled.numba_version import note_public
from et_sim.compiled.shipped import finished
from et_sim.compiled.store import ENDING, read_code, write_code, write_whole

if TYPE_CHECKING:
    from et_sim.compiled.build import MachineCode

MOST_LOOKS = 3
ENVIRONMENT = 1  # the status of a Python that could not import, or not begin


def main(directory: Path) -> None:
    """Process the orders, or only the urgent ones if another process does; those at which the environment
    fails stay.
    """
    for _ in range(MOST_LOOKS):  # a process that waits holds a lock for an instant, to see if it is free
        for lock, endings in ((LOCK, (URGENT, PATIENT)), (SECOND_LOCK, (URGENT,))):
            with locked(directory, lock) as is_free:
                if is_free:
                    _process(directory, endings)
                    if lock == LOCK:  # or else patient orders may be left, whose worker may have ended
                        return
        time.sleep(PAUSE_SECONDS)


def _process(directory: Path, endings: tuple[str, ...]) -> None:
    """Process orders of some kinds; leave those that another process works on."""
    left = set[Path]()
    for file, content in orders(directory, left, endings):
        making = file.with_suffix(MAKING)
        with locked(directory, making.name) as is_free:
            if not is_free or (
                read_code(file.with_suffix(ENDING)) is None and not _is_dealt_with(file, content)
            ):
                left.add(file)
            if is_free:
                for passing in (making, making.with_suffix(PROGRESS)):
                    passing.unlink(missing_ok=True)


def _is_dealt_with(file: Path, content: bytes) -> bool:
    """Make machine code in a new process; if that is killed, write the reason in place of the code.

    Return False if the environment failed.
    """
    command = [sys.executable, "-P", "-m", WORKER, *(["patient"] if file.suffix == PATIENT else [])]
    try:
        status = subprocess.run(command, input=content, check=False).returncode
    except OSError as error:
        _report(str(error))
        return False
    if status not in (0, ENVIRONMENT):
        reason = f"the process that compiles ended with status {status}"
        write_whole(file.with_suffix(FAILED), reason.encode())
    return status != ENVIRONMENT


def compiled(wanted: Order, report: Callable[[float], None]) -> MachineCode:
    """Compile the code of an order; `report` gets the completed share."""
    build, function = _imported(wanted)
    return build(function, wanted.signature, report)


def _imported(wanted: Order) -> tuple[Callable[..., MachineCode], Callable[..., Any]]:
    """Return the compiler, and the function of an order."""
    from et_sim.compiled.build import build

    sys.path += [path for path in wanted.search_paths if path not in sys.path]
    named = getattr(importlib.import_module(wanted.module), wanted.function)  # an entry, or named by one
    return build, getattr(named, "function", named)


def make(content: bytes, is_patient: bool) -> int:
    """Make machine code, from shipped bitcode or anew, or write down why it cannot be made.

    Return the status of the process.
    """
    gc.disable()  # this process is short-lived, and half a million objects of Numba stay anyway
    if is_patient and hasattr(os, "nice"):
        os.nice(19)
    try:
        wanted = Order.from_bytes(content)
    except (AttributeError, TypeError, ValueError):  # damaged: nothing can be made of it
        _report(traceback.format_exc())
        return 0
    if finished(wanted.path):
        return 0
    try:
        _imported(wanted)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        _report(NO_COMPILER if is_missing else traceback.format_exc())
        return ENVIRONMENT
    try:
        made = compiled(wanted, lambda share: note_progress(wanted.path, share))
        note_public(wanted.path.parent, made.public_reason)
        write_code(wanted.path, made.symbol, made.returns, made.content)
        wanted.path.with_suffix(FAILED).unlink(missing_ok=True)
    except Exception as error:
        reason = traceback.format_exc()
        _report(reason)
        if _is_of_environment(error):
            return ENVIRONMENT
        write_whole(wanted.path.with_suffix(FAILED), reason.encode())
    return 0


def _is_of_environment(error: BaseException | None) -> bool:
    """Return whether an exception, or one that led to it, is of a missing file or module."""
    while error is not None:
        if isinstance(error, ImportError | OSError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _report(reason: str) -> None:
    sys.stderr.write(reason.rstrip() + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["patient"]):
        sys.exit(make(sys.stdin.buffer.read(), bool(sys.argv[1:])))
    else:
        main(Path(sys.argv[1]))
