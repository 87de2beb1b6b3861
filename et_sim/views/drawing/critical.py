"""The critical path as a picture: a bar of its causes, and a row for each operation that it is on.

Of a column of time that several operations or causes share, each is as high as its share.
Not here: the figures (`et_sim.views.critical.path`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from et_sim.basics.intervals import filled
from et_sim.basics.units import format_ns, plural
from et_sim.views.critical.path import CAUSES, NOBODYS, CriticalPath, codes_at, operation_of
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.svg import (
    LEFT,
    MOST_LETTERS,
    TOP,
    axis,
    document,
    label,
    legend,
    nothing_to_draw,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.text import distinct, share

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "#0072b2",
        "contention": "#7a4fa3",
        "host": "#8d99a6",
        "gap": "#d3d8de",
        "latency": "#f0e442",
        "serialisation": "#e69f00",
        "queueing": "#d55e00",
        "window": "#aa6f3c",
        "resending": "#c00000",
        "endpoint": "#cc79a7",
        "reduction": "#009e73",
        "library": "#b8a400",
        "memory": "#44aa99",
        "bus": "#56b4e9",
        "switch": "#882255",
        "replayed": "#43358f",
        "other": "#7d7d7d",
        "idle": "#bfc4c9",
    }
)
COLUMNS, MOST_ROWS = 720, 16
BEGIN = LEFT + 124
ROW, BAR_HEIGHT, EACH, TRACK = 17, 14, 4, "#eef1f5"
NOT_RECORDED = "the critical path was not recorded: simulate with --detail path"
MEANING = (
    "right of an operation stands how long the path is on it; of a time that several share, each has its part"
)


def critical_path_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text."""
    if not run.holds("path"):
        raise nothing_to_draw(NOT_RECORDED, run, part)
    found = CriticalPath(PathRecord(run))
    if not found.by_cause():
        raise nothing_to_draw("the critical path is empty", run, part)
    return path_picture(found, part.top)


def path_picture(found: CriticalPath, top: int | None = None) -> str:
    """The same of a path that is known."""
    causes = sorted(found.by_cause().items(), key=lambda one: -one[1])
    whole, y = max(found.makespan_ns, 1), 14
    parts = [label("causes", y + 11, x=BEGIN - 8), *_bar(causes, whole, y)]
    said = [(COLOURS[name], f"{name} {share(spent, whole)} {format_ns(spent)}") for name, spent in causes]
    for at in range(0, len(said), EACH):
        y += 30 if at == 0 else 16
        parts += legend(said[at : at + EACH], y)
    operations = found.by_operation()
    shown = operations[: top or MOST_ROWS]
    others = operations[len(shown) :]
    names = [name for _, name, *_ in shown]
    spent = [ns for *_, ns in shown]
    if others:
        names.append(plural(len(others), "other operation"))
        spent.append(sum(ns for *_, ns in others))
    y += 36
    bottom = y + ROW * len(names)
    parts += [
        f'<g transform="translate(0 {y - TOP})">',
        *axis((0, whole), bottom - y + TOP, BEGIN, COLUMNS),
        "</g>",
    ]
    for row, (name, text, ns) in enumerate(zip(names, distinct(names, MOST_LETTERS), spent, strict=True)):
        at = y + ROW * row
        parts.append(label(text, at + 11, name, BEGIN - 8))
        parts.append(f'<rect x="{BEGIN}" y="{at}" width="{COLUMNS}" height="{BAR_HEIGHT}" fill="{TRACK}"/>')
        parts.append(f'<text x="{BEGIN + COLUMNS + 8}" y="{at + 11}">{escape(format_ns(ns))}</text>')
    parts += _areas(shares_of(found, [one[:3] for one in shown], len(names)), y)
    return document([*parts, *sentences([MEANING], bottom + 18)], bottom + 29)


def _bar(causes: Sequence[tuple[str, int]], whole: int, y: int) -> list[str]:
    parts, reached = [], 0
    for name, spent in causes:
        x, width = BEGIN + COLUMNS * reached / whole, COLUMNS * spent / whole
        reached += spent
        place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR_HEIGHT}"'
        parts.append(f'<rect {place} fill="{COLOURS[name]}"/>')
    return parts


def shares_of(found: CriticalPath, shown: Sequence[tuple[str, str, str | None]], rows: int) -> Any:
    """By operation, cause and column of time, the share of it; the last row may be all other operations."""
    timed = np.flatnonzero(found.spent_ns > 0)
    nodes, node = found.record.nodes, found.node[timed]
    code = codes_at(nodes.kind, node).astype(np.int64) * len(nodes.stem.texts) + codes_at(nodes.stem, node)
    code = np.where(node < 0, -1, code * len(nodes.group.texts) + codes_at(nodes.group, node))
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    places = {key: row for row, key in enumerate(shown)}
    keys = (NOBODYS if one < 0 else operation_of(nodes, one) for one in node[first].tolist())
    row = np.array([places.get(key, rows - 1) for key in keys], np.int64)[of.reshape(-1)] * len(CAUSES)
    start, end = found.chain.start_ns[timed], found.chain.end_ns[timed]
    queued = found.queued_ns[timed] / found.spent_ns[timed]
    shape, whole = (rows * len(CAUSES), COLUMNS), max(found.makespan_ns, 1)
    shares = filled(row + found.cause[timed], start, end, 1 - queued, shape, whole)
    shares += filled(row + CAUSES.index("queueing"), start, end, queued, shape, whole)
    return shares.reshape(rows, len(CAUSES), COLUMNS)


def _areas(shares: Any, y: int) -> list[str]:
    """A path for each cause; columns of one height that stand together are one rectangle."""
    reached = np.rint(2 * BAR_HEIGHT * np.cumsum(shares, axis=1).clip(max=1)).astype(np.int64)
    heights = np.diff(reached, axis=1, prepend=0)
    parts = []
    for number, cause in enumerate(CAUSES):
        pieces = []
        for row in range(len(shares)):
            high, up_to = heights[row, number], reached[row, number]
            changes = (np.diff(high, prepend=-1) != 0) | (np.diff(up_to, prepend=-1) != 0)
            firsts = np.flatnonzero(changes)
            lengths = np.diff(firsts, append=COLUMNS)
            bottom = y + ROW * row + BAR_HEIGHT
            pieces += [
                f"M{BEGIN + first} {bottom - up_to[first] / 2:g}h{length}v{high[first] / 2:g}h-{length}z"
                for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True)
                if high[first]
            ]
        if pieces:
            parts.append(f'<path fill="{COLOURS[cause]}" d="{"".join(pieces)}"/>')
    return ['<g shape-rendering="crispEdges">', *parts, "</g>"]
