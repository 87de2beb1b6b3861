"""Progress of a run on stderr: silent for the first second, then one line that is updated.

It is shown by a thread, so stages that report nothing (reading, planning, writing) are visible, too. A reader
that closes the output early, as `| head` does, does not change the exit status of a command.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from et_sim.basics.terminal import Estimate, Status, StatusLine
from et_sim.basics.units import format_ns
from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.entry_points import watching_compilation

if TYPE_CHECKING:
    from et_sim.serving.serve import Reached

Item = TypeVar("Item")

SILENT_SECONDS = 1.0
SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_LINES = 5.0
UNTIL_COMPILED = " · interpreted until it is compiled"


class Progress:
    """Display of what a run does and how far it is; a context manager."""

    def __init__(self) -> None:
        self._begin = self._stage_begin = time.monotonic()
        self._stage = ""
        self._share: float | None = None
        self._detail = ""
        self._estimate = Estimate()
        self._is_compiling = self._is_interpreted = False
        self._line = StatusLine()
        self._lines = CompileStatus("et-sim", self._line)
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._keep_showing, daemon=True)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(watching_compilation(self))
        self._thread.start()
        return self

    def compiling(self, form: str) -> None:
        """Show that machine code for `form` is compiled in the background, while a call is interpreted."""
        self._is_interpreted = True
        self._lines.compiling(form)

    def waiting(self, form: str, share: float, seconds: float) -> None:
        """Show that the run waits for machine code."""
        self._is_compiling = True
        self._lines.waiting(form, share, seconds)

    def compiled(self) -> None:
        """Show that the wait is over."""
        self._lines.compiled()
        self._is_compiling = False

    def by_public_numba(self, reason: str) -> None:
        """Show why public Numba alone compiles."""
        self._lines.by_public_numba(reason)

    def failed(self, form: str, reason: str) -> None:
        """Show that compilation failed."""
        self._lines.failed(form, reason)

    def stage(self, name: str) -> None:
        """Begin another stage of the work."""
        self._stage, self._share, self._detail = name, None, ""
        self._estimate, self._stage_begin = Estimate(), time.monotonic()

    def counted(self, items: Iterable[Item], total: int, noun: str, each: int = 1) -> Iterator[Item]:
        """Yield the items, and count the finished ones, each but the last as `each` units."""
        for number, item in enumerate(items):
            yield item
            done = min((number + 1) * each, total)
            self._share = done / max(total, 1)
            self._estimate.add(self._share, time.monotonic())
            self._detail = f"{done:,} of {total:,} {noun}"

    def report(
        self, now_ns: int, done: int, expected: int, nodes: int, all_nodes: int, noun: str = "messages"
    ) -> None:
        """Show the progress of the engine, which calls this at intervals."""
        share = (done + nodes) / max(expected + all_nodes, 1)
        self._share = share if share <= 1 else None
        self._detail = (
            f"simulated {format_ns(now_ns)} · {done:,} of {expected:,} {noun} · "
            f"{nodes:,} of {all_nodes:,} nodes"
        )
        if self._is_interpreted:  # at another pace than the rest
            self._detail += UNTIL_COMPILED
            self._estimate, self._is_interpreted = Estimate(), False
        self._estimate.add(share, time.monotonic())

    def serving(self, reached: Reached) -> None:
        """Show the progress of serving: output tokens, finished requests, and simulated passes."""
        self._share = reached.share
        self._estimate.add(self._share, time.monotonic())
        self._detail = (
            f"simulated {format_ns(reached.now_ns)} · {reached.done:,} of {reached.requests:,} requests"
            f" · {reached.passes:,} distinct passes"
        )

    def _keep_showing(self) -> None:
        pause = SILENT_SECONDS
        while not self._finished.wait(pause):
            if not self._is_compiling:
                self._line.show(self._status(time.monotonic()))
            pause = SECONDS_BETWEEN_UPDATES if self._line.is_live else SECONDS_BETWEEN_LINES

    def _status(self, now: float) -> Status:
        stage, share, left = self._stage, self._share, self._estimate.left(now)
        detail = " · ".join(filter(None, ("" if share is None else f"{share:.0%}", self._detail)))
        ending = "" if left is None else f", about {left:.0f} s left"
        plain = f"et-sim: {now - self._begin:.0f} s · {stage}{detail and f' {detail}'}{ending}"
        return Status(plain, stage, share, now - self._stage_begin, left, self._detail)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finished.set()
        self._thread.join()
        self._open.close()
        self._line.clear()


class UnreadError(BrokenPipeError):
    """Error of a closed reader, with the exit status of the command."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


@contextmanager
def printing(status: int) -> Iterator[None]:
    """Convert a closed reader's error while a command prints after its exit status is decided."""
    try:
        yield
    except BrokenPipeError as gone:
        raise UnreadError(status) from gone
