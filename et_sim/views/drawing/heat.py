"""Heat maps as a picture: a row for each thing, a column for each part of the time, darker for more use.

Steps of colour are finer where little is used. Not here: what is used (`network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from et_sim.views.drawing.svg import LEFT, LETTER, MOST_LETTERS, TOP, axis, document, label, sentences
from et_sim.views.run.selection import Window
from et_sim.views.text import distinct, share

COLUMNS = 240
UP_TO = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the steps of colour: 1 % is not lost
OPACITIES = (0.14, 0.22, 0.31, 0.40, 0.50, 0.60, 0.70, 0.80, 0.90, 1.0)
COLOUR, TRACK = "#0072b2", "#eef1f5"
NAMES, PIXEL, ROW = 124, 3, 14  # pixels of names right of LEFT, of a column, and from row to row
BEGIN, WIDTH = LEFT + NAMES, PIXEL * COLUMNS


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """How much something is used: a row for each, a column for each part of the time."""

    names: tuple[str, ...]
    shares: Any
    note: str
    beside: tuple[str, ...] = ()  # right of the rows; without any, their means


def heat_picture(heats: Sequence[Heat], window: Window, texts: Sequence[str]) -> str:
    """The SVG text: the maps below each other, on one axis of time."""
    parts, levels, y = [], [], TOP + 10
    for heat in heats:
        parts.append(f'<text x="8" y="{y}">{escape(heat.note)}</text>')
        y += 8
        parts += _names(heat, y)
        levels.append((steps_of(heat.shares), y))
        y += ROW * len(heat.names) + 20
    lines = axis(window, y - 20, BEGIN, WIDTH)
    parts = [*lines, *parts, *_cells(levels), *_scale(y)]
    return document([*parts, *sentences(texts, y + 18)], y + 14 + 15 * len(texts))


def steps_of(shares: Any) -> Any:
    """The step of colour of each share, 0: nothing."""
    return np.where(shares > 1e-6, 1 + np.searchsorted(UP_TO, shares - 1e-6).clip(max=len(UP_TO) - 1), 0)


def _names(heat: Heat, y: int) -> list[str]:
    """What stands left and right of rows, and their tracks."""
    beside = heat.beside or [share(float(shares.mean()), 1.0) for shares in heat.shares]
    parts = []
    for name, whole, said in zip(distinct(heat.names, MOST_LETTERS), heat.names, beside, strict=True):
        parts.append(label(name, y + 10, whole, BEGIN - 8))
        parts.append(f'<rect x="{BEGIN}" y="{y}" width="{WIDTH}" height="{ROW - 2}" fill="{TRACK}"/>')
        parts.append(f'<text x="{BEGIN + WIDTH + 8}" y="{y + 10}">{escape(said)}</text>')
        y += ROW
    return parts


def _cells(maps: Sequence[tuple[Any, int]]) -> list[str]:
    """A path for each step of colour; columns of one step that stand together are one rectangle."""
    pieces: list[list[str]] = [[] for _ in UP_TO]
    for levels, top in maps:
        for row, of in enumerate(levels):
            firsts = np.flatnonzero(np.diff(of, prepend=-1))
            lengths = np.diff(firsts, append=len(of))
            for first, length, level in zip(
                firsts.tolist(), lengths.tolist(), of[firsts].tolist(), strict=True
            ):
                if level:
                    place = f"M{BEGIN + PIXEL * first} {top + ROW * row}"
                    pieces[level - 1].append(f"{place}h{PIXEL * length}v{ROW - 2}h-{PIXEL * length}z")
    drawn = [
        f'<path fill-opacity="{opacity}" d="{"".join(paths)}"/>'
        for opacity, paths in zip(OPACITIES, pieces, strict=True)
        if paths
    ]
    return [f'<g fill="{COLOUR}" shape-rendering="crispEdges">', *drawn, "</g>"]


def _scale(y: int) -> list[str]:
    """What the steps of colour mean."""
    parts = [label("nothing, or up to", y, x=BEGIN - 8)]
    for number, (up_to, opacity) in enumerate(zip(UP_TO, OPACITIES, strict=True)):
        x = BEGIN + number * (24 + 6 * LETTER)
        place = f'x="{x}" y="{y - 9}" width="14" height="10"'
        parts.append(f'<rect {place} fill="{TRACK}"/>')
        parts.append(f'<g fill="{COLOUR}"><rect {place} fill-opacity="{opacity}"/></g>')
        parts.append(f'<text x="{x + 18}" y="{y}">{share(up_to, 1.0)}</text>')
    return parts
