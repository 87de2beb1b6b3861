"""The part of the page about the network over time: how busy each link, or dimension, is in every column.

Links of their own are there in the link model, if the run recorded what let everything happen (path.arrow);
dimensions, if it recorded chunk phases (phases.arrow). Of many links, the busiest are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.intervals import filled, union
from et_sim.units import format_ns
from et_sim.views.critical_path import CriticalPath
from et_sim.views.operations import integers
from et_sim.views.picture import TICKS, round_step
from et_sim.views.report.markup import absent, section, tag, text
from et_sim.views.run_directory import RunDirectory
from et_sim.views.text import plural, share, shortened

COLUMNS, LEVELS, MOST_ROWS = 240, 10, 40
LEFT, WIDTH, ROW, RIGHT, TOP, BOTTOM = 220, 900, 14, 60, 6, 26
NOT_RECORDED = "simulate with --detail phases (dimensions), or with --model link --detail path (links)"


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """How busy something is: a row for each, a column for each part of the run."""

    names: tuple[str, ...]
    shares: Any
    note: str


def network_section(run: RunDirectory, path: CriticalPath | None) -> str:
    """A heat map for each thing that was recorded, or how to record it."""
    makespan = max(run.summary["makespan_ns"], 1)
    maps = [heat for heat in (links(run, path, makespan), dimensions(run, makespan)) if heat is not None]
    if not maps:
        return section("network", "Network over time", absent("Its use was not recorded", NOT_RECORDED))
    parts = [tag("p", text(heat.note), class_="note") + _drawing(heat, makespan) for heat in maps]
    return section("network", "Network over time", *parts, _legend())


def dimensions(run: RunDirectory, makespan: int) -> Heat | None:
    """Per dimension, the share of ranks of which a chunk is in a phase of it."""
    if not run.holds("phases"):
        return None
    ranks = run.actors()["rank_count"].to_numpy()
    sums: dict[int, Any] = {}
    for rows in run.batches("phases", ("actor", "dimension", "start_ns", "end_ns")):
        columns = (integers(rows[name], missing=-1) for name in ("actor", "dimension", "start_ns", "end_ns"))
        actor, dimension, start, end = columns
        end = np.where(end < 0, makespan, end)
        for one in np.unique(dimension[start >= 0]).tolist():
            part = (dimension == one) & (start >= 0)
            busy = union(actor[part], start[part], end[part])
            where, weight = np.zeros(len(busy.owner), np.int64), ranks[busy.owner] / ranks.sum()
            [shares] = filled(where, busy.start, busy.end, weight, (1, COLUMNS), makespan)
            sums[one] = sums.get(one, 0) + shares
    if not sums:
        return None
    names = tuple(f"dimension {one}" for one in sorted(sums))
    note = "share of the ranks of which a chunk of a collective is in a phase of the dimension"
    return Heat(names, np.array([sums[one] for one in sorted(sums)]), note)


def links(run: RunDirectory, path: CriticalPath | None, makespan: int) -> Heat | None:
    """Per link, the share of time in which it carries a message."""
    if path is None or run.summary["model"] != "link":
        return None
    record = path.record
    rows = np.flatnonzero(record.is_what("serialisation") & (record.place >= 0))
    if not len(rows):
        return None
    places, owner = np.unique(record.place[rows], return_inverse=True)
    busy = union(owner.reshape(-1), record.start_ns[rows], record.end_ns[rows])
    order = np.argsort(-busy.lengths(len(places)), kind="stable")[:MOST_ROWS]
    chosen = np.sort(order)
    shares = busy.shares(len(places), COLUMNS, makespan)[chosen]
    note = "share of time in which a link carries a message"
    if len(places) > MOST_ROWS:
        note += f"; the busiest {MOST_ROWS} of {plural(len(places), 'link')} that carry any"
    return Heat(tuple(record.link_name(int(place)) for place in places[chosen]), shares, note)


def _drawing(heat: Heat, makespan: int) -> str:
    parts = []
    for number, (name, shares) in enumerate(zip(heat.names, heat.shares, strict=True)):
        y = TOP + number * ROW
        mean = share(float(shares.mean()), 1.0)
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{text(shortened(name, 36))}</text>'
        )
        parts.append(f'<rect class="track" x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}"/>')
        parts += _row(np.ceil(shares * LEVELS - 1e-6).astype(np.int64), y)
        parts.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 10}">{mean}</text>')
    bottom = TOP + len(heat.names) * ROW
    for moment in range(0, makespan + 1, round_step(makespan / TICKS)):
        x = LEFT + WIDTH * moment / makespan
        anchor = "middle" if moment else "start"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="{anchor}">{format_ns(moment)}</text>')
    size = f"0 0 {LEFT + WIDTH + RIGHT} {bottom + BOTTOM}"
    title = tag("title", text(f"Heat map: {heat.note}"))
    drawing = tag("svg", title + "".join(parts), viewBox=size, role="img", class_="chart heat")
    return tag("div", drawing, class_="scroll")


def _row(levels: Any, y: int) -> Sequence[str]:
    """Columns of one level that stand together are one rectangle."""
    firsts = np.flatnonzero(np.diff(levels, prepend=-1))
    lengths = np.diff(firsts, append=len(levels))
    wide = WIDTH / COLUMNS
    return [
        f'<rect class="heat-{level}" x="{LEFT + first * wide:.2f}" y="{y}" width="{length * wide:.2f}" '
        f'height="{ROW - 2}"/>'
        for first, length, level in zip(
            firsts.tolist(), lengths.tolist(), levels[firsts].tolist(), strict=True
        )
        if level
    ]


def _legend() -> str:
    steps = "".join(f'<i class="heat-{level}"></i>' for level in range(1, LEVELS + 1))
    return tag("p", f"idle {steps} busy; on the right, the mean", class_="note heat-legend")
