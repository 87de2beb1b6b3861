"""Parts of a rank's time, in the order in which they are shown.

They add up to the makespan, and are defined in `et_sim.timeline.statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

PartName = Literal[
    "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "waiting_ns", "host_ns", "idle_ns", "early_ns"
]


class TimePart(Struct, frozen=True):
    """A figure of ranks; `short` heads its column, `text` is for sentences, `mark` fills bars."""

    figure: PartName
    short: str
    text: str
    mark: str


PARTS = (
    TimePart("compute_ns", "compute", "compute", "█"),
    TimePart("exposed_comm_ns", "exposed", "exposed communication", "▒"),
    TimePart("exposed_memory_ns", "memory", "remote memory", "▓"),
    TimePart("waiting_ns", "waiting", "waiting for other ranks", "░"),
    TimePart("host_ns", "host", "waiting for the host", "-"),
    TimePart("idle_ns", "idle", "idle", "·"),
    TimePart("early_ns", "early", "finished early", " "),
)


OVERLAP = "overlap"
_COMPUTE, *_OTHERS = ((part.short, part.text) for part in PARTS)
NAMES = (_COMPUTE, (OVERLAP, "compute, hiding communication"), *_OTHERS)  # of the parts of bars


def used(entries: Sequence[Mapping[str, Any]]) -> tuple[TimePart, ...]:
    """Return the parts that some of the entries have."""
    return tuple(part for part in PARTS if any(entry[part.figure] for entry in entries))


def parts_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return a rank's time by part; computation that hides communication is a part of its own."""
    parts = {part.short: entry[part.figure] for part in PARTS}
    hidden = entry["hidden_comm_ns"]
    return {**parts, "compute": parts["compute"] - hidden, OVERLAP: hidden}
