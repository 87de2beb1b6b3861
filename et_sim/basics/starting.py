"""The start of a program, in which Ctrl-C ends it without a traceback, and its end.

Importing a command and its libraries takes a fifth of a second, before it can handle Ctrl-C itself. When a
command is done, its process ends without taking all objects apart: that takes a twentieth of a short run.

The C library of GNU returns memory at the end of its heap to the system at once, which clears it before it is
used again. Views of millions of rows make arrays of one size block after block, and spent a fifth to a third
of their processor time on that. So a process keeps some of what it has freed for its next arrays.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from functools import partial
from importlib import import_module

NEED_TEARDOWN = {"duckdb"}  # libraries that finish their work when their objects are collected
INTERRUPTED = 130  # exit status


def started(program: str, module: str, *, ends_at_once: bool = False) -> int:
    """Import the command line of a program, run it, and return its exit status or end the process with it."""
    _open_missing_streams()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, partial(_end, program))
    keep_freed_memory()
    main = import_module(module).main
    status: int = main()
    if ends_at_once:
        if is_usual:
            signal.signal(signal.SIGINT, partial(_end, program))
        _leave(status)
    return status


def end_start() -> None:
    """Let Ctrl-C interrupt Python again, where it ended the program at once: the command handles it."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, partial) and handler.func is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that is closed, so that no file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115


def _leave(status: int) -> None:
    """End the process when its exit functions ran and its output is written; other threads prevent it."""
    if threading.active_count() > 1 or not NEED_TEARDOWN.isdisjoint(sys.modules):
        return
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):  # the interpreter reports a stream that cannot be written
        return
    os._exit(status)


def _end(program: str, *_: object) -> None:
    """End the process at once: nothing is open yet, or all is written."""
    os.write(2, f"{program}: interrupted\n".encode())
    os._exit(INTERRUPTED)


MOST_KEPT = 64 << 20  # bytes at the end of the heap
LARGEST_IN_HEAP = 32 << 20  # bytes of an array; the library permits no more
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as in malloc.h


def keep_freed_memory() -> None:
    """Keep some of the memory that is freed, where the C library is that of GNU."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # others may lack it
    if set_option is not None:
        set_option(TRIM_THRESHOLD, MOST_KEPT)
        set_option(MMAP_THRESHOLD, LARGEST_IN_HEAP)
