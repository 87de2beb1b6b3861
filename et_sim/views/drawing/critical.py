"""The critical path as a picture: a bar of its causes, and a row for each operation on it.

In a column of time that several operations or causes share, each is as high as its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from et_sim.basics.intervals import filled
from et_sim.basics.units import format_ns, plural
from et_sim.views.critical.path import CAUSES, NO_OPERATION, CriticalPath, codes_at, operation_of
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.scene import LEFT, MOST_LETTERS, TRACK, Scene, nothing_to_draw, runs_of
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
ROW, BAR_HEIGHT = 17, 14
NOT_RECORDED = "the critical path was not recorded: simulate with --detail path"
MEANING = "right of an operation: its time on the path; times that several share are split between them"


def critical_path_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text."""
    if not run.holds("path"):
        raise nothing_to_draw(NOT_RECORDED, run, part)
    path = CriticalPath(PathRecord(run))
    if not path.by_cause():
        raise nothing_to_draw("the critical path is empty", run, part)
    return path_picture(path, part.top)


def path_picture(path: CriticalPath, top: int | None = None) -> str:
    """Return the SVG text of a known path."""
    causes = sorted(path.by_cause().items(), key=lambda cause: -cause[1])
    whole, scene = max(path.makespan_ns, 1), Scene()
    scene.label("causes", 25, x=BEGIN - 8)
    scene.stack(BEGIN, 14, BAR_HEIGHT, ((COLUMNS * ns / whole, COLOURS[name]) for name, ns in causes))
    entries = [(COLOURS[name], f"{name} {share(ns, whole)} {format_ns(ns)}") for name, ns in causes]
    y = scene.legend(entries, 44, each=4) + 36
    operations = path.by_operation()
    shown = operations[: top or MOST_ROWS]
    others = operations[len(shown) :]
    rows = [(name, ns) for _, name, _, ns in shown]
    if others:
        rows.append((plural(len(others), "other operation"), sum(ns for *_, ns in others)))
    bottom = y + ROW * len(rows)
    scene.axis((0, whole), bottom, BEGIN, COLUMNS, y)
    shortened = distinct([name for name, _ in rows], MOST_LETTERS)
    for at, ((name, ns), text) in enumerate(zip(rows, shortened, strict=True)):
        scene.label(text, y + ROW * at + 11, name, BEGIN - 8)
        scene.rect(BEGIN, y + ROW * at, COLUMNS, BAR_HEIGHT, TRACK)
        scene.text(BEGIN + COLUMNS + 8, y + ROW * at + 11, format_ns(ns))
    _areas(scene, shares_of(path, [operation[:3] for operation in shown], len(rows)), y)
    return scene.finish([MEANING], bottom + 18)


def shares_of(path: CriticalPath, shown: Sequence[tuple[str, str, str | None]], rows: int) -> Any:
    """Return shares by operation, cause and column of time; the last row may hold all other operations."""
    timed = np.flatnonzero(path.spent_ns > 0)
    nodes, node = path.record.nodes, path.node[timed]
    code = codes_at(nodes.kind, node).astype(np.int64) * len(nodes.stem.texts) + codes_at(nodes.stem, node)
    code = np.where(node < 0, -1, code * len(nodes.group.texts) + codes_at(nodes.group, node))
    _, first, of = np.unique(code, return_index=True, return_inverse=True)
    places = {key: row for row, key in enumerate(shown)}
    keys = (NO_OPERATION if number < 0 else operation_of(nodes, number) for number in node[first].tolist())
    row = np.array([places.get(key, rows - 1) for key in keys], np.int64)[of.reshape(-1)] * len(CAUSES)
    start, end = path.chain.start_ns[timed], path.chain.end_ns[timed]
    queued = path.queued_ns[timed] / path.spent_ns[timed]
    shape, whole = (rows * len(CAUSES), COLUMNS), max(path.makespan_ns, 1)
    shares = filled(row + path.cause[timed], start, end, 1 - queued, shape, whole)
    shares += filled(row + CAUSES.index("queueing"), start, end, queued, shape, whole)
    return shares.reshape(rows, len(CAUSES), COLUMNS)


def _areas(scene: Scene, shares: Any, y: int) -> None:
    """Draw a path for each cause; neighbouring columns of one height are one rectangle."""
    reached = np.rint(2 * BAR_HEIGHT * np.cumsum(shares, axis=1).clip(max=1)).astype(np.int64)
    heights = np.diff(reached, axis=1, prepend=0)
    span = 2 * BAR_HEIGHT + 1
    for number, cause in enumerate(CAUSES):
        shape = ""
        for row in range(len(shares)):
            bottom = y + ROW * row + BAR_HEIGHT
            for first, length, code in runs_of(reached[row, number] * span + heights[row, number]):
                up_to, high = divmod(code, span)
                if high:
                    place = f"M{BEGIN + first} {bottom - up_to / 2:g}"
                    shape += f"{place}h{length}v{high / 2:g}h-{length}z"
        if shape:
            scene.path(shape, fill=COLOURS[cause], shape_rendering="crispEdges")
