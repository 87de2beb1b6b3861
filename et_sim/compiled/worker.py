"""The process that has machine code made: `python -m et_sim.compiled.worker DIRECTORY`.

It gives each order to a process of its own, which takes its memory (300 MB) with it when it ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from et_sim.compiled.compile_queue import FAILED, PATIENT, WORKER, Order, locked, note_progress, orders
from et_sim.compiled.shipped import finished
from et_sim.compiled.store import read_code, write_code, write_whole

if TYPE_CHECKING:
    from et_sim.compiled.build import MachineCode

NO_COMPILER = "numba is not installed (pip install 'et-sim[compile]')"


def main(directory: Path) -> None:
    """Work off what is ordered, unless another process does."""
    with locked(directory) as is_free:
        for file, wanted in orders(directory) if is_free else ():
            if read_code(wanted.path) is None:
                _have_made(wanted, file.suffix == PATIENT)


def _have_made(wanted: Order, is_patient: bool) -> None:
    """Make machine code in a new process; if that is killed, say so in place of the code."""
    command = [sys.executable, "-P", "-m", WORKER, *(["patient"] if is_patient else [])]
    status = subprocess.run(command, input=pickle.dumps(wanted), check=False).returncode
    if status:
        reason = f"the process that compiles ended with status {status}"
        write_whole(wanted.path.with_suffix(FAILED), reason.encode())


def compiled(wanted: Order, tell: Callable[[float], None]) -> MachineCode:
    """Compile what is ordered; `tell` gets the share that is done."""
    from et_sim.compiled.build import build

    sys.path += [path for path in wanted.search_paths if path not in sys.path]
    named = getattr(importlib.import_module(wanted.module), wanted.function)  # an entry, or named by one
    return build(getattr(named, "function", named), wanted.signature, tell)


def make(wanted: Order, is_patient: bool) -> None:
    """Make machine code, of what came along or anew, or write down why it cannot be made."""
    gc.disable()  # this process does not last long, and half a million objects of Numba stay anyway
    if is_patient and hasattr(os, "nice"):
        os.nice(19)
    if finished(wanted.path):
        return
    try:
        made = compiled(wanted, lambda share: note_progress(wanted.path, share))
        write_code(wanted.path, made.symbol, made.returns, made.content)
        wanted.path.with_suffix(FAILED).unlink(missing_ok=True)
    except Exception as error:
        reason = NO_COMPILER if _lacks_compiler(error) else traceback.format_exc()
        sys.stderr.write(reason + "\n")
        write_whole(wanted.path.with_suffix(FAILED), reason.encode())


def _lacks_compiler(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name == "numba"


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["patient"]):
        make(pickle.load(sys.stdin.buffer), bool(sys.argv[1:]))
    else:
        main(Path(sys.argv[1]))
