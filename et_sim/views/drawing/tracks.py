"""Where nodes are drawn: a track per rank and lane, in rows of nodes that do not overlap.

Most lanes do one thing at a time and are one row; what runs side by side (concurrent nodes, receives that
wait) takes the first row that is free. Nodes that take no time are in the first row always.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

GAPS = "gaps"  # a row of the page; no lane of runs
LANE_ORDER = ("cpu", GAPS, "compute", "communication", "collective", "send", "receive", "memory")

ABOVE: Mapping[str, str] = MappingProxyType({"thread": "cpu", "stream": "compute"})


class Tracks(Struct, frozen=True, eq=False):
    """Rows of the picture, from top to bottom, and the row of each node."""

    place: tuple[int, ...]  # of the rank
    lane: tuple[str, ...]
    row: tuple[int, ...]  # 0 for the first of its lane
    of_slice: Any


def tracks_of(place: Any, lane: Any, lanes: tuple[str | None, ...], start: Any, end: Any) -> Tracks:
    """Lay out slices given by rank, lane, start and end, which come rank by rank."""
    order = sorted(range(len(lanes)), key=lambda code: (*_position(lanes[code]), code))
    order_of, names = np.argsort(order), [lanes[code] or "" for code in order]
    of_slice = np.empty(len(place), np.int32)
    tracks: list[tuple[int, str, int]] = []
    for first, until in pairwise([*np.flatnonzero(np.diff(place, prepend=-1)).tolist(), len(place)]):
        part = slice(first, until)
        position = order_of[lane[part]]
        row = _rows(position, start[part], end[part])
        width = int(row.max()) + 1
        keys, at = np.unique(position * width + row, return_inverse=True)
        of_slice[part] = len(tracks) + at.reshape(-1)
        tracks += [(int(place[first]), names[key // width], key % width) for key in keys.tolist()]
    return Tracks(
        place=tuple(place for place, _, _ in tracks),
        lane=tuple(lane for _, lane, _ in tracks),
        row=tuple(row for _, _, row in tracks),
        of_slice=of_slice,
    )


def _position(lane: str | None) -> tuple[float, int]:
    """Threads stand below the CPU, streams below the kernels, by their numbers."""
    if lane in LANE_ORDER:
        return LANE_ORDER.index(lane), 0
    word, _, number = (lane or "").partition(" ")
    if word in ABOVE and number.removeprefix("-").isdecimal():
        return LANE_ORDER.index(ABOVE[word]) + 0.5, int(number)
    return len(LANE_ORDER), 0


def _rows(lane: Any, start: Any, end: Any) -> Any:
    """The row of each slice in its lane: the lowest that is free when it starts."""
    rows = np.zeros(len(lane), np.int32)
    order = np.lexsort((end, start, lane))
    order = order[(end > start)[order]]
    lanes, starts, ends = lane[order], start[order], end[order]
    firsts = np.flatnonzero(np.diff(lanes, prepend=-1))
    overlaps = np.zeros(len(order), np.bool_)
    overlaps[1:] = (lanes[1:] == lanes[:-1]) & (starts[1:] < ends[:-1])
    for first, until in pairwise([*firsts.tolist(), len(order)]):
        if overlaps[first:until].any():
            here = slice(first, until)
            rows[order[here]] = _packed(starts[here].tolist(), ends[here].tolist())
    return rows


def _packed(starts: list[int], ends: list[int]) -> list[int]:
    free: list[int] = []
    busy: list[tuple[int, int]] = []  # until when, and which row
    row_of_slice, rows = [], 0
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, rows = rows, rows + 1
        heapq.heappush(busy, (end, row))
        row_of_slice.append(row)
    return row_of_slice
