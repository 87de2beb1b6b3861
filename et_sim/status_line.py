"""A line on stderr that is kept up to date: rewritten on a terminal, elsewhere printed anew each time.

Not here: what is said, and how often.
"""

from __future__ import annotations

import sys


class StatusLine:
    """The line."""

    def __init__(self) -> None:
        self._width = 0  # of the longest text since it was cleared

    @property
    def is_rewritten(self) -> bool:
        """Whether stderr is a terminal."""
        return sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Say this now."""
        if self.is_rewritten:
            self._write("\r" + text.ljust(self._width))
            self._width = max(self._width, len(text))
        else:
            self._write(text + "\n")

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
