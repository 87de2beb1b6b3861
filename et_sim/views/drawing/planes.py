"""Pictures of pairs of figures on logarithmic axes.

Bandwidth against message size: a circle for each kind, group and size, with the limits of links. Roofline:
operations per second against operations per byte, below the roofs of the machine, a circle for each name.
Choices: times of alternatives by bytes as lines, the chosen one as points. Measured: errors of predictions by
measured time, a panel for each kind with lines at a tenth and a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, ceil, degrees, floor, log2, log10
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bandwidth, format_bytes, format_ns, plural
from et_sim.views.drawing.scene import (
    LEFT,
    LETTER,
    LIMIT,
    PIXELS,
    TOP,
    Plane,
    Scene,
    colour_of,
    left_out,
    nothing_to_draw,
    number,
    powers_around,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.bandwidth import NO_LINKS, Rate, link_ceilings, rates
from et_sim.views.summary.roofline import (
    NO_KERNELS,
    EqualKernels,
    MeasuredRoofline,
    per_second,
    roofline_of,
)
from et_sim.views.text import by_byte, shortened

LESS_TIME = " that stand for less time are left out"
INSIDE: dict[str, Any] = {"fill_opacity": ".75", "stroke": "#333", "stroke_width": ".5"}


def _radius(ns: float, longest: float, small: float, large: float) -> float:
    """Return a radius, so that areas are in proportion to time."""
    return float(small + (large - small) * (ns / max(longest, 1)) ** 0.5)


MOST_CIRCLES, MOST_TICKS = 2000, 9
MARGIN = 0.1  # powers of two between a circle and an edge


def bandwidth_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: bandwidth against message size."""
    every = rates(run, part)
    shown = sorted(every, key=lambda rate: -rate.moving_ns)[: part.top or MOST_CIRCLES]
    if not shown:
        raise nothing_to_draw("no collective or send with a payload was simulated", run, part)
    ceilings, scene = link_ceilings(run), Scene()
    sizes = _powers_of_two([rate.bytes for rate in shown])
    speeds = _powers_of_two([*(rate.bytes_per_second for rate in shown), *ceilings.values()])
    across, up = ((low * log10(2), high * log10(2)) for low, high in (sizes, speeds))
    plane = Plane(across, up, 320)
    step = max(ceil((sizes[1] - sizes[0]) / MOST_TICKS), 1)
    for power in range(sizes[0], sizes[1] + 1, step):
        x = plane.x(2.0**power)
        scene.upright(x, TOP, plane.bottom, format_bytes(2**power), plane.bottom + 16)
    for speed in _round_speeds(2.0 ** speeds[0], 2.0 ** speeds[1]):
        scene.level(plane.y(speed), format_bandwidth(speed / 1e9))
    tiers: dict[float, list[str]] = {}
    for tier, speed in ceilings.items():
        tiers.setdefault(speed, []).append(tier)
    for speed, names in tiers.items():
        text = f"one link of {', '.join(names[:4])}: {format_bandwidth(speed / 1e9)}"
        _ceiling(scene, LEFT, plane.y(speed), text, stroke_dasharray="6 4")
    for rate in shown:
        radius = _radius(rate.moving_ns, shown[0].moving_ns, 3.0, 9.0)
        place = plane.x(rate.bytes), plane.y(rate.bytes_per_second)
        scene.circle(*place, radius, colour_of(rate.kind), _meaning_of_rate(rate), **INSIDE)
    kinds = sorted({rate.kind for rate in shown})
    scene.legend([(colour_of(kind), kind.replace("_", " ")) for kind in kinds], plane.bottom + 44)
    texts = ["size by transfer time against payload; a circle is the larger, the more time it stands for"]
    texts += [] if ceilings else [NO_LINKS]
    return scene.finish([*texts, *left_out(shown, every, "circle", LESS_TIME)], plane.bottom + 62)


def _powers_of_two(values: Sequence[float]) -> tuple[int, int]:
    """Return powers of two around all values, with a margin."""
    return floor(log2(min(values)) - MARGIN), ceil(log2(max(values)) + MARGIN)


def _round_speeds(least: float, most: float) -> list[float]:
    """Return values of 1, 2, 5, 10, 20, ... between two numbers."""
    low, high = powers_around((least, most))
    every = (digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5))
    ticks = [speed for speed in every if least <= speed <= most]
    return ticks[:: 1 if len(ticks) <= MOST_TICKS else 3]


def _ceiling(scene: Scene, begin: float, y: float, text: str, **style: Any) -> None:
    """Draw a limit of the machine, from a place to the right edge."""
    scene.line(begin, y, LEFT + PIXELS, y, LIMIT, **style)
    scene.text(LEFT + PIXELS - 4, y - 5, text, "end", fill=LIMIT)


def _meaning_of_rate(rate: Rate) -> str:
    where = f" in {rate.group}" if rate.group else ""
    bandwidth, each = format_bandwidth(rate.bytes_per_second / 1e9), format_ns(rate.moving_ns / rate.count)
    return f"{plural(rate.count, rate.kind)} of {format_bytes(rate.bytes)}{where}: {bandwidth}, {each} each"


