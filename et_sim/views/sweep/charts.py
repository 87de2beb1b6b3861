"""Charts of a sweep's points, as SVG: colours are attributes, which style sheets of a page may override.

Not here: which charts there are (`picture`, `page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from xml.sax.saxutils import escape

from et_sim.views.drawing.svg import LETTER
from et_sim.views.sweep.scales import LAST, Scale
from et_sim.views.text import cut

# What most time goes to; the colours are those of the parts of ranks' time.
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#0072b2",
        "communication": "#e69f00",
        "remote memory": "#117733",
        "waiting for ranks": "#cc79a7",
        "host": "#8d99a6",
        "idle": "#4a4a4a",
        "finished early": "#56b4e9",
    }
)
OTHER = "#7d7d7d"
GRID, LINE, FRONT = "#d5d9de", "#333", "#c00000"
SIZES = ((200, 7.0), (2000, 5.0))  # up to so many points, dots are so wide
LEAST_SIZE = 3.0
RING = 5  # radius, in pixels
INSET = 8  # pixels between the frame of a chart and its first point


@dataclass(frozen=True, slots=True)
class Box:
    """Where a chart is drawn, without what is written around it."""

    left: int
    top: int
    width: int
    height: int

    def x(self, place: int) -> float:
        """Pixels from the left."""
        return self.left + INSET + (self.width - 2 * INSET) * place / LAST

    def y(self, place: int) -> float:
        """Pixels from above."""
        return self.top + self.height - INSET - (self.height - 2 * INSET) * place / LAST


def frame(box: Box, x: Scale, y: Scale) -> list[str]:
    """The marks of both axes, and what they are."""
    right, bottom = box.left + box.width, box.top + box.height
    parts = []
    for place, text in y.marks:
        at = box.y(place)
        parts.append(f'<path class="grid" stroke="{GRID}" d="M{box.left} {at:.1f}H{right}"/>')
        parts.append(f'<text x="{box.left - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    written = 0.0
    for place, text in x.marks:
        at, half = box.x(place), LETTER * len(text) / 2
        if written and at - half < written + LETTER:
            continue
        written = at + half
        parts.append(f'<path class="grid" stroke="{GRID}" d="M{at:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(text)}</text>')
    parts.append(
        f'<path class="grid" fill="none" stroke="{GRID}" d="M{box.left} {box.top}V{bottom}H{right}"/>'
    )
    middle = box.left + box.width / 2
    title = f'x="{middle:.1f}" y="{bottom + 32}" text-anchor="middle" font-weight="bold"'
    return [*parts, f"<text {title}>{escape(cut(x.title, box.width // LETTER))}</text>"]


def dots(box: Box, x: Scale, y: Scale, groups: Sequence[str]) -> list[str]:
    """A dot for every row that has a place in both; rows of a group share a colour."""
    size = next((size for most, size in SIZES if len(groups) <= most), LEAST_SIZE)
    found: dict[str, dict[str, None]] = {}
    for across, up, group in zip(x.places, y.places, groups, strict=True):
        if across is not None and up is not None:
            found.setdefault(group, {})[f"M{box.x(across):.1f} {box.y(up):.1f}h.01"] = None
    style = f'fill="none" stroke-linecap="round" stroke-width="{size:g}" stroke-opacity=".75"'
    return [
        f'<path class="dots" {style} stroke="{COLOURS.get(group, OTHER)}" d="{"".join(places)}"/>'
        for group, places in found.items()
    ]


def best_line(box: Box, x: Scale, y: Scale) -> str:
    """Through the least of every value."""
    least: dict[int, int] = {}
    for across, up in zip(x.places, y.places, strict=True):
        if across is not None and up is not None:
            least[across] = min(up, least.get(across, up))
    corners = "L".join(f"{box.x(across):.1f} {box.y(least[across]):.1f}" for across in sorted(least))
    return f'<path class="best" fill="none" stroke="{LINE}" stroke-width="1.5" d="M{corners}"/>'


def front_line(box: Box, x: Scale, y: Scale, front: Sequence[int]) -> str:
    """Steps along rows in order: between two of them, nothing is known to be better than the first."""
    places = [(box.x(x.places[row] or 0), box.y(y.places[row] or 0)) for row in front]
    steps = "".join(f"H{across:.1f}V{up:.1f}" for across, up in places[1:])
    shape = f"M{places[0][0]:.1f} {places[0][1]:.1f}{steps}H{box.left + box.width}"
    return f'<path class="front" fill="none" stroke="{FRONT}" stroke-width="1.5" d="{shape}"/>'


def rings(box: Box, x: Scale, y: Scale, rows: Sequence[int]) -> str:
    """Around the dots of some rows."""
    round_ = f"a{RING} {RING} 0 1 0 {2 * RING} 0a{RING} {RING} 0 1 0 {-2 * RING} 0"
    places = dict.fromkeys((x.places[row], y.places[row]) for row in rows)
    shape = "".join(
        f"M{box.x(across) - RING:.1f} {box.y(up):.1f}{round_}"
        for across, up in places
        if across is not None and up is not None
    )
    return f'<path class="found" fill="none" stroke="{FRONT}" stroke-width="1.5" d="{shape}"/>'


def lines(box: Box, scales: Sequence[Scale], rows: Sequence[int], name: str) -> str:
    """Rows across upright scales, equally far apart; what has no place on one is left out."""
    found: dict[str, None] = {}
    for row in rows:
        corners = [
            f"{box.left + box.width * at / max(len(scales) - 1, 1):.0f} {box.y(place):.0f}"
            for at, scale in enumerate(scales)
            if (place := scale.places[row]) is not None
        ]
        found["M" + "L".join(corners)] = None
    return f'<path class="{name}" d="{"".join(found)}"/>'
