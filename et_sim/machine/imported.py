"""A network file of another tool, in the words of ours. Not here: how such files are read."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Imported(Struct):
    """Devices and links as a graph file would list them, and what else such a file would have."""

    content: dict[str, Any]
    link_lines: list[int] = field(default_factory=list)  # if known
    dimensions: tuple[int, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)  # besides devices and links
    notices: tuple[tuple[str, str], ...] = ()  # (key, what is to be known of it)
