"""One converted rank: the graph, and references from its rows to the recordings.

Names and descriptions of nodes are in the columns of their call or work and are looked up on demand: copies
for every node of a large graph would take more memory than the graph.

A gap belongs to the thread or stream that is idle, which is that of its successor. Threads are numbered in
the order in which they begin, so that numbers have the same meaning in recordings of other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, HostTrace
from converters.pytorch.communication import Communication
from converters.pytorch.graph import Column, EventTally, Link, RecordedGraph, Rows, RunPart
from converters.pytorch.linking import HostCallPairs


class Lookup:
    """A column by row: `lookup[rows]` are its entries, NONE if there is none.

    Each part is a column by row that holds indices into the values beside it, or NONE; `like` is any column
    by row.
    """

    def __init__(self, like: Any, *parts: tuple[Any, Any]) -> None:
        self._like = like
        self._parts = [(index, values) for index, values in parts if len(values)]
        self._further: Any = None

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, rows: Any) -> Any:
        """Return the entries of some rows, given as a slice, as numbers or as one number."""
        entries = np.full(np.shape(self._like[rows]), NONE, np.int64)
        for index, values in self._parts:
            which = index[rows]
            entries = np.where(which != NONE, values[which], entries)
        if self._further is not None:
            entries = np.where(entries != NONE, self._further[entries], NONE)
        return entries

    def then(self, values: Any) -> Lookup:
        """Return the lookup of `values` at the entries of this one."""
        if not len(values):
            return Lookup(self._like)
        further = Lookup(self._like, *self._parts)
        further._further = values
        return further


def taken(values: Any, index: Any) -> Column:
    """Return the entries of a column at some indices, NONE for NONE."""
    entries: Column = Lookup(index, (index, values))[:]
    return entries


class RecordedMemory(Struct, frozen=True, eq=False):
    """The memory of devices that the allocator recorded, as tensors of rows."""

    reads: Mapping[int, tuple[str, ...]]  # by row: tensors released in it, and their bytes
    writes: Mapping[int, tuple[str, ...]]  # by row: tensors allocated in it, and their bytes
    begin_bytes: int  # in use when the recording began
    peak_bytes: int
    peak_ns: int
    reserved_bytes: int  # the most that the allocator held


class ConvertedRank(Struct, frozen=True, eq=False):
    """Columns by row of the graph; -1 if a row has no entry."""

    graph: RecordedGraph
    host: HostTrace | None
    device: DeviceTrace | None
    links: HostCallPairs | None
    is_timed: bool
    rank: int  # -1 if unknown
    groups: Mapping[str, tuple[int, ...]]
    communications: tuple[Communication, ...]
    communication: Column  # index into `communications`
    event: Lookup  # row of the device trace
    operator_event: Lookup  # row of the device trace that holds the arguments; for work, that of its operator
    described_by: Lookup  # row of the execution trace that holds the arguments
    numbers: Mapping[str, Lookup]  # attributes
    tally: EventTally  # counts of parts left out, inferred or unexpected
    measured_ns: int
    begin_ns: int  # start by the clock of the recording; 0 without times
    described_as: Mapping[str, str]  # metadata of the file
    device_orphans: Column  # rows of the device trace: operators without a node in the execution trace
    left_out_events: Mapping[str, int]  # events that are no nodes, by reason
    words: Mapping[str, Lookup] = field(default_factory=dict)  # text attributes: index into `texts`
    texts: tuple[str, ...] = ()
    memory: RecordedMemory | None = None  # None: not recorded


EMPTY = (RunPart.GAP, RunPart.LAUNCH_GAP, RunPart.STREAM_GAP)
_LONGEST = 5  # number of entries that are listed one by one


def row_lanes(graph: RecordedGraph, device: DeviceTrace, event: Lookup) -> Column:
    """Return the thread or stream of every row as an index into the lanes; NONE if unknown."""
    row_event = event[:]
    lane = np.where(row_event != NONE, device.lane[row_event], NONE)
    pairs = np.flatnonzero(np.isin(graph.role[graph.before], (RunPart.LAUNCH_GAP, RunPart.STREAM_GAP)))
    lane[graph.before[pairs][::-1]] = lane[graph.after[pairs]][::-1]  # of several, the first
    order = np.flatnonzero(graph.kind == Link.THREAD_ORDER)
    before, after = graph.before[order], graph.after[order]
    while len(before):  # neighbours on a thread have the same lane
        forwards = (lane[before] == NONE) & (lane[after] != NONE)
        backwards = (lane[after] == NONE) & (lane[before] != NONE)
        lane[before[forwards]] = lane[after[forwards]]
        lane[after[backwards]] = lane[before[backwards]]
        if not (forwards.any() or backwards.any()):
            break
        open_ends = (lane[before] == NONE) | (lane[after] == NONE)
        before, after = before[open_ends], after[open_ends]
    return lane


def gap_names(graph: RecordedGraph, device: DeviceTrace, event: Lookup) -> tuple[Column, tuple[str, ...]]:
    """Return the names of the gaps of a graph: by row an index into names, NONE for other rows."""
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
    place = np.zeros(len(RunPart), np.int64)
    place[[int(role) for role in EMPTY]] = np.arange(len(EMPTY)) * len(lane_names)
    return np.where(is_gap, place[graph.role] + of_gap, NONE), names


def _continue_threads(graph: RecordedGraph, lane: Column, unknown: int) -> None:
    """Give gaps at the end of a thread the lane of their predecessor: a call, or the rest of one."""
    order = np.flatnonzero(graph.kind == Link.THREAD_ORDER)
    before, after = graph.before[order], graph.after[order]
    for _ in range(2):
        is_continued = np.isin(lane[after], (NONE, unknown)) & ~np.isin(lane[before], (NONE, unknown))
        lane[after[is_continued]] = lane[before[is_continued]]


def explained(graph: RecordedGraph, device: DeviceTrace | None, event: Lookup, path: Rows) -> dict[str, Any]:
    """Return the gaps on the longest path (its rows, the last first) by name, and the longest of them."""
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
                "before": _name_of_row(device, event, int(path[place - 1])) if place else "",
            }
            for place in longest.tolist()
        ],
    }


def _name_of_row(device: DeviceTrace, event: Lookup, row: int) -> str:
    event_of_row = int(event[row])
    return device.names[device.name[event_of_row]] if event_of_row != NONE else ""


def _words(role: RunPart) -> str:
    return role.name.lower().replace("_", " ")


def _lane_names(device: DeviceTrace, lane_of_row: Column) -> list[str]:
    """Return ` of thread 2` or ` of stream 7` for each lane; the last entry is for gaps without a
    successor.
    """
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
