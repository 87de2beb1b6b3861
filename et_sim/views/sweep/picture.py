"""A sweep as an SVG picture: makespans over every axis, and over every figure that costs something."""

from __future__ import annotations

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns, plural
from et_sim.tables.of_sweeps import NUMBER, OBJECTIVES
from et_sim.views.drawing.svg import LEFT, PIXELS, document, legend, sentences
from et_sim.views.sweep.charts import (
    COLOURS,
    FRONT,
    LINE,
    OTHER,
    Box,
    best_line,
    dots,
    frame,
    front_line,
    rings,
)
from et_sim.views.sweep.content import Chart, Content
from et_sim.views.sweep.directory import SweepDirectory
from et_sim.views.sweep.scales import shown

MOST_ACROSS = 3
HEIGHT, GAP, BELOW, ABOVE = 200, 84, 56, 24


def sweep_picture(sweep: SweepDirectory) -> str:
    """The SVG text."""
    content = Content(sweep)
    if not content.rows:
        raise UsageError(
            "nothing can be drawn: no point of the sweep is complete",
            place=str(sweep.path),
            remedy=f"et-sim inspect {sweep.path} says why",
        )
    charts = content.charts()
    across = min(len(charts), MOST_ACROSS)
    width = (PIXELS - GAP * (across - 1)) // across
    parts: list[str] = []
    for number, chart in enumerate(charts):
        row, column = divmod(number, across)
        box = Box(LEFT + column * (width + GAP), ABOVE + row * (HEIGHT + BELOW), width, HEIGHT)
        parts += drawn(box, chart, content)
    bottom = ABOVE + (HEIGHT + BELOW) * -(-len(charts) // across)
    used = dict.fromkeys(content.bottlenecks)
    entries = [(COLOURS.get(name, OTHER), f"most time goes to {name}") for name in used]
    entries += [(LINE, "best of each value")] if any(chart.has_line for chart in charts) else []
    entries += [(FRONT, "Pareto front")] if any(chart.front for chart in charts) else []
    entries += [(FRONT, found_name(content))] if content.found else []
    texts = _texts(content)
    parts += [*legend(entries, bottom + 10), *sentences(texts, bottom + 28)]
    return document(parts, bottom + 24 + 15 * len(texts))


def drawn(box: Box, chart: Chart, content: Content) -> list[str]:
    """One chart."""
    parts = [*frame(box, chart.x, chart.y), *dots(box, chart.x, chart.y, content.bottlenecks)]
    if chart.has_line:
        parts.append(best_line(box, chart.x, chart.y))
    if chart.front:
        parts.append(front_line(box, chart.x, chart.y, chart.front))
    if content.found:
        parts.append(rings(box, chart.x, chart.y, content.found))
    return parts


def found_name(content: Content) -> str:
    """What the points are that a search found."""
    titles = [one.title for one in content.objectives]
    if len(titles) == 1:
        return f"point with the {OBJECTIVES[content.objectives[0].column]} {titles[0]}"
    return f"Pareto front of {', '.join(titles[:-1])} and {titles[-1]}"


def _texts(content: Content) -> list[str]:
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
