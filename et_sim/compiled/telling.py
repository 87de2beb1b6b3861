"""Says on stderr that machine code is not there yet: in a line, or with a bar while a command waits."""

from __future__ import annotations

import sys

from et_sim.status_line import StatusLine

BAR_CELLS = 24
SECONDS_BETWEEN_UPDATES = 0.2
SECONDS_BETWEEN_LINES = 5.0


class Lines:
    """Watches compiling on behalf of a command (`entry_points.CompileWatch`)."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._has_told = False
        self._next_seconds = 0.0
        self._status = StatusLine()

    def compiling(self, _what: str) -> None:
        """Machine code is being made in the background; said once, whatever it is for."""
        if not self._has_told:
            self._has_told = True
            self._line("not compiled yet: interpreted this time, and compiled in the background for the next")

    def waiting(self, what: str, share: float, seconds: float) -> None:
        """A call waits for it; `share` of the work is done, after so many seconds."""
        if seconds < self._next_seconds:
            return
        left = f", about {seconds / share - seconds:.0f} s left" if share > 0 and seconds > 1 else ""
        told = f"compiling {what}, once for this version and kind of run"
        if not self._status.is_rewritten:
            self._next_seconds = seconds + SECONDS_BETWEEN_LINES
            self._line(f"{told}: {share:.0%}{left}" if seconds > 1 else f"{told} …")
            return
        self._next_seconds = seconds + SECONDS_BETWEEN_UPDATES
        done = round(BAR_CELLS * share)
        bar = "█" * done + "░" * (BAR_CELLS - done)
        self._status.show(f"{self._program}: {told} {bar} {share:.0%}{left}")

    def compiled(self) -> None:
        """The wait is over."""
        self._next_seconds = 0.0
        self._status.clear()

    def failed(self, what: str, reason: str) -> None:
        """There will be none: everything is interpreted."""
        self._line(f"{what} cannot be compiled, and is interpreted, which takes longer: {reason}")

    def _line(self, text: str) -> None:
        sys.stderr.write(f"{self._program}: {text}\n")
        sys.stderr.flush()
