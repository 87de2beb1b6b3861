"""Operations per second against operations per byte, below the roofs of the machine: a circle for each name.

Not here: the figures (`summary.roofline`).
"""

from __future__ import annotations

from math import atan2, ceil, degrees, floor, log10
from xml.sax.saxutils import escape

from et_sim.basics.units import format_bandwidth, format_ns, plural
from et_sim.views.drawing.svg import (
    LEFT,
    LETTER,
    PIXELS,
    TOP,
    document,
    label,
    legend,
    nothing_to_draw,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.roofline import NO_KERNELS, Kernel, Roofline, by_byte, per_second, roofline_of
from et_sim.views.text import shortened

HEIGHT, MOST_POINTS, MOST_NAMES = 340, 500, 12
BOTTOM = TOP + HEIGHT
SMALLEST, LARGEST = 3.0, 11.0
NEAR = 14.0  # pixels between circles that share a name
MARGIN = 0.15  # powers of ten between a circle and an edge
ROOF, COMPUTE_BOUND, MEMORY_BOUND = "#c00000", "#0072b2", "#e69f00"


Box = tuple[float, float, float, float]  # left, top, right, bottom


class _Plane:
    """Where figures stand: powers of ten, of operations per byte and per second."""

    def __init__(self, found: Roofline) -> None:
        sizes = [one.intensity for one in found.kernels]
        ridges = [p / b for p in found.peaks.values() for b in found.bandwidths.values()]
        speeds = [one.operations_per_second for one in found.kernels]
        self.low, self.high = (
            floor(log10(min(*sizes, *ridges)) - MARGIN),
            ceil(log10(max(*sizes, *ridges)) + MARGIN),
        )
        speeds += found.peaks.values()
        self.least, self.most = floor(log10(min(speeds)) - MARGIN), ceil(log10(max(speeds)) + MARGIN)

    def x(self, intensity: float) -> float:
        """Of operations per byte."""
        return LEFT + PIXELS * (log10(intensity) - self.low) / (self.high - self.low)

    def y(self, speed: float) -> float:
        """Of operations per second."""
        return BOTTOM - HEIGHT * (log10(speed) - self.least) / (self.most - self.least)


def roofline_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    found = roofline_of(run, part)
    if not found.kernels:
        raise nothing_to_draw(NO_KERNELS, run, part)
    plane = _Plane(found)
    shown = found.kernels[: part.top or MOST_POINTS]
    parts = [*_grid(plane), *_roofs(found, plane)]
    parts += [_circle(one, found, plane, shown[0].total_ns) for one in shown]
    parts += _names(shown, plane)
    bounds = {one.memory_bound_share > 0.5 for one in shown}
    names = ((False, COMPUTE_BOUND, "bound by compute"), (True, MEMORY_BOUND, "bound by memory"))
    parts += legend([(colour, text) for which, colour, text in names if which in bounds], BOTTOM + 50)
    texts = [
        *part.heading()[:1],
        "FLOP/s achieved against FLOP per byte of traffic; larger circles stand for more time",
    ]
    if len(shown) < len(found.kernels):
        texts.append(
            f"{plural(len(found.kernels) - len(shown), 'circle')} that stand for less time are left out"
        )
    return document([*parts, *sentences(texts, BOTTOM + 68)], BOTTOM + 64 + 15 * len(texts))


def _grid(plane: _Plane) -> list[str]:
    parts = []
    for power in range(plane.low, plane.high + 1, max((plane.high - plane.low) // 10, 1)):
        at = plane.x(10.0**power)
        parts.append(f'<path stroke="#d5d9de" d="M{at:.1f} {TOP}V{BOTTOM}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{by_byte(10.0**power)}</text>'
        )
    for power in range(plane.least, plane.most + 1, max((plane.most - plane.least) // 10, 1)):
        at = plane.y(10.0**power)
        parts.append(f'<path stroke="#d5d9de" d="M{LEFT} {at:.1f}H{LEFT + PIXELS}"/>')
        parts.append(label(per_second(10.0**power), at + 4))
    place = f'x="{LEFT + PIXELS / 2:.0f}" y="{BOTTOM + 32}" text-anchor="middle"'
    parts.append(f"<text {place}>FLOP per byte</text>")
    return parts


def _roofs(found: Roofline, plane: _Plane) -> list[str]:
    """Each peak from where the widest memory reaches it, and each bandwidth up to the highest peak."""
    parts, style = [], f'fill="none" stroke="{ROOF}" stroke-width="1.5"'
    top, widest = max(found.peaks.values()), max(found.bandwidths.values())
    for name, peak in found.peaks.items():
        begin, y = max(plane.x(peak / widest), LEFT), plane.y(peak)
        parts.append(f'<path {style} d="M{begin:.1f} {y:.1f}H{LEFT + PIXELS}"/>')
        text = escape(f"{name}: {per_second(peak)}")
        place = f'x="{LEFT + PIXELS - 4}" y="{y - 5:.1f}" text-anchor="end" fill="{ROOF}"'
        parts.append(f"<text {place}>{text}</text>")
    for name, bandwidth in found.bandwidths.items():
        low, high = 10.0**plane.low, min(top / bandwidth, 10.0**plane.high)
        low = max(low, 10.0**plane.least / bandwidth)
        ends = (plane.x(low), plane.y(low * bandwidth)), (plane.x(high), plane.y(high * bandwidth))
        (x, y), (to_x, to_y) = ends
        parts.append(f'<path {style} d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>')
        parts.append(_along(f"{name}: {format_bandwidth(bandwidth / 1e9)}", ends))
    return parts


def _along(text: str, ends: tuple[tuple[float, float], tuple[float, float]]) -> str:
    """A text that stands above a line that rises, up to its end."""
    (x, y), (to_x, to_y) = ends
    turn = degrees(atan2(to_y - y, to_x - x))
    at_x, at_y = x + 0.97 * (to_x - x), y + 0.97 * (to_y - y)
    place = f'transform="translate({at_x:.1f} {at_y:.1f}) rotate({turn:.1f})" y="-6" text-anchor="end"'
    return f'<text {place} fill="{ROOF}">{escape(text)}</text>'


def _circle(one: Kernel, found: Roofline, plane: _Plane, longest: int) -> str:
    said = (
        f"{one.name}, {one.count:,} of {format_ns(one.total_ns)} in all: {by_byte(one.intensity)} FLOP/byte, "
        f"{per_second(one.operations_per_second)} of {per_second(found.roof(one))}"
    )
    place = f'cx="{plane.x(one.intensity):.2f}" cy="{plane.y(one.operations_per_second):.2f}"'
    colour = MEMORY_BOUND if one.memory_bound_share > 0.5 else COMPUTE_BOUND
    style = (
        f'r="{_radius(one, longest):.1f}" fill="{colour}" fill-opacity=".75" stroke="#333" stroke-width=".5"'
    )
    return f"<circle {place} {style}><title>{escape(said)}</title></circle>"


def _radius(one: Kernel, longest: int) -> float:
    return float(SMALLEST + (LARGEST - SMALLEST) * (one.total_ns / max(longest, 1)) ** 0.5)


def _names(shown: tuple[Kernel, ...], plane: _Plane) -> list[str]:
    """Of circles that lie on each other, that with the most time; where there is room below them."""
    places: list[tuple[float, float, float]] = []
    counts: dict[int, int] = {}
    for number, one in enumerate(shown):
        x, y, reach = (
            plane.x(one.intensity),
            plane.y(one.operations_per_second),
            _radius(one, shown[0].total_ns),
        )
        near = next(
            (at for at in counts if abs(places[at][0] - x) < NEAR and abs(places[at][1] - y) < NEAR), number
        )
        counts[near] = counts.get(near, 0) + 1
        places.append((x, y, reach))
    parts: list[str] = []
    taken: list[Box] = [(x - reach, y - reach, x + reach, y + reach) for x, y, reach in places]
    for number, count in [*counts.items()][:MOST_NAMES]:
        more = f", {count - 1} more" if count > 1 else ""
        text = shortened(shown[number].name, 30) + more
        x, y, reach = places[number]
        wide = LETTER * len(text)
        for begin, at in ((x - 4, y + reach + 12), (x + 4 - wide, y + reach + 12)):
            box = (begin, at - 10, begin + wide, at + 2)
            inside = box[0] >= LEFT and box[2] <= LEFT + PIXELS and box[3] <= BOTTOM
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                place, anchor = (begin, "start") if begin >= x - 4 else (x + 4, "end")
                parts.append(
                    f'<text x="{place:.1f}" y="{at:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
                )
                break
    return parts


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
