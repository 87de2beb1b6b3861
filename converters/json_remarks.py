"""What a JSON input makes us say besides its figures: keys nobody knows, numbers that were rounded.

Not here: errors; those end the conversion.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from et_sim.basics.errors import did_you_mean


@dataclass(slots=True)
class Seen:
    """How often something occurred, and where first."""

    count: int
    first: str
    hint: str = ""


@dataclass(slots=True)
class Remarks:
    """Collected while one input is read."""

    unknown: dict[str, Seen] = field(default_factory=dict)
    rounded: dict[str, Seen] = field(default_factory=dict)
    sentences: list[tuple[str, str]] = field(default_factory=list)

    def note_unknown(self, given: Iterable[str], known: Collection[str], who: str) -> None:
        """Count the keys that are not known."""
        for key in given:
            if key not in known:
                seen = self.unknown.setdefault(key, Seen(0, who, did_you_mean(key, sorted(known))))
                seen.count += 1

    def note_rounded(self, key: str, who: str) -> None:
        """Count a number that had to be rounded."""
        self.rounded.setdefault(key, Seen(0, who)).count += 1

    def notes(self) -> Iterator[tuple[str, str]]:
        """Everything as (label, sentence)."""
        yield from self.sentences
        for key, seen in sorted(self.rounded.items()):
            yield "rounded", f"{key} to whole microseconds, {_places(seen)}"
        for key, seen in sorted(self.unknown.items()):
            hint = f"; {seen.hint}" if seen.hint else ""
            yield "ignored", f"unknown key {json.dumps(key, ensure_ascii=False)}, {_places(seen)}{hint}"


def who(node_id: Any, name: Any) -> str:
    """How messages call a node of a JSON file."""
    called = f" {json.dumps(name, ensure_ascii=False)}" if isinstance(name, str) and name else ""
    return f"node {node_id}{called}"


def _places(seen: Seen) -> str:
    return f"in {seen.first}" if seen.count == 1 else f"{seen.count:,} times, first in {seen.first}"
