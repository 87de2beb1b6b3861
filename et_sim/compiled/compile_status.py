"""Status of compiling on stderr: a line, or a bar while a command waits."""

from __future__ import annotations

import sys

from et_sim.basics.terminal import Estimate, Status, StatusLine

SECONDS_BETWEEN_UPDATES = 0.2
SECONDS_BETWEEN_LINES = 5.0
FREQUENCY = "once for this version and kind of run"


class CompileStatus:
    """The status of compiling for a command (`entry_points.CompileWatch`)."""

    def __init__(self, program: str, status: StatusLine | None = None) -> None:
        self._program = program
        self._has_reported = False
        self._has_reported_public = False
        self._next_seconds = 0.0
        self._status = status or StatusLine()
        self._estimate = Estimate()

    def compiling(self, _what: str) -> None:
        """Report once that machine code is being made in the background."""
        if not self._has_reported:
            self._has_reported = True
            self._line("not compiled yet: interpreted until it is compiled in the background")

    def waiting(self, what: str, share: float, seconds: float) -> None:
        """Report that a call waits for machine code, the completed share and the seconds so far."""
        self._estimate.add(share, seconds)
        if seconds < self._next_seconds:
            return
        pause = SECONDS_BETWEEN_UPDATES if self._status.is_live else SECONDS_BETWEEN_LINES
        self._next_seconds = seconds + pause
        left = self._estimate.left(seconds) if seconds > 1 else None
        text = f"{self._program}: compiling {what}, {FREQUENCY}"
        ending = "" if left is None else f", about {left:.0f} s left"
        plain = f"{text}: {seconds:.0f} s, {share:.0%}{ending}" if seconds > 1 else f"{text} …"
        self._status.show(Status(plain, f"compiling {what}", share, seconds, left, FREQUENCY))

    def compiled(self) -> None:
        """End the report of a wait."""
        self._next_seconds = 0.0
        self._estimate = Estimate()
        self._status.clear()

    def by_public_numba(self, reason: str) -> None:
        """Report once why public Numba alone compiles."""
        if not self._has_reported_public:
            self._has_reported_public = True
            self._line(f"compiled by public Numba alone, which takes several times as long: {reason}")

    def failed(self, what: str, reason: str) -> None:
        """Report that there will be no machine code, so that everything is interpreted."""
        self._line(f"{what}: interpreted, not compiled, which takes longer: {reason}")

    def _line(self, text: str) -> None:
        self._status.clear()
        sys.stderr.write(f"{self._program}: {text}\n")
        sys.stderr.flush()
