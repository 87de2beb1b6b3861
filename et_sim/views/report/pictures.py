"""The page's sections with pictures and notes; each is empty if a run has nothing to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.views.drawing.bars import activity_picture, idle_picture, spread_picture, waits_picture
from et_sim.views.drawing.memory import memory_picture, round_sizes
from et_sim.views.drawing.network import dimensions, heats_picture, links, queues, tiers, topology_picture
from et_sim.views.drawing.planes import roofline_picture
from et_sim.views.drawing.samples import samples_drawing
from et_sim.views.drawing.scene import TICKS, NothingToDrawError, Scene, number, round_step, runs_of
from et_sim.views.drawing.schedule import schedule_of_run_picture
from et_sim.views.markup import section, tag, text
from et_sim.views.run.columns import numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.summary.queues import INCAST_SHEET, incasts, pause_lines, pause_roots
from et_sim.views.summary.samples import STEP, VIEWS_OF_BLAME, WITHOUT, samples_of, step_rows, without_row
from et_sim.views.summary.spread import spreads
from et_sim.views.summary.topology import tier_totals
from et_sim.views.text import shortened, signed

SCHEDULE = (
    "Passes of micro-batches, by the names of kernels; ranks that compute the same at the same times are one"
    " row, and below it is their communication. The bubble is the share of time with neither a kernel nor a"
    " collective: waiting for other stages."
)
ACTIVITY = (
    "Time of ranks by activity; if several are under way, the first of these counts. The height of a row is "
    "its number of ranks, and each column of it is filled from below by the shares of its time."
)
WAITS = (
    "Waiting ends when the last peer that is needed has begun; in the rest of the time bytes move, or "
    "queue for a link. A faster network shortens only that."
)
ROOFLINE = (
    "Kernels against the roofs of their machine, which are its peak and its memory: none is above them."
)

SPREAD = (
    "Ranks against the average one: a box is half of them, a line all of them. The costliest operations "
    "come first: in computation the slowest rank costs time, in communication ranks that begin late."
)

IDLE = (
    "Streams and threads of the recording. Idle time is charged to the events before the next node: every "
    "nanosecond belongs to the node that was under way then."
)


def _pictured(name: str, title: str, note: str, draw: Callable[[], str]) -> str:
    """Return a section with a note and a picture; empty if there is nothing to draw."""
    try:
        picture = tag("div", draw(), class_="picture")
    except NothingToDrawError:
        return ""
    notes = [tag("p", note, class_="note")] if note else []
    return section(name, title, *notes, picture)


def schedule_section(run: RunDirectory) -> str:
    """Return the schedule of a run with passes."""
    return _pictured("schedule", "Schedule", SCHEDULE, lambda: schedule_of_run_picture(run, EVERYTHING))


def activity_section(run: RunDirectory) -> str:
    """Return ranks over time, if the run takes any."""
    if not run.summary["makespan_ns"]:
        return ""
    return _pictured("activity", "Ranks over time", ACTIVITY, lambda: activity_picture(run))


def waits_section(run: RunDirectory) -> str:
    """Return waiting and transfer, if the run communicates."""
    return _pictured("waits", "Waiting and transfer", WAITS, lambda: waits_picture(run))


def spread_section(run: RunDirectory) -> str:
    """Return differences between ranks, if there are any."""
    operations = spreads(run)
    if not any(operation.duration_ns.deviation or operation.begin_ns.deviation for operation in operations):
        return ""
    return _pictured("spread", "Ranks compared", SPREAD, lambda: spread_picture(run, operations=operations))


def roofline_section(run: RunDirectory) -> str:
    """Return kernels below the roofs, if a model of their arithmetic timed any."""
    if not any(entry["compute_utilisation"] for entry in run.summary["per_rank"]):
        return ""
    return _pictured("roofline", "Roofline", ROOFLINE, lambda: roofline_picture(run))


def idle_section(run: RunDirectory) -> str:
    """Return idle time of devices for runs of recordings; in others, ranks over time show the same."""
    if "recorded_on" not in run.columns("timeline") or not run.summary["makespan_ns"]:
        return ""
    return _pictured("idle", "Idle devices", IDLE, lambda: idle_picture(run))


def network_section(run: RunDirectory) -> str:
    """Return a heat map for each thing that was recorded."""
    maps = [heat for heat in (tiers(run), links(run), dimensions(run)) if heat is not None]
    return _pictured("network", "Network over time", "", lambda: heats_picture(run, maps)) if maps else ""


def topology_section(run: RunDirectory) -> str:
    """Return the network with its links, if they were recorded and carried anything."""
    if not run.holds("links") or not tier_totals(run, EVERYTHING):
        return ""
    return _pictured("topology", "Use of links", "", lambda: topology_picture(run))


MOST_INCASTS, LONGEST_LINE = 20, 160


def ports_section(run: RunDirectory) -> str:
    """Return queues, incasts and pauses; empty if there were none, or they were not recorded."""
    parts = [part for part in (_queues(run), _incasts(run), _pauses(run)) if part]
    return section("ports", "Queues and pauses", *parts) if parts else ""


def _queues(run: RunDirectory) -> str:
    heat = queues(run)
    return "" if heat is None else tag("div", heats_picture(run, [heat]), class_="picture")


def _incasts(run: RunDirectory) -> str:
    meetings = incasts(run)
    if not meetings:
        return ""
    shown = meetings[:MOST_INCASTS]
    more = f", {len(shown)} of {len(meetings)}" if len(shown) < len(meetings) else ""
    sheet = Sheet((*INCAST_SHEET.columns[:5], SheetColumn("ranks that send", "ranks", "<")))
    return sheet.table(shown, text(f"Where messages of several ranks met{more}"))


def _pauses(run: RunDirectory) -> str:
    roots = pause_roots(run)
    if not roots:
        return ""
    lines = pause_lines(roots, EVERYTHING, LONGEST_LINE)
    return tag("h3", "Causes of pauses") + tag("pre", text("\n".join(lines)))


MOST_LINES, COLUMNS = 6, 800
LEFT, TOP, WIDTH, HEIGHT, BOTTOM = 80, 12, 1000, 180, 26


def memory_section(run: RunDirectory) -> str:
    """Return curves of local memory; empty if it was not tracked."""
    if not run.holds("memory"):
        return ""
    makespan = max(run.summary["makespan_ns"], 1)
    ranks = run.actors()["ranks"].to_pylist()
    peaks = _peaks(run, len(ranks))
    if not peaks:
        return ""
    chosen = sorted(peaks, key=lambda actor: (-peaks[actor], actor))[:MOST_LINES]
    changes = _changes(run, chosen)
    most = max(peaks.values()) or 1  # a window may hold the last release alone
    shapes, legend = [], []
    for at, actor in enumerate(chosen):
        shapes.append(_path(levels(*changes[actor], makespan), most))
        named = f"rank{'' if ranks[actor].isdigit() else 's'} {shortened(ranks[actor], 24)}"
        entry = f'<i class="line-{at}"></i>{text(named)} <b>{format_bytes(peaks[actor])}</b>'
        legend.append(tag("li", entry))
    note = "the most in use at any time" + (
        f"; the {MOST_LINES} fullest of {len(peaks):,} actors" if len(peaks) > MOST_LINES else ""
    )
    scene = Scene()
    _grid(scene, most, makespan)
    for at, shape in enumerate(shapes):
        scene.path(shape, class_=f"line line-{at}")
    title = tag("title", f"Local memory over time, at most {format_bytes(most)}")
    size = f"0 0 {LEFT + WIDTH + 10} {TOP + HEIGHT + BOTTOM}"
    drawing = tag("svg", title + scene.markup, viewBox=size, role="img", class_="chart")
    return section(
        "memory",
        "Local memory",
        tag("p", note, class_="note"),
        tag("div", drawing, class_="scroll"),
        tag("ul", "".join(legend), class_="legend"),
        tag("p", "by class of tensors", class_="note"),
        tag("div", memory_picture(run), class_="picture"),
    )


def _peaks(run: RunDirectory, actors: int) -> dict[int, int]:
    """Return the highest use of memory, by actor that uses any."""
    most = np.full(actors, -1, np.int64)
    for rows in run.batches("memory", ("actor", "alive_bytes")):
        np.maximum.at(most, numbers(rows["actor"]), numbers(rows["alive_bytes"]))
    return {actor: int(most[actor]) for actor in np.flatnonzero(most >= 0).tolist()}


def _changes(run: RunDirectory, chosen: list[int]) -> dict[int, tuple[Any, Any]]:
    """Return the times and sizes of changes of memory in use, for some actors."""
    parts: dict[int, list[tuple[Any, Any]]] = {actor: [] for actor in chosen}
    for rows in run.batches("memory", ("actor", "time_ns", "alive_bytes")):
        actor, time, alive = (numbers(rows[name]) for name in ("actor", "time_ns", "alive_bytes"))
        for shown_actor in np.intersect1d(actor, chosen).tolist():
            of_actor = actor == shown_actor
            parts[shown_actor].append((time[of_actor], alive[of_actor]))
    joined = {actor: zip(*of, strict=True) for actor, of in parts.items()}
    return {actor: tuple(np.concatenate(part) for part in of) for actor, of in joined.items()}  # type: ignore[misc]


def levels(time: Any, alive: Any, makespan: int) -> Any:
    """Return the highest use in each column of the drawing."""
    boundaries = np.arange(COLUMNS + 1) * makespan // COLUMNS
    after = np.append(0, alive)  # after the n-th change
    first = np.searchsorted(time, boundaries[:-1], side="right")
    last = np.searchsorted(time, boundaries[1:], side="left")
    highest = after[first]
    for column in np.flatnonzero(last > first).tolist():
        highest[column] = max(highest[column], alive[first[column] : last[column]].max())
    return highest


def _path(level: Any, most: int) -> str:
    points = ""
    for first, _, size in runs_of(level):
        y = number(TOP + HEIGHT * (1 - size / most))
        x = number(LEFT + WIDTH * first / COLUMNS)
        points += f"H{x}V{y}" if points else f"M{x} {y}"
    return f"{points}H{LEFT + WIDTH}"


def _grid(scene: Scene, most: int, makespan: int) -> None:
    """Draw lines at round sizes, and round times below."""
    for size in round_sizes(most):
        y = TOP + HEIGHT * (1 - size / most)
        scene.path(f"M{LEFT} {number(y)}H{LEFT + WIDTH}", class_="grid")
        scene.text(LEFT - 8, y + 4, format_bytes(size), "end")
    for moment in range(0, makespan + 1, round_step(makespan / TICKS)):
        x = LEFT + WIDTH * moment / makespan
        scene.text(x, TOP + HEIGHT + 18, format_ns(moment), "middle" if moment else "start")


_BLAME = Sheet((SheetColumn("name", side="<"), SheetColumn("time", lambda part: signed(part["ns"]))))


def samples_section(run: RunDirectory) -> str:
    """Return the samples of a run; empty if it has none."""
    if not run.holds("samples"):
        return ""
    samples = samples_of(run)
    blame = samples["blame"]
    longer = format_ns(round(blame["difference_ns"]))
    slowest, rest = plural(blame["slowest"], "sample"), blame["rest"]
    parts = [
        tag("div", samples_drawing(run), class_="picture"),
        STEP.table(step_rows(samples)),
    ]
    if len(samples["without"]) > 1:
        parts.append(WITHOUT.table([*map(without_row, samples["without"])]))
    if not blame["difference_ns"]:
        parts.append(tag("p", text("No sample is slower: all samples took equally long.")))
        return section("samples", "Samples of the step", *parts)
    parts.append(
        tag("p", text(f"The slowest {slowest} took {longer} longer than the other {rest}, because of:"))
    )
    parts += [_BLAME.table(blame[key], f"by {name}") for key, name in VIEWS_OF_BLAME]  # type: ignore[literal-required]
    return section("samples", "Samples of the step", *parts)
