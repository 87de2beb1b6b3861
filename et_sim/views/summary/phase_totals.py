"""Phases of the chunks of collectives, by dimension and operation, from phases.arrow.

Times are sums over chunks, which run concurrently: they compare dimensions, and are not parts of the
makespan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.units import format_ns
from et_sim.views.run.columns import integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Grouped, most_by
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import prose, share
from et_sim.views.view import Forms

COLUMNS = ("actor", "dimension", "operation", "bytes", "queued_ns", "start_ns", "end_ns")
NONE, SEVERAL = -1, "several"


class PhaseTotal(Struct):
    """Equal phases, over all ranks."""

    dimension: int | None  # None: phases that cross several at once
    operation: str
    count: int = 0
    bytes: int = 0
    queued_ns: int = 0  # from entering the queue to admission
    running_ns: int = 0
    longest_ns: int = 0

    @property
    def called(self) -> str:
        """Return the dimension in a table."""
        return SEVERAL if self.dimension is None else str(self.dimension)


def phase_totals(run: RunDirectory, part: Selection = EVERYTHING) -> list[PhaseTotal] | None:
    """Return totals by dimension and operation; None if phases were not recorded."""
    if not run.holds("phases"):
        return None
    weights = part.weights(run)
    totals: dict[tuple[int | None, str], PhaseTotal] = {}
    for rows in run.batches("phases", COLUMNS):
        named = words(rows["operation"])
        groups = Grouped(integers(rows["dimension"], missing=NONE), named.codes)
        for (number, operation), figures in groups.with_keys(*_figures(rows, groups, weights, part)):
            dimension, name = None if number == NONE else number, str(named.texts[operation])
            total = totals.setdefault((dimension, name), PhaseTotal(dimension, name))
            count, payload, queued, running, longest = figures
            total.count += count
            total.bytes += payload
            total.queued_ns += queued
            total.running_ns += running
            total.longest_ns = max(total.longest_ns, longest)
    counted = [total for total in totals.values() if total.count]
    return sorted(counted, key=lambda total: (total.dimension is None, total.dimension or 0, total.operation))


def _figures(rows: Any, groups: Grouped, weights: Any, part: Selection) -> list[Any]:
    """Return count, bytes, time in queues and running, and the longest, by key, over the selected ranks."""
    queued, start = (integers(rows[name], missing=0) for name in ("queued_ns", "start_ns"))
    end = integers(rows["end_ns"], missing=-1)
    end = np.where(end < 0, start, end)
    weight = weights[numbers(rows["actor"])] * part.touches(queued, end)
    waiting_from, waiting_to = part.clipped(queued, start)
    running_from, running_to = part.clipped(start, end)
    running = np.where(weight > 0, running_to - running_from, 0)
    summed = (1, integers(rows["bytes"], missing=0), waiting_to - waiting_from, running)
    totals = [groups.total(weight * values) for values in summed]
    return [*totals, most_by(groups.of_row, len(groups.keys), running)]


def phase_data(run: RunDirectory, part: Selection) -> Any:
    """Return the totals for `--json`."""
    return [to_builtins(total) for total in phase_totals(run, part) or []]


def phase_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line for each dimension and operation."""
    totals = phase_totals(run, part)
    if not totals:
        return prose(["no collective had a phase"], width)
    whole = sum(total.running_ns for total in totals)
    columns = (
        SheetColumn("dimension", "called", "<"),
        SheetColumn("operation", side="<"),
        SheetColumn("phases", "count"),
        SheetColumn("bytes"),
        SheetColumn("queueing", "queued_ns"),
        SheetColumn("running", "running_ns"),
        SheetColumn("", lambda total: share(total.running_ns, whole)),
        SheetColumn("mean", lambda total: format_ns(total.running_ns / total.count)),
        SheetColumn("longest", "longest_ns"),
    )
    sheet = Sheet(columns, cut={"operation": 8}, drop=("mean", "longest"))
    legend = "sums over all ranks and chunks; chunks run concurrently, so these are not parts of the makespan"
    if any(total.dimension is None for total in totals):
        legend += f"; {SEVERAL}: of groups whose members differ in several dimensions"
    return prose([*sheet.lines(totals, width), legend], width)


PHASES = Forms(phase_lines, phase_data)
