"""Bandwidth against message size as a picture: a circle for each kind, group and size, and what links carry.

Both axes are logarithmic. Not here: the figures (`summary.bandwidth`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log2, log10
from xml.sax.saxutils import escape

from et_sim.basics.units import format_bandwidth, format_bytes, format_ns, plural
from et_sim.views.drawing.colours import colour_of
from et_sim.views.drawing.svg import LEFT, PIXELS, TOP, document, label, legend, nothing_to_draw, sentences
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.bandwidth import NO_LINKS, Rate, link_ceilings, rates

HEIGHT, MOST_POINTS, MOST_TICKS = 320, 2000, 9
BOTTOM = TOP + HEIGHT
RADII = (3.0, 9.0)
MARGIN = 0.1  # powers of two between a circle and an edge


def bandwidth_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    every = rates(run, part)
    found = sorted(every, key=lambda one: -one.moving_ns)[: part.top or MOST_POINTS]
    if not found:
        raise nothing_to_draw("no collective or send with a payload was simulated", run, part)
    ceilings = link_ceilings(run)
    sizes = [one.bytes for one in found]
    speeds = [*(one.bytes_per_second for one in found), *ceilings.values()]
    low, high = _ends(sizes)
    least, most = _ends(speeds)

    def x(size: float) -> float:
        return LEFT + PIXELS * (log2(size) - low) / (high - low)

    def y(speed: float) -> float:
        return BOTTOM - HEIGHT * (log2(speed) - least) / (most - least)

    parts = [*_grid(x, y, (low, high), (least, most)), *_ceilings(ceilings, y)]
    parts += [_circle(one, x, y, found[0].moving_ns) for one in found]
    kinds = dict.fromkeys(one.kind for one in sorted(found, key=lambda one: one.kind))
    parts += legend([(colour_of(kind), kind.replace("_", " ")) for kind in kinds], BOTTOM + 44)
    texts = ["size by transfer time against payload; a circle is the larger, the more time it stands for"]
    texts += [] if ceilings else [NO_LINKS]
    if len(found) < len(every):
        texts.append(f"{plural(len(every) - len(found), 'circle')} that stand for less time are left out")
    return document([*parts, *sentences(texts, BOTTOM + 62)], BOTTOM + 58 + 15 * len(texts))


def _ends(values: Sequence[float]) -> tuple[int, int]:
    """Powers of two around all of them, and none of them at an edge."""
    return floor(log2(min(values)) - MARGIN), ceil(log2(max(values)) + MARGIN)


def _grid(
    x: Callable[[float], float], y: Callable[[float], float], sizes: tuple[int, int], speeds: tuple[int, int]
) -> list[str]:
    parts = []
    for power in range(sizes[0], sizes[1] + 1, max(ceil((sizes[1] - sizes[0]) / MOST_TICKS), 1)):
        at = x(2.0**power)
        parts.append(f'<path stroke="#d5d9de" d="M{at:.1f} {TOP}V{BOTTOM}"/>')
        text = format_bytes(2**power)
        parts.append(f'<text x="{at:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{text}</text>')
    for speed in _round_speeds(2.0 ** speeds[0], 2.0 ** speeds[1]):
        at = y(speed)
        parts.append(f'<path stroke="#d5d9de" d="M{LEFT} {at:.1f}H{LEFT + PIXELS}"/>')
        parts.append(label(format_bandwidth(speed / 1e9), at + 4))
    return parts


def _round_speeds(least: float, most: float) -> list[float]:
    """Some of 1, 2, 5, 10, 20, ... between two numbers."""
    powers = range(floor(log10(least)), ceil(log10(most)) + 1)
    found = [one for power in powers for digit in (1, 2, 5) if least <= (one := digit * 10.0**power) <= most]
    return found[:: 1 if len(found) <= MOST_TICKS else 3]


def _ceilings(ceilings: dict[str, float], y: Callable[[float], float]) -> list[str]:
    """A dashed line for each speed, with the tiers whose links have it."""
    tiers: dict[float, list[str]] = {}
    for tier, speed in ceilings.items():
        tiers.setdefault(speed, []).append(tier)
    parts = []
    for speed, names in tiers.items():
        at = y(speed)
        parts.append(f'<path stroke="#c00000" stroke-dasharray="6 4" d="M{LEFT} {at:.1f}H{LEFT + PIXELS}"/>')
        text = escape(f"one link of {', '.join(names[:4])}: {format_bandwidth(speed / 1e9)}")
        place = f'x="{LEFT + PIXELS - 4}" y="{at - 5:.1f}" text-anchor="end" fill="#c00000"'
        parts.append(f"<text {place}>{text}</text>")
    return parts


def _circle(one: Rate, x: Callable[[float], float], y: Callable[[float], float], longest: int) -> str:
    small, large = RADII
    radius = small + (large - small) * (one.moving_ns / longest) ** 0.5
    said = f"{plural(one.count, one.kind)} of {format_bytes(one.bytes)}" + (
        f" in {one.group}" if one.group else ""
    )
    said += f": {format_bandwidth(one.bytes_per_second / 1e9)}, {format_ns(one.moving_ns / one.count)} each"
    place = f'cx="{x(one.bytes):.2f}" cy="{y(one.bytes_per_second):.2f}" r="{radius:.1f}"'
    style = f'fill="{colour_of(one.kind)}" fill-opacity=".75" stroke="#333" stroke-width=".5"'
    return f"<circle {place} {style}><title>{escape(said)}</title></circle>"
