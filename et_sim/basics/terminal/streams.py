"""What a stream can show: what rich draws, or plain text; and no characters that a terminal would obey.

Those are control characters, and the ones that change the direction of text or do not show: names come from
files of others. They are shown as escapes; lines and tabs stay. In JSON, the escapes mean the characters.
Files and pipes get every character as it is. rich is loaded for terminals only. It heeds COLUMNS, and which
colours a terminal has, by itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return the same text as a terminal may have it."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class VisibleText:
    """A terminal that is written to as if it were the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream  # for what draws

    def write(self, text: str) -> int:
        """Write what can be seen."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def drawn_on(stream: TextIO) -> TextIO:
    """Return the terminal behind a stream, for those who move its cursor."""
    return stream.stream if isinstance(stream, VisibleText) else stream


@contextmanager
def visible_streams() -> Iterator[None]:
    """What is written to terminals meanwhile can be seen."""
    before = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), before, strict=True):
        if stream is not None and stream.isatty():
            setattr(sys, name, VisibleText(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_live(stream: TextIO) -> bool:
    """Return whether it is a terminal whose cursor moves."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def console_of(stream: TextIO) -> Console:
    """What writes to such a terminal: our words as they are, without guessing what they mean."""
    from rich.console import Console

    return Console(
        file=drawn_on(stream),
        color_system=None if os.environ.get("NO_COLOR") else "auto",  # None: nothing is bold, either
        markup=False,
        emoji=False,
        highlight=False,
    )
