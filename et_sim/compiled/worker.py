"""The process that makes machine code: `python -m et_sim.compiled.worker DIRECTORY urgent|patient`."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from pathlib import Path

from et_sim.compiled.orders import FAILED, Order, locked, note_progress, orders
from et_sim.compiled.store import read_code, write_code, write_whole


def main(directory: Path, is_patient: bool) -> None:
    """Work off what is ordered, unless another process does."""
    gc.disable()  # it does not last long, and half a million objects of Numba stay anyway
    with locked(directory) as is_free:
        if not is_free:
            return
        if is_patient and hasattr(os, "nice"):
            os.nice(19)
        for _, wanted in orders(directory):
            if read_code(wanted.path) is None:
                _make(wanted)


def _make(wanted: Order) -> None:
    try:
        from et_sim.compiled.build import build

        sys.path += [path for path in wanted.search_paths if path not in sys.path]
        entry = getattr(importlib.import_module(wanted.module), wanted.function)
        made = build(entry.function, wanted.signature, lambda share: note_progress(wanted.path, share))
        write_code(wanted.path, made.symbol, made.returns, made.content)
        wanted.path.with_suffix(FAILED).unlink(missing_ok=True)
    except Exception:
        told = traceback.format_exc()
        sys.stderr.write(told)
        write_whole(wanted.path.with_suffix(FAILED), told.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "patient")
