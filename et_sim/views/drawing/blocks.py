"""Selection of the nodes that a timeline of any length shows, read block by block.

Rows are indices into the timeline, which is read several times and never held as a whole. If not all slices
fit, each stratum (a rank, a kind of nodes and a part of the window) keeps its longest slices, in proportion
to its size, and at least one while there is room.

Besides the visible nodes, the selection holds nodes that arrows may join them to: the other members of their
collectives, and messages between the same actors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.views.drawing.nodes import CAUSES, NONE, NUMBERS, TEXTS, Nodes, Shown
from et_sim.views.run.columns import Words, coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import RunGroups
from et_sim.views.run.selection import Window

MOST_PARTS = 64  # of a window
LEAST_EACH = 4  # slices of a stratum, on average
AT_ONCE = 1 << 18  # slices that are taken before the shortest are dropped


class Strata(Struct, frozen=True):
    """Numbering of strata: places x kinds x parts of a window."""

    window: Window
    places: int
    kinds: int
    parts: int

    @classmethod
    def within(cls, window: Window, places: int, kinds: int, limit: int) -> Strata:
        """Return strata with as many parts of the window as leave several slices to each stratum."""
        parts = limit // max(LEAST_EACH * places * kinds, 1)
        return cls(window, places, kinds, min(max(parts, 1), MOST_PARTS))

    def __len__(self) -> int:
        return self.places * self.kinds * self.parts

    def of(self, place: Any, kind: Any, start_ns: Any) -> Any:
        """Return the stratum of each slice; a slice that began before the window is in its first part."""
        first, last = self.window
        width = max(-(-(last - first) // self.parts), 1)
        part = np.clip((start_ns - first) // width, 0, self.parts - 1)
        return (place * self.kinds + kind) * self.parts + part


def share_out(counts: Any, limit: int) -> Any:
    """Return the number of slices shown of each stratum: in proportion, and at least one if there is room."""
    there = (counts > 0).astype(np.int64)
    total, strata = int(counts.sum()), int(there.sum())
    if total <= limit:
        return counts
    if strata >= limit:
        return _portions(there, limit)
    return there + _portions(counts - there, limit - strata)


def _portions(counts: Any, limit: int) -> Any:
    """Return whole numbers in proportion to the counts, none above its count, that add up to the limit."""
    up_to = np.append(0, np.cumsum(counts))
    return np.diff(up_to * limit // up_to[-1])


class InProportion:
    """The longest slices of each stratum, from slices that come row by row; of equal ones, the first."""

    def __init__(self, quotas: Any) -> None:
        self._quotas = quotas
        limit = int(quotas.sum())
        self._room = limit + max(limit // 4, AT_ONCE)
        self._kept: list[tuple[Any, ...]] = []  # stratum, place, row, how long
        self._size = 0
        self._least = np.full(len(quotas), -1)  # length from which slices are kept, by stratum

    def add(self, stratum: Any, place: Any, row: Any, took: Any) -> None:
        """Add slices of rows after all earlier ones."""
        better = np.flatnonzero((took > self._least[stratum]) & (self._quotas[stratum] > 0))
        stratum = stratum.astype(np.int32)
        self._kept.append((stratum[better], place[better], row[better], took[better]))
        self._size += len(better)
        if self._size > self._room:
            self._let_go()

    def _let_go(self) -> None:
        stratum, place, row, took = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        order = np.lexsort((row, -took, stratum))
        number = np.arange(len(order)) - np.searchsorted(stratum[order], stratum[order])
        quota = self._quotas[stratum[order]]
        last = order[number == quota - 1]
        self._least[stratum[last]] = took[last]
        order = np.sort(order[number < quota])
        self._kept = [(stratum[order], place[order], row[order], took[order])]
        self._size = len(order)

    def chosen(self) -> list[tuple[Any, Any]]:
        """Return places and rows, in the order in which they were added."""
        if self._kept:
            self._let_go()
        return [(place, row) for _, place, row, _ in self._kept]


RECORDED = "recorded_on"
SPANS = ("actor", "kind", "start_ns", "end_ns")


class Chosen(Struct, frozen=True, eq=False):
    """Chosen nodes: one entry for each node and rank, rank by rank."""

    place: Any  # index into Shown.ranks
    row: Any  # of the timeline, ascending within a place
    left_out: str

    def __len__(self) -> int:
        return len(self.row)


class VisibleBlocks:
    """The record batches of a timeline that hold nodes of visible ranks."""

    def __init__(self, run: RunDirectory, shown: Shown) -> None:
        self._run = run
        actors = np.array(shown.actors, np.int64)
        self._place = np.argsort(actors, kind="stable").astype(np.int32)
        self._places = np.bincount(actors, minlength=len(run.actors()))  # by actor
        self._first_place = np.cumsum(self._places) - self._places
        self._firsts: list[int] = []  # rows, of all batches
        self._numbers: list[int] = []  # batches that hold nodes of these actors
        self.rows_shown = rows = 0
        for number, batch in enumerate(run.batches("timeline", ("actor",))):
            self._firsts.append(rows)
            rows += len(batch)
            if shown_here := int(self.is_shown(numbers(batch["actor"])).sum()):
                self._numbers.append(number)
                self.rows_shown += shown_here
        self._firsts.append(rows)
        self._row_type = np.int32 if rows < 1 << 31 else np.int64

    def chosen(self, window: Window, limit: int) -> Chosen:
        """Return slices that are under way in the window; if not all fit, a choice in proportion."""
        places, kinds = int(self._places.sum()), self._kinds()
        last = min(window[1], max(self._run.summary["makespan_ns"], window[0]))
        strata = Strata.within((window[0], last), places, kinds, limit)
        counts = np.zeros(len(strata), np.int64)
        for place, _, kind, start, _ in self._inside(window):
            counts += np.bincount(strata.of(place, kind, start), minlength=len(strata))
        count = int(counts.sum())
        if count <= limit:
            parts = [(place, row) for place, row, *_ in self._inside(window)]
            return Chosen(*_by_place(parts), "")
        candidates = InProportion(share_out(counts, limit))
        for place, row, kind, start, end in self._inside(window):
            candidates.add(strata.of(place, kind, start), place, row, end - start)
        return Chosen(
            *_by_place(candidates.chosen()),
            f"shows {limit:,} of {count:,} nodes, in proportion: of each rank, kind and part of time the "
            "longest; --window, --ranks and --limit choose others",
        )

    def _kinds(self) -> int:
        """Return the number of codes of kinds, including none."""
        for batch in self._run.batches("timeline", ("kind",)):
            return len(batch["kind"].dictionary) + 1
        return 1

    def _inside(self, window: Window) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
        """Yield place, row, kind, start and end of slices under way in the window, batch by batch."""
        first, last = window
        for number, batch in self.every(SPANS):
            actor, start = numbers(batch["actor"]), numbers(batch["start_ns"])
            end = self._end(batch["end_ns"])
            inside = (start < last) & ((end > first) | ((end == start) & (start >= first)))
            place, at = self._repeated(actor, np.flatnonzero(self.is_shown(actor) & inside))
            row = (number + at).astype(self._row_type)
            yield place, row, coded(batch["kind"])[at], start[at], end[at]

    def _end(self, column: Any) -> Any:
        """Return ends of nodes; nodes that never completed end with the run."""
        end = integers(column, missing=NONE)
        return np.where(end == NONE, self._run.summary["makespan_ns"], end)

    def _repeated(self, actor: Any, rows: Any) -> tuple[Any, Any]:
        """Repeat rows for each rank that shows their actor."""
        first, count = self._first_place[actor[rows]], self._places[actor[rows]]
        if (count == 1).all():
            return self._place[first], rows
        number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        return self._place[np.repeat(first, count) + number], np.repeat(rows, count)

    def every(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield batches, each with its first row."""
        batches = self._run.batches("timeline", columns, self._numbers)
        for number, batch in zip(self._numbers, batches, strict=True):
            yield self._firsts[number], batch

    def at(self, rows: Any, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
        """Yield batches that hold some of these ascending rows, with the rows' indices in the batch."""
        numbers = distinct(np.searchsorted(self._firsts, rows, side="right") - 1).tolist()
        for number, batch in zip(numbers, self._run.batches("timeline", columns, numbers), strict=True):
            begin, end = np.searchsorted(rows, self._firsts[number : number + 2])
            yield batch, rows[begin:end] - self._firsts[number]

    def is_shown(self, actor: Any) -> Any:
        """Return which of these actors are visible."""
        return self._places[actor] > 0

    def nodes(self, rows: Any) -> Nodes:
        """Return all columns of these ascending rows."""
        columns, texts = self._columns(rows, (*NUMBERS, *CAUSES), TEXTS)
        completed = columns["end_ns"] != NONE
        columns["end_ns"] = np.where(completed, columns["end_ns"], self._run.summary["makespan_ns"])
        return Nodes(**columns, completed=completed, **{f"{name}s": texts[name] for name in TEXTS})

    def spans(self, rows: Any) -> tuple[Any, Any, Any, tuple[str | None, ...]]:
        """Return start, end and lane of these ascending rows, and the names of lanes."""
        columns, texts = self._columns(rows, ("start_ns", "end_ns"), ("lane",))
        never = columns["end_ns"] == NONE
        columns["end_ns"][never] = self._run.summary["makespan_ns"]
        return columns["start_ns"], columns["end_ns"], columns["lane"], texts["lane"]

    def _columns(
        self, rows: Any, names: Sequence[str], words: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, tuple[str | None, ...]]]:
        """Return numbers and codes of these rows, and the texts of the codes."""
        recorded_on = (RECORDED,) if RECORDED in self._run.columns("timeline") else ()
        words = (*words, *recorded_on)
        columns = {name: np.empty(len(rows), np.int64) for name in names}
        columns |= {name: np.empty(len(rows), np.int32) for name in words}
        texts: dict[str, tuple[str | None, ...]] = dict.fromkeys(words, (None,))
        done = 0
        for batch, at in self.at(rows, tuple(columns)):
            part = slice(done, done := done + len(at))
            for name in names:
                columns[name][part] = integers(batch[name], missing=NONE)[at]
            for name in words:
                if len(texts[name]) == 1:  # all batches share them
                    texts[name] = (*batch[name].dictionary.to_pylist(), None)
                columns[name][part] = coded(batch[name])[at]
        if recorded_on:  # rows of recordings are their streams and threads
            recorded, recorded_lanes = columns.pop(RECORDED), texts.pop(RECORDED)[:-1]
            columns["lane"] = np.where(
                recorded < len(recorded_lanes), recorded, len(recorded_lanes) + columns["lane"]
            )
            texts["lane"] = (*recorded_lanes, *texts["lane"])
        return columns, texts


