"""Times of ways by bytes, as lines over powers of ten, and the way that is taken as points.

Not here: where the times come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple
from xml.sax.saxutils import escape

from et_sim.basics.units import format_bytes, format_ns
from et_sim.views.drawing.svg import LEFT, PIXELS, TOP, document, label, legend, sentences

HEIGHT = 340
BOTTOM = TOP + HEIGHT
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a400", "#888888")
INK = "#333333"


class Line(NamedTuple):
    """A way, with (bytes, microseconds) in ascending order."""

    name: str
    points: Sequence[tuple[int, float]]


def choices_picture(title: str, lines: Sequence[Line], chosen: Sequence[tuple[int, float]]) -> str:
    """The SVG text."""
    sizes = sorted({size for line in lines for size, _ in line.points})
    times = [us for line in lines for _, us in line.points]
    low, high = floor(log10(min(times))), max(ceil(log10(max(times))), floor(log10(min(times))) + 1)
    first, last = log10(sizes[0]), log10(sizes[-1])

    def place(point: tuple[int, float]) -> tuple[float, float]:
        along = (log10(point[0]) - first) / (last - first) if last > first else 0.5
        return LEFT + PIXELS * along, BOTTOM - HEIGHT * (log10(point[1]) - low) / (high - low)

    parts = []
    for power in range(low, high + 1):
        y = BOTTOM - HEIGHT * (power - low) / (high - low)
        parts.append(f'<path stroke="#d5d9de" d="M{LEFT} {y:.1f}H{LEFT + PIXELS}"/>')
        parts.append(label(format_ns(round(10.0 ** (power + 3))), y + 4))
    for size in sizes:
        x = place((size, 10.0**low))[0]
        parts.append(f'<path stroke="#d5d9de" d="M{x:.1f} {TOP}V{BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{format_bytes(size)}</text>')
    for number, line in enumerate(lines):
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, line.points))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<path fill="none" stroke="{colour}" stroke-width="1.8" d="M{way}">'
            f"<title>{escape(line.name)}</title></path>"
        )
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{INK}"/>' for x, y in map(place, chosen)]
    names = [(COLOURS[number % len(COLOURS)], line.name) for number, line in enumerate(lines)]
    parts += legend([*names, (INK, "chosen")], BOTTOM + 42)
    texts = [f"{title}: time by bytes that each rank puts in"]
    return document([*parts, *sentences(texts, BOTTOM + 62)], BOTTOM + 74)
