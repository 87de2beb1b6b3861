"""The converted rank as a graph: nodes with measured times, and dependencies of named kinds.

Dependencies run forward in measured time: a predecessor has ended when its successor begins. Others are left
out and counted, so no node is late in a replay. (The one exception is communication of one stream that
overlaps in the recording: ranks match by its order, so it is kept.) Nodes are in the order of their start,
and every dependency leads to a later row, so there is no cycle.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from converters.pytorch.columns import NONE
from et_sim.compiled.entry_points import entry


@entry(what="the longest path", seconds=lambda *arrays: len(arrays[2]) * 1e-6)
def replay_times(duration: Any, first: Any, before: Any, ends: Any, decisive: Any) -> None:
    """Fill `ends`, where row r comes after the rows `before[first[r] : first[r + 1]]`.

    `decisive` receives the index into `before` of the row that ends last, or -1 if there is none.
    """
    for row in range(len(duration)):
        ready = 0
        decisive[row] = -1
        for at in range(first[row], first[row + 1]):
            if decisive[row] < 0 or ends[before[at]] > ready:
                ready = ends[before[at]]
                decisive[row] = at
        ends[row] = ready + duration[row]


@entry(what="the longest path", seconds=lambda last, *_: last * 2e-7)
def longest_path(last: int, decided_by: Any, path: Any) -> int:
    """Write node `last` and all its deciding predecessors to `path`; return their number."""
    node, count = last, 0
    while node >= 0:
        path[count] = node
        count += 1
        node = decided_by[node]
    return count


_NAMED = 3  # examples in a remark


class EventTally(Struct):
    """Counts of remarkable events, with a few examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, subject: str, number: int = 1, *, example: str = "") -> None:
        """Add a number of events, perhaps with an example."""
        if number:
            self.counts[subject] += int(number)
            self.examples.setdefault(subject, []).extend([example] if example else [])

    def remark(self, subject: str, example: str) -> None:
        """Add one event; keep it as an example unless there are enough."""
        self.counts[subject] += 1
        named = self.examples.setdefault(subject, [])
        if example not in named and len(named) < _NAMED:
            named.append(example)


Column = npt.NDArray[np.int64]
Rows = npt.NDArray[np.signedinteger[Any]]  # numbers of rows or nodes; 32 bits save memory in large graphs


class RunPart(IntEnum):
    """The parts of a run that nodes represent."""

    OPERATOR = 0  # an operator's own time, until it calls another one or ends
    MARKER = 1  # the beginning of an annotation
    LAUNCH = 2  # a call that starts work of a device, until that begins or the call returns
    WAIT = 3  # the rest of a waiting call after the awaited work has ended
    REST = 4  # an operator's own time after its calls
    GAP = 5  # a thread between operators: Python, or an unrecorded wait
    KERNEL = 6
    COPY = 7
    FILL = 8
    ACCELERATOR = 9
    COMMUNICATION = 10
    LAUNCH_GAP = 11  # from a launch to the beginning of its work
    STREAM_GAP = 12  # from the end of one piece of work to the beginning of the next
    METADATA = 13
    UNTIMED = 14  # a node of an execution trace without a timeline
    LAUNCH_REST = 15  # the rest of a launching call after its work could begin


class Link(IntEnum):
    """Kinds of dependencies."""

    THREAD_ORDER = 0
    CALL_TREE = 1
    LAUNCH = 2
    STREAM_ORDER = 3
    EVENT_WAIT = 4
    SYNC = 5
    CROSS_THREAD = 6
    DATA = 7

    @property
    def label(self) -> str:
        """Return the name of the kind on the command line."""
        return self.name.lower().replace("_", "-")


GAPS = (RunPart.REST, RunPart.GAP, RunPart.LAUNCH_GAP, RunPart.STREAM_GAP)
ON_HOST = (
    RunPart.OPERATOR,
    RunPart.MARKER,
    RunPart.LAUNCH,
    RunPart.LAUNCH_REST,
    RunPart.WAIT,
    *GAPS,
    RunPart.METADATA,
    RunPart.UNTIMED,
)


