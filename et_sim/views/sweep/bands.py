"""Which points of a sweep the model can tell apart: bands of the ratio of their makespans.

What two points have in common cancels, so the band of their ratio is narrower than those of the two; it is
found from the column `made_of`. Not here: what it follows from (`et_sim.basics.uncertainty`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.basics.uncertainty import LEVEL, Composition
from et_sim.basics.units import plural
from et_sim.tables.sweep_tables import FILES, MADE_OF, NUMBER, TABLE

Row = Mapping[str, Any]
Band = tuple[float, float]  # of one makespan by another, less one
BAND = f"{100 * LEVEL:.0f} % band"
ALIKE = "\N{ALMOST EQUAL TO}"  # marks what cannot be told from the best


def relative_band(before: Row, after: Row) -> Band | None:
    """By how much a point is slower than another; None where one of them states nothing."""
    compositions = _composition(before), _composition(after)
    if compositions[0] is None or compositions[1] is None or not before["makespan_ns"]:
        return None
    low, high = compositions[0].ratio(compositions[1], after["makespan_ns"] / before["makespan_ns"])
    return low - 1, high - 1


def contains_none(band: Band | None) -> bool:
    """Whether there may be no difference at all."""
    return band is not None and band[0] <= 0 <= band[1]


def band_text(band: Band | None) -> str:
    """Such as `-5 to +14 %`; empty of what is not known."""
    return "" if band is None else f"{100 * band[0]:+.0f} to {100 * band[1]:+.0f} %"


def band_note(done: Sequence[Row]) -> str:
    """How many points cannot be told from the first, the best, as a sentence; empty where none states it."""
    bands = [relative_band(done[0], row) for row in done[1:]]
    if not any(bands):
        return ""
    alike = sum(map(contains_none, bands))
    if not alike:
        return f"The model tells the best from {plural(len(bands), 'other point')}, by the {BAND} of each."
    return (
        f"Of {plural(len(bands), 'other point')}, the model cannot tell {alike:,} ({ALIKE}) from the best: "
        f"by their {BAND}, they may be as fast."
    )


def _composition(row: Row) -> Composition | None:
    if not row[MADE_OF]:
        return None
    try:
        return Composition.read(json.loads(row[MADE_OF]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"column {MADE_OF!r} of point {row[NUMBER]} does not say what its time consists of",
            place=FILES[TABLE],
            remedy="sweep again: what is finished is kept in the journal",
        ) from None
