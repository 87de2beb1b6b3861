"""Scene of a picture: a list of marks with measured texts, and the frame.

The list becomes an SVG text, which is a file, a part of a page, or a PNG (by resvg, an extra). Colours are
attributes and not variables of style sheets, so that every SVG viewer shows them.

Colours distinguish kinds for colour-blind people, on paper and on dark screens: the first eight are those of
Okabe and Ito, the others were chosen by their lightness beside them. Kinds also differ in other ways: lanes
have places and labels, nodes have names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.basics.files import write_file
from et_sim.basics.units import format_ns, parse_ranks, plural, strided_ranks
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EXACT, Selection, Window
from et_sim.views.text import cut

_BACKWARD_NAME = re.compile(r"(?<![a-z])(?:backward|bwd)(?![a-z])", re.IGNORECASE)


def is_backward(names: Sequence[str | None]) -> Any:
    """Return which of these names belong to the backward pass."""
    return np.array([_BACKWARD_NAME.search(name or "") is not None for name in names], np.bool_)


def drawn_kinds(kind: Any, name: Any, kinds: Sequence[str | None], backward: Any) -> Any:
    """Return codes of kinds; kernels of the backward pass have the code of BACKWARD."""
    compute = kinds.index("compute") if "compute" in kinds else -1
    return np.where((kind == compute) & backward[name], kinds.index(BACKWARD), kind)


NEVER = "never completed"
BACKWARD = "backward"  # of kernels
EARLY = "#d9ecd9"  # nothing more to do: paler than all but paper
OUTLINE = "#8d99a6"  # of legends
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#0072b2",
        BACKWARD: "#43358f",
        "all_reduce": "#e69f00",
        "all_gather": "#f0e442",
        "reduce_scatter": "#d55e00",
        "all_to_all": "#cc79a7",
        "send": "#009e73",
        "receive": "#56b4e9",
        "host": "#8d99a6",
        "gap": "#d3d8de",
        "broadcast": "#882255",
        "reduce": "#aa6f3c",
        "gather": "#b5b35c",
        "scatter": "#7a4fa3",
        "barrier": "#4a4a4a",
        "memory_load": "#44aa99",
        "memory_store": "#117733",
        "communication": "#a65628",
        "storage": "#6b5b4b",
        "batch": "#9c8f7a",
        "checkpoint": "#5d7a8c",
        "copy": "#6699cc",
        NEVER: "#c00000",
    }
)
OTHER = "#7d7d7d"
IDLE = "#bfc4c9"
# Parts of the time of ranks. Transfer is solid and waiting pale; both also differ from the rest in lightness.
PART_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute_ns": "#0072b2",
        "exposed_comm_ns": "#e69f00",
        "exposed_memory_ns": "#117733",
        "waiting_ns": "#f4cfe2",
        "host_ns": "#8d99a6",
        "idle_ns": IDLE,
        "early_ns": EARLY,
    }
)
# Colours that are too dark for a dark background.
LIGHTER: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#2b8fd0",
        BACKWARD: "#8f80e0",
        "gap": "#4b555f",
        "broadcast": "#c2578c",
        "scatter": "#a77fce",
        "barrier": "#a0a0a0",
        "memory_store": "#3fae6a",
        NEVER: "#ff6b6b",
    }
)


def colour_of(kind: str) -> str:
    """Return the colour of a kind; kinds without one share a colour."""
    return COLOURS.get(kind, OTHER)


def lighter(kind: str) -> str:
    """Return the colour on a dark background."""
    return LIGHTER.get(kind, colour_of(kind))


PIXELS = 900
LEFT, TOP, RIGHT = 96, 34, 24
TICKS = 6
LETTER, EDGE, LINE = 7, 4, 15  # pixels of most letters, left of the longest label, and from line to line
NARROW = "iljtfrI.,:;'|!()[]- "
MOST_LETTERS = 80  # of a label: less than half of the picture
CUT = "labels with … are whole in titles: point at them in the SVG form"
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"  # some programs lack the last
GRID, INK, TRACK, LIMIT = "#d5d9de", "#333", "#eef1f5", "#c00000"
ZOOM = 2  # pixels of the PNG for one of the SVG
Entry = tuple[str, str]  # (colour, meaning) in a legend


def number(value: float) -> str:
    """Format a number of pixels, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


