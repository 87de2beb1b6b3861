"""Streams: output of rich or plain text, without characters that control a terminal.

These are control characters, and those that change the direction of text or are invisible: names come from
files of others. They are shown as escapes; lines and tabs stay. In JSON, the escapes denote the characters.
Files and pipes receive every character unchanged. rich is imported for terminals only; it reads COLUMNS and
the colours of the terminal itself.
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


_CONTROLLING = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return the text with escapes for characters that control a terminal."""
    return re.sub(_CONTROLLING, lambda match: f"\\u{ord(match[0]):04x}", text)


class VisibleText:
    """A terminal stream that escapes control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream  # for drawing

    def write(self, text: str) -> int:
        """Write the escaped text."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def drawn_on(stream: TextIO) -> TextIO:
    """Return the terminal behind a stream, to move its cursor."""
    return stream.stream if isinstance(stream, VisibleText) else stream


@contextmanager
def visible_streams() -> Iterator[None]:
    """Escape control characters in all output to terminals in the context."""
    before = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), before, strict=True):
        if stream is not None and stream.isatty():
            setattr(sys, name, VisibleText(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_live(stream: TextIO) -> bool:
    """Return whether the stream is a terminal whose cursor moves."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def columns_of_terminal(otherwise: int = 80) -> int:
    """Return the width of the terminal, by the variable COLUMNS or the terminal itself."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (ValueError, OSError):  # closed, or not a terminal
        return otherwise
    return size.columns or otherwise


def console_of(stream: TextIO) -> Console:
    """Return a console for a terminal that writes text unchanged, without markup."""
    from rich.console import Console

    return Console(
        file=drawn_on(stream),
        color_system=None if os.environ.get("NO_COLOR") else "auto",  # None: nothing is bold, either
        markup=False,
        emoji=False,
        highlight=False,
    )
