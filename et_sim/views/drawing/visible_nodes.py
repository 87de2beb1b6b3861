"""Reads the nodes that a picture draws, from a timeline of any length.

Drawn are nodes that are under way in a window, of chosen ranks; where there is no room for all of them, some
in proportion (`proportion`). Beside them stand the nodes that arrows may join them to: the other members of
their collectives, and messages between the same actors. The timeline is read several times, block by block;
nothing else of it is kept.

Not here: arrows (`flows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.drawing.nodes import CAUSES, NONE, NUMBERS, TEXTS, Nodes, Shown
from et_sim.views.drawing.proportion import InProportion, Strata, share_out
from et_sim.views.run.columns import Words, coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import Groups
from et_sim.views.run.selection import Window

RECORDED = "recorded_on"
SPANS = ("actor", "kind", "start_ns", "end_ns")
JOINED = ("actor", "kind", "group", "sequence", "peer")
MESSAGES = ("send", "receive")


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Nodes as they are shown: one for each node and rank, rank by rank."""

    place: Any  # in Shown.ranks
    row: Any  # in the nodes
    group: Words  # as the rank calls it
    left_out: str

    def __len__(self) -> int:
        return len(self.row)


def visible_nodes(run: RunDirectory, shown: Shown, window: Window, limit: int) -> tuple[Nodes, Slices]:
    """What is drawn of a run, and whatever may be joined to it by arrows, in the order of the timeline."""
    blocks = _Blocks(run, shown)
    place, row, count = blocks.chosen(window, limit)
    rows = _distinct(row)
    if len(rows) < blocks.rows_shown:
        rows = _distinct(np.append(rows, _joined(blocks, rows)))
    left_out = ""
    if count > limit:
        left_out = (
            f"shows {limit:,} of {count:,} nodes, in proportion: of each rank, kind and part of time the "
            "longest; --window, --ranks and --limit choose others"
        )
    nodes, row = blocks.nodes(rows), np.searchsorted(rows, row)
    rank = np.array(shown.ranks, np.int64)[place]
    group = Groups(run).of_ranks(rank, nodes.actor[row], nodes.group[row], nodes.groups)
    return nodes, Slices(place, row, group, left_out)


