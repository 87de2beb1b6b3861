"""How far a run's makespan may be off, and whether two makespans differ by more than that, in words.

Not here: what it follows from (`et_sim.basics.uncertainty`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from et_sim.basics.uncertainty import LEVEL, Composition
from et_sim.basics.units import format_ns

SURE = f"{100 * LEVEL:.0f} %"


def uncertainty_text(summary: Mapping[str, Any]) -> str:
    """Such as `80 %: 1.33 s to 1.5 s; 71 % of the time is calibrated, 29 % modelled`; empty where nothing
    states it."""
    found = summary.get("uncertainty")
    if found is None:
        return ""
    shares = [(share, basis) for basis, share in found["shares"].items() if share >= 0.005]
    told = [f"{100 * share:.0f} % {basis}" for share, basis in sorted(shares, reverse=True)]
    first, *rest = told or ["none of the time is known"]
    amount, basis = first.rsplit(" ", 1)
    low, high = (format_ns(_rounded(found[name])) for name in ("low_ns", "high_ns"))
    return f"{SURE}: {low} to {high}; {', '.join([f'{amount} of the time is {basis}', *rest])}"


def _rounded(time_ns: int) -> int:
    """To three digits: more would say nothing."""
    return int(float(f"{time_ns:.3g}"))


def ratio_band(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of the makespan of run B by that of A, from their summaries; None where either states nothing."""
    if not (a.get("uncertainty") and b.get("uncertainty") and a["makespan_ns"]):
        return None
    before, after = (Composition.read(one["uncertainty"]) for one in (a, b))
    return before.ratio(after, b["makespan_ns"] / a["makespan_ns"])


def difference_text(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """What the band says of the difference: empty where either states nothing."""
    band = ratio_band(a, b)
    if band is None:
        return ""
    low, high = (100 * (one - 1) for one in band)
    if low <= 0 <= high:
        return f"{SURE}: {low:+.1f} % to {high:+.1f} %: not a difference that this model can tell"
    word = "faster" if high < 0 else "slower"
    least, most = sorted((abs(low), abs(high)))
    return f"{SURE}: {least:.1f} % to {most:.1f} % {word}"
