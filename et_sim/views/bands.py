"""Differences of predicted times with their uncertainty bands.

Common errors of two times cancel in their ratio, so a difference may be certain although neither time is
(`basics.uncertainty`). If the band contains zero, the difference is within the error of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from et_sim.basics.uncertainty import LEVEL, Composition
from et_sim.views.text import percent

if TYPE_CHECKING:
    from et_sim.tables.summary import Summary


Band = tuple[float, float]  # of one time by another, less one
SURE = f"{100 * LEVEL:.0f} %"
BAND = f"{SURE} band"
ALIKE = "\N{ALMOST EQUAL TO}"  # marks a difference whose band contains zero
ALIKE_NOTE = f"{ALIKE}: within the error of the model, by its {BAND}."
FINE = 0.1  # bands within this have a decimal


def relative_band(
    before: Composition | None, before_ns: int | None, after: Composition | None, after_ns: int | None
) -> Band | None:
    """Return the band of the second time by the first, less one; None if either states no uncertainty."""
    if before is None or after is None or not before_ns or after_ns is None:
        return None
    low, high = before.ratio(after, after_ns / before_ns)
    return low - 1, high - 1


def stated(content: Mapping[str, Any] | None) -> Composition | None:
    """Return the composition of a time that a summary's `uncertainty` states."""
    return Composition.read(content) if content else None


def band_of_runs(a: Summary, b: Summary) -> Band | None:
    """Return the band of run B's makespan by that of A, from their summaries."""
    makespans = a["makespan_ns"], b["makespan_ns"]
    both = (stated(summary.get("uncertainty")) for summary in (a, b))
    first, second = both
    return relative_band(first, makespans[0], second, makespans[1])


def contains_none(band: Band | None) -> bool:
    """Return whether there may be no difference."""
    return band is not None and band[0] <= 0 <= band[1]


def band_text(band: Band | None) -> str:
    """Return a band such as `-5.7 to +1.5 %`; empty if there is none."""
    if band is None:
        return ""
    digits = 1 if max(map(abs, band)) < FINE else 0
    return f"{100 * band[0]:+.{digits}f} to {100 * band[1]:+.{digits}f} %"


def percent_text(before: int, after: int, band: Band | None) -> str:
    """Return a difference such as `-1.0 %`, marked if it is within the error of the model."""
    text = percent(before, after)
    return f"{ALIKE} {text}" if text and contains_none(band) else text


def notes(bands: Iterable[Band | None]) -> list[str]:
    """Return the meaning of the mark, if one of these differences has it."""
    return [ALIKE_NOTE] if any(map(contains_none, bands)) else []


def difference_text(a: Summary, b: Summary) -> str:
    """Return the band of the difference of two runs; empty if either states no uncertainty."""
    band = band_of_runs(a, b)
    if band is None:
        return ""
    low, high = (100 * side for side in band)
    if contains_none(band):
        return f"{SURE}: {low:+.1f} % to {high:+.1f} %: within the error of the model"
    least, most = sorted((abs(low), abs(high)))
    return f"{SURE}: {least:.1f} % to {most:.1f} % {'faster' if high < 0 else 'slower'}"
