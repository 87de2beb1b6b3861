"""Views on a terminal: bars coloured by what they stand for, and words of alarm made to be seen. Loads rich.

The colours are those of colour-blind friendly pairs (blue and yellow); no meaning is in colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

from rich.text import Text

from et_sim.basics.terminal import console_of, visible

STYLES: Mapping[str, str] = MappingProxyType(
    {"█+": "blue", "▒+": "yellow", "░+": "cyan", "·{2,}": "dim"}
    | {r"(?m)^(?:STALLED|OUT OF MEMORY|warning|PROBLEM)\b": "bold red", r"(?m)^makespan\b": "bold"}
)


def write_styled(text: str, stream: TextIO) -> None:
    """Write lines as they are, with colours."""
    styled = Text(visible(text))
    for pattern, style in STYLES.items():
        styled.highlight_regex(pattern, style)
    console_of(stream).print(styled, soft_wrap=True)
