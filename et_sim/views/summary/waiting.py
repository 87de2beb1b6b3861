"""Waiting of the ranks of a pipeline by cause: bubble, unequal stages, slow ranks, and messages.

A rank's *own time* is the makespan without waiting for other ranks and without the time after its finish.
Ranks with the same operations have one *role*, whose typical time is the median of its ranks' own times. The
average rank waits for the makespan less its own time, which is split in this order:

    stragglers  cost of ranks that take longer than is typical for their role: the longest own time less the
                mean one, less the same difference of typical times, and not below 0
    imbalance   the longest own time less the mean one, without stragglers: the cost of unequal roles
    bubble      idle time of a pipeline of as many equal stages with the same kernels while it fills and
                drains, on a network that takes no time; at most the remaining time
    messages    the rest: messages between stages, and waits that they cause
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import format_ns
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import Grouped
from et_sim.views.run.selection import recorded_part
from et_sim.views.summary.jobs import jobs_of
from et_sim.views.summary.rank_table import called, rank_count
from et_sim.views.text import share

LONGEST_RANKS = 24
NO_NAME = -1
NOTICED = 1.01  # a rank is a straggler from this multiple of its role's typical time on


class WaitingParts(Struct, frozen=True):
    """Waiting of the average rank, in nanoseconds that add up to `total_ns`."""

    total_ns: int
    bubble_ns: int
    imbalance_ns: int
    stragglers_ns: int
    messages_ns: int
    stages: int
    most_work: str  # ranks of the role with the longest typical own time
    slowest: str | None  # ranks that are slowest by their role's typical time
    times_slower: float  # multiple of that typical time


def waiting_parts(run: RunDirectory) -> WaitingParts | None:
    """Return the parts; None unless the run is a complete pipeline, with one job, and fully recorded."""
    summary = run.summary
    entries = summary["per_rank"]
    if summary["status"] != "complete" or jobs_of(run) or recorded_part(run) or len(entries) < 2:
        return None
    from et_sim.views.summary.schedule import MOST_ACTORS, schedule_of

    shown = _first_actors(run, entries, MOST_ACTORS)
    schedule = schedule_of(run, {actor: entries[number]["ranks"] for actor, number in shown.items()})
    if schedule is None or schedule.stages < 2:
        return None
    bubble_ns = schedule.textbook_idle_ns
    return None if bubble_ns is None else _apart(run, [*shown], [*shown.values()], bubble_ns, schedule.stages)


def _first_actors(run: RunDirectory, entries: Sequence[Mapping[str, Any]], most: int) -> dict[int, int]:
    """Return the actors of the first ranks of at most so many entries, with the entry's index.

    Folding does not matter.
    """
    firsts, owner = [], []
    for actor, text in enumerate(run.actors()["ranks"].to_pylist()):
        for span in text.split(","):
            firsts.append(int(span.partition("-")[0]))
            owner.append(actor)
    order = np.argsort(firsts)
    chosen = unique(np.linspace(0, len(entries) - 1, most).astype(np.int64)).tolist()
    rank = [int(entries[number]["ranks"].partition("-")[0].partition(",")[0]) for number in chosen]
    place = np.searchsorted(np.array(firsts)[order], rank, side="right") - 1
    return dict(zip(np.array(owner)[order][place].tolist(), chosen, strict=True))


def _apart(
    run: RunDirectory, actors: Sequence[int], chosen: Sequence[int], bubble_ns: float, stages: int
) -> WaitingParts | None:
    makespan = run.summary["makespan_ns"]
    entries = [run.summary["per_rank"][number] for number in chosen]
    ranks = np.array([rank_count(entry["ranks"]) for entry in entries])
    own = np.array([makespan - entry["waiting_ns"] - entry["early_ns"] for entry in entries], np.float64)
    role = _roles(run, actors)
    medians = np.array(
        [_median(own[role == number], ranks[role == number]) for number in range(role.max() + 1)]
    )
    typical = medians[role]
    total = round(makespan - float(np.average(own, weights=ranks)))
    uneven = round(float(own.max() - np.average(own, weights=ranks)))
    unequal = round(float(typical.max() - np.average(typical, weights=ranks)))
    stragglers = max(uneven - unequal, 0)
    bubble = min(round(bubble_ns), total - uneven)
    slower = own / np.maximum(typical, 1)
    slowest = int(slower.argmax())
    most = ",".join(entry["ranks"] for entry, of in zip(entries, role, strict=True) if of == medians.argmax())
    return WaitingParts(
        total_ns=total,
        bubble_ns=bubble,
        imbalance_ns=uneven - stragglers,
        stragglers_ns=stragglers,
        messages_ns=total - uneven - bubble,
        stages=stages,
        most_work=most,
        slowest=entries[slowest]["ranks"] if slower[slowest] >= NOTICED else None,
        times_slower=round(float(slower[slowest]), 4),
    )


def _median(values: Any, weights: Any) -> float:
    """Return the least value that at least half of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(2 * reached, reached[-1])])


