"""Progress of a long conversion on stderr: silent at first, then how far it is and how long it will last."""

from __future__ import annotations

import time

from et_sim.basics.terminal import Estimate, Status, StatusLine

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
        self._estimate = Estimate()
        self._estimate.add(0.0, self._begin)

    def __call__(self, done: int) -> None:
        """Say how far it is, if it is time to."""
        now, share = time.monotonic(), min(done / self._total, 1.0)
        self._estimate.add(share, now)
        pause = _BETWEEN_UPDATES if self._line.is_live else _BETWEEN_LINES
        left = self._estimate.left(now)
        if now - self._begin < _SILENT_SECONDS or now - self._said < pause or left is None:
            return
        self._said = now
        plain = f"et-convert: {self._what}: {100 * share:.0f} %, about {left:.0f} s left"
        self._line.show(Status(plain, f"converting {self._what}", share, now - self._begin, left))

    def close(self) -> None:
        """Clear the line."""
        self._line.clear()