class Scene:
    """Marks in the order in which they are drawn: the last one is on top."""

    def __init__(self) -> None:
        self._marks: list[str] = []
        self._reach = 0  # reach of labels to the left of the picture
        self._is_cut = False  # a label's whole text is in its title

    def add(self, name: str, text: str = "", title: str = "", **attributes: float | str) -> None:
        """Add a mark with these attributes; empty ones are left out."""
        given = "".join(
            f" {key.rstrip('_').replace('_', '-')}={quoteattr(v if isinstance(v, str) else number(v))}"
            for key, v in attributes.items()
            if v != ""
        )
        inner = f"<title>{escape(title)}</title>" if title else ""
        inner += escape(text)
        self._marks.append(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>")

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, title: str = "", **style: Any
    ) -> None:
        """Add a rectangle."""
        self.add("rect", "", title, x=x, y=y, width=width, height=height, fill=fill, **style)

    def circle(self, x: float, y: float, radius: float, fill: str, title: str = "", **style: Any) -> None:
        """Add a circle around a place."""
        self.add("circle", "", title, cx=x, cy=y, r=radius, fill=fill, **style)

    def line(self, x: float, y: float, to_x: float, to_y: float, stroke: str = GRID, **style: Any) -> None:
        """Add a line from one place to another."""
        begin = f"M{number(x)} {number(y)}"
        end = f"V{number(to_y)}" if x == to_x else f"H{number(to_x)}" if y == to_y else ""
        self.path(begin + (end or f"L{number(to_x)} {number(to_y)}"), stroke=stroke, **style)

    def path(self, shape: str, title: str = "", **style: Any) -> None:
        """Add any shape."""
        self.add("path", "", title, **style, d=shape)

    def text(self, x: float, y: float, text: str, anchor: str = "", title: str = "", **style: Any) -> None:
        """Add a text that begins, ends (`end`) or has its middle (`middle`) at a place."""
        self.add("text", text, title, x=x, y=y, text_anchor=anchor, **style)
        if anchor == "end":
            self._reach = max(self._reach, round(wide(text) + EDGE - x))
            self._is_cut |= bool(title) and "…" in text

    def label(self, text: str, y: float, whole: str = "", x: int = LEFT - 8) -> None:
        """Add a label left of a row; a label that is cut has its whole text as a title."""
        shown, whole = cut(text, MOST_LETTERS), whole or text
        self.text(x, y, shown, "end", whole if shown != whole else "")

    def sentences(self, texts: Sequence[str], y: int) -> None:
        """Add lines of text below a picture, the first one at `y`."""
        for at, text in enumerate(texts):
            self.text(LEFT, y + LINE * at, text)

    def legend(self, entries: Sequence[Entry], y: int, each: int = 0) -> int:
        """Add colours and meanings in one line, or `each` in a line; return the height of the last one."""
        lines = [entries[at : at + each] for at in range(0, len(entries), each)] if each else [entries]
        for at, line in enumerate(lines):
            x = LEFT
            for colour, text in line:
                self.rect(x, y + 16 * at - 9, 10, 10, colour, stroke=OUTLINE, stroke_width="0.5")
                self.text(x + 14, y + 16 * at, text)
                x += 34 + LETTER * len(text)
        return y + 16 * max(len(lines) - 1, 0)

    def axis(
        self, window: Window, bottom: int, left: int = LEFT, width: int = PIXELS, top: int = TOP
    ) -> None:
        """Add vertical lines at round times of a window that is not empty."""
        first, last = window
        step = round_step((last - first) / TICKS)
        for moment in range(-(-first // step) * step, last + 1, step):
            x = left + round(width * (moment - first) / (last - first))
            text = format_ns(moment, EXACT)
            reach = x + LETTER * len(text) // 2
            anchor = "start" if moment == 0 else "end" if reach > LEFT + PIXELS + RIGHT else "middle"
            self.upright(x, top - 6, bottom, text, top - 12, anchor)

    def upright(
        self, x: float, top: float, bottom: float, text: str, y: float, anchor: str = "middle", **style: Any
    ) -> None:
        """Add a vertical line of a grid with its value."""
        self.line(x, top, x, bottom, **style)
        self.text(x, y, text, anchor)

    def level(self, y: float, text: str) -> None:
        """Add a horizontal line of a grid with its value."""
        self.line(LEFT, y, LEFT + PIXELS, y)
        self.label(text, y + 4)

    def stack(
        self, x: float, y: int, height: int, parts: Iterable[tuple[float, str]], titles: Sequence[str] = ()
    ) -> float:
        """Add parts of a bar, given by widths and colours; return the end of the bar."""
        for at, (width, colour) in enumerate(parts):
            if width > 0:
                self.rect(x, y, width, height, colour, titles[at] if titles else "")
            x += width
        return x

    def finish(self, texts: Sequence[str], y: int) -> str:
        """Return the SVG text, with sentences below the picture, the first one at `y`."""
        self.sentences(texts, y)
        return self.svg(y - 4 + LINE * len(texts))

    def svg(self, height: int) -> str:
        """Return the whole picture on white paper, wide enough for its longest label."""
        if self._is_cut:
            self.sentences([CUT], height + 4)
            height += LINE
        width = self._reach + LEFT + PIXELS + RIGHT
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-self._reach} 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="{FONTS}" font-size="11" fill="{INK}">'
        )
        place = f' x="{-self._reach}"' if self._reach else ""
        paper = f'<rect{place} width="100%" height="100%" fill="#fff"/>'
        return "\n".join([head, paper, *self._marks, "</svg>", ""])

    @property
    def markup(self) -> str:
        """Return the marks alone, for a drawing that a page frames."""
        return "".join(self._marks)


