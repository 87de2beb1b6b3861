"""The network of a run as a picture, its links coloured by how much of their bandwidth is used.

Where links are not known one by one, tiers are bars. Not here: where devices stand (`devices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

import numpy as np

from et_sim.basics.units import format_bytes, plural
from et_sim.views.drawing.devices import Devices, Line, Places, draw_network, joined_lines, placed
from et_sim.views.drawing.scene import LEFT, TOP, Scene, nothing_to_draw
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.tiers import TierUse
from et_sim.views.run.topology import Topology, topology_of
from et_sim.views.summary.links import NOT_RECORDED
from et_sim.views.summary.topology import (
    NOTHING_CARRIED,
    level_names,
    level_of,
    most_used_text,
    tier_totals,
    topology_notes,
)
from et_sim.views.text import share

COLOURS = ("#d9dde2", "#a6d3ea", "#6fb4de", "#3c8bcb", "#5a5bb5", "#8b3a9a", "#b51d5c", "#d4161c")
WIDTHS = (0.8, 1.2, 1.6, 2.0, 2.6, 3.2, 3.8, 4.4)
JOINED = "neighbours are one mark, and what leads between two marks is one line, of the mean use"
BUSIER = "a line is both directions between two devices, coloured by the one that is used more"
BAR, BAR_HEIGHT, TIER_ROW = 520, 12, 30
OF_TIERS = "a bar is the mean of a tier's links, the mark behind it the most used one"
LEAST = 0.001  # where the scale of tiers begins


def topology_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
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
    for level, name in enumerate(level_names()):  # each step as wide as the others, so that 1 % shows
        x = LEFT + level * 92
        scene.line(x, y, x + 82, y, COLOURS[level], stroke_width=WIDTHS[level])
        scene.text(x, y + 18, name)
    texts = [*part.heading()[:1], BUSIER]
    texts += [JOINED] if places.count.max() > 1 else []
    return scene.finish([*texts, most_used_text(topology), *topology_notes(run, topology)], y + 40)


def use_lines(topology: Topology, places: Places) -> list[Line]:
    """A line for each pair of marks with a link between them, the most used last."""
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
    """What one direction of a line stands for."""
    source, target = topology.names[topology.source[link]], topology.names[topology.target[link]]
    ends = f"{source} to {target}: {share(used, 1)}"
    if count > 1:
        return f"{ends}, and {plural(count - 1, 'more link')}, at most {share(most, 1)}"
    return f"{ends}, {format_bytes(float(topology.bytes[link]))}"


def _tiers(run: RunDirectory, tiers: Sequence[TierUse], part: Selection) -> str:
    """A bar for each tier, on a scale where each power of ten is as wide as the others."""
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
