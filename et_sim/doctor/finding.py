"""One thing that was looked at, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found; a `problem` is a sentence, with its `remedy`."""

    topic: str
    name: str
    found: str
    expected: str = ""
    problem: str = ""
    remedy: str = ""
