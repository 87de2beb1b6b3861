"""Small pictures for studies, as SVG text: stacked bars in groups, and lines with linear or logarithmic axes.

They are read on light and on dark pages: their ground is opaque, and follows what the reader prefers. Not
here: what is shown, and pages (`study_page`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape

from msgspec import Struct

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 66, 62
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#b8a400",
    "#888888",
)  # Okabe, Ito
DASHES = ("", "7 4", "2 3", "9 3 2 3")
STYLE = """<style>
svg { --ground: #ffffff; --ink: #24292f; --grid: #d8dee4; }
@media (prefers-color-scheme: dark) { svg { --ground: #161b22; --ink: #e6edf3; --grid: #3d444d; } }
.ground { fill: #ffffff; fill: var(--ground); } text { fill: #24292f; fill: var(--ink); }
.grid { stroke: #d8dee4; stroke: var(--grid); } .axis { stroke: #24292f; stroke: var(--ink); }
</style>"""


class Bar(Struct, frozen=True):
    """One bar: its parts from the bottom up, and what stands below and above it."""

    label: str
    parts: Sequence[float]
    above: str = ""


class Group(Struct, frozen=True):
    """Bars that stand together, with a name below them."""

    label: str
    bars: Sequence[Bar]


class Axis(Struct, frozen=True):
    """The quantity of an axis; values on a logarithmic one are above zero."""

    label: str
    is_log: bool = False


class Line(Struct, frozen=True):
    """One line through its points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


def stacked_bars(title: str, axis: str, parts: Sequence[str], groups: Sequence[Group]) -> str:
    """Draw bars of several parts, whose names are in the legend; bars begin at 0."""
    highest = max(sum(bar.parts) for group in groups for bar in group.bars)
    scale = _Scale(0.0, _ticks(0.0, highest)[-1], HEIGHT - BOTTOM, TOP, False)
    slots = sum(len(group.bars) for group in groups) + 0.6 * len(groups)
    slot = (WIDTH - LEFT - RIGHT) / slots
    drawn = [*_opening(title, parts, lambda at, x, y: _box(x, y - 9, 12, 10, at)), *_rows(scale, axis)]
    left = LEFT + 0.3 * slot
    for group in groups:
        for bar in group.bars:
            drawn += _bar(bar, left + 0.12 * slot, 0.76 * slot, scale)
            left += slot
        middle = left - len(group.bars) * slot / 2
        drawn.append(_text(middle, HEIGHT - BOTTOM + 36, group.label, "middle", 13))
        left += 0.6 * slot
    return _closed(drawn)


def lines(title: str, across: Axis, up: Axis, series: Sequence[Line]) -> str:
    """Draw lines with a dot at each point; their names are in the legend."""
    points = [point for line in series for point in line.points]
    x = _Scale.of([point[0] for point in points], across, LEFT, WIDTH - RIGHT)
    y = _Scale.of([point[1] for point in points], up, HEIGHT - BOTTOM, TOP)
    drawn = [*_opening(title, [line.name for line in series], _key), *_rows(y, up.label)]
    for value in x.ticks():
        place = x.place(value)
        drawn.append(_rule(place, TOP, place, HEIGHT - BOTTOM, "grid"))
        drawn.append(_text(place, HEIGHT - BOTTOM + 18, _number(value), "middle"))
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40, across.label, "middle", 13))
    for at, line in enumerate(series):
        places = [(x.place(one), y.place(other)) for one, other in line.points]
        path = " ".join(f"{one:.1f},{other:.1f}" for one, other in places)
        drawn.append(f'<polyline points="{path}" fill="none" {_stroke(at)}/>')
        colour = COLOURS[at % len(COLOURS)]
        drawn += [
            f'<circle cx="{one:.1f}" cy="{other:.1f}" r="3.5" fill="{colour}"/>' for one, other in places
        ]
    return _closed(drawn)


class _Scale(Struct, frozen=True):
    """Values from `low` to `high` on pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool

    @classmethod
    def of(cls, values: Sequence[float], axis: Axis, begin: float, end: float) -> _Scale:
        """Return the least and the largest value; a linear axis begins at 0 or below."""
        low, high = min(values), max(values)
        if axis.is_log:
            if low <= 0:
                raise ValueError(f"{axis.label}: {low} has no place on a logarithmic axis")
            return cls(low, high if high > low else 2 * low, begin, end, True)
        ticks = _ticks(min(low, 0.0), high)
        return cls(ticks[0], ticks[-1], begin, end, False)

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        if self.is_log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return the labelled values: on a logarithmic axis, 1, 2 and 5 times powers of ten."""
        if not self.is_log:
            return _ticks(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        is_long = self.high / self.low > 1000
        some = [step * 10.0**decade for decade in decades for step in ((1,) if is_long else (1, 2, 5))]
        return [value for value in some if self.low * 0.999 <= value <= self.high * 1.001]


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round values that enclose both."""
    span = high - low if high > low else 1.0
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next(power * one for one in (1, 2, 5, 10) if span <= 6 * power * one)
    return [at * step for at in range(math.floor(low / step), math.ceil(high / step - 1e-9) + 1)]


def _opening(title: str, names: Sequence[str], key: Callable[[int, float, float], str]) -> Iterator[str]:
    """Draw the background, the title and the legend, whose entries take several rows if needed."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">'
    )
    yield f"<title>{escape(title)}</title>"
    yield STYLE
    yield f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    yield _text(LEFT, 22, title, "start", 15)
    x, y = float(LEFT), 42.0
    for at, name in enumerate(names):
        width = 44 + 6.6 * len(name)
        if x + width > WIDTH and x > LEFT:
            x, y = float(LEFT), y + 16
        yield key(at, x, y)
        yield _text(x + 26, y, name, "start")
        x += width


def _rows(scale: _Scale, label: str) -> Iterator[str]:
    """Draw the grid, the numbers and the name of the vertical axis."""
    for value in scale.ticks():
        place = scale.place(value)
        yield _rule(LEFT, place, WIDTH - RIGHT, place, "grid")
        yield _text(LEFT - 7, place + 4, _number(value), "end")
    yield _rule(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text transform="translate(16 {middle:.1f}) rotate(-90)" text-anchor="middle" font-size="13">'
        f"{escape(label)}</text>"
    )


def _bar(bar: Bar, left: float, width: float, scale: _Scale) -> Iterator[str]:
    total = 0.0
    for at, part in enumerate(bar.parts):
        bottom, top = scale.place(total), scale.place(total + part)
        total += part
        if part > 0:
            yield _box(left, top, width, bottom - top, at)
    yield _text(left + width / 2, HEIGHT - BOTTOM + 18, bar.label, "middle")
    if bar.above:
        yield _text(left + width / 2, scale.place(total) - 5, bar.above, "middle", 11)


def _box(x: float, y: float, width: float, height: float, at: int) -> str:
    colour = COLOURS[at % len(COLOURS)]
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _key(at: int, x: float, y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y - 4:.1f}" x2="{x + 20:.1f}" y2="{y - 4:.1f}" {_stroke(at)}/>'


def _stroke(at: int) -> str:
    """Yield colours, and then the same ones dashed."""
    dash = DASHES[at // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[at % len(COLOURS)]}" stroke-width="2.2"{dashed}'


def _rule(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    sized = f' font-size="{size}"' if size != 12 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{sized}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 and value == int(value) else f"{value:g}"


def _closed(drawn: Sequence[str]) -> str:
    return "\n".join([*drawn, "</svg>"]) + "\n"
