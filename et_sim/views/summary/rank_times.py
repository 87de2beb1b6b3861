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
from et_sim.tables.kinds import MEMORY_KINDS
from et_sim.views.run.columns import alike, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import TIMES, Spans, communicates, spans
from et_sim.views.run.selection import Selection

COLUMNS = ("actor", "kind", "lane", *TIMES)


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
    is admitted and moves; times count from the beginning of the window."""
    weights = part.weights(run)
    for rows in run.batches("timeline", COLUMNS):
        # What never ended is still under way.
        owner, times = numbers(rows["actor"]), spans(rows, run.summary["makespan_ns"])
        shown = np.flatnonzero(part.touches(times.start, times.end) & (weights > 0)[owner])
        start, admitted, moved, end = (
            np.clip(getattr(times, name)[shown], *window) - window[0] for name in Spans.__struct_fields__[:-1]
        )
        yield owner[shown], _activities(rows)[shown], start, end, admitted, moved


def _measured(run: RunDirectory, part: Selection, window: tuple[int, int]) -> list[dict[str, Any]]:
    actors = run.actors()
    finish = integers(actors["finish_ns"], missing=-1)
    end = np.where(finish < 0, run.summary["makespan_ns"], finish)
    present = np.clip(end, *window) - window[0]  # how much of the window comes before the finish
    weights, spent = part.weights(run), Spent(len(actors))
    for piece in spans_of(run, part, window):
        spent.add(*piece)
    spent.close()
    parts = spent.parts
    entries = [
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
    return [{"ranks": ranks, **dict(figures)} for ranks, figures in alike(entries)]


def _activities(rows: Any) -> Any:
    """What each row counts as."""
    is_host = words(rows["lane"]).where(lambda lane: lane == "cpu")
    return np.where(is_host, HOST, words(rows["kind"]).where(_activity_of))


def _activity_of(kind: str | None) -> int:
    if kind == "compute":
        return COMPUTE
    if kind == COPY_KIND:
        return COPY
    if kind in MEMORY_KINDS:
        return MEMORY
    return TRANSFER if communicates(kind) else HOST
