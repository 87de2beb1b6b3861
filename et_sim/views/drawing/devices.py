"""Devices and their connections as a drawing: tiers as rows with NPUs at the bottom, a grid, or a circle.

In a row of many devices, neighbours share a mark, and links between the same two marks share a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import plural
from et_sim.views.drawing.scene import LEFT, LETTER, PIXELS, Scene
from et_sim.views.text import shortened

MOST_IN_A_ROW, MOST_IN_A_CIRCLE, MOST_ON_A_SIDE, MOST_BLOCKS = 32, 64, 16, 8
BEGIN, ROW, FIRST_ROW = LEFT + 34, 110.0, 44.0
WIDTH = PIXELS - 34
RADIUS, SPACE, LEAST_SPACE = 170.0, 80.0, 26.0
HALO = {"stroke": "#fff", "stroke_width": "3", "stroke_linejoin": "round", "paint_order": "stroke"}
NPU_COLOUR, NIC_COLOUR, SWITCH_COLOUR = "#5b6b7a", "#a9852f", "#2f3a45"


class Devices(Struct, frozen=True, eq=False):
    """Devices to place: NPUs first, in rank order."""

    names: Sequence[str]
    rows: Any  # 0: NPUs
    sizes: tuple[int, ...] = ()  # NPUs by dimension, if they form a grid
    nics: frozenset[int] = frozenset()


class Places(Struct, frozen=True, eq=False):
    """Marks, each for one device or several."""

    mark_of: Any  # by device
    x: Any  # by mark
    y: Any
    count: Any  # number of devices
    row: Any
    is_flat: bool  # there are only NPUs
    has_bends: bool  # lines longer than from a mark to its neighbour are curved
    bottom: float
    arcs: float  # reach of lines between NPUs below them
    labels: tuple[tuple[float, str], ...]  # (height, text) left of rows


class Line(Struct, frozen=True):
    """A line between two marks."""

    source: int
    target: int
    colour: str
    width: float
    meaning: str


def joined_lines(places: Places, source: Any, target: Any) -> tuple[Any, Any]:
    """Return (the two marks of every line, the line of each link; -1: the link lies within a mark)."""
    first, second = places.mark_of[source], places.mark_of[target]
    low, high = np.minimum(first, second), np.maximum(first, second)
    marks = len(places.x)
    keys, of_link = np.unique(low * marks + high, return_inverse=True)
    pairs, of_link = np.stack((keys // marks, keys % marks), axis=1), of_link.reshape(-1)
    is_line = pairs[:, 0] != pairs[:, 1]
    number = np.where(is_line, np.cumsum(is_line) - 1, -1)
    return pairs[is_line], number[of_link] if len(of_link) else of_link


def placed(devices: Devices, source: Any, target: Any) -> Places:
    """Place devices, given the links between them."""
    if devices.rows.max(initial=0):
        return _in_rows(devices, source, target)
    wide = [size for size in devices.sizes if size > 1]
    if len(wide) > 1 and math.prod(wide) == len(devices.names):
        return _in_a_grid(len(devices.names), wide)
    return _in_a_circle(len(devices.names))


def _in_rows(devices: Devices, source: Any, target: Any) -> Places:
    """Place devices in rows, each in the order of the devices below it."""
    rows, count = devices.rows, len(devices.names)
    along = np.full(count, np.nan)  # position in the row, as a share of the width
    mark_of = np.zeros(count, np.int64)
    xs: list[float] = []
    ys: list[float] = []
    counts: list[int] = []
    of_rows: list[int] = []
    labels: list[tuple[float, str]] = []
    lines = unique(rows)[::-1].tolist()
    ends = np.concatenate((source, target)), np.concatenate((target, source))
    for tier in reversed(lines):
        row = np.flatnonzero(rows == tier)
        if tier:
            below = (rows[ends[1]] < tier) & (rows[ends[0]] == tier)
            sums = np.bincount(ends[0][below], along[ends[1][below]], count)[row]
            middle = sums / np.maximum(np.bincount(ends[0][below], minlength=count)[row], 1)
            row = row[np.argsort(middle, kind="stable")]
        along[row] = (np.arange(len(row)) + 0.5) / len(row)
        marks = min(len(row), MOST_IN_A_ROW)
        mark = np.arange(len(row)) * marks // len(row)
        mark_of[row] = mark + len(xs)
        y = FIRST_ROW + lines.index(tier) * ROW
        xs += [BEGIN + (at + 0.5) * WIDTH / marks for at in range(marks)]
        ys += [y] * marks
        counts += np.bincount(mark, minlength=marks).tolist()
        of_rows += [tier] * marks
        labels += _row_label(devices, row, marks, y)
    columns = [np.array(values) for values in (xs, ys, counts, of_rows)]
    below = (rows[source] == 0) & (rows[target] == 0)
    wide = np.abs(columns[0][mark_of[source[below]]] - columns[0][mark_of[target[below]]])
    arcs = float(_arc(wide.max())) / 2 if len(wide) else 0.0
    bottom = FIRST_ROW + (len(lines) - 1) * ROW + 34 + arcs
    x, y, count_of, row_of = columns
    return Places(mark_of, x, y, count_of, row_of, False, False, bottom, arcs, tuple(labels))


def _arc(width: Any) -> Any:
    """Return the depth of the control point of a line between two marks of a row; the line is half as
    deep."""
    return 14 + width / 12


def _row_label(devices: Devices, row: Any, marks: int, y: float) -> list[tuple[float, str]]:
    """Return the label of a row: number and names of its devices."""
    names = dict.fromkeys(
        devices.names[at].rsplit(".", 1)[-1].rstrip("0123456789").rstrip("-") for at in row.tolist()
    )
    kind = "NPUs" if devices.rows[row[0]] == 0 else ", ".join([*names][:2]) or "switches"
    lines = [shortened(f"{len(row):,} {kind}", 17)]
    if marks < len(row):
        most = -(-len(row) // marks)
        lines.append(f"{most:,} in a mark" if len(row) % marks == 0 else f"≤ {most:,} in a mark")
    return [(y + 4 + 14 * at, line) for at, line in enumerate(lines)]


def _in_a_grid(count: int, sizes: list[int]) -> Places:
    """Place devices in a grid, with further dimensions side by side."""
    rank = np.arange(count)
    across, down, blocks = sizes[0], sizes[1], count // (sizes[0] * sizes[1])
    columns, rows, squares = min(across, MOST_ON_A_SIDE), min(down, MOST_ON_A_SIDE), min(blocks, MOST_BLOCKS)
    x, y = rank % across * columns // across, rank // across % down * rows // down
    square = rank // (across * down) * squares // blocks
    mark_of = (square * rows + y) * columns + x
    wrapped = next(
        lines
        for lines in range(1, squares + 1)
        if lines == squares or WIDTH / (-(-squares // lines) * (columns + 1)) >= LEAST_SPACE
    )
    beside = -(-squares // wrapped)
    space = min(SPACE, WIDTH / (beside * (columns + 1) - 0.5))
    at = np.arange(columns * rows * squares)
    block = at // (columns * rows)
    xs = BEGIN + (block % beside * (columns + 1) + at % columns + 0.5) * space
    ys = FIRST_ROW + (block // beside * (rows + 1) + at // columns % rows + 0.5) * space
    counts = np.bincount(mark_of, minlength=len(at))
    label = _flat_label(count, counts)
    bottom = float(ys.max()) + space
    return Places(mark_of, xs, ys, counts, np.zeros(len(at), np.int64), True, True, bottom, 0.0, label)


def _in_a_circle(count: int) -> Places:
    marks = min(count, MOST_IN_A_CIRCLE)
    angle = 2 * np.pi * np.arange(marks) / marks - np.pi / 2
    xs, ys = BEGIN + WIDTH / 2 + RADIUS * np.cos(angle), FIRST_ROW + 20 + RADIUS * (1 + np.sin(angle))
    mark_of = np.arange(count) * marks // count
    counts = np.bincount(mark_of, minlength=marks)
    bottom = FIRST_ROW + 2 * RADIUS + 50
    row = np.zeros(marks, np.int64)
    return Places(mark_of, xs, ys, counts, row, True, False, bottom, 0.0, _flat_label(count, counts))


def _flat_label(count: int, counts: Any) -> tuple[tuple[float, str], ...]:
    lines = [plural(count, "NPU")]
    if counts.max() > 1:
        lines.append(f"{'≤ ' if counts.min() < counts.max() else ''}{int(counts.max()):,} in a mark")
    return tuple((FIRST_ROW + 4 + 14 * at, line) for at, line in enumerate(lines))


def draw_network(scene: Scene, devices: Devices, places: Places, lines: Sequence[Line]) -> None:
    """Draw lines in the given order, the last one on top; then a mark for each device or its neighbours."""
    step = float(np.min(np.abs(np.diff(unique(places.x))), initial=SPACE)) if places.has_bends else 0.0
    for line in lines:
        shape = _shape(places, line.source, line.target, step)
        scene.path(shape, line.meaning, fill="none", stroke=line.colour, stroke_width=f"{line.width:.1f}")
    for y, text in places.labels:
        scene.text(8, y, text)
    first = np.full(len(places.x), len(devices.names))
    np.minimum.at(first, places.mark_of, np.arange(len(devices.names)))
    fits = _rows_with_names(devices, places)
    for mark, at in enumerate(first.tolist()):
        x, y, count = float(places.x[mark]), float(places.y[mark]), int(places.count[mark])
        name = devices.names[at]
        title = name if count == 1 else f"{name} and {count - 1:,} more"
        if places.row[mark] == 0:
            scene.circle(x, y, 6, NPU_COLOUR, title)
        else:
            colour = NIC_COLOUR if at in devices.nics else SWITCH_COLOUR
            scene.rect(x - 8, y - 6, 16, 12, colour, title, rx=2)
        if y in fits:
            _name(scene, places, name, x, y, int(places.row[mark]))


def _shape(places: Places, source: int, target: int, step: float) -> str:
    x, y, to_x, to_y = (
        float(value) for value in (places.x[source], places.y[source], places.x[target], places.y[target])
    )
    begin, end = f"M{x:.1f} {y:.1f}", f"{to_x:.1f} {to_y:.1f}"
    if not places.is_flat and y == to_y:
        return f"{begin}Q{(x + to_x) / 2:.1f} {y + _arc(abs(x - to_x)):.1f} {end}"
    length = math.hypot(to_x - x, to_y - y)
    if places.has_bends and length > 1.5 * step:
        aside = min(8 + length / 14, 0.8 * step)
        off_x, off_y = (to_y - y) / length * aside, (x - to_x) / length * aside
        return f"{begin}Q{(x + to_x) / 2 + off_x:.1f} {(y + to_y) / 2 + off_y:.1f} {end}"
    return f"{begin}L{end}"


def _rows_with_names(devices: Devices, places: Places) -> set[float]:
    """Return heights at which the names of all devices fit."""
    rows = set()
    first = dict(zip(places.mark_of.tolist()[::-1], range(len(devices.names) - 1, -1, -1), strict=True))
    for y in unique(places.y).tolist():
        marks = np.flatnonzero(places.y == y)
        if (places.count[marks] > 1).any():
            continue
        longest = max(len(devices.names[first[mark]]) for mark in marks.tolist())
        gaps = np.diff(np.sort(places.x[marks]))
        if places.is_flat and not places.has_bends:
            rows |= {y} if len(places.x) <= 16 else set()
        elif longest * LETTER <= float(gaps.min(initial=WIDTH)):
            rows.add(y)
    return rows


def _name(scene: Scene, places: Places, name: str, x: float, y: float, row: int) -> None:
    anchor = "middle"
    if places.is_flat and not places.has_bends:
        middle_x, middle_y = BEGIN + WIDTH / 2, FIRST_ROW + 20 + RADIUS
        x, y = x + (x - middle_x) / RADIUS * 12, y + (y - middle_y) / RADIUS * 14 + 4
        anchor = "start" if x > middle_x + 14 else "end" if x < middle_x - 14 else "middle"
    elif places.is_flat:
        x, y, anchor = x + 5, y + 15, "start"
    else:
        y += 20 + places.arcs if row == 0 else -11
    scene.text(x, y, name, anchor, **HALO)  # the halo keeps lines off letters
