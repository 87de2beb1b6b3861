"""Text of views on stdout, in colours if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

from et_sim.basics.terminal import console_of, is_live, visible

# Colours repeat the meaning of bars in pairs that the colour-blind can separate.
STYLES: Mapping[str, str] = MappingProxyType(
    {"█+": "blue", "▒+": "yellow", "░+": "cyan", "·{2,}": "dim"}
    | {r"(?m)^(?:STALLED|OUT OF MEMORY|warning|PROBLEM)\b": "bold red", r"(?m)^makespan\b": "bold"}
)


def show(text: str) -> None:
    """Print a view, in colours if stdout is a terminal."""
    if not is_live(sys.stdout):
        print(text)
        return
    write_styled(text, sys.stdout)


def write_styled(text: str, stream: TextIO) -> None:
    """Write lines unchanged, with colours."""
    from rich.text import Text

    styled = Text(visible(text))
    for pattern, style in STYLES.items():
        styled.highlight_regex(pattern, style)
    console_of(stream).print(styled, soft_wrap=True)
