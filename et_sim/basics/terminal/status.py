"""Status of a task on stderr: bars with an estimate on a terminal, elsewhere a line at intervals.

rich is imported when there are bars to draw.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from et_sim.basics.terminal.streams import console_of, is_live, visible

if TYPE_CHECKING:
    from rich.console import Console


class Status(NamedTuple):
    """A report: `plain` is the whole line; the rest are the parts of a bar."""

    plain: str
    stage: str
    share: float | None  # of the stage that is done; None: unknown
    elapsed: float  # seconds
    left: float | None = None  # seconds; None: unknown
    detail: str = ""


ENOUGH_SHARE, ENOUGH_SECONDS = 0.03, 3.0  # one of both suffices for an estimate of the pace


class Estimate:
    """Estimate of the end of a task, from its progress.

    It starts at the first share that is reported, because the time before, such as compilation, has another
    pace. A share that falls starts a new estimate.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None  # share, seconds
        self._share = 0.0
        self._end: float | None = None

    def add(self, share: float, now: float) -> None:
        """Add the share that is done at this time."""
        if self._first is None or share <= self._first[0] or share < self._share:
            self._first, self._end = (share, now), None
        elif share > self._share:
            gained, passed = share - self._first[0], now - self._first[1]
            if gained >= ENOUGH_SHARE or passed >= ENOUGH_SECONDS:
                self._end = now + passed / gained * (1 - share)
        self._share = share

    def scale(self, factor: float) -> None:
        """Correct the shares so far, when the task turns out to be larger or smaller."""
        if self._first is not None:
            self._first = (self._first[0] * factor, self._first[1])
        self._share, self._end = self._share * factor, None

    def left(self, now: float) -> float | None:
        """Return the seconds left; None without an estimate, or when it has passed."""
        return self._end - now if self._end is not None and self._end >= now else None


WIDEST = 24  # cells of a bar


class Bars:
    """Bars on a terminal, until they are removed."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TextColumn
        from rich.table import Column

        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(min(WIDEST, console.width // 5)),
            TextColumn("{task.fields[figures]}"),
            TextColumn("{task.fields[detail]}", style="dim", table_column=rest),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )
        self._progress.start()
        console.show_cursor(True)  # a killed process must not leave a terminal without a cursor
        self._stage = ""
        self._task = TaskID(-1)

    def show(self, status: Status) -> None:
        """Draw the bar of this stage, below those that are done."""
        if status.stage != self._stage:
            self._end_stage()
            self._task = self._progress.add_task(
                status.stage, total=None, figures="", detail="", visible=False
            )
            self._stage = status.stage
        figures = [] if status.share is None else [f"{status.share:.0%}"]
        figures.append(f"{status.elapsed:.0f} s")
        if status.left is not None:
            figures.append(f"about {status.left:.0f} s left")
        self._progress.update(
            self._task,
            total=None if status.share is None else 1.0,
            completed=status.share or 0.0,
            figures=" · ".join(figures),
            detail=visible(status.detail),
            visible=True,
        )
        self._progress.refresh()

    def _end_stage(self) -> None:
        if self._stage:
            self._progress.update(self._task, total=1.0, completed=1.0, figures="done", detail="")

    def remove(self) -> None:
        """Restore the terminal."""
        self._progress.stop()


class StatusLine:
    """A line, or bars."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._lock = threading.Lock()

    @property
    def is_live(self) -> bool:
        """Return whether the status is rewritten in its place."""
        return is_live(sys.stderr)

    def show(self, status: Status) -> None:
        """Show this status, if it has a stage."""
        if not status.stage:
            return
        with self._lock:
            if not self.is_live:
                sys.stderr.write(status.plain + "\n")
                sys.stderr.flush()
                return
            if self._bars is None:
                self._bars = Bars(console_of(sys.stderr))
            self._bars.show(status)

    def clear(self) -> None:
        """Remove the status from a terminal."""
        with self._lock:
            if self._bars is not None:
                self._bars.remove()
                self._bars = None
