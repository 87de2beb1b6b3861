"""Picture of a job's months: strips of the months at the 10th, 50th and 90th percentile of goodput.

A strip has a column for each part of the month; the height of a colour is its share of that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.tables.goodput_tables import COURSES
from et_sim.views.drawing.scene import LEFT, PIXELS, TOP, Scene
from et_sim.views.goodput import percent, read_summary

COLUMNS, HEIGHT, GAP = 300, 60, 26
SECONDS_PER_DAY = 86400.0
LEGEND = (
    ("#0072b2", "steps, kept or lost", ("steps",)),
    ("#f0e442", "checkpoints", ("checkpoints",)),
    ("#e69f00", "detection and search", ("detection", "drain and search")),
    ("#cc79a7", "nodes", ("scheduling", "waiting for nodes")),
    ("#009e73", "start, loading, warm-up", ("start of groups", "loading", "warm-up")),
    ("#8d99a6", "planned maintenance", ("planned maintenance",)),
)


def shares_of_columns(begin: Any, end: Any, length: float, columns: int) -> Any:
    """Return the share of each column of time that some spans cover."""
    edges = np.linspace(0.0, length, columns + 1)
    if not len(begin):
        return np.zeros(columns)
    before = np.concatenate([[0.0], np.cumsum(end - begin)])
    at = np.searchsorted(begin, edges, side="right")
    last = np.maximum(at - 1, 0)
    covered = before[last] + np.where(at > 0, np.clip(edges - begin[last], 0.0, end[last] - begin[last]), 0.0)
    return np.diff(covered) / (length / columns)


def months_picture(path: str | Path) -> str:
    """Return the SVG text."""
    summary, courses = read_summary(path), _courses(Path(path))
    scene, y = Scene(), TOP
    length = summary["days"] * SECONDS_PER_DAY
    for at, (name, course) in enumerate(courses.items()):
        scene.label(name, y + HEIGHT // 2 + 4)
        _strip(scene, course, length, y)
        y += HEIGHT + (GAP if at + 1 < len(courses) else 0)
    step = next(days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if 8 * days >= summary["days"])
    for day in range(0, int(summary["days"]) + 1, step):
        scene.upright(LEFT + PIXELS * day / summary["days"], y, y + 6, f"{day} d", y + 18)
    scene.legend([(colour, text) for colour, text, _ in LEGEND], y + 40, each=3)
    mean = percent(summary["goodput"]["mean"])
    sentence = f"goodput {mean} in the mean of {summary['months']:,} months of {summary['days']:g} days"
    return scene.finish([sentence], y + 76)


def _courses(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the columns of each course by its name."""
    import pyarrow as pa

    place = folder / COURSES.file
    try:
        with pa.memory_map(str(place)) as source:
            table = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid):
        raise UsageError("cannot be read", place=str(place), remedy="repeat et-sim goodput") from None
    columns = {name: np.array(table[name].to_pylist()) for name in COURSES.column_names}
    return {
        f"p{number}": {name: column[columns["percent"] == number] for name, column in columns.items()}
        for number in dict.fromkeys(columns["percent"].tolist())
    }


def _strip(scene: Scene, course: Mapping[str, Any], length: float, y: int) -> None:
    """Draw one month: steps behind, other activities from the top."""
    width, top = PIXELS / COLUMNS, np.full(COLUMNS, float(y))
    end = float(course["end_s"].max()) if len(course["end_s"]) else 0.0
    scene.rect(LEFT, y, PIXELS * end / length, HEIGHT, LEGEND[0][0])
    for colour, text, activities in LEGEND[1:]:
        mask = np.isin(course["activity"], activities)
        shares = shares_of_columns(course["begin_s"][mask], course["end_s"][mask], length, COLUMNS)
        heights = HEIGHT * shares
        for column in np.flatnonzero(heights > 0.05).tolist():
            x = LEFT + width * column
            scene.rect(x, float(top[column]), width, float(heights[column]), colour, text)
        top += heights
