"""One Ctrl-C ends a command, even where the code that it comes upon drops it.

Python raises it within whatever runs at that moment. Destructors drop what is raised in them, and so does
NumPy while it asks an object for an attribute: of a hundred interruptions of a sweep, one was lost. So it is
raised again, unless an exception is being handled: then the command is ending, or cleans something up.

Not here: what is said of it, and the exit status (the command lines).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_SECONDS = 0.1


@contextmanager
def interruptible() -> Iterator[None]:
    """Around a command; where Ctrl-C does something else than to interrupt, it does that."""
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_main or not is_usual or not hasattr(signal, "setitimer"):  # Windows has no timers
        yield
        return
    was_pressed = False

    def press(*_: object) -> None:
        nonlocal was_pressed
        was_pressed = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        raise KeyboardInterrupt

    def remind(*_: object) -> None:
        if sys.exc_info()[1] is None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, remind)
    signal.signal(signal.SIGINT, press)
    try:
        yield
        if was_pressed:
            raise KeyboardInterrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, before)
