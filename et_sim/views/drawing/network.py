"""Pictures of the network: links coloured by their use, and heat maps over time of tiers, links, dimensions
and ports.

Tiers and links need recorded links (links.arrow); dimensions, recorded phases (phases.arrow); queues,
recorded ports (queues.arrow). If there are many links or ports, the busiest are shown.

A heat map has a row for each thing and a column for each part of the time, darker for more use. Steps of
colour are finer at low use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import Intervals, filled, together, union
from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, plural
from et_sim.views.drawing.devices import Devices, Line, Places, draw_network, joined_lines, placed
from et_sim.views.drawing.scene import (
    LEFT,
    LETTER,
    MOST_LETTERS,
    TOP,
    TRACK,
    Scene,
    nothing_to_draw,
    runs_of,
)
from et_sim.views.run.columns import integers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import NO_PORTS, NONE, LinkTable, link_table
from et_sim.views.run.topology import TierUse, Topology, tier_uses, topology_of
from et_sim.views.summary.links import NOT_RECORDED
from et_sim.views.summary.links import NOT_RECORDED as NO_LINKS
from et_sim.views.summary.queues import queue_uses
from et_sim.views.summary.rank_table import called
from et_sim.views.summary.topology import (
    NOTHING_CARRIED,
    level_names,
    level_of,
    most_used_text,
    tier_totals,
    topology_notes,
)
from et_sim.views.text import distinct, share

COLUMNS = 240
UP_TO = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)  # ends of the steps of colour: 1 % is visible
OPACITIES = (0.14, 0.22, 0.31, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90, 1.0)
COLOUR = "#0072b2"
NAMES, PIXEL, ROW = 124, 3, 14  # pixels of names right of LEFT, of a column, and from row to row
BEGIN, WIDTH = LEFT + NAMES, PIXEL * COLUMNS
HEAT = {"class_": "heat"}  # pages draw them lighter on a dark background


class Heat(Struct, frozen=True, eq=False):
    """Use of several things: a row for each, a column for each part of the time."""

    names: tuple[str, ...]
    shares: Any
    note: str
    beside: tuple[str, ...] = ()  # right of the rows; if empty, their means


def steps_of(shares: Any) -> Any:
    """Return the step of colour of each share, 0: nothing."""
    return np.where(shares > 1e-6, 1 + np.searchsorted(UP_TO, shares - 1e-6).clip(max=len(UP_TO) - 1), 0)


def _names(scene: Scene, heat: Heat, y: int) -> None:
    """Draw the texts left and right of rows, and their tracks."""
    beside = heat.beside or [share(float(shares.mean()), 1.0) for shares in heat.shares]
    for name, whole, text in zip(distinct(heat.names, MOST_LETTERS), heat.names, beside, strict=True):
        scene.label(name, y + 10, whole, BEGIN - 8)
        scene.rect(BEGIN, y, WIDTH, ROW - 2, TRACK)
        scene.text(BEGIN + WIDTH + 8, y + 10, text)
        y += ROW


MOST_ROWS = 40
TO = "->"  # in the names of links of a graph
CARRIES = "share of time in which a link carries a message"
TIERS_CARRY = "share of their bandwidth that the links of a tier use"
TIERS_DEMAND = "demand by the bandwidth of a tier's links; on the analytical model, no message waits"
SENDS = "share of time that messages take to be serialised; on the analytical model, they may overlap"
IN_PHASES = "share of the ranks with a chunk of a collective in a phase of the dimension"
SEVERAL = "several at once"  # dimensions
NO_PHASES = "phases were not recorded: simulate with --detail phases"
MEANS = "right of a row: its mean"


def links_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: links, and tiers if they differ from their links."""
    both = [tiers(run, part), links(run, part)]
    return _picture(run, part, both, "no link carried a message" if run.holds("links") else NO_LINKS)


def phases_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: dimensions."""
    nothing = "no chunk was in any phase" if run.holds("phases") else NO_PHASES
    return _picture(run, part, [dimensions(run, part)], nothing)


def queues_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: ports."""
    nothing = "nothing waited at any port" if run.holds("queues") else NO_PORTS
    return _picture(run, part, [queues(run, part)], nothing)


def _picture(run: RunDirectory, part: Selection, candidates: Sequence[Heat | None], nothing: str) -> str:
    heats = [heat for heat in candidates if heat is not None]
    if not heats:
        raise nothing_to_draw(nothing, run, part)
    return heats_picture(run, heats, part)


