"""Rows of the timeline, as every view reads them: when nodes wait and move, which operation they are of, and
figures added up by what rows have in common.

Adding up is numpy's work, because importing Arrow's compute functions takes longer than a small simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.columns import Words, coded, integers, numbers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import Counts, GroupCounts
from et_sim.views.run.names import stems_of
from et_sim.views.run.selection import Selection

TIMES = ("start_ns", "end_ns", "queued_ns", "waiting_ns")  # columns that `spans` reads
OPERATION = ("actor", "kind", "name", "group")  # and `OperationKeys`
Key = tuple[str, str, str | None]  # kind, stem of the name, and group of an operation


def communicates(kind: str | None) -> bool:
    """Whether nodes of this kind move data between ranks."""
    return kind is not None and kind not in NOT_COMMUNICATION


class Spans(Struct, frozen=True, eq=False):
    """Times of nodes: start, when nothing of their own rank holds them up, when others do not either, end."""

    start: Any
    admitted: Any
    moved: Any
    end: Any
    completed: Any  # whether they ended

    def take(self, rows: Any) -> Spans:
        """Of some of the nodes."""
        return Spans(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def cut(self, part: Selection) -> Spans:
        """Cut to the window."""
        if part.window is None:
            return self
        times = (self.start, self.admitted, self.moved, self.end)
        start, admitted, moved, end = (np.clip(time, *part.window) for time in times)
        return Spans(start, admitted, moved, end, self.completed)


def spans(rows: Any, unended_ns: int = 0) -> Spans:
    """Of the rows of a batch; what never ended ends at a given time, or as it starts."""
    start, end = numbers(rows["start_ns"]), integers(rows["end_ns"], missing=-1)
    completed = end >= 0
    end = np.maximum(np.where(completed, end, unended_ns), start)
    admitted = np.minimum(start + integers(rows["queued_ns"], missing=0), end)
    moved = np.minimum(admitted + integers(rows["waiting_ns"], missing=0), end)
    return Spans(start, admitted, moved, end, completed)


class Grouped:
    """Rows that agree in some columns are one; `keys` has a row for each, in ascending order."""

    def __init__(self, *columns: Any) -> None:
        self.keys, of_row = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        self.of_row = of_row.reshape(-1)

    def total(self, values: Any) -> Any:
        """The sum of whole numbers, exactly."""
        return total_by(self.of_row, len(self.keys), values)

    def with_keys(self, *figures: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Each key with its figures, or with its figure if there is only one."""
        columns = [figure.tolist() for figure in figures]
        rows = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        return zip(map(tuple, self.keys.tolist()), rows, strict=True)


def total_by(of_row: Any, count: int, values: Any) -> Any:
    """The sum of whole numbers for each of `count` groups, exactly."""
    totals = np.zeros(count, np.int64)
    np.add.at(totals, of_row, values)
    return totals


def most_by(of_row: Any, count: int, values: Any, least: int = 0) -> Any:
    """The largest of whole numbers for each of `count` groups; `least` where a group has none."""
    most = np.full(count, least, np.int64)
    np.maximum.at(most, of_row, values)
    return most


class OperationKeys:
    """Which operation rows of the timeline are of, and how many selected ranks are in which group.

    `beside` are names of another run that are to have the same stems.
    """

    def __init__(self, run: RunDirectory, part: Selection, beside: Iterable[str | None] = ()) -> None:
        self._run, self._beside = run, beside
        self.groups = GroupCounts(run, part)
        self.kinds = self.stems = Words((), np.zeros(0, np.int64))

    def columns(self, rows: Any) -> tuple[Any, Any, Any]:
        """Codes of the kind, of the stem, and of the counts of groups of every row."""
        if not self.kinds.texts:  # texts are the same in all batches
            self.kinds = words(rows["kind"])
            self.stems = stems_of(words(rows["name"]), self._beside) if self._beside else self._run.stems
        return coded(rows["kind"]), self.stems.codes[coded(rows["name"])], self.groups.of(rows)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many codes there are of each column."""
        return len(self.kinds.texts), len(self.stems.texts), len(self.groups.counts)

    def named(self, kind: int, stem: int, counts: int) -> tuple[str, str, Counts]:
        """What codes stand for; of groups, those that have selected ranks."""
        there = tuple((group, ranks) for group, ranks in self.groups.counts[counts] if ranks)
        return str(self.kinds.texts[kind]), str(self.stems.texts[stem]), there

    def operations(self, kind: int, stem: int, counts: int) -> Iterator[tuple[Key, int]]:
        """Each operation that they stand for, with its ranks."""
        kind_name, name, groups = self.named(kind, stem, counts)
        return (((kind_name, name, group), ranks) for group, ranks in groups)