def _roles(run: RunDirectory, actors: Sequence[int]) -> Any:
    """Return a role for each actor: equal for the same operations, by kind, name and bytes."""
    place = np.full(max(actors) + 1, -1)
    place[np.array(actors)] = np.arange(len(actors))
    stem_of_name = np.append(run.stems.codes, NO_NAME)
    operations: list[Counter[tuple[int, ...]]] = [Counter() for _ in actors]
    for batch in run.batches("timeline", ("actor", "kind", "name", "bytes")):
        actor = numbers(batch["actor"]).astype(np.int64)
        rows = np.flatnonzero(actor < len(place))
        rows = rows[place[actor[rows]] >= 0]
        stem = stem_of_name[coded(batch["name"])[rows]]
        columns = (
            place[actor[rows]],
            coded(batch["kind"])[rows],
            stem,
            integers(batch["bytes"], missing=0)[rows],
        )
        alike = Grouped(*columns)
        for (at, *operation), count in alike.with_keys(alike.total(np.ones(len(rows), np.int64))):
            operations[at][tuple(operation)] += count
    number: dict[frozenset[Any], int] = {}
    return np.array([number.setdefault(frozenset(of.items()), len(number)) for of in operations])


def waiting_text(parts: WaitingParts, makespan_ns: int) -> str:
    """Return the causes of the average rank's waiting, with figures that add up."""
    owner = called(parts.most_work, LONGEST_RANKS)
    has = "has" if parts.most_work.isdecimal() else "have"
    bubble = f"bubble ({parts.stages} equal stages that fill and drain)"
    stragglers = "stragglers"
    if parts.slowest is not None:
        slowest = called(parts.slowest, LONGEST_RANKS)
        stragglers += f" ({slowest}: {parts.times_slower:.2f} times the usual time of its stage)"
    named = (
        (parts.bubble_ns, bubble),
        (parts.imbalance_ns, f"imbalance ({owner} {has} the most to do)"),
        (parts.stragglers_ns, stragglers),
        (parts.messages_ns, "messages between stages"),
    )
    figures = ", ".join(f"{format_ns(ns)} {text}" for ns, text in named if ns)
    return f"{format_ns(parts.total_ns)} of the average rank, {share(parts.total_ns, makespan_ns)}: {figures}"


def waiting_clause(parts: WaitingParts, makespan_ns: int) -> str:
    """Return the causes in few words, as shares of the makespan."""
    named = (
        (parts.bubble_ns, "bubble"),
        (parts.imbalance_ns, "imbalance"),
        (parts.stragglers_ns, "stragglers"),
        (parts.messages_ns, "messages"),
    )
    shares = ", ".join(f"{name} {share(ns, makespan_ns)}" for ns, name in named if ns)
    return f"{share(parts.total_ns, makespan_ns)} waiting: {shares}"