def heats_picture(run: RunDirectory, heats: Sequence[Heat], part: Selection = EVERYTHING) -> str:
    """Return the SVG text of heat maps of a run."""
    texts = [*part.heading()[:1], *([] if heats[0].beside else [MEANS])]
    scene = Scene()
    heights = [
        TOP + 10 + sum(ROW * len(heat.names) + 28 for heat in heats[:at]) for at in range(len(heats) + 1)
    ]
    bottom = heights[-1]
    scene.axis(part.window_of(run), bottom - 20, BEGIN, WIDTH)
    for heat, y in zip(heats, heights, strict=False):
        scene.text(8, y, heat.note)
        _names(scene, heat, y + 8)
    # A path for each step of colour; neighbouring columns of one step are one rectangle.
    shapes = dict.fromkeys(OPACITIES, "")
    for heat, y in zip(heats, heights, strict=False):
        for row, steps in enumerate(steps_of(heat.shares)):
            for first, length, step in runs_of(steps):
                if step:
                    place = f"M{BEGIN + PIXEL * first} {y + 8 + ROW * row}"
                    wide = PIXEL * length
                    shapes[OPACITIES[step - 1]] += f"{place}h{wide}v{ROW - 2}h-{wide}z"
    for opacity, shape in shapes.items():
        if shape:
            scene.path(shape, fill=COLOUR, fill_opacity=str(opacity), shape_rendering="crispEdges", **HEAT)
    scene.label("nothing, or up to", bottom, x=BEGIN - 8)
    for at, (up_to, opacity) in enumerate(zip(UP_TO, OPACITIES, strict=True)):
        x = BEGIN + at * (24 + 6 * LETTER)
        scene.rect(x, bottom - 9, 14, 10, TRACK)
        scene.rect(x, bottom - 9, 14, 10, COLOUR, fill_opacity=str(opacity), **HEAT)
        scene.text(x + 18, bottom, share(up_to, 1.0))
    return scene.finish(texts, bottom + 18)


def queues(run: RunDirectory, part: Selection = EVERYTHING) -> Heat | None:
    """Return the longest queue of each port in bytes; None if no port had a queue."""
    uses = [use for use in queue_uses(run, part, COLUMNS) if use.deepest_bytes]
    if not uses:
        return None
    shown, deepest = part.cut(uses, MOST_ROWS), uses[0].deepest_bytes
    note = f"the most bytes that waited at a time, of {format_bytes(deepest)}; the deepest queues first"
    if len(shown) < len(uses):
        note += f", {len(shown)} of {plural(len(uses), 'port')}"
    return Heat(
        tuple(use.link for use in shown),
        np.array([use.deepest_over_time for use in shown]) / deepest,
        note,
        tuple(format_bytes(use.deepest_bytes) for use in shown),
    )


def dimensions(run: RunDirectory, part: Selection = EVERYTHING) -> Heat | None:
    """Return, by dimension, the share of ranks with a chunk in a phase of it."""
    if not run.holds("phases"):
        return None
    ranks, (first, last) = part.weights(run), part.window_of(run)
    in_batches: dict[int, list[Intervals]] = {}
    for rows in run.batches("phases", ("actor", "dimension", "start_ns", "end_ns")):
        columns = (
            integers(rows[name], missing=NONE) for name in ("actor", "dimension", "start_ns", "end_ns")
        )
        actor, dimension, start, end = columns
        end = np.where(end < 0, run.summary["makespan_ns"], end)
        for number in unique(dimension[start >= 0]).tolist():
            in_dimension = (dimension == number) & (start >= 0)
            busy = union(actor[in_dimension], start[in_dimension], end[in_dimension])
            in_batches.setdefault(number, []).append(busy)
    order = sorted(in_batches, key=lambda number: (number == NONE, number))
    shares = []
    for number in order:
        busy = together(in_batches[number])
        where, weight = np.zeros(len(busy), np.int64), ranks[busy.owner] / max(ranks.sum(), 1)
        times = busy.start - first, busy.end - first
        shares += [*filled(where, *times, weight, (1, COLUMNS), last - first)]
    if not np.any(shares):
        return None
    names = tuple(SEVERAL if number == NONE else f"dimension {number}" for number in order)
    return Heat(names, np.array(shares), IN_PHASES)


