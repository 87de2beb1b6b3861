"""What SVG pictures of runs share: their size, the axis of time, legends, and the frame around it all.

Colours are attributes and no variables of style sheets, so that whatever reads SVG shows them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape, unescape

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns, parse_ranks, strided_ranks
from et_sim.views.drawing.colours import OUTLINE
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EXACT, Selection, Window
from et_sim.views.text import cut

PIXELS = 900
LEFT, TOP, RIGHT = 96, 34, 24
TICKS = 6
LETTER, EDGE = 7, 4  # pixels of most letters, and left of the longest label
NARROW = "iljtfrI.,:;'|!()[]- "
MOST_LETTERS = 80  # of a label: it is less than half of the picture
CUT = "labels with … are whole in titles: point at them in the SVG form"
ENDING = re.compile(r'<text x="(-?[\d.]+)"[^>]* text-anchor="end"[^>]*>(<title>[^<]*</title>)?([^<]*)</text>')
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"  # not all programs know the last


def axis(window: Window, bottom: int, left: int = LEFT, width: int = PIXELS) -> list[str]:
    """Vertical lines at round times of a window that is not empty."""
    first, last = window
    step = round_step((last - first) / TICKS)
    parts = []
    for moment in range(-(-first // step) * step, last + 1, step):
        x = left + round(width * (moment - first) / (last - first))
        parts.append(f'<path stroke="#d5d9de" d="M{x} {TOP - 6}V{bottom}"/>')
        text = format_ns(moment, EXACT)
        reach = x + LETTER * len(text) // 2
        anchor = "start" if moment == 0 else "end" if reach > LEFT + PIXELS + RIGHT else "middle"
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="{anchor}">{text}</text>')
    return parts


def round_step(span: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50, … that is not below `span`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= span:
                return digit * power
        power *= 10


def legend(entries: Sequence[tuple[str, str]], y: int) -> list[str]:
    """Colours and what they mean, in one line."""
    parts, x, edge = [], LEFT, f'stroke="{OUTLINE}" stroke-width="0.5"'
    for colour, text in entries:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}" {edge}/>')
        parts.append(f'<text x="{x + 14}" y="{y}">{escape(text)}</text>')
        x += 34 + LETTER * len(text)
    return parts


def sentences(texts: Sequence[str], y: int) -> list[str]:
    """Lines of text below a picture, the first one at `y`."""
    return [f'<text x="{LEFT}" y="{y + 15 * n}">{escape(text)}</text>' for n, text in enumerate(texts)]


def label(text: str, y: float, whole: str = "", x: int = LEFT - 8) -> str:
    """What stands left of a row, however long; the whole of it is its title, if it was cut."""
    shown = cut(text, MOST_LETTERS)
    title = f"<title>{escape(whole or text)}</title>" if shown != (whole or text) else ""
    return f'<text x="{x}" y="{y:g}" text-anchor="end">{title}{escape(shown)}</text>'


def label_of_ranks(ranks: str) -> str:
    """`rank 3`, `ranks 0-3,6`, or, if that is shorter, `ranks 0-14/2`: every second one."""
    if ranks.isdecimal():
        return f"rank {ranks}"
    strided = strided_ranks(rank for some in parse_ranks(ranks) for rank in some)
    return f"ranks {min(ranks, strided, key=len)}"


class NothingToDrawError(UsageError):
    """A view of a run, or of a part of it, has no data."""


def nothing_to_draw(why: str, run: RunDirectory, part: Selection) -> NothingToDrawError:
    """The refusal, for a reason in the form "what is missing: what to do"."""
    missing, _, remedy = why.partition(": ")
    of = "".join(part.heading()[:1]).replace("only ", " of ", 1)
    return NothingToDrawError(f"nothing to draw{of}: {missing}", place=str(run.path), remedy=remedy)


def wide(text: str) -> int:
    """About how many pixels a text is wide: rather more than less."""
    return sum(
        4 if one in NARROW else 11 if one in "mwMW%@" or not one.isascii() else 8 if one.isupper() else LETTER
        for one in text
    )


def document(parts: Sequence[str], height: int) -> str:
    """The whole picture, on white paper: as far to the left as its longest label reaches."""
    labels = [found for part in parts for found in ENDING.findall(part)]
    more = max([0, *(round(wide(unescape(text)) + EDGE - float(x)) for x, _, text in labels)])
    if any(title and "…" in text for _, title, text in labels):
        parts, height = [*parts, *sentences([CUT], height + 4)], height + 15
    width = more + LEFT + PIXELS + RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-more} 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="{FONTS}" font-size="11" fill="#333">'
    )
    place = f' x="{-more}"' if more else ""
    paper = f'<rect{place} width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, paper, *parts, "</svg>", ""])
