"""How far predictions are off, by measured times: a panel for each kind, with lines at a tenth and a half.

Not here: where the times come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple
from xml.sax.saxutils import escape

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns
from et_sim.views.drawing.svg import document, sentences

PANEL, GAP, ACROSS, EDGE, TOP = 190, 50, 4, 60, 30
POINT, LINE, NEAR, FAR = "#0072b2", "#333333", "#98a1ab", "#d5d9de"
OFF = ((1.0, LINE), (1.1, NEAR), (0.9, NEAR), (1.5, FAR), (0.5, FAR))
MOST = 2.5  # times as long, or as short: what is further off is at the edge
MOST_POINTS = 400  # of a kind: evenly taken, those in between look the same


class Kind(NamedTuple):
    """What was measured: its name, its mean error in percent, and (measured, predicted) microseconds."""

    name: str
    mape: float
    points: Sequence[tuple[float, float]]


def measured_picture(kinds: Sequence[Kind]) -> str:
    """The SVG text."""
    if not kinds:
        raise UsageError("nothing to draw: no row was predicted", remedy="name a machine by --machine")
    parts: list[str] = []
    for number, kind in enumerate(kinds):
        x = EDGE + (PANEL + GAP) * (number % ACROSS)
        y = TOP + (PANEL + GAP + TOP) * (number // ACROSS)
        parts += _panel(kind, x, y)
    bottom = TOP + (PANEL + GAP + TOP) * (1 + (len(kinds) - 1) // ACROSS)
    text = (
        "predicted against measured (up) by measured time (right); mean errors; the kind furthest off first"
    )
    return document([*parts, *sentences([text], bottom)], bottom + 12)


def _panel(kind: Kind, x: float, y: float) -> list[str]:
    times = [measured for measured, _ in kind.points]
    low, high = floor(log10(min(times))), ceil(log10(max(times)))
    high = max(high, low + 1)

    def up(ratio: float) -> float:
        off = log10(min(max(ratio, 1 / MOST), MOST)) / log10(MOST)
        return y + PANEL / 2 * (1 - off)

    title = f"{kind.name}: {len(kind.points):,} rows, {kind.mape:.1f} %"
    parts = [
        f'<text x="{x}" y="{y - 8}" font-weight="bold">{escape(title)}</text>',
        f'<rect x="{x}" y="{y}" width="{PANEL}" height="{PANEL}" fill="none" stroke="{FAR}"/>',
    ]
    for ratio, colour in OFF:
        parts.append(f'<path stroke="{colour}" d="M{x} {up(ratio):.1f}h{PANEL}"/>')
        text = "equal" if ratio == 1 else f"{100 * (ratio - 1):+.0f} %"
        parts.append(
            f'<text x="{x - 4}" y="{up(ratio) + 4:.1f}" text-anchor="end" font-size="9">{text}</text>'
        )
    for power in (low, high):
        text = format_ns(round(10.0 ** (power + 3)))
        anchor = "start" if power == low else "end"
        at = x + (0 if power == low else PANEL)
        parts.append(f'<text x="{at}" y="{y + PANEL + 14}" text-anchor="{anchor}">{text}</text>')
    every = -(-len(kind.points) // MOST_POINTS)
    for measured, predicted in kind.points[::every]:
        at = x + PANEL * (log10(measured) - low) / (high - low)
        place = f'cx="{at:.1f}" cy="{up(predicted / measured):.1f}"'
        parts.append(f'<circle {place} r="1.8" fill="{POINT}" fill-opacity=".5"/>')
    return parts