def distinct(numbers: Any) -> Any:
    """Return the distinct numbers, ascending; np.unique takes ten times as long for millions of them."""
    if (numbers[1:] <= numbers[:-1]).any():
        numbers = np.sort(numbers, kind="stable")
        return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]
    return numbers


def _by_place(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Concatenate places and rows, and sort by both."""
    place, row = np.zeros(0, np.int32), np.zeros(0, np.int32)
    if parts:
        place, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    follows = (place[1:] > place[:-1]) | ((place[1:] == place[:-1]) & (row[1:] > row[:-1]))
    if follows.all():
        return place, row
    order = np.lexsort((row, place))
    return place[order], row[order]


JOINED = ("actor", "kind", "group", "sequence", "peer")
MESSAGES = ("send", "receive")


class Slices(Struct, frozen=True, eq=False):
    """Visible nodes: one entry for each node and rank, rank by rank."""

    place: Any  # index into Shown.ranks
    row: Any  # index into the nodes
    group: Words  # by the rank's name for it
    left_out: str

    def __len__(self) -> int:
        return len(self.row)


def visible_nodes(run: RunDirectory, shown: Shown, window: Window, limit: int) -> tuple[Nodes, Slices]:
    """Return the visible nodes with those that arrows may join to them, in the timeline's order."""
    blocks = VisibleBlocks(run, shown)
    chosen = blocks.chosen(window, limit)
    rows = distinct(chosen.row)
    rows = distinct(np.concatenate((rows, *(others for others, _ in belonging(blocks, rows)))))
    nodes, row = blocks.nodes(rows), np.searchsorted(rows, chosen.row)
    rank = np.array(shown.ranks, np.int64)[chosen.place]
    group = RunGroups(run).of_ranks(rank, nodes.actor[row], nodes.group[row], nodes.groups)
    return nodes, Slices(chosen.place, row, group, chosen.left_out)


def belonging(blocks: VisibleBlocks, rows: Any) -> list[tuple[Any, Any]]:
    """Return rows of shown actors in the collectives of these rows, with a key by collective; then rows of
    messages between the same two actors, with a key by pair."""
    wanted: list[Any] = [None, None]
    if len(rows) < blocks.rows_shown:
        of_rows = [_keys(batch, at) for batch, at in blocks.at(rows, JOINED)]
        parts = zip(*of_rows, strict=True) if of_rows else ([], [])
        wanted = [distinct(np.concatenate((np.zeros(0, np.int64), *keys))) for keys in parts]
    related: list[list[tuple[Any, Any]]] = [[], []]
    for first, batch in blocks.every(JOINED):
        is_shown = np.flatnonzero(blocks.is_shown(numbers(batch["actor"])))
        for kind, keys in enumerate(_keys(batch, is_shown)):
            there = keys != NONE
            if wanted[kind] is not None:
                there &= np.isin(keys, wanted[kind])
            related[kind].append((first + is_shown[there], keys[there]))
    return [_together(of_sort) for of_sort in related]


def _together(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    rows, keys = zip((np.zeros(0, np.int64), np.zeros(0, np.int64)), *parts, strict=True)
    return np.concatenate(rows), np.concatenate(keys)


def _keys(batch: Any, at: Any) -> tuple[Any, Any]:
    """Return keys of the collective, and of the two ends of the message, for these rows of a batch."""
    sequence = integers(batch["sequence"], missing=NONE)[at]
    groups = len(batch["group"].dictionary) + 1
    collective = np.where(sequence == NONE, NONE, sequence * groups + coded(batch["group"])[at])
    actor, peer = numbers(batch["actor"])[at].astype(np.int64), integers(batch["peer"], missing=NONE)[at]
    is_message = np.array([kind in MESSAGES for kind in (*batch["kind"].dictionary.to_pylist(), None)])
    ends = np.minimum(actor, peer) << 32 | np.maximum(actor, peer)
    return collective, np.where(is_message[coded(batch["kind"])[at]] & (peer != NONE), ends, NONE)
