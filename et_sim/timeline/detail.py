"""How much of a run is recorded, besides the times of its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from et_sim.errors import UsageError, did_you_mean
from et_sim.tables.registry import details

NODES, PHASES, MESSAGES, LINKS, PORTS, PATH = ("nodes", "phases", "messages", "links", "ports", "path")
Detail = str | Iterable[str]


def details_of(asked: Detail) -> tuple[str, ...]:
    """What is asked for, in the order of the tables: names, with commas between or in a list."""
    texts = [asked] if isinstance(asked, str) else list(asked)
    names = [name.strip() for text in texts for name in str(text).split(",")]
    every = (NODES, *details())
    for name in names:
        if name not in every:
            raise UsageError(f"detail {name!r} is not known", remedy=_known(name, every))
    return tuple(name for name in every if name in names or name == NODES)


def _known(name: str, every: tuple[str, ...]) -> str:
    guess = did_you_mean(name, every)
    known = f"known: {', '.join(every)}, or several of them with commas between"
    return f"{guess} {known}" if guess else known
