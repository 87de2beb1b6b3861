"""Which nodes take longer beside communication, and which communication is beside them.

Either the machine says by how many times, or its collective library takes processors from kernels: one whose
arithmetic sets its time, and that is spread over P processors, does (P - c) / P of its work in a time in
which collectives hold c of them. Kernels whose memory traffic sets their time lose nothing: fewer processors
than all use the memory fully. Kernels keep half of the processors, whatever runs beside them.

Not here: what becomes of them (`et_sim.engine.nodes.slowing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import format_ns
from et_sim.compute import ComputeModel, Treatment
from et_sim.machine.model import SlowedWork, StreamWork
from et_sim.plan import tables
from et_sim.plan.streams import of_work
from et_sim.plan.tables import FIRST_FACTOR, Action
from et_sim.trace.columns import Trace

MOST_UNITS = 1 << 62
SLOWS = (StreamWork.SENDS, StreamWork.COLLECTIVES)


class TemplatePart(NamedTuple):
    """The nodes of a template in the plan."""

    trace: Trace
    nodes: Any  # rows of the plan's table
    first: int  # where they begin in it
    rank: int  # one that runs it

    @property
    def rows(self) -> slice:
        """Of the plan's table."""
        return slice(self.first, self.first + len(self.trace))


def slowing_of(parts: Sequence[TemplatePart], nodes: int, overlap: tuple[SlowedWork, ...]) -> tuple[Any, Any]:
    """What each node of the plan does to others, or has done to it, and a row for each factor.

    Work is done in units, a whole number of them in a nanosecond.
    """
    found = np.zeros(nodes, np.int16)
    for part in parts:
        takes_time = part.nodes["action"] == Action.DELAY
        for work in SLOWS:
            found[part.rows][of_work(part.trace, work)] = -1
        for number, slowed in enumerate(overlap):
            concerned = of_work(part.trace, slowed.work) & takes_time
            longest = int(part.nodes["duration_ns"][concerned].max(initial=0))
            if longest * slowed.factor.numerator > MOST_UNITS:
                what = f"{slowed.work} of {format_ns(longest)} cannot be slowed by {float(slowed.factor):g}"
                raise MachineError(
                    f"{what}: they are too long to be counted exactly",
                    place=slowed.place,
                    remedy="give a factor with fewer decimals, or correct the durations in the traces",
                )
            found[part.rows][concerned] = FIRST_FACTOR + number
    slowdowns = tables.table(tables.SLOWDOWN, len(overlap))
    for row, slowed in zip(slowdowns, overlap, strict=True):
        row.alone, row.beside = slowed.factor.numerator, slowed.factor.denominator
    return found, slowdowns


def occupation_of(
    parts: Sequence[TemplatePart], nodes: int, compute: ComputeModel, held: Any
) -> tuple[Any, Any]:
    """The same, of the processors that collectives hold, in the order of the plan's collectives.

    Empty where none holds any, or no kernel minds.
    """
    nothing = np.zeros(0, np.int16), tables.table(tables.SLOWDOWN, 0)
    if not held.any():
        return nothing
    found, processors = np.zeros(nodes, np.int16), list[int]()
    for part in parts:
        simulated = np.flatnonzero(part.nodes["action"] == Action.COLLECTIVE)
        of_node = part.nodes["detail"][simulated]
        found[part.rows][simulated] = np.where(of_node >= 0, -held[of_node], 0)
        if found[part.rows].any():
            kernels = np.flatnonzero(
                (part.nodes["treatment"] == Treatment.MODELLED) & (part.nodes["busy"] == 1)
            )
            used = compute.durations(part.trace, kernels, part.rank).utilisation
            of_kernel = np.zeros(0) if used is None else np.nan_to_num(used.processors)
            for number in np.unique(of_kernel[of_kernel > 0]).astype(int).tolist():
                if number not in processors:
                    processors.append(number)
                row = FIRST_FACTOR + processors.index(number)
                found[part.rows][kernels[: len(of_kernel)][of_kernel == number]] = row
    if not processors:
        return nothing
    slowdowns = tables.table(tables.SLOWDOWN, len(processors))
    for row, number in zip(slowdowns, processors, strict=True):
        row.alone, row.beside, row.each = number, number - number // 2, 1
    return found, slowdowns
