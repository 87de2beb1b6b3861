"""Analytical network: a message takes its latency and its serialisation, whoever else is sending.

Links have no state. A message is charged the *lowest* dimension in which the two ranks differ, as in
the reference: hops * latency + bytes / bandwidth of that dimension, truncated once. A ring goes the
shorter way round, a switch takes two hops, a fully connected dimension one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.machine.model import Network, Shape
from et_sim.plan.tables import record, table
from et_sim.tables_by_reference import Tables, works_on_tables

RING, FULLY_CONNECTED, SWITCH = 0, 1, 2
SHAPE_CODE = {Shape.RING: RING, Shape.FULLY_CONNECTED: FULLY_CONNECTED, Shape.SWITCH: SWITCH}

DIMENSION = record(
    ("npus", "i8"),
    ("wiring", "i8"),
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
)


@dataclass(frozen=True, slots=True)
class AnalyticalNetwork(Tables):
    """What the compiled functions below need to know."""

    dimensions: Any
    step_flight_ns: Any  # per row of the plan's step table; -1: depends on who talks to whom


def prepare(network: Network, programs: Any, steps: Any) -> AnalyticalNetwork:
    """Tables for one run; steps that stay within one dimension get their flight time here, once."""
    dimensions = table(DIMENSION, len(network.dimensions))
    for row, dimension in zip(dimensions, network.dimensions, strict=True):
        row.npus, row.wiring = dimension.npus, SHAPE_CODE[dimension.shape]
        row.bytes_per_ns, row.latency_ns = dimension.bytes_per_ns, dimension.latency_ns
    flights = np.full(len(steps), -1, np.int64)
    for program in programs:
        along = int(program["dimension"])
        if along >= 0:
            first = int(program["step_first"])
            rows = slice(first, first + int(program["step_period"]))
            flights[rows] = _flight_along(dimensions[along], steps[rows])
    return AnalyticalNetwork(dimensions, flights)


def _flight_along(dimension: Any, steps: Any) -> Any:
    distance = steps["distance"].astype(np.int64)
    hops = {
        RING: np.minimum(distance, dimension.npus - distance),
        FULLY_CONNECTED: np.ones_like(distance),
        SWITCH: np.full_like(distance, 2),
    }[int(dimension.wiring)]
    return (hops * dimension.latency_ns + steps["bytes"] / dimension.bytes_per_ns).astype(np.int64)


@works_on_tables
def flight_ns(network: AnalyticalNetwork, source: int, target: int, size: int) -> int:
    """Time from sending `size` bytes to their arrival; a message to oneself takes none."""
    for row in range(len(network.dimensions)):
        dimension = network.dimensions[row]
        here, there = source % dimension.npus, target % dimension.npus
        if here != there:
            ahead = abs(there - here)
            hops = 1
            if dimension.wiring == RING:
                hops = min(ahead, dimension.npus - ahead)
            elif dimension.wiring == SWITCH:
                hops = 2
            return int(hops * dimension.latency_ns + size / dimension.bytes_per_ns)
        source //= dimension.npus
        target //= dimension.npus
    return 0
