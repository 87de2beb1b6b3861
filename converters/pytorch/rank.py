"""One converted rank: the graph, and for each of its rows where in the recordings more about it stands.

Columns of a graph that are looked up when they are wanted, not kept. What a node is called or how it is
described stands in the columns of its call or of its work; copying that to every node of a large graph would
take more memory than the graph.

A gap is of the thread or stream that has nothing to do in it, which is that of what follows. Threads are
numbered in the order in which they begin, so that numbers mean the same in recordings of other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, HostTrace
from converters.pytorch.communication import Communication
from converters.pytorch.graph import Column, Graph, Link, Role, Rows, Tally
from converters.pytorch.linking import Links


class Lookup:
    """A column by row: `lookup[rows]` are its entries, NONE where there is nothing.

    Each part is a column by row that names an entry of the values beside it, or NONE; `like` is any column
    by row.
    """

    def __init__(self, like: Any, *parts: tuple[Any, Any]) -> None:
        self._like = like
        self._parts = [(index, values) for index, values in parts if len(values)]
        self._further: Any = None

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, rows: Any) -> Any:
        """Return entries of some rows, given as a slice, as numbers or as one number."""
        entries = np.full(np.shape(self._like[rows]), NONE, np.int64)
        for index, values in self._parts:
            which = index[rows]
            entries = np.where(which != NONE, values[which], entries)
        if self._further is not None:
            entries = np.where(entries != NONE, self._further[entries], NONE)
        return entries

    def then(self, values: Any) -> Lookup:
        """What stands in further values where this column says."""
        if not len(values):
            return Lookup(self._like)
        further = Lookup(self._like, *self._parts)
        further._further = values
        return further


def taken(values: Any, index: Any) -> Column:
    """Return entries of a column, NONE where the index is."""
    entries: Column = Lookup(index, (index, values))[:]
    return entries


@dataclass(frozen=True, slots=True, eq=False)
class ConvertedRank:
    """Columns by row of the graph; -1 where a row has nothing of the kind."""

    graph: Graph
    host: HostTrace | None
    device: DeviceTrace | None
    links: Links | None
    is_timed: bool
    rank: int  # -1 if it is not known
    groups: Mapping[str, tuple[int, ...]]
    communications: tuple[Communication, ...]
    communication: Column  # index into `communications`
    event: Lookup  # row of the device trace
    operator_event: Lookup  # row of the device trace that holds the arguments: of work, its operator's
    described_by: Lookup  # row of the execution trace that holds the arguments
    numbers: Mapping[str, Lookup]  # attributes
    tally: Tally  # what was left out, concluded or unexpected, and how often
    measured_ns: int
    begin_ns: int  # when it begins, by the clock of the recording; 0 without times
    described_as: Mapping[str, str]  # what the file says about itself
    device_orphans: Column  # rows of the device trace: operators that the execution trace does not know
    left_out_events: Mapping[str, int]  # events that are no nodes, by reason
    words: Mapping[str, Lookup] = field(default_factory=dict)  # attributes that are text: index into `texts`
    texts: tuple[str, ...] = ()


EMPTY = (Role.GAP, Role.LAUNCH_GAP, Role.STREAM_GAP)
_LONGEST = 5  # that are listed one by one


def row_lanes(graph: Graph, device: DeviceTrace, event: Lookup) -> Column:
    """Return the thread or stream of every row, as an index into the lanes; NONE where it is not known."""
    row_event = event[:]
    lane = np.where(row_event != NONE, device.lane[row_event], NONE)
    pairs = np.flatnonzero(np.isin(graph.role[graph.before], (Role.LAUNCH_GAP, Role.STREAM_GAP)))
    lane[graph.before[pairs][::-1]] = lane[graph.after[pairs]][::-1]  # of several, the first
    order = np.flatnonzero(graph.kind == Link.THREAD_ORDER)
    before, after = graph.before[order], graph.after[order]
    while len(before):  # what follows, or comes before, on a thread is of the same
        forwards = (lane[before] == NONE) & (lane[after] != NONE)
        backwards = (lane[after] == NONE) & (lane[before] != NONE)
        lane[before[forwards]] = lane[after[forwards]]
        lane[after[backwards]] = lane[before[backwards]]
        if not (forwards.any() or backwards.any()):
            break
        open_ends = (lane[before] == NONE) | (lane[after] == NONE)
        before, after = before[open_ends], after[open_ends]
    return lane


def gap_names(graph: Graph, device: DeviceTrace, event: Lookup) -> tuple[Column, tuple[str, ...]]:
    """What the gaps of a graph are called: by row, an index into names; NONE for what is no gap."""
    row_event = event[:]
    lane = np.where(row_event != NONE, device.lane[row_event], NONE)
    lane_names = _lane_names(device, lane)
    is_gap = np.isin(graph.role, [int(role) for role in EMPTY])
    pairs = np.flatnonzero(is_gap[graph.before])
    pairs = pairs[lane[graph.after[pairs]] != NONE]
    of_gap = np.where(is_gap, len(lane_names) - 1, lane)
    _continue_threads(graph, of_gap, len(lane_names) - 1)
    of_gap[graph.before[pairs][::-1]] = lane[graph.after[pairs]][::-1]  # of several, the first
    names = tuple(f"{_words(role)}{of}" for role in EMPTY for of in lane_names)
    place = np.zeros(len(Role), np.int64)
    place[[int(role) for role in EMPTY]] = np.arange(len(EMPTY)) * len(lane_names)
    return np.where(is_gap, place[graph.role] + of_gap, NONE), names


def _continue_threads(graph: Graph, lane: Column, unknown: int) -> None:
    """Give gaps at the end of a thread the lane of what comes before them: a call, or what is left of one."""
    order = np.flatnonzero(graph.kind == Link.THREAD_ORDER)
    before, after = graph.before[order], graph.after[order]
    for _ in range(2):
        is_continued = np.isin(lane[after], (NONE, unknown)) & ~np.isin(lane[before], (NONE, unknown))
        lane[after[is_continued]] = lane[before[is_continued]]


def explained(graph: Graph, device: DeviceTrace | None, event: Lookup, path: Rows) -> dict[str, Any]:
    """How much of the longest path (its rows, the last first) is gaps, whose, and the longest of them."""
    duration = (graph.end_ns - graph.start_ns)[path]
    total = int(duration.sum())
    if device is None:
        return {"path_ns": total, "gaps_ns": 0, "gaps": [], "longest": []}
    name, names = gap_names(graph, device, event)
    places = np.flatnonzero((name[path] != NONE) & (duration > 0))
    length: Counter[str] = Counter()
    for place in places.tolist():
        length[names[name[path[place]]]] += int(duration[place])
    longest = places[np.argsort(-duration[places], kind="stable")][:_LONGEST]
    return {
        "path_ns": total,
        "gaps_ns": int(duration[places].sum()),
        "gaps": [
            {"name": reason, "ns": ns}
            for reason, ns in sorted(length.items(), key=lambda it: (-it[1], it[0]))
        ],
        "longest": [
            {
                "name": names[name[path[place]]],
                "ns": int(duration[place]),
                "start_ns": int(graph.start_ns[path[place]]),
                "before": _called(device, event, int(path[place - 1])) if place else "",
            }
            for place in longest.tolist()
        ],
    }


def _called(device: DeviceTrace, event: Lookup, row: int) -> str:
    called_event = int(event[row])
    return device.names[device.name[called_event]] if called_event != NONE else ""


def _words(role: Role) -> str:
    return role.name.lower().replace("_", " ")


def _lane_names(device: DeviceTrace, lane_of_row: Column) -> list[str]:
    """` of thread 2` or ` of stream 7` for each lane; the last is for gaps that nothing follows."""
    lanes, first = np.unique(lane_of_row[lane_of_row != NONE], return_index=True)
    devices = {lane.device for lane in device.lanes if lane.stream != ABSENT}
    threads: Mapping[int, int] = {
        lane: number
        for number, lane in enumerate(
            (lane for lane in lanes[np.argsort(first)].tolist() if device.lanes[lane].stream == ABSENT), 1
        )
    }
    names = []
    for number, lane in enumerate(device.lanes):
        if lane.stream == ABSENT:
            names.append(f" of thread {threads[number]}" if number in threads else "")
        else:
            where = f" of device {lane.device}" if len(devices) > 1 else ""
            names.append(f" of stream {lane.stream}{where}")
    return [*names, ""]
