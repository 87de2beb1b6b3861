"""Charts of a sweep's complete points, the fastest first; as marks, and all of them as an SVG picture.

Charts show makespans over every axis and over every resource. Colours are attributes, which style sheets of a
page may override.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell
from et_sim.basics.units import format_ns, plural
from et_sim.tables.sweep_tables import NUMBER, OBJECTIVES
from et_sim.views.drawing.scene import GRID, INK, LEFT, LETTER, PIXELS, Entry, Scene
from et_sim.views.sweep.directory import SweepDirectory
from et_sim.views.sweep.scales import (
    LAST,
    MAKESPAN,
    RESOURCES,
    Scale,
    SweepQuantity,
    axis_scale,
    quantity_scale,
    shown,
)
from et_sim.views.sweep.summary import complete, front_rows, objectives_of
from et_sim.views.text import cut


def front_of(costs: Sequence[float], times: Sequence[float]) -> list[int]:
    """Return the rows on the Pareto front of two figures to minimise, by rising costs.

    Of rows that are equal in both, the first one counts.
    """
    front: list[int] = []
    for row in sorted(range(len(costs)), key=lambda row: (costs[row], times[row], row)):
        if not front or times[row] < times[front[-1]]:
            front.append(row)
    return front


MOST_JOINED = 16  # most values whose best points a line joins, unless there is one axis


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
        """Return the bottleneck of every row."""
        return tuple(row["bottleneck"] or "" for row in self.rows)

    @cached_property
    def makespans(self) -> Scale:
        """Return the scale of the makespans."""
        return self.quantity(MAKESPAN)

    @cached_property
    def axes(self) -> tuple[Scale, ...]:
        """Return the scales of the axes, with values in the order of the sweep."""
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
        """Return figures besides the makespan that cost something, and differ between points."""
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
        """Return the objectives of a search; empty if there was none."""
        return objectives_of(self.sweep)

    @cached_property
    def search_front(self) -> tuple[int, ...]:
        """Return the rows that a search found, in its order: no other one dominates them."""
        if self.sweep.search is None:
            return ()
        places = {row[NUMBER]: place for place, row in enumerate(self.rows)}
        return tuple(places[row[NUMBER]] for row in front_rows(self.sweep, self.rows))

    def quantity(self, quantity: SweepQuantity) -> Scale:
        """Return the scale of a figure of every row."""
        return quantity_scale(quantity, [row[quantity.column] for row in self.rows])

    def front(self, quantity: SweepQuantity) -> tuple[int, ...]:
        """Return the rows that no other one beats in this figure and in makespan, by rising figure."""
        known = [row for row in range(len(self.rows)) if self.rows[row][quantity.column] is not None]
        costs = [self.rows[row][quantity.column] for row in known]
        places = front_of(costs, [self.rows[row][MAKESPAN.column] for row in known])
        return tuple(known[place] for place in places)

    def charts(self) -> list[Chart]:
        """Return a chart for every axis, and one for every resource."""
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


# Activities with the most time, in the colours of the parts of ranks' time.
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#0072b2",
        "communication": "#e69f00",
        "remote memory": "#117733",
        "waiting for ranks": "#cc79a7",
        "host": "#8d99a6",
        "idle": "#4a4a4a",
        "finished early": "#56b4e9",
    }
)
OTHER = "#7d7d7d"
FRONT = "#c00000"
SIZES = ((200, 7.0), (2000, 5.0))  # (number of points, width of a dot up to it)
LEAST_SIZE = 3.0
RING = 5  # radius, in pixels
INSET = 8  # pixels between the frame of a chart and its first point


class Box(Struct, frozen=True):
    """The area of a chart, without the texts around it."""

    left: int
    top: int
    width: int
    height: int

    def x(self, place: int) -> float:
        """Return pixels from the left."""
        return self.left + INSET + (self.width - 2 * INSET) * place / LAST

    def y(self, place: int) -> float:
        """Return pixels from the top."""
        return self.top + self.height - INSET - (self.height - 2 * INSET) * place / LAST


def draw_chart(scene: Scene, box: Box, chart: Chart, content: SweepContent) -> None:
    """Draw makespans over an axis or another figure."""
    x, y = chart.x, chart.y
    _frame(scene, box, x, y)
    size = next((size for most, size in SIZES if len(content.bottlenecks) <= most), LEAST_SIZE)
    dots: dict[str, dict[str, None]] = {}  # rows of a group share a colour
    for (across, up), group in zip(_places(box, x, y), content.bottlenecks, strict=True):
        if across is not None:
            dots.setdefault(group, {})[f"M{across:.1f} {up:.1f}h.01"] = None
    for group, places in dots.items():
        style = {"stroke_linecap": "round", "stroke_width": f"{size:g}", "stroke_opacity": ".75"}
        _outline(scene, "dots", "".join(places), COLOURS.get(group, OTHER), **style)
    if chart.has_line:  # through the least of every value
        least: dict[int, int] = {}
        for across, up in zip(x.places, y.places, strict=True):
            if across is not None and up is not None:
                least[across] = min(up, least.get(across, up))
        corners = "L".join(f"{box.x(across):.1f} {box.y(least[across]):.1f}" for across in sorted(least))
        _outline(scene, "best", f"M{corners}", INK)
    if chart.front:  # steps: no row between two is known to be better than the first
        corners_of = [(box.x(x.places[row] or 0), box.y(y.places[row] or 0)) for row in chart.front]
        steps = "".join(f"H{across:.1f}V{up:.1f}" for across, up in corners_of[1:])
        begin = f"M{corners_of[0][0]:.1f} {corners_of[0][1]:.1f}"
        _outline(scene, "front", f"{begin}{steps}H{box.left + box.width}", FRONT)
    if content.search_front:  # rings around the results of a search
        ring = f"a{RING} {RING} 0 1 0 {2 * RING} 0a{RING} {RING} 0 1 0 {-2 * RING} 0"
        every = list(_places(box, x, y))
        positions = dict.fromkeys(every[row] for row in content.search_front)
        rings = (f"M{across - RING:.1f} {up:.1f}{ring}" for across, up in positions if across is not None)
        _outline(scene, "found", "".join(rings), FRONT)


def _outline(scene: Scene, name: str, shape: str, stroke: str, **style: str) -> None:
    """Draw a shape of lines, with a class name for style sheets."""
    scene.path(shape, class_=name, fill="none", **{"stroke_width": "1.5", **style}, stroke=stroke)


def _places(box: Box, x: Scale, y: Scale) -> Iterator[tuple[Any, Any]]:
    """Yield the place of every row; None: it has none."""
    for across, up in zip(x.places, y.places, strict=True):
        yield (None, None) if across is None or up is None else (box.x(across), box.y(up))


def _frame(scene: Scene, box: Box, x: Scale, y: Scale) -> None:
    """Draw the marks and titles of both axes."""
    right, bottom = box.left + box.width, box.top + box.height
    for place, text in y.marks:
        at = box.y(place)
        scene.line(box.left, at, right, at, class_="grid")
        scene.text(box.left - 6, at + 4, text, "end")
    written = 0.0
    for place, text in x.marks:
        at, half = box.x(place), LETTER * len(text) / 2
        if not written or at - half >= written + LETTER:
            written = at + half
            scene.upright(at, bottom, bottom + 4, text, bottom + 16, class_="grid")
    scene.path(f"M{box.left} {box.top}V{bottom}H{right}", class_="grid", fill="none", stroke=GRID)
    title = cut(x.title, box.width // LETTER)
    scene.text(box.left + box.width / 2, bottom + 32, title, "middle", font_weight="bold")


def lines(box: Box, scales: Sequence[Scale], rows: Sequence[int]) -> str:
    """Return the shape of rows across upright scales; a row skips scales on which it has no place."""
    paths: dict[str, None] = {}
    for row in rows:
        corners = [
            f"{box.left + box.width * at / max(len(scales) - 1, 1):.0f} {box.y(place):.0f}"
            for at, scale in enumerate(scales)
            if (place := scale.places[row]) is not None
        ]
        paths["M" + "L".join(corners)] = None
    return "".join(paths)


MOST_ACROSS = 3
HEIGHT, GAP, BELOW, ABOVE = 200, 84, 56, 24


def sweep_picture(sweep: SweepDirectory) -> str:
    """Return the SVG text."""
    content = SweepContent(sweep)
    if not content.rows:
        raise UsageError(
            "nothing can be drawn: no point of the sweep is complete",
            place=str(sweep.path),
            remedy=f"et-sim inspect {in_shell(sweep.path)} lists the reasons",
        )
    scene, charts = Scene(), content.charts()
    across = min(len(charts), MOST_ACROSS)
    width = (PIXELS - GAP * (across - 1)) // across
    for number, chart in enumerate(charts):
        row, column = divmod(number, across)
        box = Box(LEFT + column * (width + GAP), ABOVE + row * (HEIGHT + BELOW), width, HEIGHT)
        draw_chart(scene, box, chart, content)
    bottom = ABOVE + (HEIGHT + BELOW) * -(-len(charts) // across)
    fronts = [(FRONT, "Pareto front")] * any(chart.front for chart in charts)
    scene.legend(legend_of(content, INK) + fronts, bottom + 10)
    return scene.finish(_texts(content), bottom + 28)


def legend_of(content: SweepContent, ink: str) -> list[Entry]:
    """Return the meanings of colours, with this colour of lines."""
    entries = [
        (COLOURS.get(name, OTHER), f"most time goes to {name}") for name in dict.fromkeys(content.bottlenecks)
    ]
    entries += [(ink, "best of each value")] * any(chart.has_line for chart in content.charts())
    return [*entries, *([(FRONT, front_name(content))] if content.search_front else [])]


def front_name(content: SweepContent) -> str:
    """Return the name of the points that a search found."""
    titles = [objective.title for objective in content.objectives]
    if len(titles) == 1:
        return f"point with the {OBJECTIVES[content.objectives[0].column]} {titles[0]}"
    return f"Pareto front of {', '.join(titles[:-1])} and {titles[-1]}"


def _texts(content: SweepContent) -> list[str]:
    sweep, best = content.sweep, content.rows[0]
    values = ", ".join(f"{axis} {shown(best[axis])}" for axis in sweep.axes)
    missing = sweep.points - len(content.rows)
    why = "not complete" if sweep.search is None else "not evaluated, or not complete"
    more = f"; {missing:,} not drawn, because {why}" if missing else ""
    points = plural(sweep.points, "point")
    return [
        f"makespan at {points}{more}",
        f"best: {format_ns(best['makespan_ns'])} at point {best[NUMBER]}, {values}",
    ]
