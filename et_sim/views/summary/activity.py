"""Activity of ranks over time: in each column of time, the share of every part that time is split into.

Ranks that do the same at all times share a row; if there are more rows than requested, neighbours are
averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import (
    ACTIVITIES,
    COMPUTE,
    COPY,
    HOST,
    MEMORY,
    TRANSFER,
    WAITING,
    Intervals,
    Unions,
    filling,
    levels,
    together,
    waits_apart,
)
from et_sim.basics.unique import groups_of
from et_sim.basics.units import format_ns, parse_ranks, plural
from et_sim.views.run.columns import integers
from et_sim.views.run.columns import together as ranks_together
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, Window, recorded_actors, recorded_part
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.rank_table import spans_of
from et_sim.views.text import prose, shortened
from et_sim.views.view import Forms

# The figure of each activity.
FIGURE_OF = {
    COMPUTE: "compute_ns",
    COPY: "compute_ns",
    TRANSFER: "exposed_comm_ns",
    MEMORY: "exposed_memory_ns",
    WAITING: "waiting_ns",
    HOST: "host_ns",
}
FIGURES = tuple(part.figure for part in PARTS)
MOST_LINES, DATA_ROWS, DATA_COLUMNS = 32, 256, 100
LABEL = 16


class Activity(Struct, frozen=True, eq=False):
    """Rows of ranks that do the same, or of neighbours, by their lowest rank."""

    window: Window
    ranks: tuple[str, ...]
    counts: tuple[int, ...]
    shares: Any  # by part (as in PARTS), row and column of time; a column adds up to 1
    notes: tuple[str, ...]


def activity_of(run: RunDirectory, part: Selection, columns: int, most_rows: int) -> Activity:
    """Return the activity in `columns` columns of time and at most `most_rows` rows."""
    weights = part.weights(run) * recorded_actors(run)
    window, table = part.window_of(run), run.actors()
    finish = np.clip(integers(table["finish_ns"], missing=window[1]), *window) - window[0]
    names = part.of_actors(run)
    first_of = _first_alike(run, part, window, _by_rank(names, weights), finish)
    weights = np.bincount(first_of, weights, len(weights)) * (first_of == np.arange(len(weights)))
    chosen = _by_rank(names, weights)
    row_of, rows = _rows(weights, chosen, most_rows)
    shares = _Shares(weights, row_of, (rows, columns), window[1] - window[0])
    for owner, *spans in spans_of(run, part, window):
        is_first = weights[owner] > 0
        shares.add(owner[is_first], *(column[is_first] for column in spans))
    of_row: list[list[str]] = [[] for _ in range(rows)]
    for actor in np.flatnonzero(weights[first_of] > 0).tolist():
        if names[actor]:
            of_row[row_of[first_of[actor]]].append(names[actor])
    kept = recorded_part(run)
    notes = [f"only of the recorded part: {kept}"] if kept else []
    if rows < len(chosen):
        notes.append(
            f"a row is the mean of {len(chosen) / rows:.3g} kinds of rank, of {plural(len(chosen), 'kind')}"
        )
    counts = np.bincount(row_of[chosen], weights[chosen], rows).astype(np.int64)
    shares_of_parts = shares.by_part(finish[chosen], chosen)
    ranks = tuple(map(ranks_together, of_row))
    return Activity(window, ranks, tuple(counts.tolist()), shares_of_parts, tuple(notes))


def _first_alike(run: RunDirectory, part: Selection, window: Window, chosen: Any, finish: Any) -> Any:
    """Return, by actor, the actor with the lowest rank that does the same at all times."""
    marks = np.zeros((len(finish), 2), np.uint64)
    marks[:, 1] = finish
    for owner, *spans in spans_of(run, part, window):
        np.add.at(marks[:, 0], owner, _mixed(spans))
    alike = groups_of(*marks[chosen].T)
    first_of = np.arange(len(finish))
    first_of[chosen] = chosen[alike.first[alike.of_row]]
    return first_of


def _mixed(columns: Sequence[Any]) -> Any:
    """Hash each row of some columns."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _by_rank(names: list[str], weights: Any) -> Any:
    """Return the actors with selected ranks, by their lowest selected rank."""
    chosen = np.flatnonzero(weights)
    lowest = [parse_ranks(names[actor].partition(",")[0])[0].start for actor in chosen.tolist()]
    return chosen[np.argsort(lowest, kind="stable")]


