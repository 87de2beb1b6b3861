"""Visible nodes as numpy columns, their ranks and their tracks.

A rank has the times of its actor. Visible are the requested ranks, or the first rank of every actor, as far
as they fit; a sentence names the rest.

There is a track per rank and lane, in rows of nodes that do not overlap. Most lanes do one thing at a time
and need one row; nodes that overlap (concurrent nodes, receives that wait) take the first free row. Nodes
that take no time are always in the first row.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import LONGEST_NS, format_ranks, parse_ranks, plural
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window, recorded_actors, recorded_part
from et_sim.views.summary.rank_table import slowest_first

ALWAYS: Window = (0, LONGEST_NS)
MOST_REQUESTED = 10_000
NONE = -1
BEFORE = ("queued_ns", "waiting_ns")  # parts of a node's time before its bytes move
NUMBERS = ("actor", "node", "ready_ns", "start_ns", "end_ns", "bytes", "sequence", "peer", "tag", *BEFORE)
CAUSES = ("end_cause_actor", "end_cause_node", "start_cause_node")
TEXTS = ("name", "kind", "lane", "group")


class Shown(Struct, frozen=True):
    """The ranks of a picture, ascending, with the actor of each."""

    ranks: tuple[int, ...]
    actors: tuple[int, ...]
    left_out: tuple[str, ...]  # sentences

    def place_of_actor(self) -> dict[int, int]:
        """Return, for each actor with one visible rank, the index of that rank."""
        count = Counter(self.actors)
        return {actor: place for place, actor in enumerate(self.actors) if count[actor] == 1}


class Nodes(Struct, frozen=True, eq=False):
    """Nodes as columns; -1 stands for none. Texts are codes, the last of which is "none"."""

    actor: Any
    node: Any
    ready_ns: Any
    start_ns: Any
    end_ns: Any  # nodes that never completed end with the run
    bytes: Any
    sequence: Any
    peer: Any
    tag: Any
    queued_ns: Any
    waiting_ns: Any
    end_cause_actor: Any
    end_cause_node: Any
    start_cause_node: Any
    completed: Any
    name: Any
    kind: Any
    lane: Any
    group: Any
    names: tuple[str | None, ...]
    kinds: tuple[str | None, ...]
    lanes: tuple[str | None, ...]
    groups: tuple[str | None, ...]

    def take(self, rows: Any) -> Nodes:
        """Return some of the nodes, in the given order."""
        every = {name: getattr(self, name) for name in self.__struct_fields__}
        return Nodes(**{name: v if isinstance(v, tuple) else v[rows] for name, v in every.items()})

    @property
    def waited_ns(self) -> Any:
        """Return how long each node was ready before it was issued."""
        return np.maximum(self.start_ns - self.ready_ns, 0)

    @property
    def still_ns(self) -> Any:
        """Return how long each node waited for other ranks, or in a queue of its own, after it was issued."""
        moves = np.array([kind not in NOT_COMMUNICATION for kind in self.kinds])[self.kind]
        before = np.maximum(self.queued_ns, 0) + np.maximum(self.waiting_ns, 0)
        return np.where(moves, np.minimum(before, self.end_ns - self.start_ns), 0)

    def __len__(self) -> int:
        return len(self.actor)


def shown_ranks(run: RunDirectory, requested: str | None, most: int) -> Shown:
    """Return requested ranks, or one per actor; of more than `most` actors, the slowest."""
    actors = run.actors().select(["actor", "ranks", "finish_ns"]).to_pylist()
    kept = recorded_part(run)
    held = [f"holds only nodes of {kept}"] if kept else []
    if requested is not None:
        return _requested(run, requested, actors, held)
    there = [actor for actor, is_kept in zip(actors, recorded_actors(run).tolist(), strict=True) if is_kept]
    chosen = slowest_first(there)[:most] if len(there) > most else there
    firsts = sorted((parse_ranks(actor["ranks"])[0].start, actor["actor"]) for actor in chosen)
    if len(there) > most:
        held.append(f"shows the {most} slowest of {len(there):,} actors; --ranks chooses others")
    elif len(actors) < run.summary["ranks"]:
        counts = f"{plural(len(actors), 'actor')}, {plural(run.summary['ranks'], 'rank')}"
        held.append(f"shows one rank of each actor ({counts}); --ranks chooses others")
    return Shown(tuple(rank for rank, _ in firsts), tuple(actor for _, actor in firsts), tuple(held))


def _requested(run: RunDirectory, requested: str, actors: list[dict[str, Any]], held: list[str]) -> Shown:
    spans = parse_ranks(requested)
    highest = max(span[-1] for span in spans)
    if highest >= run.summary["ranks"]:
        raise UsageError(
            f"there is no rank {highest}",
            place=str(run.path),
            remedy=f"ranks are 0-{run.summary['ranks'] - 1}",
        )
    count = sum(len(span) for span in spans)
    if count > MOST_REQUESTED:
        raise UsageError(f"{count:,} ranks are too many to show", remedy=f"name at most {MOST_REQUESTED:,}")
    wanted = sorted({rank for span in spans for rank in span})
    owner: dict[int, int] = {}
    for actor in actors:
        for span in parse_ranks(actor["ranks"]):
            low, high = np.searchsorted(wanted, (span.start, span[-1] + 1)).tolist()
            owner.update((rank, actor["actor"]) for rank in wanted[low:high] if rank in span)
    if missing := [rank for rank in wanted if rank not in owner]:
        raise UsageError(f"ranks {format_ranks(missing)} belong to no actor", place=str(run.path))
    return Shown(tuple(wanted), tuple(owner[rank] for rank in wanted), tuple(held))


GAPS = "gaps"  # a row of the page, and not a lane of runs
LANE_ORDER = ("cpu", GAPS, "compute", "communication", "collective", "send", "receive", "memory")

ABOVE: Mapping[str, str] = MappingProxyType({"thread": "cpu", "stream": "compute"})


class Tracks(Struct, frozen=True, eq=False):
    """Rows of the picture, from top to bottom, and the row of each node."""

    place: tuple[int, ...]  # index of the rank
    lane: tuple[str, ...]
    row: tuple[int, ...]  # 0 for the first row of its lane
    of_slice: Any


def tracks_of(place: Any, lane: Any, lanes: tuple[str | None, ...], start: Any, end: Any) -> Tracks:
    """Lay out slices, given rank by rank with lane, start and end."""
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
    """Return a key that sorts threads below the CPU and streams below the kernels, by their numbers."""
    if lane in LANE_ORDER:
        return LANE_ORDER.index(lane), 0
    word, _, number = (lane or "").partition(" ")
    if word in ABOVE and number.removeprefix("-").isdecimal():
        return LANE_ORDER.index(ABOVE[word]) + 0.5, int(number)
    return len(LANE_ORDER), 0


def _rows(lane: Any, start: Any, end: Any) -> Any:
    """Return the row of each slice in its lane: the lowest that is free when it starts."""
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
    busy: list[tuple[int, int]] = []  # (end, row)
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