class _Blocks:
    """The record batches of a timeline that hold nodes of ranks that are shown."""

    def __init__(self, run: RunDirectory, shown: Shown) -> None:
        self._run = run
        actors = np.array(shown.actors, np.int64)
        self._place = np.argsort(actors, kind="stable")
        self._places = np.bincount(actors, minlength=len(run.actors()))  # of each actor
        self._first_place = np.cumsum(self._places) - self._places
        self._firsts: list[int] = []  # rows, of all batches
        self._numbers: list[int] = []  # of batches that hold nodes of these actors
        self.rows_shown = rows = 0
        for number, batch in enumerate(run.batches("timeline", ("actor",))):
            self._firsts.append(rows)
            rows += len(batch)
            if shown_here := int(self.is_shown(numbers(batch["actor"])).sum()):
                self._numbers.append(number)
                self.rows_shown += shown_here
        self._firsts.append(rows)

    def chosen(self, window: Window, limit: int) -> tuple[Any, Any, int]:
        """Place and row of slices, by place, and of how many they are chosen."""
        places, kinds = int(self._places.sum()), self._kinds()
        last = min(window[1], max(self._run.summary["makespan_ns"], window[0]))
        strata = Strata.within((window[0], last), places, kinds, limit)
        counts = np.zeros(len(strata), np.int64)
        for place, _, kind, start, _ in self._inside(window):
            counts += np.bincount(strata.of(place, kind, start), minlength=len(strata))
        chosen = InProportion(share_out(counts, limit))
        for place, row, kind, start, end in self._inside(window):
            chosen.add(strata.of(place, kind, start), place, row, end - start)
        return *chosen.chosen(), int(counts.sum())

    def _kinds(self) -> int:
        """How many there may be, and none."""
        for batch in self._run.batches("timeline", ("kind",)):
            return len(batch["kind"].dictionary) + 1
        return 1

    def _inside(self, window: Window) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
        """Batch by batch, the place, row, kind, start and end of slices that are under way in the window."""
        first, last = window
        for number, batch in self.every(SPANS):
            actor, start = numbers(batch["actor"]), numbers(batch["start_ns"])
            end = integers(batch["end_ns"], missing=NONE)
            end = np.where(end == NONE, self._run.summary["makespan_ns"], end)
            inside = (start < last) & ((end > first) | ((end == start) & (start >= first)))
            place, at = self._repeated(actor, np.flatnonzero(self.is_shown(actor) & inside))
            yield place, number + at, coded(batch["kind"])[at], start[at], end[at]

    def _repeated(self, actor: Any, rows: Any) -> tuple[Any, Any]:
        """Some rows, for each rank that shows their actor."""
        first, count = self._first_place[actor[rows]], self._places[actor[rows]]
        if (count == 1).all():
            return self._place[first], rows
        number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        return self._place[np.repeat(first, count) + number], np.repeat(rows, count)

    def every(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Batches, and the rows at which they begin."""
        batches = self._run.batches("timeline", columns, self._numbers)
        for number, batch in zip(self._numbers, batches, strict=True):
            yield self._firsts[number], batch

    def at(self, rows: Any, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
        """Batches that hold some of these rows, which are ascending, and where in the batch they are."""
        numbers = _distinct(np.searchsorted(self._firsts, rows, side="right") - 1).tolist()
        for number, batch in zip(numbers, self._run.batches("timeline", columns, numbers), strict=True):
            begin, end = np.searchsorted(rows, self._firsts[number : number + 2])
            yield batch, rows[begin:end] - self._firsts[number]

    def is_shown(self, actor: Any) -> Any:
        """Which of these actors are shown."""
        return self._places[actor] > 0

    def nodes(self, rows: Any) -> Nodes:
        """All columns of these rows, which are ascending."""
        recorded_on = (RECORDED,) if RECORDED in self._run.columns("timeline") else ()
        words = (*TEXTS, *recorded_on)
        parts: dict[str, list[Any]] = {name: [] for name in (*NUMBERS, *CAUSES, *words)}
        texts: dict[str, tuple[str | None, ...]] = dict.fromkeys(words, (None,))
        for batch, at in self.at(rows, tuple(parts)):
            for name in (*NUMBERS, *CAUSES):
                parts[name].append(integers(batch[name], missing=NONE)[at])
            for name in words:
                if len(texts[name]) == 1:  # all batches have the same
                    texts[name] = (*batch[name].dictionary.to_pylist(), None)
                parts[name].append(coded(batch[name])[at])
        columns: dict[str, Any] = {}
        for name in tuple(parts):  # of each column, its parts are let go at once
            columns[name] = np.concatenate(parts.pop(name) or [np.zeros(0, np.int64)])
        if recorded_on:  # rows of recordings are their streams and threads
            recorded, said = columns.pop(RECORDED), texts.pop(RECORDED)[:-1]
            columns["lane"] = np.where(recorded < len(said), recorded, len(said) + columns["lane"])
            texts["lane"] = (*said, *texts["lane"])
        completed = columns["end_ns"] != NONE
        columns["end_ns"] = np.where(completed, columns["end_ns"], self._run.summary["makespan_ns"])
        return Nodes(**columns, completed=completed, **{f"{name}s": texts[name] for name in TEXTS})


def _distinct(numbers: Any) -> Any:
    """In ascending order; of millions of them, np.unique takes ten times as long."""
    numbers = np.sort(numbers, kind="stable")
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def _joined(blocks: _Blocks, rows: Any) -> Any:
    """Rows of shown actors that are in a collective, or between the same two actors, with one of these."""
    wanted = [_keys(batch, at) for batch, at in blocks.at(rows, JOINED)]
    if not wanted:
        return rows
    together = [_distinct(np.concatenate(keys)) for keys in zip(*wanted, strict=True)]
    together = [keys[keys != NONE] for keys in together]
    if not any(map(len, together)):
        return rows[:0]
    found = []
    for first, batch in blocks.every(JOINED):
        is_shown = np.flatnonzero(blocks.is_shown(numbers(batch["actor"])))
        of_row = _keys(batch, is_shown)
        there = np.any([np.isin(keys, some) for keys, some in zip(of_row, together, strict=True)], axis=0)
        found.append(first + is_shown[there])
    return np.concatenate(found)


def _keys(batch: Any, at: Any) -> tuple[Any, Any]:
    """Of these rows of a batch: numbers for their collective, and for the two ends of their message."""
    sequence = integers(batch["sequence"], missing=NONE)[at]
    groups = len(batch["group"].dictionary) + 1
    collective = np.where(sequence == NONE, NONE, sequence * groups + coded(batch["group"])[at])
    actor, peer = numbers(batch["actor"])[at].astype(np.int64), integers(batch["peer"], missing=NONE)[at]
    is_message = np.array([kind in MESSAGES for kind in (*batch["kind"].dictionary.to_pylist(), None)])
    ends = np.minimum(actor, peer) << 32 | np.maximum(actor, peer)
    return collective, np.where(is_message[coded(batch["kind"])[at]] & (peer != NONE), ends, NONE)
