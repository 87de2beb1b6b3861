"""What SVG pictures of runs share: their size, the axis of time, legends, and the frame around it all.

Colours are attributes and no variables of style sheets, so that whatever reads SVG shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from et_sim.units import format_ns
from et_sim.views.drawing.colours import OUTLINE
from et_sim.views.run.selection import EXACT, Window

PIXELS = 900
LEFT, TOP, RIGHT = 96, 34, 24
TICKS = 6
LETTER = 7  # pixels
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
    """What stands left of a row; the whole of it is its title, if it was cut."""
    title = f"<title>{escape(whole)}</title>" if whole not in ("", text) else ""
    return f'<text x="{x}" y="{y:g}" text-anchor="end">{title}{escape(text)}</text>'


def document(parts: Sequence[str], height: int) -> str:
    """The whole picture, on white paper."""
    width = LEFT + PIXELS + RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="{FONTS}" font-size="11" fill="#333">'
    )
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, paper, *parts, "</svg>", ""])
