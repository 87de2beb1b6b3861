"""Small log-log pictures of a few curves each, side by side as one SVG.

Not here: what is measured (`suite`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from msgspec import Struct

WIDTH, HEIGHT = 480, 320  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 124, 34, 54
TITLE, IN_ROW = 32, 2
INK, GRID = "#333333", "#dddddd"


class Series(Struct, frozen=True):
    """One curve: points (x, y), both above zero."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


class Panel(Struct, frozen=True):
    """Curves over the same thing."""

    title: str
    noun: str  # of what is counted from left to right
    series: list[Series]


def log_log_svg(title: str, panels: list[Panel]) -> str:
    """Draw panels with a decade grid; curves are named at their last points."""
    width = WIDTH * min(IN_ROW, len(panels))
    height = TITLE + HEIGHT * math.ceil(len(panels) / IN_ROW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        across, down = WIDTH * (number % IN_ROW), TITLE + HEIGHT * (number // IN_ROW)
        parts += [f'<g transform="translate({across} {down})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel) -> list[str]:
    every = [point for one in panel.series for point in one.points]
    x_from, x_to = _decades([x for x, _ in every])
    y_from, y_to = _decades([y for _, y in every])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_from) / (x_to - x_from)
        up = (math.log10(y) - y_from) / (y_to - y_from)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="20" font-size="13">{escape(panel.title)}</text>']
    for decade in range(x_from, x_to + 1):
        x, bottom = place(10**decade, 10**y_from)
        top = place(10**decade, 10**y_to)[1]
        parts.append(f'<line x1="{x:.1f}" y1="{bottom:.1f}" x2="{x:.1f}" y2="{top:.1f}" stroke="{GRID}"/>')
        label = f'10<tspan dy="-5" font-size="9">{decade}</tspan>'
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(panel.noun)}</text>')
    for decade in range(y_from, y_to + 1):
        x, y = place(10**x_from, 10**decade)
        right = place(10**x_to, 10**decade)[0]
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g} s</text>')
    for one in panel.series:
        parts += _curve(one, [place(x, y) for x, y in one.points])
    return parts


def _curve(one: Series, places: list[tuple[float, float]]) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return [
        f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="2.5"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{one.colour}"/>' for x, y in places),
        f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{one.colour}">{escape(one.name)}</text>',
    ]


def _decades(values: list[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)
