"""A sweep as one HTML page: charts with selectable points, the best points, fronts, and failures.

Charts and tables need no script; it only selects points (`sweep.js`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import quote as url_quote

from et_sim.basics.errors import EtSimError, UsageError, unreadable
from et_sim.basics.units import format_ns, plural
from et_sim.tables.sweep_tables import NUMBER, RUNS
from et_sim.views.drawing.nodes import ALWAYS
from et_sim.views.drawing.scene import LETTER, Scene
from et_sim.views.markup import section, tag, text
from et_sim.views.report.page import asset, page_of, write_report
from et_sim.views.report.timeline import MOST_SLICES
from et_sim.views.run.directory import open_run
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.sweep.charts import Box, Chart, SweepContent, draw_chart, front_name, legend_of, lines
from et_sim.views.sweep.directory import COMPLETE, SweepDirectory
from et_sim.views.sweep.scales import EXPOSED, MAKESPAN, Scale, SweepQuantity, band_note, shown
from et_sim.views.sweep.summary import (
    POINT_FIGURES,
    certainty,
    complete,
    counted,
    figures_of_point,
    is_kept,
    longest_part,
    run_name,
    searched,
)

MOST_BEST = 20  # points of the table; their kept runs have pages
MOST_LINES = 2000  # of parallel coordinates
MOST_FAILURES = 200
BOX, AROUND = Box(76, 12, 360, 200), (480, 252)
APART, TALL = 150, 260  # pixels between parallel axes, and their height


def sweep_report(sweep: SweepDirectory, pages: Mapping[int, str]) -> str:
    """Return the page as text; `pages` has the addresses of pages of kept runs, by point."""
    content = SweepContent(sweep)
    name = sweep.path.resolve().name
    best = format_ns(content.rows[0]["makespan_ns"]) if content.rows else "no complete point"
    parts = [_headline(content)]
    if content.rows:
        fronts = _fronts(content) if content.sweep.search is None else _search_front(content)
        parts += [_chosen(), _charts(content), _parallel(content), fronts, _best(content, pages)]
    parts.append(_failures(content))
    parts.append(tag("script", _data(content, pages), type="application/json", id="points"))
    return page_of(
        parts,
        heading=name,
        subtitle=f"a sweep over {', '.join(sweep.axes)}",
        version=sweep.version,
        title=f"{name}: {best}",
        style=asset("sweep.css"),
        script="sweep.js",
    )


def _headline(content: SweepContent) -> str:
    search = content.sweep.search
    note = counted(content.sweep, content.every) if search is None else searched(search)
    note = tag("p", text(note), class_="note")
    if not content.rows:
        return section("headline", "Overview", note)
    best, worst = content.rows[0], content.rows[-1]
    makespan = f"<span>least makespan</span><b>{text(format_ns(best['makespan_ns']))}</b>"
    tiles = [(axis, shown(best[axis])) for axis in content.sweep.axes]
    tiles.append(("most time goes to", longest_part(best)))
    tiles.append(("the slowest point", format_ns(worst["makespan_ns"])))
    cells = "".join(f"<div><dt>{text(name)}</dt><dd><b>{text(value)}</b></dd></div>" for name, value in tiles)
    at = tag("p", f"at point {best[NUMBER]}:", class_="short")
    return section(
        "headline",
        "Overview",
        tag("p", makespan, class_="makespan"),
        at,
        tag("dl", cells, class_="tiles"),
        note,
    )


def _chosen() -> str:
    return tag("section", "", id="chosen", aria_live="polite", hidden="hidden")


def _charts(content: SweepContent) -> str:
    legend = "".join(
        f'<li><i style="background:{colour}"></i>{text(meaning)}</li>'
        for colour, meaning in legend_of(content, "currentColor")
    )
    charts = content.charts()[: len(content.axes)]
    drawings = [_svg(chart, content, number) for number, chart in enumerate(charts)]
    return section(
        "axes",
        "Makespan by axis",
        tag("ul", legend, class_="legend"),
        tag("div", "".join(drawings), class_="charts"),
    )


def _svg(chart: Chart, content: SweepContent, number: int) -> str:
    description = f"makespan over {chart.x.title}"
    box = f"{BOX.left} {BOX.top} {BOX.width} {BOX.height}"
    head = f'viewBox="0 0 {AROUND[0]} {AROUND[1]}" role="img" aria-label="{text(description)}"'
    scene = Scene()
    draw_chart(scene, BOX, chart, content)
    return f'<svg class="chart" {head} data-scale="{number + 1}" data-box="{box}">{scene.markup}</svg>'


def _parallel(content: SweepContent) -> str:
    """Return a line for every point across all axes, to its makespan."""
    scales = [
        *content.axes,
        *(content.quantity(resource) for resource in content.resources),
        content.makespans,
    ]
    box = Box(40, 30, APART * (len(scales) - 1), TALL)
    rows = range(len(content.rows))
    few = rows if len(rows) <= MOST_LINES else range(0, len(rows), -(-len(rows) // MOST_LINES))
    tenth = set(content.search_front or range(-(-len(rows) // 10)))
    scene = Scene()
    scene.path(lines(box, scales, [row for row in few if row not in tenth]), class_="others")
    scene.path(lines(box, scales, [row for row in rows if row in tenth]), class_="tenth")
    for place, scale in enumerate(scales):
        _upright(scene, box.left + APART * place, box, scale)
    across = box.left + box.width + 80
    head = f'viewBox="0 0 {across} {TALL + 44}" role="img" aria-label="parallel coordinates"'
    order = [*range(1, len(scales)), 0]
    svg = (
        f'<svg class="chart parallel" {head} style="width:{across}px; min-width:{across}px" '
        f'data-parallel="{" ".join(map(str, order))}" '
        f'data-box="{box.left} {box.top} {box.width} {box.height}">{scene.markup}</svg>'
    )
    blue = front_name(content) if content.search_front else "fastest tenth of the points"
    note = f"The {blue} is drawn in blue."
    if len(few) < len(rows):
        note += f" Of {len(rows):,} points, {len(few):,} are drawn, evenly from the fastest to the slowest."
    return section(
        "parallel", "All axes at once", tag("p", note, class_="note"), tag("div", svg, class_="scroll")
    )


def _upright(scene: Scene, x: int, box: Box, scale: Scale) -> None:
    scene.path(f"M{x} {box.top}v{box.height}", class_="grid")
    scene.text(x, 16, scale.title[:20], "middle", font_weight="bold")
    written = float("inf")
    for place, words in scale.marks:
        y = box.y(place)
        if y <= written - 12:
            written = y
            scene.text(x + 5, y + 4, words[: APART // LETTER])


def _fronts(content: SweepContent) -> str:
    """Return makespan against each resource, and the points that no other one dominates."""
    if not content.resources:
        reason = (
            "Points differ only in makespan: all have the same number of ranks, and memory, energy and price"
        )
        return section(
            "fronts", "Pareto fronts", tag("p", text(f"{reason} are equal or not known."), class_="absent")
        )
    charts, first = content.charts(), len(content.axes)
    parts = []
    for number, resource in enumerate(content.resources, first):
        figures = [
            SheetColumn(resource.title, partial(_figure, resource)),
            SheetColumn("makespan", "makespan_ns"),
        ]
        caption = f"no other point has both less {text(resource.title)} and a shorter makespan"
        cells = _points(content, figures).table([content.rows[row] for row in charts[number].front], caption)
        parts.append(tag("div", _svg(charts[number], content, number) + cells, class_="front"))
    return section("fronts", "Pareto fronts", *parts)


def _search_front(content: SweepContent) -> str:
    """Return the results of a search, in its order, among the evaluated points."""
    assert content.sweep.search is not None
    note = tag("p", text(certainty(content.sweep.search)), class_="note")
    if not content.search_front:
        return section("fronts", "Found", tag("p", "no point meets the search's conditions", class_="absent"))
    first, columns = len(content.axes), content.objectives
    charts = content.charts()[first:]
    drawings = "".join(_svg(chart, content, number) for number, chart in enumerate(charts, first))
    figures = [SheetColumn(column.title, partial(_figure, column)) for column in columns]
    cells = _points(content, figures).table([content.rows[row] for row in content.search_front])
    heading = front_name(content)
    return section(
        "fronts", heading[0].upper() + heading[1:], note, tag("div", drawings, class_="charts"), cells
    )


def _points(content: SweepContent, figures: Sequence[SheetColumn]) -> Sheet:
    """Return points with buttons that select them, and the values of axes."""
    row_of = {values[NUMBER]: row for row, values in enumerate(content.rows)}

    def button(values: Mapping[str, Any]) -> str:
        number = values[NUMBER]
        if number not in row_of:
            return str(number)
        return tag("button", str(number), type="button", data_row=str(row_of[number]))

    axes = (SheetColumn(axis, partial(_value, axis), "<") for axis in content.sweep.axes)
    return Sheet((SheetColumn("point", side="<", markup=button), *axes, *figures))


def _value(axis: str, values: Mapping[str, Any]) -> str:
    return shown(values[axis])


def _figure(quantity: SweepQuantity, values: Mapping[str, Any]) -> str:
    return quantity.shown(values[quantity.column])


def _best(content: SweepContent, pages: Mapping[int, str]) -> str:
    def figure(at: int, values: Mapping[str, Any]) -> str:
        return figures_of_point(content.rows[0], values)[at]

    def report(values: Mapping[str, Any]) -> str:
        address = pages.get(values[NUMBER])
        return tag("a", "report", href=address) if address else ""

    last = len(POINT_FIGURES) - 1
    figures = [
        SheetColumn(name, partial(figure, at), "<" if at == last else ">")
        for at, name in enumerate(POINT_FIGURES)
    ]
    sheet = _points(content, [*figures, SheetColumn("run", side="<", markup=report)])
    several = sheet.table(content.rows[:MOST_BEST])
    note = band_note(content.rows)
    return section("best", "Best points", tag("p", note, class_="note") if note else "", several)


def _failures(content: SweepContent) -> str:
    failed = [row for row in content.every if row["status"] != COMPLETE]
    if not failed:
        return ""
    figures = [
        SheetColumn("status", side="<"),
        SheetColumn("reason", lambda row: row["error"] or "", "<"),
    ]
    cells = _points(content, figures).table(failed[:MOST_FAILURES])
    rest = len(failed) - MOST_FAILURES
    more = f"… and {plural(rest, 'more point')}: column error of sweep.arrow" if rest > 0 else ""
    parts = cells, tag("p", text(more), class_="note") if more else ""
    return section("failures", f"Points that are not complete ({len(failed):,})", *parts)


def _data(content: SweepContent, pages: Mapping[int, str]) -> str:
    """Return the script's data: places on the scales, texts of all values, and addresses of runs."""
    sweep, rows = content.sweep, content.rows
    scales = [content.makespans, *content.axes, *map(content.quantity, content.resources)] if rows else []
    data = {
        "scales": [scale.places for scale in scales],
        "values": [[name, *_indexed(texts)] for name, texts in _texts(content)],
        "pages": {number: pages[row[NUMBER]] for number, row in enumerate(rows) if row[NUMBER] in pages},
        "runs": {
            number: f"{sweep.path}/{RUNS}/{run_name(row)}"
            for number, row in enumerate(rows)
            if is_kept(sweep, row)
        },
        "again": f"et-sim {'sweep' if sweep.search is None else 'search'} {quote(sweep.spec)}"
        f" --out {quote(str(sweep.path))} --keep ",
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _texts(content: SweepContent) -> Iterator[tuple[str, list[str]]]:
    """Yield the values of every row as texts; empty if there is none."""
    rows = content.rows
    yield NUMBER, [str(row[NUMBER]) for row in rows]
    for axis in content.sweep.axes:
        yield axis, [shown(row[axis]) for row in rows]
    for quantity in dict.fromkeys((MAKESPAN, *content.resources, EXPOSED)):
        values = (row[quantity.column] for row in rows)
        yield quantity.title, ["" if value is None else quantity.shown(value) for value in values]
    yield "most time goes to", [longest_part(row) for row in rows]
    yield "warnings", [row["warnings"] or "" for row in rows]


def _indexed(texts: list[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts, and the index of the text of every row."""
    places: dict[str, int] = {}
    rows = [places.setdefault(text, len(places)) for text in texts]
    return list(places), rows


def write_pages(sweep: SweepDirectory, target: Path) -> tuple[dict[int, str], list[str]]:
    """Write a page for each of the best points whose run was kept.

    Return their addresses relative to the sweep's page, by point, and the runs that cannot be read.
    """
    folder = target.with_name(f"{target.stem}.runs")
    kept = [row for row in complete(sweep.table.to_pylist())[:MOST_BEST] if is_kept(sweep, row)]
    if kept:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot be written: {unreadable(error)}",
                place=str(folder),
                remedy="name a page in a writable folder",
            ) from None
    pages, warnings = {}, []
    for row in kept:
        name = f"{run_name(row)}.html"
        try:
            run = open_run(sweep.path / RUNS / run_name(row))
        except EtSimError as error:
            warnings.append(f"the run of point {row[NUMBER]} has no page: {error}")
            continue
        write_report(run, folder / name, None, ALWAYS, MOST_SLICES)
        pages[row[NUMBER]] = f"{url_quote(folder.name)}/{name}"
    return pages, warnings