class RecordedGraph(Struct, frozen=True, eq=False):
    """The rows in the order of their start."""

    role: npt.NDArray[np.uint8]
    start_ns: Column  # from the beginning of the converted part
    end_ns: Column
    call: Rows  # index into `Calls` (without a timeline: row of the execution trace), or NONE
    work: Rows  # index into `Work`, or NONE
    before: Rows  # the earlier row of each dependency, sorted by the later one
    after: Rows
    kind: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.role)

    @property
    def first_dependency(self) -> Column:
        """Return the index of the first dependency of each row, and the number of dependencies at the end."""
        return np.searchsorted(self.after, np.arange(len(self) + 1, dtype=np.int32)).astype(np.int64)

    def replayed(self) -> tuple[Column, Rows]:
        """Return the end of each node if only its dependencies delay it, and its deciding dependency (an
        index into `before`), or NONE.
        """
        ends, decisive = np.zeros(len(self), np.int64), np.zeros(len(self), np.int32)
        replay_times(self.end_ns - self.start_ns, self.first_dependency, self.before, ends, decisive)
        return ends, decisive


class Draft(Struct):
    """Nodes and dependencies while they are collected; indices are in the order of adding."""

    tally: EventTally
    role: list[Any] = field(default_factory=list)
    start_ns: list[Column] = field(default_factory=list)
    end_ns: list[Column] = field(default_factory=list)
    call: list[Rows] = field(default_factory=list)
    work: list[Rows] = field(default_factory=list)
    links: list[tuple[Link, Rows, Rows, bool]] = field(default_factory=list)
    size: int = 0

    def add(self, role: Any, start: Any, end: Any, *, call: Any = NONE, work: Any = NONE) -> Rows:
        """Add nodes with their measured times and return their indices; scalars apply to all."""
        count = len(start)
        for column, value, kind in (
            (self.role, role, np.uint8),
            (self.start_ns, start, np.int64),
            (self.end_ns, end, np.int64),
            (self.call, call, np.int32),
            (self.work, work, np.int32),
        ):
            column.append(np.broadcast_to(np.asarray(value, kind), (count,)))
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int32)

    def times(self) -> tuple[Column, Column]:
        """Return begin and end of the nodes so far, in single columns."""
        self.start_ns, self.end_ns = [np.concatenate(self.start_ns)], [np.concatenate(self.end_ns)]
        return self.start_ns[0], self.end_ns[0]

    def link(self, kind: Link, before: Any, after: Any, *, though_late: bool = False) -> None:
        """Add dependencies, pair by pair; pairs with NONE are ignored.

        `though_late` keeps those whose first had not ended when the second began.
        """
        before, after = np.asarray(before, np.int32), np.asarray(after, np.int32)
        both = (before != NONE) & (after != NONE)
        self.links.append((kind, before[both], after[both], though_late))

    def finished(self, without: frozenset[Link], position: Any) -> RecordedGraph:
        """Return the graph without some kinds of dependencies.

        `position` orders nodes without duration at one instant.
        """
        start, end = self.times()
        order = np.lexsort((position, end, start)).astype(np.int32)
        rank = np.empty(self.size, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        before, after, kind = self._links(rank, start, end, without)
        del rank
        return RecordedGraph(
            np.concatenate(self.role)[order],
            start[order],
            end[order],
            np.concatenate(self.call)[order],
            np.concatenate(self.work)[order],
            before,
            after,
            kind,
        )

    def _links(
        self, rank: Rows, start: Column, end: Column, without: frozenset[Link]
    ) -> tuple[Rows, Rows, npt.NDArray[np.uint8]]:
        """Return all dependencies by rows, each pair once, under the kind that was added first.

        Callers are separate: they are written as control dependencies, beside the others.
        """
        none = np.zeros(0, np.int32)
        befores, afters, kinds = [none], [none], [none.astype(np.uint8)]
        links, self.links = self.links[::-1], []
        while links:  # each is released when it has been merged
            kind, before, after, though_late = links.pop()
            forward = ((end[before] <= start[after]) | though_late) & (rank[before] < rank[after])
            backward = int((~forward).sum())
            if kind in without:
                self.tally.count(f"{kind.label} dependencies, switched off", len(before) - backward)
                continue
            self.tally.count(f"{kind.label} dependencies that run backwards in time", backward)
            befores.append(rank[before[forward]])
            afters.append(rank[after[forward]])
            kinds.append(np.full(len(afters[-1]), kind, np.uint8))
        before, after, kind_of = np.concatenate(befores), np.concatenate(afters), np.concatenate(kinds)
        befores, afters = [], []
        is_tree = kind_of == Link.CALL_TREE
        order = np.lexsort((before, is_tree, after)).astype(np.int32)
        before, after, kind_of, is_tree = before[order], after[order], kind_of[order], is_tree[order]
        first = np.ones(len(before), bool)
        same = (before[1:] == before[:-1]) & (after[1:] == after[:-1]) & (is_tree[1:] == is_tree[:-1])
        first[1:] = ~same
        return before[first], after[first], kind_of[first]
