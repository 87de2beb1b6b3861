"""One meaning of one word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Meaning:
    """`place` is the file or command that the word stands in; `facts` are default, allowed values, …"""

    name: str
    kind: str
    place: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # other names that find it
