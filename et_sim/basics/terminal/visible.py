"""Characters that a terminal would obey are shown as escapes: names come from files of others.

Those are control characters, and the ones that change the direction of text or do not show. Lines and tabs
stay. In JSON, the escapes mean the characters. Files and pipes get every character as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The same text as a terminal may have it."""
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
    """The terminal behind a stream, for those who move its cursor."""
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