def tiers(run: RunDirectory, part: Selection = EVERYTHING) -> Heat | None:
    """Return the used bandwidth by tier of links; None if each tier is one link.

    Tiers are of all ranks: there are none if ranks are selected.
    """
    table = None if part.ranks else link_table(run)
    uses = [] if table is None else tier_uses(run, table, COLUMNS, part)
    if table is None or not uses or len(uses) == len(table.actor):
        return None
    are_links = all(use.links is not None for use in uses)
    shares = np.minimum(np.array([use.used_shares for use in uses]), 1)
    names = tuple(f"{use.tier}, {plural(use.links, 'link')}" if use.links else use.tier for use in uses)
    if not are_links:
        return Heat(names, shares, f"{SENDS}: of a rank, on average")
    return Heat(names, shares, TIERS_CARRY if table.has_links else TIERS_DEMAND)


def links(run: RunDirectory, part: Selection = EVERYTHING) -> Heat | None:
    """Return, by link, the share of time in which it carries a message."""
    part.check_ranks(run)
    table = link_table(run)
    if table is None:
        return None
    first, last = part.window_of(run)
    ranks = [part.names(text) if text else "" for text in table.ranks]
    is_there = np.array([bool(text) for text in ranks], np.bool_) | ((table.actor == NONE) & (not part.ranks))
    figures = table.figures
    table = table.where(is_there[table.of_row] & part.touches(figures["start_ns"], figures["end_ns"]))
    figures = table.figures
    start, end = (np.clip(figures[name], first, last) - first for name in ("start_ns", "end_ns"))
    density = figures["busy_ns"] / np.maximum(figures["end_ns"] - figures["start_ns"], 1)
    busy = np.bincount(table.of_row, density * (end - start), len(table.actor))
    chosen = _busiest(busy, table.tier, part.top or MOST_ROWS)
    if not len(chosen):
        return None
    row = np.full(len(table.actor), -1)
    row[chosen] = np.arange(len(chosen))
    in_use = row[table.of_row] >= 0
    where, shape = row[table.of_row][in_use], (len(chosen), COLUMNS)
    shares = filled(where, start[in_use], end[in_use], density[in_use], shape, last - first)
    note = CARRIES if table.has_links else SENDS
    names = tuple(_name(table, at, ranks) for at in chosen.tolist())
    return Heat(names, np.minimum(shares, 1), note + _and_not(len(chosen), int((busy > 0).sum())))


def _name(table: LinkTable, at: int, ranks: Sequence[str]) -> str:
    name = table.name[at]
    if TO in name or table.actor[at] == NONE:  # in a graph
        return f"{name}, {table.tier[at]}"
    owner = ranks[at]
    dimension = f", dimension {int(table.dimension[at])}" if np.ptp(table.dimension) else ""
    return f"{called(owner, len(owner))}, {name}{dimension}"


def _busiest(busy: Any, tier: Sequence[str], most: int) -> Any:
    """Return the links to show, by tier and index; if there are many, the busiest of each tier."""
    in_use = np.flatnonzero(busy > 0)
    _, of = np.unique(np.array(tier)[in_use], return_inverse=True)
    of = of.reshape(-1)
    order = np.lexsort((-busy[in_use], of))
    place = np.empty(len(of), np.int64)  # rank of a link in its tier, the busiest first
    place[order] = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    if len(of) > most:
        shares = np.bincount(of)
        each = next(n for n in range(most, 0, -1) if n == 1 or np.minimum(shares, n).sum() <= most)
        order = order[place[order] < each]
    shown = np.sort(order)
    return in_use[shown[np.argsort(of[shown], kind="stable")]]


def _and_not(shown: int, links: int) -> str:
    return f"; the busiest {shown} of {plural(links, 'link')} that carry any" if links > shown else ""


COLOURS = ("#d9dde2", "#a6d3ea", "#6fb4de", "#3c8bcb", "#5a5bb5", "#8b3a9a", "#b51d5c", "#d4161c")
WIDTHS = (0.8, 1.2, 1.6, 2.0, 2.6, 3.2, 3.8, 4.4)
JOINED = "neighbours share a mark, and links between two marks share a line, of the mean use"
BUSIER = "a line is both directions between two devices, coloured by the one that is used more"
BAR, BAR_HEIGHT, TIER_ROW = 520, 12, 30
OF_TIERS = "a bar is the mean of a tier's links, the mark behind it the most used one"
LEAST = 0.001  # low end of the scale of tiers


