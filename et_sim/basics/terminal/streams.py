"""What a stream can show: what rich draws, or plain text.

rich is loaded for terminals only. It heeds COLUMNS, and which colours a terminal has, by itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from et_sim.basics.terminal.visible import drawn_on

if TYPE_CHECKING:
    from rich.console import Console


def is_live(stream: TextIO) -> bool:
    """Whether it is a terminal whose cursor moves."""
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
