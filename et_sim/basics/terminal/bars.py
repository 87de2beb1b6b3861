"""Bars on a terminal, one below the other: a stage each. Loads rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from et_sim.basics.terminal.streams import visible

if TYPE_CHECKING:
    from rich.console import Console

    from et_sim.basics.terminal.status import Status

WIDEST = 24  # cells of a bar


class Bars:
    """The bars, until they are removed."""

    def __init__(self, console: Console) -> None:
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
        console.show_cursor(True)  # a process that is killed must not leave a terminal without one
        self._stage = ""
        self._task = TaskID(-1)

    def show(self, status: Status) -> None:
        """Draw this stage's bar, below those that are done."""
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
        """Leave the terminal as it was."""
        self._progress.stop()
