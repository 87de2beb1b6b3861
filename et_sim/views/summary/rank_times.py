"""What ranks did in a window of time: the figures of `per_rank`, measured again from the timeline.

The definitions are those of the summary (`et_sim.basics.intervals`). Rows are read block by block; of what
was read, no more is kept than when something was under way.

Not here: figures of the whole run, which the summary holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.basics.intervals import COMPUTE, COPY, HOST, MEMORY, TRANSFER, WAITING, Spent
from et_sim.basics.units import LONGEST_NS
from et_sim.tables.kinds import COPY as COPY_KIND
from et_sim.tables.kinds import MEMORY_KINDS, NOT_COMMUNICATION
from et_sim.views.run.columns import alike, coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection

COLUMNS = ("actor", "kind", "lane", "start_ns", "end_ns", "queued_ns", "waiting_ns")


def rank_entries(run: RunDirectory, part: Selection) -> list[dict[str, Any]]:
    """Entries as those of `per_rank`, of the selected ranks; in a window, only times in it count."""
    part.check_ranks(run)
    if part.window is None:
        entries = ({**entry, "ranks": part.names(entry["ranks"])} for entry in run.summary["per_rank"])
        return [entry for entry in entries if entry["ranks"]]
    first, last = part.window
    if last == LONGEST_NS:  # no end was given
        last = max(first, run.summary["makespan_ns"])
    return _measured(run, part, (first, last))


def spans_of(run: RunDirectory, part: Selection, window: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    """Of nodes of selected ranks in a window, block by block: actor, what it counts as, when it starts, ends,
    is let in and moves; times count from the beginning of the window."""
    weights = part.weights(run)
    for rows in run.batches("timeline", COLUMNS):
        owner, start = numbers(rows["actor"]), numbers(rows["start_ns"])
        end = integers(rows["end_ns"], missing=-1)
        end = np.where(end < 0, run.summary["makespan_ns"], end)  # what never ended is still under way
        shown = np.flatnonzero(part.touches(start, end) & (weights > 0)[owner])
        admitted = (start + integers(rows["queued_ns"], missing=0))[shown]
        moved = admitted + integers(rows["waiting_ns"], missing=0)[shown]
        start, end = (np.clip(times[shown], *window) - window[0] for times in (start, end))
        admitted, moved = (np.clip(times - window[0], start, end) for times in (admitted, moved))
        yield owner[shown], _sorts(rows)[shown], start, end, admitted, moved


def _measured(run: RunDirectory, part: Selection, window: tuple[int, int]) -> list[dict[str, Any]]:
    actors = run.actors()
    finish = integers(actors["finish_ns"], missing=-1)
    end = np.where(finish < 0, run.summary["makespan_ns"], finish)
    present = np.clip(end, *window) - window[0]  # how much of the window comes before the finish
    weights, spent = part.weights(run), Spent(len(actors))
    for spans in spans_of(run, part, window):
        spent.add(*spans)
    spent.close()
    parts = spent.parts
    found = [
        (
            part.names(actors["ranks"][actor].as_py()),
            (
                ("finish_ns", None if finish[actor] < 0 else int(finish[actor])),
                ("compute_ns", int((parts[COMPUTE] + parts[COPY])[actor])),
                ("exposed_comm_ns", int(parts[TRANSFER][actor])),
                ("exposed_memory_ns", int(parts[MEMORY][actor])),
                ("waiting_ns", int(parts[WAITING][actor])),
                ("host_ns", int(parts[HOST][actor])),
                ("idle_ns", int(present[actor] - spent.covered_ns[actor])),
                ("early_ns", int(window[1] - window[0] - present[actor])),
                ("hidden_comm_ns", int(spent.totals[TRANSFER][actor] - parts[TRANSFER][actor])),
            ),
        )
        for actor in np.flatnonzero(weights).tolist()
    ]
    return [{"ranks": ranks, **dict(figures)} for ranks, figures in alike(found)]


def _sorts(rows: Any) -> Any:
    """What each row counts as."""
    of_kind = np.array([_sort_of(kind) for kind in (*rows["kind"].dictionary.to_pylist(), None)], np.int8)
    is_cpu = np.array([lane == "cpu" for lane in (*rows["lane"].dictionary.to_pylist(), None)])
    return np.where(is_cpu[coded(rows["lane"])], HOST, of_kind[coded(rows["kind"])])


def _sort_of(kind: str | None) -> int:
    if kind == "compute":
        return COMPUTE
    if kind == COPY_KIND:
        return COPY
    if kind in MEMORY_KINDS:
        return MEMORY
    return HOST if kind is None or kind in NOT_COMMUNICATION else TRANSFER
