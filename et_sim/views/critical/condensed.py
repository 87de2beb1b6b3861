"""Causal events of a record without those that decide nothing, with chains of events joined.

Most events are joins at which no time passes. One of the two events that join often follows from the other: a
message from an end that also precedes its reception. Such a predecessor is never the later one,
whatever the durations, and is left out. Most remaining events then have one predecessor and one successor,
and chains of them become one event: hundreds of thousands of ring steps turn into one event with a few
durations, each with a count.

Every remaining event keeps its time, whatever the durations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.views.critical.events import KINDS, SETS_DURATIONS, RecordedEvents, is_kind, narrow
from et_sim.views.critical.kernels import (
    APART_NS,
    connect,
    count_needed,
    in_order,
    latest_ends,
    mark_deciding,
    put_in_rows,
)
from et_sim.views.run.columns import Words

COLUMNS = ("critical_parent", "other_parent", "start_ns", "end_ns", "kind", "link", "actor", "node")
_SETS_DURATION = np.array([name in SETS_DURATIONS for name in KINDS])
_MAY_VANISH = ~_SETS_DURATION & np.array([name != "node_end" for name in KINDS])
_MAY_JOIN = np.array([name not in ("node", "node_end") for name in KINDS])
_BEGIN, _NODE = KINDS.index("begin"), KINDS.index("node")


class DistinctDurations(Struct, frozen=True, eq=False):
    """Distinct durations of events."""

    kind: Any
    link: Words
    spent_ns: Any
    node: Any  # row of the node, for events of kind `node` in order; -1: none

    def is_kind(self, *names: str) -> Any:
        """Return which durations are of these kinds."""
        return is_kind(self.kind, *names)


class Condensed(Struct, frozen=True, eq=False):
    """Events in causal order. Event 0 is the beginning of the run."""

    critical: Any  # the latest predecessor of an event
    other: Any  # another predecessor, or the same
    spent_ns: Any
    first_part: Any  # index of the first part of each event, and the end of the last part
    part: Any  # index of a duration
    counts: Any  # repetitions of the duration
    durations: DistinctDurations
    ends: Any  # the events at which nodes ended
    ended: Any  # rows of these nodes; -1: none
    ended_ns: Any

    def __len__(self) -> int:
        return len(self.critical)

    def deciding(self, time: Any) -> Condensed:
        """Return only the events on a longest path, given the `time` of each event."""
        latest = self.ends[time[self.ends] > time[self.ends].max() - APART_NS]
        marked = np.zeros(len(self), np.bool_)
        marked[latest] = True
        mark_deciding(self.critical, self.other, time, marked)
        marked[0] = True
        rows, place = np.flatnonzero(marked), np.cumsum(marked) - 1
        critical, other = self.critical[rows], self.other[rows]
        first, many = self.first_part[rows], np.diff(self.first_part)[rows]
        first_part = np.concatenate(([0], np.cumsum(many)))
        parts = np.repeat(first - first_part[:-1], many) + np.arange(first_part[-1])
        which = np.isin(self.ends, latest)
        return replace(
            self,
            critical=place[np.where(marked[critical], critical, other)].astype(critical.dtype),
            other=place[np.where(marked[other], other, critical)].astype(other.dtype),
            spent_ns=self.spent_ns[rows],
            first_part=first_part,
            part=self.part[parts],
            counts=self.counts[parts],
            ends=place[self.ends[which]],
            ended=self.ended[which],
            ended_ns=self.ended_ns[which],
        )

    def slack_ns(self, makespan_ns: int) -> Any:
        """Return by how much each node could end later without a longer run."""
        latest = np.full(len(self), np.iinfo(np.int64).max // 2)
        latest[self.ends] = makespan_ns
        latest_ends(self.critical, self.other, self.spent_ns, latest)
        return latest[self.ends] - self.ended_ns


class _Events(Struct, eq=False):
    """Remaining events while blocks are added."""

    critical: Any
    other: Any
    spent_ns: Any
    kind_and_link: Any  # both codes in one number
    count: int = 1

    def cut(self) -> None:
        """Drop unused capacity."""
        for name in ("critical", "other", "spent_ns", "kind_and_link"):
            setattr(self, name, getattr(self, name)[: self.count])


def condensed(record: RecordedEvents) -> Condensed:
    """Read the record, and keep the events that decide times."""
    size = narrow(len(record) + 1)
    place: Any = np.empty(len(record), size)
    capacity = len(record) + 1
    events = _Events(
        critical=np.empty(capacity, size),
        other=np.empty(capacity, size),
        spent_ns=np.empty(capacity, np.int64),
        kind_and_link=np.empty(capacity, np.int32),
    )
    events.critical[0], events.other[0], events.spent_ns[0], events.kind_and_link[0] = 0, 0, 0, _BEGIN
    nodes: list[Any] = []
    ended: list[Any] = []
    ended_ns: list[Any] = []
    first, texts = 0, (None,)
    for rows in record.blocks(COLUMNS):
        _add(events, place, first, rows)
        for name, parts in (("node", nodes), ("node_end", ended)):
            matching = np.flatnonzero(is_kind(rows["kind"], name))
            parts.append(record.nodes_of(rows["actor"][matching], rows["node"][matching]))
        ended_ns.append(rows["end_ns"][matching])
        first, texts = first + len(rows["kind"]), rows["link"].texts
    del place
    events.cut()
    return _in_rows(events, texts, *(np.concatenate(parts) for parts in (nodes, ended, ended_ns)))


def _add(events: _Events, place: Any, first: int, rows: dict[str, Any]) -> None:
    """Add a block of the record that begins at row `first`."""
    kind, spent = rows["kind"], rows["end_ns"] - rows["start_ns"]
    kept, before = np.empty(len(kind), np.int32), events.count
    parents = rows["critical_parent"], rows["other_parent"]
    there = events.critical, events.other, kept, before
    events.count = connect(*parents, spent, _MAY_VANISH[kind], place, first, *there)
    kept, here = kept[: events.count - before], slice(before, events.count)
    events.spent_ns[here] = spent[kept]
    events.kind_and_link[here] = rows["link"].codes[kept] * len(KINDS) + kind[kept]


def _in_rows(
    every: _Events, texts: tuple[str | None, ...], nodes: Any, ended: Any, ended_ns: Any
) -> Condensed:
    """Join chains of events."""
    count, size = every.count, every.critical.dtype
    kind = np.empty(count, np.int8)
    np.remainder(every.kind_and_link, len(KINDS), out=kind, casting="unsafe")
    has_part = _SETS_DURATION[kind]
    has_part |= every.spent_ns > 0
    needed = np.zeros(count, np.int8)
    count_needed(every.critical, every.other, needed)
    columns_of_parts: list[Any] = [np.empty(count, size) for _ in range(4)]
    place, head, part_count, following = columns_of_parts
    kind_and_link, spent = np.empty(count, np.int32), np.empty(count, np.int64)
    place[0], head[0] = 0, 0
    parts = kind_and_link, spent, part_count, following
    columns = every.critical, every.other, every.spent_ns, every.kind_and_link
    events = put_in_rows(*columns, _MAY_JOIN[kind], has_part, needed, place, head, *parts)
    ends = place[np.flatnonzero(is_kind(kind, "node_end"))]
    del place
    first_part, order = np.empty(events + 1, np.int64), np.empty(int(following[0]) - 1, np.int64)
    in_order(head[:events], following, first_part, order)
    number, durations = _durations(kind_and_link[order], spent[order], texts, nodes)
    return Condensed(
        critical=every.critical[:events].copy(),
        other=every.other[:events].copy(),
        spent_ns=every.spent_ns[:events].copy(),
        first_part=first_part,
        part=number,
        counts=part_count[order].astype(np.float64),
        durations=durations,
        ends=ends.astype(np.int64),
        ended=ended,
        ended_ns=ended_ns,
    )


def _durations(
    kind_and_link: Any, spent: Any, texts: tuple[str | None, ...], nodes: Any
) -> tuple[Any, DistinctDurations]:
    """Return the index of the duration of each part, and the durations; each node has its own."""
    is_node = kind_and_link % len(KINDS) == _NODE
    of_node, others = np.flatnonzero(is_node), np.flatnonzero(~is_node)
    different, code = np.unique(spent[others], return_inverse=True)
    keys = kind_and_link[others].astype(np.int64) * max(len(different), 1) + code.reshape(-1)
    _, at, alike = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(kind_and_link), np.int64)
    number[of_node], number[others] = np.arange(len(of_node)), len(of_node) + alike.reshape(-1)
    shown = np.concatenate((of_node, others[at]))
    kind, link = kind_and_link[shown] % len(KINDS), kind_and_link[shown] // len(KINDS)
    return number, DistinctDurations(kind.astype(np.int8), Words(texts, link), spent[shown], nodes)
