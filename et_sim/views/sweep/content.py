"""What the picture and the page of a sweep show: its complete points, the fastest first, as charts.

Not here: pixels (`charts`), words (`picture`, `page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from et_sim.tables.sweep_tables import NUMBER
from et_sim.views.sweep.directory import SweepDirectory
from et_sim.views.sweep.scales import (
    MAKESPAN,
    RESOURCES,
    Scale,
    SweepQuantity,
    axis_scale,
    quantity_scale,
)
from et_sim.views.sweep.summary import complete, front_rows, objectives_of


def front_of(costs: Sequence[float], times: Sequence[float]) -> list[int]:
    """Numbers of the rows on the Pareto front of two figures that are to be small, by rising costs.

    Of rows that are equal in both, the first one counts.
    """
    front: list[int] = []
    for row in sorted(range(len(costs)), key=lambda row: (costs[row], times[row], row)):
        if not front or times[row] < times[front[-1]]:
            front.append(row)
    return front


MOST_JOINED = 16  # values whose best points a line joins; always, where there is one axis


class Chart(Struct, frozen=True):
    """Makespans over an axis or another figure."""

    x: Scale
    y: Scale
    has_line: bool = False
    front: tuple[int, ...] = ()  # rows


class SweepContent:
    """A sweep, opened for drawing."""

    def __init__(self, sweep: SweepDirectory) -> None:
        self.sweep = sweep
        self.every: Sequence[Mapping[str, Any]] = sweep.table.to_pylist()
        self.rows = complete(self.every)

    @cached_property
    def bottlenecks(self) -> tuple[str, ...]:
        """Of every row."""
        return tuple(row["bottleneck"] or "" for row in self.rows)

    @cached_property
    def makespans(self) -> Scale:
        """Where the makespans stand."""
        return self.quantity(MAKESPAN)

    @cached_property
    def axes(self) -> tuple[Scale, ...]:
        """Where the values of the axes stand, as the sweep lists them."""
        in_order = sorted(range(len(self.rows)), key=lambda row: self.rows[row]["point"])
        scales = []
        for axis in self.sweep.axes:
            scale = axis_scale(axis, [self.rows[row][axis] for row in in_order])
            places: list[int | None] = [None] * len(self.rows)
            for row, place in zip(in_order, scale.places, strict=True):
                places[row] = place
            scales.append(Scale(scale.title, tuple(places), scale.marks))
        return tuple(scales)

    @cached_property
    def resources(self) -> tuple[SweepQuantity, ...]:
        """Figures besides the makespan that cost something, and differ between points."""
        columns = set(self.sweep.table.column_names)
        usual = {quantity.column for quantity in (MAKESPAN, *RESOURCES)}
        sought = [quantity for quantity in self.objectives if quantity.column not in usual]
        return tuple(
            quantity.of(self.sweep.table)
            for quantity in (*sought, *RESOURCES)
            if quantity.column in columns
            and len({row[quantity.column] for row in self.rows} - {None}) > 1
            and quantity.column not in self.sweep.axes
        )

    @cached_property
    def objectives(self) -> tuple[SweepQuantity, ...]:
        """What a search looked for; empty, if none did."""
        return objectives_of(self.sweep)

    @cached_property
    def search_front(self) -> tuple[int, ...]:
        """The rows that a search found, in its order: no other one dominates them."""
        if self.sweep.search is None:
            return ()
        places = {row[NUMBER]: place for place, row in enumerate(self.rows)}
        return tuple(places[row[NUMBER]] for row in front_rows(self.sweep, self.rows))

    def quantity(self, quantity: SweepQuantity) -> Scale:
        """Where a figure of every row stands."""
        return quantity_scale(quantity, [row[quantity.column] for row in self.rows])

    def front(self, quantity: SweepQuantity) -> tuple[int, ...]:
        """The rows that no other one beats in this figure and in makespan, by rising figure."""
        known = [row for row in range(len(self.rows)) if self.rows[row][quantity.column] is not None]
        costs = [self.rows[row][quantity.column] for row in known]
        places = front_of(costs, [self.rows[row][MAKESPAN.column] for row in known])
        return tuple(known[place] for place in places)

    def charts(self) -> list[Chart]:
        """One for every axis, and one for every resource."""
        is_only_axis = len(self.axes) == 1
        of_axes = [
            Chart(scale, self.makespans, len(set(scale.places)) > 1 and (is_only_axis or _are_few(scale)))
            for scale in self.axes
        ]
        of_resources = [
            Chart(
                self.quantity(resource), self.makespans, front=() if self.objectives else self.front(resource)
            )
            for resource in self.resources
        ]
        return of_axes + of_resources


def _are_few(scale: Scale) -> bool:
    return len(set(scale.places)) <= MOST_JOINED
