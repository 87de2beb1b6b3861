"""What ranks did in a window of time: the figures of `per_rank`, measured again from the timeline.

The definitions are those of the summary (`et_sim.intervals`). Rows are read block by block; of what was
read, no more is kept than when something was under way.

Not here: figures of the whole run, which the summary holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.intervals import COMMUNICATION, COMPUTE, CPU, OTHER, Spent
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection

COLUMNS = ("actor", "kind", "lane", "start_ns", "end_ns")
NOT_COMMUNICATION = ("compute", "memory_load", "memory_store", "metadata", "invalid")


def rank_entries(run: RunDirectory, part: Selection) -> list[dict[str, Any]]:
    """Entries as those of `per_rank`, of the selected ranks; in a window, only times in it count."""
    part.check_ranks(run)
    if part.window is None:
        entries = ({**entry, "ranks": part.names(entry["ranks"])} for entry in run.summary["per_rank"])
        return [entry for entry in entries if entry["ranks"]]
    return _measured(run, part, part.window)


def _measured(run: RunDirectory, part: Selection, window: tuple[int, int]) -> list[dict[str, Any]]:
    actors = run.actors()
    finish = integers(actors["finish_ns"], missing=-1)
    end = np.where(finish < 0, run.summary["makespan_ns"], finish)
    present = np.clip(end, *window) - window[0]  # how much of the window comes before the finish
    weights, spent = part.weights(run), Spent(len(actors))
    for rows in run.batches("timeline", COLUMNS):
        owner, start = numbers(rows["actor"]), numbers(rows["start_ns"])
        end = integers(rows["end_ns"], missing=-1)
        end = np.where(end < 0, run.summary["makespan_ns"], end)  # what never ended is still under way
        shown = np.flatnonzero(part.touches(start, end) & (weights > 0)[owner])
        start, end = (times - window[0] for times in part.clipped(start[shown], end[shown]))
        spent.add(owner[shown], _sorts(rows)[shown], start, end)
    spent.close()
    compute, exposed, covered = spent.compute_ns, spent.exposed_ns, spent.covered_ns
    idle = np.maximum(present - covered, 0)
    return [
        {
            "ranks": part.names(actors["ranks"][actor].as_py()),
            "finish_ns": None if finish[actor] < 0 else int(finish[actor]),
            "compute_ns": int(compute[actor]),
            "exposed_comm_true_ns": int(exposed[actor]),
            "idle_ns": int(idle[actor]),
            "other_ns": int(covered[actor] - compute[actor] - exposed[actor]),
        }
        for actor in np.flatnonzero(weights).tolist()
    ]


def _sorts(rows: Any) -> Any:
    """What each row counts as."""
    kinds = [*rows["kind"].dictionary.to_pylist(), None]
    of_kind = np.array([COMPUTE if k == "compute" else _sort_of_others(k) for k in kinds], np.int8)
    is_cpu = np.array([lane == "cpu" for lane in (*rows["lane"].dictionary.to_pylist(), None)])
    return np.where(is_cpu[coded(rows["lane"])], CPU, of_kind[coded(rows["kind"])])


def _sort_of_others(kind: str | None) -> int:
    return OTHER if kind is None or kind in NOT_COMMUNICATION else COMMUNICATION
