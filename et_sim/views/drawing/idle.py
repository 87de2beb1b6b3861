"""What devices, streams and threads do and wait for, as a picture: a bar for each. Not here: the figures."""

from __future__ import annotations

from xml.sax.saxutils import escape

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.colours import EARLY
from et_sim.views.drawing.svg import (
    LEFT,
    PIXELS,
    TOP,
    document,
    label,
    label_of_ranks,
    legend,
    nothing_to_draw,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.idle import DEVICE, FIGURES, MEANINGS, ORDER, SHORT, Idle, idle_of
from et_sim.views.text import share, shortened

ROW, BAR_HEIGHT, MOST_ROWS, CAUSES = 15, 11, 32, 8
NAMES = 110  # pixels right of LEFT
COLOURS = ("#0072b2", "#9cc7e4", "#f4cfe2", "#d55e00", "#e9a06a", "#f0e442", "#bfc4c9", EARLY)
LEAST_SAID = 40  # pixels of a part that says its share


def idle_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    found = idle_of(run, part)
    if not found.rows:
        raise nothing_to_draw("nothing is ever busy", run, part)
    shown, parts, y, before = part.cut(found.rows, MOST_ROWS), [], TOP, ""
    for one in shown:
        if one.ranks != before:
            y += 6
            parts.append(label(label_of_ranks(one.ranks), y + 10))
        before = one.ranks
        weight = ' font-weight="bold"' if one.row == DEVICE else ""
        parts.append(f'<text x="{LEFT}" y="{y + 10}"{weight}>{escape(shortened(one.row, 26))}</text>')
        parts += _bar(one.figures, y)
        y += ROW
    used = [at for at in range(len(FIGURES)) if any(one.figures[at] for one in shown)]
    entries = [(COLOURS[at], MEANINGS[at]) for at in used]
    parts += [*legend(entries[:4], y + 18), *legend(entries[4:], y + 34)]
    texts = _causes(found)
    if len({one.ranks for one in shown}) > 1:
        texts.append(ORDER)
    if len(shown) < len(found.rows):
        texts.append(f"{plural(len(found.rows) - len(shown), 'more row')}: --top, --ranks")
    return document([*parts, *sentences(texts, y + 56)], y + 50 + 15 * len(texts))


def _bar(figures: tuple[int, ...], y: int) -> list[str]:
    left, scale = float(LEFT + NAMES + 50), (PIXELS - NAMES - 50) / max(sum(figures), 1)
    parts = []
    for at, ns in enumerate(figures):
        width = ns * scale
        if width <= 0:
            continue
        said = f"<title>{escape(f'{MEANINGS[at]}: {format_ns(ns)}')}</title>"
        place = f'x="{left:.2f}" y="{y}" width="{width:.2f}" height="{BAR_HEIGHT}"'
        parts.append(f'<rect {place} fill="{COLOURS[at]}">{said}</rect>')
        if width >= LEAST_SAID:
            colour = "#fff" if at == 0 else "#333"
            place = (
                f'x="{left + width / 2:.1f}" y="{y + 9}" text-anchor="middle" font-size="9" fill="{colour}"'
            )
            parts.append(f"<text {place}>{share(ns, sum(figures))}</text>")
        left += width
    return parts


def _causes(found: Idle) -> list[str]:
    whole = sum(found.causes.values())
    most = found.causes.most_common(CAUSES)
    return [
        f"idle devices wait for {SHORT[what]}: {shortened(name, 60)}, {format_ns(ns / found.ranks)} "
        f"per rank, {share(ns, whole)}"
        for (what, _, name), ns in most
    ]