class Plane:
    """A field with two logarithmic axes."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float], height: int) -> None:
        """Create a field of some height, for figures between these powers of ten."""
        self.across, self.up, self.height, self.bottom = across, up, height, TOP + height

    def x(self, value: float) -> float:
        """Return the distance of a value from the left."""
        return LEFT + PIXELS * self._share(value, self.across)

    def y(self, value: float) -> float:
        """Return the distance of a value from the top."""
        return self.bottom - self.height * self._share(value, self.up)

    def _share(self, value: float, ends: tuple[float, float]) -> float:
        low, high = ends
        return (log10(value) - low) / (high - low) if high > low else 0.5


def powers_around(values: Iterable[float], margin: float = 0.0) -> tuple[int, int]:
    """Return whole powers of ten around all values, with a margin."""
    known = [log10(value) for value in values]
    return floor(min(known) - margin), ceil(max(known) + margin)


def runs_of(row: Any) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal whole numbers: (first index, length, number)."""
    firsts = np.flatnonzero(np.diff(row, prepend=row[:1] - 1))
    lengths = np.diff(firsts, append=len(row))
    return zip(firsts.tolist(), lengths.tolist(), row[firsts].tolist(), strict=True)


def round_step(span: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, … that is not below `span`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= span:
                return digit * power
        power *= 10


def label_of_ranks(ranks: str) -> str:
    """Return `rank 3`, `ranks 0-3,6`, or, if it is shorter, `ranks 0-14/2` for every second rank."""
    if ranks.isdecimal():
        return f"rank {ranks}"
    strided = strided_ranks(rank for span in parse_ranks(ranks) for rank in span)
    return f"ranks {min(ranks, strided, key=len)}"


def wide(text: str) -> int:
    """Estimate the width of a text in pixels, rather too high than too low."""
    return sum(
        4 if c in NARROW else 11 if c in "mwMW%@" or not c.isascii() else 8 if c.isupper() else LETTER
        for c in text
    )


def left_out(shown: Sequence[Any], every: Sequence[Any], of: str, why: str) -> list[str]:
    """Return a sentence on the number of things that a picture has no room for, if there are any."""
    return [f"{plural(len(every) - len(shown), of)}{why}"] if len(shown) < len(every) else []


class NothingToDrawError(UsageError):
    """A view of a run, or of a part of it, has no data."""


def nothing_to_draw(why: str, run: RunDirectory, part: Selection) -> NothingToDrawError:
    """Return the refusal, for a reason in the form "what is missing: what to do"."""
    missing, _, remedy = why.partition(": ")
    of = "".join(part.heading()[:1]).replace("only ", " of ", 1)
    return NothingToDrawError(f"nothing to draw{of}: {missing}", place=str(run.path), remedy=remedy)


def png_of(svg: str) -> bytes:
    """Return the picture, twice as large as the SVG; refuse it if resvg or every font is missing."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UsageError(
            "--png needs resvg, which is not installed", remedy="pip install 'et-sim[png]', or use --svg"
        ) from None
    letter, nothing = Scene(), Scene()
    letter.text(LEFT, TOP, "A")
    if svg_to_bytes(svg_string=letter.svg(TOP)) == svg_to_bytes(svg_string=nothing.svg(TOP)):
        raise UsageError(
            "--png finds no font for texts", remedy="install one, such as DejaVu Sans, or use --svg"
        )
    return bytes(svg_to_bytes(svg_string=svg, zoom=ZOOM))


def write_picture(drawn: str, svg: Path | None, png: Path | None) -> None:
    """Write a picture into the named files: both, or none if the PNG is refused."""
    if png is not None and png == svg:
        raise UsageError("--svg and --png name one file", place=str(png), remedy="name two")
    if png is not None:
        write_file(png, png_of(drawn))
    if svg is not None:
        write_file(svg, drawn.encode("utf-8", "replace"))
