"""What ranks did in a window of time: the figures of `per_rank`, measured again from the timeline.

The definitions are those of the summary (`et_sim.intervals`). Rows are read block by block, and a block is
measured as soon as all rows of its actors are there.

Not here: figures of the whole run, which the summary holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.intervals import Intervals, spent
from et_sim.views.operations import coded, integers
from et_sim.views.run_directory import RunDirectory
from et_sim.views.selection import Selection

COLUMNS = ("actor", "kind", "lane", "start_ns", "end_ns")
NOT_COMMUNICATION = ("compute", "memory_load", "memory_store", "metadata", "invalid")


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    actor: Any
    start_ns: Any
    end_ns: Any
    is_compute: Any
    is_communication: Any

    def take(self, which: Any) -> _Rows:
        columns = (self.actor, self.start_ns, self.end_ns, self.is_compute, self.is_communication)
        return _Rows(*(column[which] for column in columns))


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
    figures = np.zeros((3, len(actors)), np.int64)
    weights = part.weights(run)
    for rows in _blocks_of_actors(run, part, weights > 0):
        first = int(rows.actor[0])
        every = Intervals(
            int(rows.actor[-1]) + 1 - first,
            rows.actor - first,
            *(times - window[0] for times in part.clipped(rows.start_ns, rows.end_ns)),
        )
        found = spent(every, rows.is_compute, rows.is_communication)
        figures[:, first : first + every.actors] = found.compute_ns, found.exposed_ns, found.covered_ns
    compute, exposed, covered = figures
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


def _blocks_of_actors(run: RunDirectory, part: Selection, is_shown: Any) -> Iterator[_Rows]:
    """Rows that touch the window, in blocks that hold all rows of their actors."""
    kept: list[_Rows] = []
    for batch in run.batches("timeline", COLUMNS):
        rows = _rows(batch, run.summary["makespan_ns"])
        rows = rows.take(part.touches(rows.start_ns, rows.end_ns) & is_shown[rows.actor])
        if not len(rows.actor):
            continue
        begin = int(np.searchsorted(rows.actor, rows.actor[-1]))  # the last actor may go on in the next batch
        if begin:
            yield _joined([*kept, rows.take(slice(0, begin))])
            kept = []
        elif kept and kept[-1].actor[-1] != rows.actor[0]:
            yield _joined(kept)
            kept = []
        kept.append(rows.take(slice(begin, None)))
    if kept:
        yield _joined(kept)


def _joined(parts: list[_Rows]) -> _Rows:
    names = ("actor", "start_ns", "end_ns", "is_compute", "is_communication")
    return _Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _rows(batch: Any, end_ns: int) -> _Rows:
    end = integers(batch["end_ns"], missing=-1)
    kinds = [*batch["kind"].dictionary.to_pylist(), None]
    lanes = [*batch["lane"].dictionary.to_pylist(), None]
    on_device = np.array([name != "cpu" for name in lanes])[coded(batch["lane"])]
    kind = coded(batch["kind"])
    is_talk = np.array([name is not None and name not in NOT_COMMUNICATION for name in kinds])
    return _Rows(
        actor=batch["actor"].to_numpy(),
        start_ns=batch["start_ns"].to_numpy(),
        end_ns=np.where(end < 0, end_ns, end),  # what never ended is still under way
        is_compute=np.array([name == "compute" for name in kinds])[kind] & on_device,
        is_communication=is_talk[kind] & on_device,
    )
