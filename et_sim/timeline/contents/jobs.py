"""Several jobs on one machine: the columns of jobs.arrow.

Not here: what became of them (`et_sim.isolated`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.timeline.content import Content, Texts, unless
from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.recorded import RecordedRun

KINDS: dict[str, type] = {"ranks": np.int32, "slowdown": np.float64}
FIGURES = ("ranks", "seed", "start_ns", "finish_ns", "duration_ns", "alone_ns", "slowdown")


def jobs_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """jobs.arrow; always all of them."""
    jobs: list[dict[str, Any]] = run.manifest["jobs"]
    if not jobs:
        return None
    names, placed = (tuple(str(job[name]) for job in jobs) for name in ("name", "placed"))
    columns: dict[str, Any] = {name: _figures(name, [job[name] for job in jobs]) for name in FIGURES}
    columns |= {name: [str(job[name]) for job in jobs] for name in ("workload", "npus")}
    ways = tuple(dict.fromkeys(placed))
    columns["job"] = Texts(np.arange(len(jobs)), names)
    columns["placed"] = Texts(np.array([ways.index(way) for way in placed]), ways)
    return Content(iter([columns]))


def _figures(name: str, values: list[Any]) -> Any:
    """Null where there is none."""
    missing = [value is None for value in values]
    known = [0 if value is None else value for value in values]
    return unless(np.array(known, KINDS.get(name, np.int64)), missing)
