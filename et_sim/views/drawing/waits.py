"""Waiting against transfer as a picture: a bar for each rank, group and operation, with who is waited for.

Transfer is solid, and waiting pale. Not here: the figures (`summary.waits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.activity import PART_COLOURS
from et_sim.views.drawing.svg import (
    LEFT,
    MOST_LETTERS,
    TOP,
    document,
    label,
    legend,
    nothing_to_draw,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.rank_table import called
from et_sim.views.summary.waits import UNENDED, WaitTable, waits_of
from et_sim.views.text import distinct, share, shortened

ROW, BAR_HEIGHT, MOST_ROWS = 17, 11, 24
NAMES, BARS = 260, 310  # pixels of names, and of the longest bar
BEGIN = LEFT + NAMES - 80
TITLES = (
    "Ranks: of their own time",
    "Groups: summed over nodes and ranks",
    "Operations: summed over nodes and ranks",
)


def waits_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    found = waits_of(run, part)
    parts, y, cut = [], TOP, []
    for title, table in zip(TITLES, (found.ranks, found.groups, found.operations), strict=True):
        shown = part.cut(table, MOST_ROWS)
        if not shown:
            continue
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{title}</text>')
        parts += _bars(shown, y + 8)
        y += 8 + ROW * len(shown) + 26
        if len(shown) < len(table):
            cut.append(
                f"{title.partition(':')[0]}: {plural(len(table) - len(shown), 'line')} more, that wait less"
            )
    if run.summary["status"] != "complete":
        cut.append(UNENDED)
    if not parts:
        raise nothing_to_draw("there is no communication", run, part)
    entries = [
        (PART_COLOURS["exposed_comm_ns"], "transfer"),
        (PART_COLOURS["waiting_ns"], "waiting for another rank"),
    ]
    return document([*parts, *legend(entries, y), *sentences(cut, y + 18)], y + 14 + 15 * len(cut))


def _bars(shown: Sequence[WaitTable], y: int) -> list[str]:
    scale = BARS / max(max(one.transfer_ns + one.waiting_ns for one in shown), 1)
    parts = []
    for one, name in zip(shown, distinct([one.name for one in shown], MOST_LETTERS), strict=True):
        moving, waiting = one.transfer_ns * scale, one.waiting_ns * scale
        parts.append(label(name, y + 10, one.name, BEGIN - 8))
        for kind, x, width in (("exposed_comm_ns", 0.0, moving), ("waiting_ns", moving, waiting)):
            place = f'x="{BEGIN + x:.2f}" y="{y}" width="{width:.2f}" height="{BAR_HEIGHT}"'
            parts.append(f'<rect {place} fill="{PART_COLOURS[kind]}"/>')
        text = f"{format_ns(one.transfer_ns)} + {format_ns(one.waiting_ns)} waiting{_for(one)}"
        parts.append(f'<text x="{BEGIN + moving + waiting + 6:.1f}" y="{y + 10}">{escape(text)}</text>')
        y += ROW
    return parts


def _for(one: WaitTable) -> str:
    if one.waits_for is None:
        return ""
    return f", {share(one.waits_for_ns, one.nodes_waiting_ns)} for {called(shortened(one.waits_for, 20), 20)}"
