"""The part of the page about the network over time: how busy tiers, links and dimensions are, by columns.

Tiers and links are there if the run recorded links (links.arrow); dimensions, if it recorded phases
(phases.arrow). Of many links, the busiest of each tier are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.intervals import filled, union
from et_sim.units import format_ns, plural
from et_sim.views.drawing.svg import TICKS, round_step
from et_sim.views.drawing.topology import topology_picture
from et_sim.views.report.markup import section, tag, text
from et_sim.views.run.columns import integers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.link_table import NONE, link_table
from et_sim.views.run.selection import EVERYTHING
from et_sim.views.run.tiers import tier_uses
from et_sim.views.summary.topology import tier_totals
from et_sim.views.text import share, shortened

COLUMNS, MOST_ROWS = 240, 40
UP_TO = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the steps of colour: 1 % is not lost
TO = "->"  # in the names of links of a graph
LEFT, WIDTH, ROW, RIGHT, TOP, BOTTOM = 220, 900, 14, 60, 6, 26
CARRIES = "share of time in which a link carries a message"
TIERS_CARRY = "share of their bandwidth that the links of a tier use"
TIERS_ASKED = (
    "share of the bandwidth of a tier's links that messages ask for; on the analytical model, none waits"
)
SENDS = "share of time that messages take to be serialised; on the analytical model, they may overlap"


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """How busy something is: a row for each, a column for each part of the run."""

    names: tuple[str, ...]
    shares: Any
    note: str


def network_section(run: RunDirectory) -> str:
    """A heat map for each thing that was recorded; nothing if none was."""
    makespan = max(run.summary["makespan_ns"], 1)
    maps = [heat for heat in (tiers(run), links(run), dimensions(run, makespan)) if heat is not None]
    if not maps:
        return ""
    parts = [tag("p", text(heat.note), class_="note") + drawing(heat, makespan) for heat in maps]
    return section("network", "Network over time", *parts, legend())


def topology_section(run: RunDirectory) -> str:
    """The network with its links; nothing if they were not recorded, or carried nothing."""
    if not run.holds("links") or not tier_totals(run, EVERYTHING):
        return ""
    picture = tag("div", topology_picture(run), class_="picture")
    return section("topology", "Use of links", picture)


def dimensions(run: RunDirectory, makespan: int) -> Heat | None:
    """Per dimension, the share of ranks of which a chunk is in a phase of it."""
    if not run.holds("phases"):
        return None
    ranks = run.rank_counts()
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


def tiers(run: RunDirectory) -> Heat | None:
    """Per tier of links, how much of their bandwidth is used; nothing if that says no more than the links."""
    table = link_table(run)
    found = [] if table is None else tier_uses(run, table, COLUMNS)
    if table is None or not found or len(found) == len(table.actor):
        return None
    are_links = all(one.links is not None for one in found)
    shares = np.minimum(np.array([one.used_shares for one in found]), 1)
    names = tuple(f"{one.tier}, {plural(one.links, 'link')}" if one.links else one.tier for one in found)
    if not are_links:
        return Heat(names, shares, f"{SENDS}: of a rank, on average")
    return Heat(names, shares, TIERS_CARRY if table.has_links else TIERS_ASKED)


def links(run: RunDirectory) -> Heat | None:
    """Per link, the share of time in which it carries a message."""
    table = link_table(run)
    if table is None or not len(table.actor):
        return None
    makespan = max(run.summary["makespan_ns"], 1)
    chosen = _busiest(table.total("busy_ns"), table.tier)
    row = np.full(len(table.actor), -1)
    row[chosen] = np.arange(len(chosen))
    shown = table.where(row[table.of_row] >= 0)
    figures = shown.figures
    density = figures["busy_ns"] / np.maximum(figures["end_ns"] - figures["start_ns"], 1)
    where, shape = row[shown.of_row], (len(chosen), COLUMNS)
    shares = filled(where, figures["start_ns"], figures["end_ns"], density, shape, makespan)
    note = CARRIES if table.has_links else SENDS
    ranks = run.actors()["ranks"].to_pylist()
    names = tuple(
        f"{table.name[at]}, {table.tier[at]}"
        if TO in table.name[at] or table.actor[at] == NONE  # of a graph
        else f"{table.name[at]}, ranks {ranks[int(table.actor[at])]}, dimension {int(table.dimension[at])}"
        for at in chosen.tolist()
    )
    return Heat(names, np.minimum(shares, 1), note + _and_not(len(chosen), len(table.actor)))


def _busiest(busy_ns: Any, tier: Sequence[str]) -> Any:
    """Those that are shown, tier by tier and in the order of their numbers: of many, as many of each tier."""
    _, of = np.unique(np.array(tier), return_inverse=True)
    of = of.reshape(-1)
    order = np.lexsort((-busy_ns, of))
    place = np.empty(len(of), np.int64)  # of a link in its tier, the busiest first
    place[order] = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    if len(of) > MOST_ROWS:
        shares = np.bincount(of)
        each = next(n for n in range(MOST_ROWS, 0, -1) if n == 1 or np.minimum(shares, n).sum() <= MOST_ROWS)
        order = order[place[order] < each]
    shown = np.sort(order)
    return shown[np.argsort(of[shown], kind="stable")]


def _and_not(shown: int, links: int) -> str:
    return f"; the busiest {shown} of {plural(links, 'link')} that carry any" if links > shown else ""


def drawing(heat: Heat, makespan: int) -> str:
    """A row of rectangles for each, and its mean on the right."""
    parts = []
    for number, (name, shares) in enumerate(zip(heat.names, heat.shares, strict=True)):
        y = TOP + number * ROW
        mean = share(float(shares.mean()), 1.0)
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{tag("title", text(name))}'
            f"{text(shortened(name, 36))}</text>"
        )
        parts.append(f'<rect class="track" x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}"/>')
        parts += _row(steps_of(shares), y)
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


def steps_of(shares: Any) -> Any:
    """The step of colour of each share, 0: nothing."""
    return np.where(shares > 1e-6, 1 + np.searchsorted(UP_TO, shares - 1e-6).clip(max=len(UP_TO) - 1), 0)


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


def legend() -> str:
    """What the steps of colour mean."""
    steps = "".join(
        f'<i class="heat-{number}"></i>{share(up_to, 1.0)} ' for number, up_to in enumerate(UP_TO, 1)
    )
    return tag("p", f"nothing, or up to {steps}; on the right, the mean", class_="note heat-legend")
