"""The energy that a run takes, and its price: what NPUs draw and are let for, times how long.

Times are added up as whole nanoseconds over all ranks first, so that folding changes no digit. Not here: what
an NPU draws (`et_sim.machine.costs_object`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from et_sim.timeline.measurement import Measurement

NS_PER_SECOND = 1_000_000_000
SECONDS_PER_HOUR = 3600
DIGITS = 12


def costs(rates: dict[str, Any] | None, measurement: Measurement, makespan_ns: int) -> dict[str, Any] | None:
    """What all ranks take until the last one is done; None where the machine does not say what they draw."""
    if rates is None:
        return None
    per_actor = zip(measurement.statistics.compute_ns, measurement.ranks_per_actor, strict=True)
    computing_ns = sum(int(time) * int(ranks) for time, ranks in per_actor)
    all_ns = makespan_ns * len(measurement.actor_of_rank)
    found: dict[str, Any] = {"computing_joules": None, "not_computing_joules": None, "network_joules": None}
    if rates["busy_watts"] is not None:
        found["computing_joules"] = _seconds(computing_ns, rates["busy_watts"])
        found["not_computing_joules"] = _seconds(all_ns - computing_ns, rates["idle_watts"])
        found["network_joules"] = _seconds(all_ns, rates["network_watts"])
    parts = [value for value in found.values() if value is not None]
    hourly = rates["price_per_hour"]
    price = None if hourly is None else _seconds(all_ns, hourly) / SECONDS_PER_HOUR
    return {
        **{name: _rounded(value) for name, value in found.items()},
        "joules": _rounded(sum(parts, Fraction())) if parts else None,
        "price": _rounded(price),
        "currency": rates["currency"],
    }


def _seconds(time_ns: int, rate: float) -> Fraction:
    return Fraction(time_ns) * Fraction(str(rate)) / NS_PER_SECOND


def _rounded(value: Fraction | None) -> float | None:
    return None if value is None else float(f"{float(value):.{DIGITS}g}")
