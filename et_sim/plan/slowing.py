"""Which nodes take longer beside communication, and which communication is beside them.

Not here: what becomes of them (`et_sim.engine.nodes.slowing`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import MachineError
from et_sim.machine.model import SlowedWork, StreamWork
from et_sim.plan import tables
from et_sim.plan.streams import of_work
from et_sim.plan.tables import FIRST_FACTOR, SLOWS_OTHERS, Action
from et_sim.trace.workload import Workload
from et_sim.units import format_ns

MOST_UNITS = 1 << 62
SLOWS = (StreamWork.SENDS, StreamWork.COLLECTIVES)


def slowdowns_of(overlap: tuple[SlowedWork, ...]) -> Any:
    """A row for each factor: work is done in units, a whole number of them in a nanosecond."""
    found = tables.table(tables.SLOWDOWN, len(overlap))
    for row, slowed in zip(found, overlap, strict=True):
        row.alone, row.beside = slowed.factor.numerator, slowed.factor.denominator
    return found


def slowing_of(nodes: Any, templates: Any, workload: Workload, overlap: tuple[SlowedWork, ...]) -> Any:
    """What each node of the plan's table does to others, or has done to it; empty if nothing is slowed."""
    if not overlap:
        return np.zeros(0, np.uint8)
    found = np.zeros(len(nodes), np.uint8)
    for row, trace in zip(templates, workload.templates, strict=False):  # behind: custom collectives
        own = slice(int(row.node_first), int(row.node_first) + len(trace))
        takes_time = nodes["action"][own] == Action.DELAY
        for work in SLOWS:
            found[own][of_work(trace, work)] = SLOWS_OTHERS
        for number, slowed in enumerate(overlap):
            concerned = of_work(trace, slowed.work) & takes_time
            longest = int(nodes["duration_ns"][own][concerned].max(initial=0))
            if longest * slowed.factor.numerator > MOST_UNITS:
                what = f"{slowed.work} of {format_ns(longest)} cannot be slowed by {float(slowed.factor):g}"
                raise MachineError(
                    f"{what}: they are too long to be counted exactly",
                    place=slowed.place,
                    remedy="give a factor with fewer decimals, or correct the durations in the traces",
                )
            found[own][concerned] = FIRST_FACTOR + number
    return found