MOST_POINTS, MOST_NAMES = 500, 12
NEAR = 14.0  # pixels between circles that share a name
BOUNDS = {False: ("#0072b2", "bound by compute"), True: ("#e69f00", "bound by memory")}
OF_ROOFS = "FLOP/s achieved against FLOP per byte of traffic; larger circles stand for more time"
Box = tuple[float, float, float, float]  # left, top, right, bottom


def roofline_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text: kernels below the roofs."""
    roofline, scene = roofline_of(run, part), Scene()
    if not roofline.kernels:
        raise nothing_to_draw(NO_KERNELS, run, part)
    ridges = [peak / width for peak in roofline.peaks.values() for width in roofline.bandwidths.values()]
    across = powers_around([*(kernel.intensity for kernel in roofline.kernels), *ridges], 0.15)
    speeds = (kernel.operations_per_second for kernel in roofline.kernels)
    plane = Plane(across, powers_around([*speeds, *roofline.peaks.values()], 0.15), 340)
    shown = roofline.kernels[: part.top or MOST_POINTS]
    for power in range(across[0], across[1] + 1, max((across[1] - across[0]) // 10, 1)):
        x = plane.x(10.0**power)
        scene.upright(x, TOP, plane.bottom, by_byte(10.0**power), plane.bottom + 16)
    low, high = (round(end) for end in plane.up)
    for power in range(low, high + 1, max((high - low) // 10, 1)):
        scene.level(plane.y(10.0**power), per_second(10.0**power))
    scene.text(LEFT + PIXELS // 2, plane.bottom + 32, "FLOP per byte", "middle")
    _roofs(scene, roofline, plane)
    places = []
    for kernel in shown:
        x, y = plane.x(kernel.intensity), plane.y(kernel.operations_per_second)
        radius = _radius(kernel.total_ns, shown[0].total_ns, 3.0, 11.0)
        places.append((x, y, radius))
        colour, _ = BOUNDS[kernel.memory_bound_share > 0.5]
        scene.circle(x, y, radius, colour, _meaning_of_kernel(kernel, roofline), **INSIDE)
    _names(scene, shown, places, plane.bottom)
    bounds = {kernel.memory_bound_share > 0.5 for kernel in shown}
    scene.legend([entry for which, entry in BOUNDS.items() if which in bounds], plane.bottom + 50)
    texts = [*part.heading()[:1], OF_ROOFS, *left_out(shown, roofline.kernels, "circle", LESS_TIME)]
    return scene.finish(texts, plane.bottom + 68)


def _roofs(scene: Scene, roofline: MeasuredRoofline, plane: Plane) -> None:
    """Draw peaks from where the widest memory reaches them, and bandwidths up to the highest peak."""
    top, widest = max(roofline.peaks.values()), max(roofline.bandwidths.values())
    for name, peak in roofline.peaks.items():
        begin = max(plane.x(peak / widest), LEFT)
        text = f"{name}: {per_second(peak)}"
        _ceiling(scene, begin, plane.y(peak), text, stroke_width=1.5, fill="none")
    for name, bandwidth in roofline.bandwidths.items():
        high = min(top / bandwidth, 10.0 ** plane.across[1])
        low = max(10.0 ** plane.across[0], 10.0 ** plane.up[0] / bandwidth)
        (x, y), (to_x, to_y) = ((plane.x(size), plane.y(size * bandwidth)) for size in (low, high))
        scene.line(x, y, to_x, to_y, LIMIT, stroke_width=1.5, fill="none")
        # The name is above the line, up to its end.
        turn = f"rotate({degrees(atan2(to_y - y, to_x - x)):.1f})"
        at = f"translate({x + 0.97 * (to_x - x):.1f} {y + 0.97 * (to_y - y):.1f})"
        text = f"{name}: {format_bandwidth(bandwidth / 1e9)}"
        scene.add("text", text, transform=f"{at} {turn}", y=-6, text_anchor="end", fill=LIMIT)


def _meaning_of_kernel(kernel: EqualKernels, roofline: MeasuredRoofline) -> str:
    return (
        f"{kernel.name}, {kernel.count:,} of {format_ns(kernel.total_ns)} in all: "
        f"{by_byte(kernel.intensity)} FLOP/byte, "
        f"{per_second(kernel.operations_per_second)} of {per_second(roofline.roof(kernel))}"
    )


def _names(
    scene: Scene, shown: Sequence[EqualKernels], places: Sequence[tuple[float, float, float]], bottom: int
) -> None:
    """Name the circles with the most time, one of each cluster, if there is room below."""
    counts: dict[int, int] = {}
    for circle, (x, y, _) in enumerate(places):
        near = (at for at in counts if abs(places[at][0] - x) < NEAR and abs(places[at][1] - y) < NEAR)
        first = next(near, circle)
        counts[first] = counts.get(first, 0) + 1
    taken: list[Box] = [(x - reach, y - reach, x + reach, y + reach) for x, y, reach in places]
    for circle, count in [*counts.items()][:MOST_NAMES]:
        text = shortened(shown[circle].name, 30) + (f", {count - 1} more" if count > 1 else "")
        x, y, reach = places[circle]
        wide, at = LETTER * len(text), y + reach + 12
        for begin, place, anchor in ((x - 4, x - 4, "start"), (x + 4 - wide, x + 4, "end")):
            box = (begin, at - 10, begin + wide, at + 2)
            inside = box[0] >= LEFT and box[2] <= LEFT + PIXELS and box[3] <= bottom
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                scene.text(place, at, text, anchor)
                break


def _overlap(first: Box, second: Box) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


LINE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a400", "#888888")
INK = "#333333"


class MeasuredCurve(Struct, frozen=True):
    """An alternative, with (bytes, microseconds) in ascending order."""

    name: str
    points: Sequence[tuple[int, float]]


def choices_picture(title: str, lines: Sequence[MeasuredCurve], chosen: Sequence[tuple[int, float]]) -> str:
    """Return the SVG text: times of ways by bytes."""
    scene, sizes = Scene(), sorted({size for line in lines for size, _ in line.points})
    low, high = powers_around(us for line in lines for _, us in line.points)
    plane = Plane((log10(sizes[0]), log10(sizes[-1])), (low, max(high, low + 1)), 340)
    for power in range(low, max(high, low + 1) + 1):
        scene.level(plane.y(10.0**power), format_ns(round(10.0 ** (power + 3))))
    for size in sizes:
        scene.upright(plane.x(size), TOP, plane.bottom, format_bytes(size), plane.bottom + 16)
    colours = [LINE_COLOURS[at % len(LINE_COLOURS)] for at in range(len(lines))]
    for line, colour in zip(lines, colours, strict=True):
        way = "L".join(f"{number(plane.x(size))} {number(plane.y(us))}" for size, us in line.points)
        scene.path(f"M{way}", line.name, fill="none", stroke=colour, stroke_width=1.8)
    for size, us in chosen:
        scene.circle(plane.x(size), plane.y(us), 4, INK)
    names = [(colour, line.name) for line, colour in zip(lines, colours, strict=True)]
    scene.legend([*names, (INK, "chosen")], plane.bottom + 42)
    return scene.finish([f"{title}: time by bytes that each rank puts in"], plane.bottom + 62)


PANEL, GAP, ACROSS, EDGE, ABOVE = 190, 50, 4, 60, 30
ACCURATE, FAR = "#98a1ab", "#d5d9de"
OFF = ((1.0, INK), (1.1, ACCURATE), (0.9, ACCURATE), (1.5, FAR), (0.5, FAR))
MOST = 2.5  # factors beyond this are drawn at the edge
MOST_DOTS = 400  # of a kind, taken evenly
OF_MEASURED = (
    "predicted against measured (up) by measured time (right); mean errors; the kind furthest off first"
)


class MeasuredKind(Struct, frozen=True):
    """Measurements of one kind: name, mean error in percent, and (measured, predicted) microseconds."""

    name: str
    mape: float
    points: Sequence[tuple[float, float]]


def measured_picture(kinds: Sequence[MeasuredKind]) -> str:
    """Return the SVG text: errors of predictions."""
    if not kinds:
        raise UsageError("nothing to draw: no row was predicted", remedy="name a machine by --machine")
    scene, down = Scene(), PANEL + GAP + ABOVE
    for at, kind in enumerate(kinds):
        _panel(scene, kind, EDGE + (PANEL + GAP) * (at % ACROSS), ABOVE + down * (at // ACROSS))
    return scene.finish([OF_MEASURED], ABOVE + down * (1 + (len(kinds) - 1) // ACROSS))


def _panel(scene: Scene, kind: MeasuredKind, x: int, y: int) -> None:
    low, high = powers_around(measured for measured, _ in kind.points)
    high = max(high, low + 1)

    def up(ratio: float) -> float:
        off = log10(min(max(ratio, 1 / MOST), MOST)) / log10(MOST)
        return y + PANEL / 2 * (1 - off)

    title = f"{kind.name}: {len(kind.points):,} rows, {kind.mape:.1f} %"
    scene.text(x, y - 8, title, font_weight="bold")
    scene.rect(x, y, PANEL, PANEL, "none", stroke=FAR)
    for ratio, colour in OFF:
        scene.line(x, up(ratio), x + PANEL, up(ratio), colour)
        text = "equal" if ratio == 1 else f"{100 * (ratio - 1):+.0f} %"
        scene.text(x - 4, up(ratio) + 4, text, "end", font_size=9)
    for power, at, anchor in ((low, x, "start"), (high, x + PANEL, "end")):
        scene.text(at, y + PANEL + 14, format_ns(round(10.0 ** (power + 3))), anchor)
    every = -(-len(kind.points) // MOST_DOTS)
    for measured, predicted in kind.points[::every]:
        at_x = x + PANEL * (log10(measured) - low) / (high - low)
        scene.circle(at_x, up(predicted / measured), 1.8, "#0072b2", fill_opacity=".5")
