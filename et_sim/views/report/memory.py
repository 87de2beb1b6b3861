"""The part of the page about local memory: how much the fullest actors use over time, as a drawing.

Steps are thinned to what a line shows: in each of its columns, the most that was in use. Below is the picture
of the fullest actor's (`et_sim.views.drawing.memory`). Not here: which tensors are alive at the peak
(`et_sim.views.summary.memory`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import format_bytes, format_ns
from et_sim.views.drawing.memory import memory_picture
from et_sim.views.drawing.scene import TICKS, round_step
from et_sim.views.report.markup import section, tag, text
from et_sim.views.run.columns import numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.text import shortened

MOST_LINES, COLUMNS = 6, 800
LEFT, TOP, WIDTH, HEIGHT, BOTTOM = 80, 12, 1000, 180, 26
GRID = 4


def memory_section(run: RunDirectory) -> str:
    """Curves of local memory; nothing if it was not tracked."""
    if not run.holds("memory"):
        return ""
    makespan = max(run.summary["makespan_ns"], 1)
    ranks = run.actors()["ranks"].to_pylist()
    peaks = _peaks(run, len(ranks))
    if not peaks:
        return ""
    chosen = sorted(peaks, key=lambda one: (-peaks[one], one))[:MOST_LINES]
    changes = _changes(run, chosen)
    most = max(peaks.values(), default=1) or 1
    lines, legend = [], []
    for number, one in enumerate(chosen):
        level = levels(*changes[one], makespan)
        lines.append(f'<path class="line line-{number}" d="{_path(level, most)}"/>')
        named = f"rank{'' if ranks[one].isdigit() else 's'} {shortened(ranks[one], 24)}"
        entry = f'<i class="line-{number}"></i>{text(named)} <b>{format_bytes(peaks[one])}</b>'
        legend.append(tag("li", entry))
    note = "the most in use at any time" + (
        f"; the {MOST_LINES} fullest of {len(peaks):,} actors" if len(peaks) > MOST_LINES else ""
    )
    drawing = _drawing(
        [*_grid(most, makespan), *lines], f"Local memory over time, at most {format_bytes(most)}"
    )
    return section(
        "memory",
        "Local memory",
        tag("p", note, class_="note"),
        drawing,
        tag("ul", "".join(legend), class_="legend"),
        tag("p", "what it is for", class_="note"),
        tag("div", memory_picture(run), class_="picture"),
    )


def _peaks(run: RunDirectory, actors: int) -> dict[int, int]:
    """The most that is in use, of actors that use any."""
    most = np.full(actors, -1, np.int64)
    for rows in run.batches("memory", ("actor", "alive_bytes")):
        np.maximum.at(most, numbers(rows["actor"]), numbers(rows["alive_bytes"]))
    return {actor: int(most[actor]) for actor in np.flatnonzero(most >= 0).tolist()}


def _changes(run: RunDirectory, chosen: list[int]) -> dict[int, tuple[Any, Any]]:
    """When, and to what, memory in use changes, for some actors."""
    parts: dict[int, list[tuple[Any, Any]]] = {actor: [] for actor in chosen}
    for rows in run.batches("memory", ("actor", "time_ns", "alive_bytes")):
        actor, time, alive = (numbers(rows[name]) for name in ("actor", "time_ns", "alive_bytes"))
        for one in np.intersect1d(actor, chosen).tolist():
            own = actor == one
            parts[one].append((time[own], alive[own]))
    joined = {actor: zip(*of, strict=True) for actor, of in parts.items()}
    return {actor: tuple(np.concatenate(part) for part in of) for actor, of in joined.items()}  # type: ignore[misc]


def levels(time: Any, alive: Any, makespan: int) -> Any:
    """In each column of the drawing, the most that is in use."""
    boundaries = np.arange(COLUMNS + 1) * makespan // COLUMNS
    after = np.append(0, alive)  # from the n-th change on
    first = np.searchsorted(time, boundaries[:-1], side="right")
    last = np.searchsorted(time, boundaries[1:], side="left")
    found = after[first]
    for column in np.flatnonzero(last > first).tolist():
        found[column] = max(found[column], alive[first[column] : last[column]].max())
    return found


def _path(level: Any, most: int) -> str:
    changes = np.flatnonzero(np.diff(level, prepend=-1))
    points = []
    for number, column in enumerate(changes.tolist()):
        x = LEFT + WIDTH * column / COLUMNS
        y = TOP + HEIGHT * (1 - level[column] / most)
        points.append(f"M{x:.1f} {y:.1f}" if number == 0 else f"H{x:.1f}V{y:.1f}")
    return "".join(points) + f"H{LEFT + WIDTH}"


def _grid(most: int, makespan: int) -> list[str]:
    """Lines at round sizes, and round times below."""
    parts = []
    step = 1 << max(most // GRID - 1, 0).bit_length()
    for size in range(0, most + 1, step):
        y = TOP + HEIGHT * (1 - size / most)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{LEFT + WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{format_bytes(size)}</text>')
    for moment in range(0, makespan + 1, round_step(makespan / TICKS)):
        x = LEFT + WIDTH * moment / makespan
        anchor = "middle" if moment else "start"
        label = format_ns(moment)
        parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="{anchor}">{label}</text>')
    return parts


def _drawing(parts: list[str], title: str) -> str:
    size = f"0 0 {LEFT + WIDTH + 10} {TOP + HEIGHT + BOTTOM}"
    drawing = tag("svg", tag("title", text(title)) + "".join(parts), viewBox=size, role="img", class_="chart")
    return tag("div", drawing, class_="scroll")
