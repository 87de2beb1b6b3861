"""How far a sweep is, on stderr: silent for the first second, then a line or a bar, kept up to date."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Protocol, Self

from et_sim.basics.terminal import Estimate, Status, StatusLine

SILENT_SECONDS = 1.0
SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_LINES = 10.0


class Watcher(Protocol):
    """Receives the progress of a sweep."""

    def begin(self, stage: str, total: int) -> None:
        """So many points are going to be evaluated."""

    def add(self, done: int, failed: int) -> None:
        """More points are done; some of them are not complete."""


class Nobody:
    """Watches nothing."""

    def begin(self, stage: str, total: int) -> None: ...
    def add(self, done: int, failed: int) -> None: ...


class Progress:
    """Shows it; use as a context manager."""

    def __init__(self) -> None:
        self._stage, self._total, self._done, self._failed = "", 0, 0, 0
        self._begin = time.monotonic()
        self._estimate = Estimate()
        self._line = StatusLine()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._keep_showing, daemon=True)

    def begin(self, stage: str, total: int) -> None:
        """Another part of the work begins."""
        self._stage, self._total, self._done, self._failed = stage, total, 0, 0
        self._begin, self._estimate = time.monotonic(), Estimate()

    def add(self, done: int, failed: int) -> None:
        """So many more."""
        self._done += done
        self._failed += failed
        self._estimate.add(self._done / max(self._total, 1), time.monotonic())

    def _keep_showing(self) -> None:
        pause = SILENT_SECONDS
        while not self._finished.wait(pause):
            if self._stage:
                self._line.show(self._status(time.monotonic()))
            pause = SECONDS_BETWEEN_UPDATES if self._line.is_live else SECONDS_BETWEEN_LINES

    def _status(self, now: float) -> Status:
        share, left, elapsed = self._done / max(self._total, 1), self._estimate.left(now), now - self._begin
        failed = f", {self._failed:,} of them not complete" if self._failed else ""
        detail = f"{self._done:,} of {self._total:,} points{failed}"
        ending = "" if left is None else f", about {left:.0f} s left"
        plain = f"et-sim: {elapsed:.0f} s · {self._stage} · {share:.0%} · {detail}{ending}"
        return Status(plain, self._stage, share, elapsed, left, detail)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        self._thread.join()
        self._line.clear()
