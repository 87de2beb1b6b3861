"""What is going on, on stderr: bars with an estimate on a terminal, elsewhere a line now and then.

Not here: what is said, and how often.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from et_sim.basics.terminal.status import Status
from et_sim.basics.terminal.streams import console_of, is_live

if TYPE_CHECKING:
    from et_sim.basics.terminal.bars import Bars


class StatusLine:
    """The line, or the bars."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._lock = threading.Lock()

    @property
    def is_live(self) -> bool:
        """Whether what is shown is rewritten in its place."""
        return is_live(sys.stderr)

    def show(self, status: Status) -> None:
        """Say this now."""
        with self._lock:
            if not self.is_live:
                sys.stderr.write(status.plain + "\n")
                sys.stderr.flush()
                return
            if self._bars is None:
                from et_sim.basics.terminal.bars import Bars

                self._bars = Bars(console_of(sys.stderr))
            self._bars.show(status)

    def clear(self) -> None:
        """Remove it from a terminal."""
        with self._lock:
            if self._bars is not None:
                self._bars.remove()
                self._bars = None