def topology_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text."""
    topology = topology_of(run, part)
    if topology is not None:
        return _network(run, topology, part)
    if not run.holds("links"):
        raise nothing_to_draw(NOT_RECORDED, run, part)
    return _tiers(run, tier_totals(run, part), part)


def _network(run: RunDirectory, topology: Topology, part: Selection) -> str:
    devices, scene = Devices(topology.names, topology.rows, topology.sizes), Scene()
    places = placed(devices, topology.source, topology.target)
    draw_network(scene, devices, places, use_lines(topology, places))
    y = round(places.bottom) + 22
    scene.text(LEFT - 8, y + 4, "used", "end")
    for level, name in enumerate(level_names()):  # each step as wide as the others, so that 1 % is visible
        x = LEFT + level * 92
        scene.line(x, y, x + 82, y, COLOURS[level], stroke_width=WIDTHS[level])
        scene.text(x, y + 18, name)
    texts = [*part.heading()[:1], BUSIER]
    texts += [JOINED] if places.count.max() > 1 else []
    return scene.finish([*texts, most_used_text(topology), *topology_notes(run, topology)], y + 40)


def use_lines(topology: Topology, places: Places) -> list[Line]:
    """Return a line for each pair of marks with a link between them, the most used last."""
    pairs, of_link = joined_lines(places, topology.source, topology.target)
    links = np.flatnonzero(of_link >= 0)
    is_back = places.mark_of[topology.source[links]] > places.mark_of[topology.target[links]]
    way, ways = 2 * of_link[links] + is_back, 2 * len(pairs)  # two for every line
    count, most = np.bincount(way, minlength=ways), np.zeros(ways)
    could = np.bincount(way, topology.bytes_per_ns[links], ways)
    did = np.bincount(way, topology.used[links] * topology.bytes_per_ns[links], ways)
    used = np.where(could > 0, did / np.where(could > 0, could, 1), 0.0)
    np.maximum.at(most, way, topology.used[links])
    first = np.zeros(ways, np.int64)
    first[way[::-1]] = links[::-1]
    lines = []
    for at in np.argsort(used.reshape(-1, 2).max(axis=1, initial=0), kind="stable").tolist():
        both = [way for way in (2 * at, 2 * at + 1) if count[way]]
        meanings = [
            _meaning(topology, int(first[way]), int(count[way]), used[way], most[way]) for way in both
        ]
        level = level_of(max(float(used[way]) for way in both))
        source, target = pairs[at].tolist()
        lines.append(Line(source, target, COLOURS[level], WIDTHS[level], "; ".join(meanings)))
    return lines


def _meaning(topology: Topology, link: int, count: int, used: float, most: float) -> str:
    """Return the links and the use of one direction of a line."""
    source, target = topology.names[topology.source[link]], topology.names[topology.target[link]]
    ends = f"{source} to {target}: {share(used, 1)}"
    if count > 1:
        return f"{ends}, and {plural(count - 1, 'more link')}, at most {share(most, 1)}"
    return f"{ends}, {format_bytes(float(topology.bytes[link]))}"


def _tiers(run: RunDirectory, tiers: Sequence[TierUse], part: Selection) -> str:
    """Draw a bar for each tier, on a logarithmic scale."""
    if not tiers:
        raise nothing_to_draw(NOTHING_CARRIED, run, part)
    top, begin = TOP + 6, LEFT + 60
    bottom = top + TIER_ROW * len(tiers)

    def x(used: float) -> float:
        return begin + BAR * (1 - log10(min(max(used, LEAST), 1.0)) / log10(LEAST))

    scene = Scene()
    for power in (0.001, 0.01, 0.1, 1.0):
        scene.upright(x(power), top - 8, bottom, f"{100 * power:g} %", top - 12)
    for at, tier in enumerate(tiers):
        y, colour = top + at * TIER_ROW + 4, COLOURS[level_of(tier.used)]
        scene.label(tier.tier, y + 10, x=begin - 8)
        scene.rect(begin, y, max(x(tier.used) - begin, 1), BAR_HEIGHT, colour)
        if tier.most_used > tier.used:
            peak = x(tier.most_used)
            scene.line(peak, y - 3, peak, y + BAR_HEIGHT + 3, "#333", stroke_width=2)
        links = "" if tier.links is None else f"{plural(tier.links, 'link')}: "
        text = f"{links}{share(tier.used, 1)} used on average, the busiest {share(tier.most_used, 1)}"
        scene.text(begin + BAR + 12, y + 10, text)
    return scene.finish([*part.heading()[:1], OF_TIERS, *topology_notes(run, None)], bottom + 20)
