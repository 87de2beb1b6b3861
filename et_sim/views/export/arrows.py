"""Arrows of an exported timeline: along messages, and along the members of a collective.

Nodes are matched part by part: a part has all nodes of some collectives, or of all messages between some
actors. Viewers draw an arrow from the slice that begins first to the other, whatever the file states. A
receive that waits begins before its send; so an inner slice is added that begins with the send, and the arrow
ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_ranks, plural
from et_sim.views.critical.path import CriticalPath, PathHop
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.text import ranks_of
from et_sim.views.drawing.blocks import Chosen, VisibleBlocks, belonging, distinct
from et_sim.views.drawing.flows import exchanges, members, messages
from et_sim.views.drawing.nodes import NONE, Shown
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window, recorded_part

FROM_ANOTHER = "from another rank"
AT_A_TIME = 1 << 18  # nodes of a part, unless it cannot be divided
NOTHING = np.zeros(0, np.int64)


class CollectiveSlices(Struct, frozen=True, eq=False):
    """Slices of collectives, each collective's in the order in which they begin."""

    slices: Any  # concatenated chains
    first: Any  # first index of each chain in `slices`, and the end of the last

    def __len__(self) -> int:
        return len(self.first) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self.slices[first:until] for first, until in pairwise(self.first.tolist()))


class MessageArrows(Struct, frozen=True, eq=False):
    """Arrows from slices to others, or to slices added within those."""

    send: Any
    receive: Any
    arrival: Any  # index of the added slice; NONE: the receive itself

    def __len__(self) -> int:
        return len(self.send)


class Arrivals(Struct, frozen=True, eq=False):
    """Slices added within receives, each from the begin of some sends."""

    parent: Any  # the receive, ascending
    start_ns: Any
    end_ns: Any
    senders: Any  # ranks, concatenated
    first: Any  # first index of each slice in `senders`, and the end of the last

    def __len__(self) -> int:
        return len(self.parent)

    def name(self, at: int) -> str:
        """Return the ranks of the senders, or their number."""
        ranks = self.senders[self.first[at] : self.first[at + 1]].tolist()
        if len(ranks) > 8:
            return f"from {plural(len(ranks), 'rank')}"
        return f"from rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def pairs_and_chains(
    run: RunDirectory,
    blocks: VisibleBlocks,
    shown: Shown,
    chosen: Chosen,
    start_ns: Any,
    end_ns: Any,
    window: Window,
) -> tuple[Any, CollectiveSlices]:
    """Return the two slices of every message in order of time, and the collectives."""
    slice_of = _SliceOfRow(shown, chosen)
    of_collectives, of_messages = belonging(blocks, distinct(chosen.row))
    is_recorded = run.holds("messages")
    pairs, chains, label = [NOTHING.reshape(0, 2)], [NOTHING], [NOTHING]
    for rows in _parts(*of_messages):
        both_ends = messages(blocks.nodes(rows))
        pairs.append(np.stack([slice_of(rows[ends]) for ends in both_ends], axis=1))
    for number, rows in enumerate(_parts(*of_collectives)):
        nodes = blocks.nodes(rows)
        if is_recorded:
            pairs.append(np.stack([slice_of(rows[ends]) for ends in exchanges(run, nodes, window)], axis=1))
            continue
        at, of_part = members(nodes)
        slices = slice_of(rows[at])
        chains.append(slices[slices != NONE])
        label.append((of_part + (number << 32))[slices != NONE])
    joined = np.concatenate(pairs)
    joined = joined[(joined != NONE).all(axis=1)]
    joined = joined[np.lexsort((joined[:, 1], joined[:, 0], start_ns[joined[:, 0]]))]
    return joined, _chains(np.concatenate(chains), np.concatenate(label), start_ns, end_ns)


