"""A small log-log picture of a few curves, as SVG.

Not here: what is measured (`suite`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 48
INK, GRID = "#333333", "#dddddd"


@dataclass(frozen=True)
class Series:
    """One curve: points (x, y), both above zero."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


def log_log_svg(title: str, series: list[Series]) -> str:
    """The curves with a decade grid; each is named at its last point."""
    every = [point for one in series for point in one.points]
    x_from, x_to = _decades([x for x, _ in every])
    y_from, y_to = _decades([y for _, y in every])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_from) / (x_to - x_from)
        up = (math.log10(y) - y_from) / (y_to - y_from)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for decade in range(x_from, x_to + 1):
        x, bottom = place(10**decade, 10**y_from)
        top = place(10**decade, 10**y_to)[1]
        parts.append(f'<line x1="{x:.1f}" y1="{bottom:.1f}" x2="{x:.1f}" y2="{top:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20:.1f}" text-anchor="middle">{10**decade:,}</text>')
    for decade in range(y_from, y_to + 1):
        x, y = place(10**x_from, 10**decade)
        right = place(10**x_to, 10**decade)[0]
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g} s</text>')
    for one in series:
        parts += _curve(one, [place(x, y) for x, y in one.points])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _curve(one: Series, places: list[tuple[float, float]]) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return [
        f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="2.5"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{one.colour}"/>' for x, y in places),
        f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{one.colour}">{escape(one.name)}</text>',
    ]


def _decades(values: list[float]) -> tuple[int, int]:
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
