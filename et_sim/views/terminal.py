"""Colours for text on a terminal: bars by what they stand for, and words of alarm.

The colours are those of colour-blind friendly pairs (blue and yellow); no meaning is in colour alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

RESET = "\x1b[0m"
COLOURS: Mapping[str, str] = MappingProxyType(
    {"█+": "\x1b[34m", "▒+": "\x1b[33m", "░+": "\x1b[36m", "·{2,}": "\x1b[2m"}
    | {r"^(?:STALLED|warning)\b": "\x1b[1;31m", r"^(?:makespan)\b": "\x1b[1m"}
)


def wants_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows them, and nobody asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """The text with terminal codes."""
    for pattern, colour in COLOURS.items():
        text = re.sub(pattern, f"{colour}\\g<0>{RESET}", text, flags=re.MULTILINE)
    return text
