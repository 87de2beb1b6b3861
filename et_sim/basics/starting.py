"""The start of a program, in which Ctrl-C ends it without a traceback.

Importing a command line takes a fifth of a second, before the command can handle Ctrl-C itself.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from importlib import import_module

from et_sim.basics.freed_memory import keep_freed_memory

INTERRUPTED = 130  # exit status


def started(program: str, module: str) -> int:
    """Import the command line of a program, run it, and return its exit status."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, partial(_end, program))
    keep_freed_memory()
    main = import_module(module).main
    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status: int = main()
    return status


def _end(program: str, *_: object) -> None:
    """End the process at once: nothing is open yet."""
    os.write(2, f"{program}: interrupted\n".encode())
    os._exit(INTERRUPTED)
