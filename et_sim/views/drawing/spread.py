"""How far ranks differ as a picture: of each operation two strips, one of its durations, one of its begins.

A strip is measured from the average rank: a line from the least to the most, a box of the middle half of
ranks, and a mark at the median. Not here: the figures (`summary.spread`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.colours import colour_of
from et_sim.views.drawing.svg import (
    LEFT,
    MOST_LETTERS,
    TOP,
    document,
    label,
    nothing_to_draw,
    round_step,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.rank_table import called
from et_sim.views.summary.spread import NOTHING, Distribution, Spread, notes_of, spreads
from et_sim.views.text import distinct

ROW, BOX, MOST_ROWS = 19, 9, 24
NAMES, STRIP, GAP = 180, 250, 96  # pixels right of LEFT, and of what stands right of a strip
TICKS = 5  # at most; so there are two at least
ALIKE = "ranks do not differ in any operation"
TITLES = ("duration, from the average rank", "begin, from the average rank")
Of = Callable[[Spread], Distribution]
PANELS: tuple[Of, ...] = (lambda one: one.duration_ns, lambda one: one.begin_ns)


def spread_picture(
    run: RunDirectory, part: Selection = EVERYTHING, found: Sequence[Spread] | None = None
) -> str:
    """The SVG text, of what was `found` already."""
    every = spreads(run, part) if found is None else found
    differing = [one for one in every if any(of(one).most > of(one).least for of in PANELS)]
    shown = part.cut(differing, MOST_ROWS)
    if not shown:
        raise nothing_to_draw(ALIKE if every else NOTHING, run, part)
    bottom = TOP + 16 + ROW * len(shown)
    parts = []
    for row, name in enumerate(distinct([one.called for one in shown], MOST_LETTERS)):
        parts.append(label(name, TOP + 16 + ROW * row + 12, shown[row].called, LEFT + NAMES - 8))
    for panel, of in enumerate(PANELS):
        parts += _panel(shown, of, TITLES[panel], LEFT + NAMES + panel * (STRIP + GAP), bottom)
    texts = [
        "line: all ranks; box: half of them; mark: the median; beside, how far the last rank is, and which"
    ]
    if len(shown) < len(differing):
        texts.append(f"{plural(len(differing) - len(shown), 'operation')} of less cost left out: --top")
    if alike := len(every) - len(differing):
        texts.append(f"in {plural(alike, 'other operation')}, ranks do not differ")
    texts += notes_of(run)
    return document([*parts, *sentences(texts, bottom + 36)], bottom + 32 + 15 * len(texts))


def _panel(shown: Sequence[Spread], of: Of, title: str, left: int, bottom: int) -> list[str]:
    """The strips of durations, or of begins, to one scale."""
    least = min(of(one).least - of(one).mean for one in shown)
    most = max(of(one).most - of(one).mean for one in shown)
    if most <= least:
        return [f'<text x="{left}" y="{TOP}" font-weight="bold">{title}: all alike</text>']

    def x(value: float) -> float:
        return left + STRIP * (value - least) / (most - least)

    parts = [f'<text x="{left}" y="{TOP}" font-weight="bold">{title}</text>']
    step = round_step((most - least) / TICKS)
    for at in range(-int(-least // step) * step, int(most) + 1, step):
        parts.append(
            f'<path stroke="{"#8d99a6" if at == 0 else "#d5d9de"}" d="M{x(at):.1f} {TOP + 10}V{bottom}"/>'
        )
        text = f"{'+' if at > 0 else '-' if at < 0 else ''}{format_ns(abs(at))}"
        parts.append(f'<text x="{x(at):.1f}" y="{bottom + 14}" text-anchor="middle">{text}</text>')
    for row, one in enumerate(shown):
        parts += _strip(one, of(one), x, TOP + 16 + ROW * row)
    return parts


def _strip(one: Spread, found: Distribution, x: Callable[[float], float], y: int) -> list[str]:
    first, low, middle, high, last = (
        x(value - found.mean)
        for value in (found.least, found.quarter, found.median, found.three_quarters, found.most)
    )
    centre, colour = y + BOX / 2 + 3, colour_of(one.kind)
    parts = [
        f'<path stroke="{colour}" stroke-width="2" d="M{first:.1f} {centre}H{max(last, first + 1):.1f}"/>',
        f'<rect x="{low:.1f}" y="{y + 3}" width="{max(high - low, 1):.1f}" height="{BOX}" fill="{colour}"/>',
        f'<path stroke="#111" stroke-width="1.5" d="M{middle:.1f} {y + 1}v{BOX + 4}"/>',
    ]
    if found.most > found.least:
        text = f"+{format_ns(found.most - found.mean)} {called(found.most_ranks, 9)}"
        parts.append(f'<text x="{last + 4:.1f}" y="{y + 11}" font-size="9">{escape(text)}</text>')
    return parts
