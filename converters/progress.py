"""Progress of a long conversion on stderr: silent at first, then how far it is and how long it will last.

On a terminal one line is rewritten; elsewhere a new line is printed now and then. Not here: what is done.
"""

from __future__ import annotations

import time

from et_sim.status_line import StatusLine

_SILENT_SECONDS = 1.0
_BETWEEN_UPDATES = 0.5
_BETWEEN_LINES = 10.0


class Progress:
    """Told how much of a known total is done, says so."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(total, 1)
        self._begin = time.monotonic()
        self._said = self._begin
        self._line = StatusLine()

    def __call__(self, done: int) -> None:
        """Say how far it is, if it is time to."""
        now = time.monotonic()
        pause = _BETWEEN_UPDATES if self._line.is_rewritten else _BETWEEN_LINES
        if now - self._begin < _SILENT_SECONDS or now - self._said < pause or not done > 0:
            return
        self._said = now
        share = min(done / self._total, 1.0)
        left = (now - self._begin) * (1 - share) / share
        self._line.show(f"et-convert: {self._what}: {100 * share:.0f} %, about {left:.0f} s left")

    def close(self) -> None:
        """Clear the line."""
        self._line.clear()
