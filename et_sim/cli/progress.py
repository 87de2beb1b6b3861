"""Progress of a run on stderr: silent for the first second, then one line that is kept up to date."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from et_sim.units import format_ns

SILENT_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 0.5


class Progress:
    """Shows how far a simulation is; use as a context manager."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = 0.0
        self._width = 0

    def __enter__(self) -> Self:
        from et_sim.compiled import is_cached
        from et_sim.engine.loop import simulate

        if not is_cached(simulate):
            print("et-sim: compiling the engine, once for this version (about 10 s) …", file=sys.stderr)
        self._start = time.monotonic()
        return self

    def report(self, now_ns: int, messages: int, expected: int, nodes: int, all_nodes: int) -> None:
        """Called by the engine now and then."""
        elapsed = time.monotonic() - self._start
        if elapsed < SILENT_SECONDS or elapsed - self._shown < SECONDS_BETWEEN_LINES:
            return
        self._shown = elapsed
        share = (messages + nodes) / max(expected + all_nodes, 1)
        left = f", about {elapsed / share - elapsed:.0f} s left" if share > 0 else ""
        self._line(
            f"et-sim: {share:4.0%} · simulated {format_ns(now_ns)} · "
            f"{messages:,} of {expected:,} messages · {nodes:,} of {all_nodes:,} nodes{left}"
        )

    def _line(self, text: str) -> None:
        if sys.stderr.isatty():
            print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(text)
        else:
            print(text, file=sys.stderr)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
