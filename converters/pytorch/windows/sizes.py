"""What is too large to be converted as a whole, and how it is cut.

Not here: cutting (`parts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[float], None]  # how much is done, of 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of rows that a table of a recording may take, and the parts that it is cut into otherwise."""

    memory_bytes: int = 32 << 20
    part_rows: int = 50_000
    window_parts: int = 6