def _parts(rows: Any, keys: Any) -> Iterator[Any]:
    """Yield the rows, ascending in each part; rows with one key are in one part."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=NONE))
    cuts = begins[np.diff(begins // AT_A_TIME, prepend=-1) != 0]
    for first, until in pairwise([*cuts.tolist(), len(order)]):
        yield np.sort(rows[order[first:until]])


def _chains(slices: Any, label: Any, start_ns: Any, end_ns: Any) -> CollectiveSlices:
    """Return slices by label and begin; at equal times, slices without duration come first."""
    takes_time = end_ns[slices] > start_ns[slices]
    order = np.lexsort((slices, takes_time, start_ns[slices], label))
    slices, label = slices[order], label[order]
    first = np.flatnonzero(np.diff(label, prepend=NONE))
    count = np.diff(first, append=len(slices))
    number = np.empty(len(first), np.int64)
    number[np.lexsort((slices[first], start_ns[slices[first]]))] = np.arange(len(first))
    order = np.argsort(np.repeat(number, count), kind="stable")
    order = order[np.repeat(count, count)[order] > 1]  # single slices are left out
    together = count[np.argsort(number)]
    return CollectiveSlices(slices[order], np.append(0, np.cumsum(together[together > 1])))


class _SliceOfRow:
    """The slice of each node whose actor exactly one rank shows."""

    def __init__(self, shown: Shown, chosen: Chosen) -> None:
        once = np.zeros(len(shown.ranks), np.bool_)
        once[list(shown.place_of_actor().values())] = True
        self._slices = np.flatnonzero(once[chosen.place]).astype(chosen.row.dtype)
        rows = chosen.row[self._slices]
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows)
            self._slices, rows = self._slices[order], rows[order]
        self._rows = rows

    def __call__(self, rows: Any) -> Any:
        if not len(self._rows):
            return np.full(len(rows), NONE)
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        return np.where(self._rows[at] == rows, self._slices[at], NONE)


def arrivals_of(pairs: Any, start_ns: Any, end_ns: Any, ranks: Any) -> tuple[Arrivals, MessageArrows]:
    """Return the slices added within the later slice of each pair, and the arrows of messages that take
    time."""
    send, receive = (pairs[:, at] for at in range(2))
    takes_time = start_ns[send] < end_ns[receive]
    send, receive = send[takes_time], receive[takes_time]
    is_late = start_ns[send] > start_ns[receive]
    inside, begins, sender = receive[is_late], start_ns[send[is_late]], ranks[send[is_late]]
    order = np.lexsort((sender, begins, inside))
    inside, begins, sender = inside[order], begins[order], sender[order]
    is_other = np.append(True, (np.diff(inside) != 0) | (np.diff(begins) != 0))[: len(order)]
    is_first = is_other | np.append(True, np.diff(sender) != 0)[: len(order)]
    arrival, late = np.full(len(send), NONE), np.empty(len(order), np.int64)
    late[order] = np.cumsum(is_other) - 1
    arrival[is_late] = late
    bounds = np.append(np.flatnonzero(is_other[is_first]), int(is_first.sum()))
    inside, begins = inside[is_other], begins[is_other]
    ends = end_ns[inside]
    has_next = inside[1:] == inside[:-1]
    ends[:-1][has_next] = begins[1:][has_next]
    return Arrivals(inside, begins, ends, sender[is_first], bounds), MessageArrows(send, receive, arrival)


ON_PATH = "critical path"


class PathSlice(Struct, frozen=True):
    """One slice of the critical path's track; times are whole nanoseconds, and it takes time."""

    start_ns: int
    end_ns: int
    name: str
    notes: Mapping[str, int | str]


def critical_path(run: RunDirectory, window: Window, limit: int) -> tuple[list[PathSlice], str]:
    """Return the critical path's steps, and a sentence on steps left out; nothing without a recorded path."""
    if not run.holds("path") or recorded_part(run):
        return [], ""
    names = run.actors()["ranks"].to_pylist()
    hops = [
        hop
        for hop in CriticalPath(PathRecord(run)).hops()
        if hop.start_ns < window[1] and hop.end_ns > window[0]
    ]
    shown = sorted(
        sorted(hops, key=lambda hop: (hop.start_ns - hop.end_ns, hop.start_ns))[:limit],
        key=lambda hop: hop.start_ns,
    )
    steps = plural(len(hops), "step")
    left_out = f"shows the longest {limit:,} of {steps} of the critical path" if len(hops) > limit else ""
    return [_step(hop, names) for hop in shown], left_out


def _step(hop: PathHop, names: list[str]) -> PathSlice:
    notes: dict[str, int | str] = {"kind": hop.kind, "ranks": ranks_of(hop, names), "after": hop.after}
    notes |= {f"{cause}_ns": ns for cause, ns in hop.causes.items()}
    return PathSlice(
        hop.start_ns, hop.end_ns, hop.name, {name: value for name, value in notes.items() if value}
    )
