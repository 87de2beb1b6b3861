"""Ranks as a picture: a bar for each, of the parts of its time, which add up to all of it.

Not here: the figures (`summary.rank_times`), and when they spend it (`activity`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from et_sim.basics.units import format_ns, plural
from et_sim.views.drawing.activity import PART_COLOURS
from et_sim.views.drawing.svg import (
    LEFT,
    MOST_LETTERS,
    TOP,
    document,
    label,
    label_of_ranks,
    legend,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.summary.parts import NAMES, OVERLAP, PARTS, parts_of
from et_sim.views.summary.rank_table import rank_count, slowest_first
from et_sim.views.summary.rank_times import rank_entries
from et_sim.views.text import distinct, share

ROW, BAR_HEIGHT, MOST_ROWS = 17, 12, 40
BEGIN, WIDTH = LEFT + 84, 700
OVERLAP_COLOUR = "#56b4e9"
MEANING = "a bar is all of a rank's time; the slowest ranks first, and right of each when it finishes"


def ranks_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    entries = slowest_first(rank_entries(run, part))
    shown, y = part.cut(entries, MOST_ROWS), TOP + 8
    bottom = y + ROW * len(shown)
    parts = _scale(bottom)
    names = [label_of_ranks(entry["ranks"]) for entry in shown]
    for entry, name, whole in zip(shown, distinct(names, MOST_LETTERS), names, strict=True):
        finish = "never" if entry["finish_ns"] is None else format_ns(entry["finish_ns"])
        parts.append(label(name, y + 10, whole, BEGIN - 8))
        parts += _bar(parts_of(entry), y)
        parts.append(f'<text x="{BEGIN + WIDTH + 8}" y="{y + 10}">{finish}</text>')
        y += ROW
    texts = [*part.heading()[:1], MEANING, "shares are of all ranks' time together"]
    if len(shown) < len(entries):
        texts.append(f"{plural(len(entries) - len(shown), 'line')} more, of faster ranks")
    parts += _legend(entries, bottom + 18)
    return document([*parts, *sentences(texts, bottom + 54)], bottom + 50 + 15 * len(texts))


def _colours() -> dict[str, str]:
    return {OVERLAP: OVERLAP_COLOUR, **{one.short: PART_COLOURS[one.figure] for one in PARTS}}


def _scale(bottom: int) -> list[str]:
    parts = []
    for tenths in range(0, 11, 2):
        x = BEGIN + WIDTH * tenths // 10
        parts.append(f'<path stroke="#d5d9de" d="M{x} {TOP - 6}V{bottom}"/>')
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="middle">{10 * tenths} %</text>')
    return parts


def _bar(amounts: Mapping[str, int], y: int) -> list[str]:
    parts, reached, whole = [], 0, max(sum(amounts.values()), 1)
    colours = _colours()
    for key, _ in NAMES:
        x, width = BEGIN + WIDTH * reached / whole, WIDTH * amounts[key] / whole
        reached += amounts[key]
        if amounts[key]:
            place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR_HEIGHT}"'
            parts.append(f'<rect {place} fill="{colours[key]}"/>')
    return parts


def _legend(entries: Sequence[Mapping[str, Any]], y: int) -> list[str]:
    """Two lines of what there is of parts, and the share of each in the time of all these ranks."""
    sums = dict.fromkeys((key for key, _ in NAMES), 0)
    for entry in entries:
        for key, amount in parts_of(entry).items():
            sums[key] += amount * rank_count(entry["ranks"])
    whole, colours = sum(sums.values()), _colours()
    said = [(colours[key], f"{name} {share(sums[key], whole)}") for key, name in NAMES if sums[key]]
    return [*legend(said[:4], y), *legend(said[4:], y + 16)]
