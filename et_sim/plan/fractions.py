"""A plan whose times are counted in fractions of a nanosecond, for models whose fractions add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.units import format_ns
from et_sim.plan.records import NO_REDUCTION, LoweredPlan

LATEST = 1 << 62  # units of time


def in_fractions(plan: LoweredPlan, bits: int) -> LoweredPlan:
    """Return the plan with all its times in units of 2^-bits ns."""
    if bits == 0:
        return plan
    check_lengths(plan, bits)
    return replace(
        plan,
        latest=LATEST,
        nodes=_shifted(plan.nodes, bits, "duration_ns"),
        paces=plan.paces << bits,
        actors=_shifted(plan.actors, bits, "start_ns"),
        axes=_shifted(plan.axes, bits, "endpoint_ns"),
        transfers=_shifted(plan.transfers, bits, "reduction_ns"),
        switches=_in_fractions(plan.switches, bits),
        memory_hops=_in_fractions(plan.memory_hops, bits),
        trees=_shifted(plan.trees, bits, "up_reduction_ns", "down_reduction_ns"),
    )


def check_lengths(plan: LoweredPlan, bits: int) -> None:
    """Refuse times that are too long to be counted in units of 2^-bits ns."""
    for times in (plan.nodes["duration_ns"], plan.paces, plan.actors["start_ns"]):
        if bits and int(times.max(initial=0)) >= LATEST >> bits:
            raise InputError(
                f"a node or delay would last {format_ns(LATEST >> bits)} or longer",
                remedy="in this network model, times are counted in fractions of nanoseconds and end there",
            )


def _in_fractions(rows: Any, bits: int) -> Any:
    """Return a copy with latencies and rates of switches, or of stages of a memory pool, in fractions."""
    rows = rows.copy()
    rows["latency_ns"] *= 1 << bits
    rows["bytes_per_ns"] /= 1 << bits
    return rows


def _shifted(rows: Any, bits: int, *columns: str) -> Any:
    """Return a copy with columns multiplied by 2^bits, except for `NO_REDUCTION`."""
    rows = rows.copy()
    for column in columns:
        rows[column] = shifted(rows[column], bits)
    return rows


def shifted(times: Any, bits: int) -> Any:
    """Return times in units of 2^-bits ns, except for `NO_REDUCTION`."""
    return np.where(times == NO_REDUCTION, times, times << bits)