def _rows(weights: Any, chosen: Any, most: int) -> tuple[Any, int]:
    """Return the row of every actor: its own, or one shared with neighbours."""
    row_of = np.zeros(len(weights), np.int64)
    if len(chosen) <= most:
        row_of[chosen] = np.arange(len(chosen))
        return row_of, len(chosen)
    row_of[chosen] = np.arange(len(chosen)) * most // len(chosen)
    return row_of, most


class _Shares:
    """Sums of how full columns are with the first of the activities under way."""

    def __init__(self, weights: Any, row_of: Any, shape: tuple[int, int], span: int) -> None:
        totals = np.bincount(row_of, weights, shape[0])
        self._weight = weights / np.maximum(totals, 1)[row_of]
        self._row_of, self._shape, self._span = row_of, shape, span
        self._covered = [
            np.zeros((shape[0], shape[1] + 2)) for _ in ACTIVITIES
        ]  # with this activity or an earlier one
        # Fractions are added with each piece, and so always in one order.
        self._unions = Unions(len(ACTIVITIES), self._measure, few=0)

    def add(self, *spans: Any) -> None:
        """Add a piece, as `Unions` does."""
        self._unions.add(*waits_apart(*spans))

    def _measure(self, unions: list[Intervals]) -> None:
        every = together(())
        for kind, intervals in enumerate(unions):
            every = together((every, intervals))
            self._covered[kind] += self._filling(every.owner, every.start, every.end)

    def _filling(self, owner: Any, start: Any, end: Any) -> Any:
        return filling(self._row_of[owner], start, end, self._weight[owner], self._shape, self._span)

    def by_part(self, finish: Any, actors: Any) -> Any:
        """Return the shares of all parts; `finish` holds the end of each of the actors."""
        self._unions.close()
        shares, before = np.zeros((len(PARTS), *self._shape)), np.zeros(self._shape)
        for kind in ACTIVITIES:
            covered = levels(self._covered[kind])
            shares[FIGURES.index(FIGURE_OF[kind])] += covered - before
            before = covered
        early = levels(self._filling(actors, finish, np.full(len(actors), self._span)))
        shares[FIGURES.index("early_ns")] = early
        shares[FIGURES.index("idle_ns")] = 1 - before - early
        return np.round(shares, 9).clip(0, 1)  # sums of fractions leave dust


def shown_parts(shares: Any) -> Any:
    """Return one part for each row and column, each part as often as it takes time in the row.

    What a column does not show is owed, and shown by later columns that contain the part.
    """
    _, rows, columns = shares.shape
    parts, owed = np.zeros((rows, columns), np.int64), np.zeros(shares.shape[:2])
    for column in range(columns):
        here = shares[:, :, column]
        owed += here
        parts[:, column] = np.where(here > 0, owed, -np.inf).argmax(axis=0)
        owed[parts[:, column], np.arange(rows)] -= 1
    return parts


def activity_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line per row of ranks: in each column, the mark of the part that is due."""
    activity = activity_of(run, part, width - LABEL - 1, part.top or MOST_LINES)
    shown = activity.ranks
    label = min(max(map(len, ("ranks", *shown))), LABEL)
    most = np.array([part.mark for part in PARTS])[shown_parts(activity.shares)]
    lines = [f"{'ranks':{label}}"] if shown else ["no rank of these was written"]
    rows = zip(shown, most, strict=True)
    lines += [f"{shortened(ranks, label):{label}} {''.join(row)}".rstrip() for ranks, row in rows]
    first, last = activity.window
    column = format_ns((last - first) / activity.shares.shape[2])
    used = [part for row, part in enumerate(PARTS) if activity.shares[row].any()]
    legend = "   ".join(f"{part.mark.strip() or '(blank)'} {part.text}" for part in used)
    scale = f"a column is {column}; a row has as many marks of a part as that takes time"
    return prose([*lines, "", legend, scale, *activity.notes], width)


def activity_data(run: RunDirectory, part: Selection = EVERYTHING) -> dict[str, Any]:
    """Return the activity for `--json`."""
    activity = activity_of(run, part, DATA_COLUMNS, part.top or DATA_ROWS)
    rows = [
        {
            "ranks": ranks,
            "rank_count": count,
            "shares": {
                part.short: np.round(activity.shares[n, row], 6).tolist() for n, part in enumerate(PARTS)
            },
        }
        for row, (ranks, count) in enumerate(zip(activity.ranks, activity.counts, strict=True))
    ]
    return {
        "window_ns": list(activity.window),
        "columns": DATA_COLUMNS,
        "rows": rows,
        "notes": list(activity.notes),
    }


ACTIVITY = Forms(activity_lines, activity_data)
