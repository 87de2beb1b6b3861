"""Contents of an exported timeline: slices in tracks, arrows between them, counters, and notes on what is
left out.

Place, times and track of each slice are held, about 30 bytes; everything else is read from the timeline when
the slice is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import parse_ranks, plural
from et_sim.views.drawing.blocks import Chosen, VisibleBlocks, distinct
from et_sim.views.drawing.nodes import NONE, Nodes, Shown, Tracks, shown_ranks, tracks_of
from et_sim.views.export.arrows import (
    Arrivals,
    CollectiveSlices,
    MessageArrows,
    PathSlice,
    arrivals_of,
    critical_path,
    pairs_and_chains,
)
from et_sim.views.run.columns import Words, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import RunGroups
from et_sim.views.run.selection import Window
from et_sim.views.run.slices import link_table, port_table

MOST_QUEUES = 32


class Counter(Struct, frozen=True, eq=False):
    """A figure of one rank, or of the network, that keeps each value until the next."""

    place: int  # index into Shown.ranks; NONE: the network
    name: str
    unit: str  # "count" or "bytes"
    time_ns: Any
    value: Any


def collectives_under_way(run: RunDirectory, shown: Shown, window: Window) -> list[Counter]:
    """Return counters of the collectives that each rank is in."""
    columns, blocks = ("actor", "sequence", "start_ns", "end_ns"), []
    for rows in run.batches("timeline", columns):
        actor, sequence, start, end = (integers(rows[name], missing=NONE) for name in columns)
        end = np.where(end == NONE, run.summary["makespan_ns"], end)
        spans = (column[(sequence != NONE) & (end > start)] for column in (actor, start, end))
        blocks.append(_kept(shown, window, *spans))
    return _of_ranks(_under_way(blocks), shown, "collectives under way", "count", window)


def _kept(shown: Shown, window: Window, actor: Any, start: Any, end: Any) -> tuple[Any, Any, Any]:
    """Return the spans of shown actors that touch the window, and at least one of every such actor."""
    touches = (start <= window[1]) & (end > window[0])
    kept = np.isin(actor, shown.actors) & (touches | (np.diff(actor, prepend=NONE) != 0))
    return actor[kept], start[kept], end[kept]


def chunks_in_dimensions(run: RunDirectory, shown: Shown, window: Window) -> list[Counter]:
    """Return counters of chunks of each rank's collectives by dimension; none without phases.arrow."""
    if not run.holds("phases"):
        return []
    columns = ("actor", "dimension", "start_ns", "end_ns")
    blocks: dict[int, list[tuple[Any, Any, Any]]] = {}
    for rows in run.batches("phases", columns):
        actor, dimension, start, end = (integers(rows[name], missing=NONE) for name in columns)
        is_span = (start >= 0) & (end > start)
        for number in unique(dimension[is_span]).tolist():
            spans = (column[is_span & (dimension == number)] for column in (actor, start, end))
            blocks.setdefault(number, []).append(_kept(shown, window, *spans))
    counters: list[Counter] = []
    for number in sorted(blocks, key=lambda number: (number == NONE, number)):
        name = "chunks in several dimensions at once" if number == NONE else f"chunks in dimension {number}"
        counters += _of_ranks(_under_way(blocks[number]), shown, name, "count", window)
    return sorted(counters, key=lambda counter: counter.place)


def _under_way(blocks: list[tuple[Any, Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return, by actor, the times at which the number of open spans changes, and the new numbers."""
    changes: list[tuple[int, Any, Any]] = []
    if not blocks:
        return changes
    for actor, start, end in _by_actor(*(np.concatenate(parts) for parts in zip(*blocks, strict=True))):
        time = np.concatenate((start, end))
        order = np.argsort(time, kind="stable")
        changes.append((actor, time[order], np.cumsum(np.repeat((1, -1), len(start))[order])))
    return changes


def links_in_use(run: RunDirectory, shown: Shown, window: Window) -> list[Counter]:
    """Return counters of each rank's busy links, in permille, slice by slice; none without links.arrow."""
    table = link_table(run)
    if table is None:
        return []
    counters: list[Counter] = []
    first = np.searchsorted(table.of_row, np.arange(len(table.actor) + 1))
    figures = table.figures
    length = np.maximum(figures["end_ns"] - figures["start_ns"], 1)
    permille = figures["busy_ns"] * 1000 // length
    for at in np.flatnonzero(np.isin(table.actor, shown.actors)).tolist():
        rows = slice(first[at], first[at + 1])
        start, end = figures["start_ns"][rows], figures["end_ns"][rows]
        spans = [(int(table.actor[at]), *_steps(start, end, permille[rows]))]
        name = f"dimension {int(table.dimension[at])}, {table.name[at]}: busy ‰"
        owners = parse_ranks(table.ranks[at])
        counters += [
            counter
            for counter in _of_ranks(spans, shown, name, "count", window)
            if any(shown.ranks[counter.place] in span for span in owners)
        ]
    return sorted(counters, key=lambda counter: counter.place)


def queues_at_ports(run: RunDirectory, window: Window) -> list[Counter]:
    """Return the longest queue in bytes, slice by slice, at the ports with the deepest queues."""
    table = port_table(run)
    if table is None:
        return []
    most, counters = table.most("deepest_bytes"), []
    bounds = np.searchsorted(table.of_row, np.arange(len(most) + 1))
    for at in np.lexsort((table.resource, -most))[:MOST_QUEUES].tolist():
        rows = slice(bounds[at], bounds[at + 1])
        start, end, deep = (table.figures[name][rows] for name in ("start_ns", "end_ns", "deepest_bytes"))
        counter = Counter(
            NONE, f"{table.name[at]}: waiting", "bytes", *_cut(*_steps(start, end, deep), window)
        )
        counters.append(counter)
    return counters


def _steps(start: Any, end: Any, value: Any) -> tuple[Any, Any]:
    """Return values of slices until the next one, or until activity ends."""
    is_last = np.append(start[1:] != end[:-1], True)
    time = np.concatenate((start, end[is_last]))
    values = np.concatenate((value, np.zeros(int(is_last.sum()), np.int64)))
    order = np.argsort(time, kind="stable")
    return time[order], values[order]


def memory_in_use(run: RunDirectory, shown: Shown, window: Window) -> list[Counter]:
    """Return counters of local memory in use, in bytes; none if the run did not track it."""
    if not run.holds("memory"):
        return []
    columns, blocks = ("actor", "time_ns", "alive_bytes"), []
    for rows in run.batches("memory", columns):
        kept = np.flatnonzero(np.isin(numbers(rows["actor"]), shown.actors))
        blocks.append([numbers(rows[name])[kept] for name in columns])
    spans = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return _of_ranks(_by_actor(*spans) if spans else [], shown, "local memory", "bytes", window)


def _by_actor(actor: Any, *columns: Any) -> list[tuple[int, Any, Any]]:
    order = np.argsort(actor, kind="stable")
    first = np.flatnonzero(np.diff(actor[order], prepend=-1))
    parts = [np.split(column[order], first[1:]) for column in columns]
    return list(zip(actor[order][first].tolist(), *parts, strict=False))


def _of_ranks(
    levels_of_actors: list[tuple[int, Any, Any]], shown: Shown, name: str, unit: str, window: Window
) -> list[Counter]:
    """Return the last value of each time, for every rank that shows the actor, within the window."""
    counters = []
    for actor, time, value in levels_of_actors:
        last = np.append(np.diff(time) != 0, True)
        time, value = _cut(time[last], value[last], window)
        changes = np.append(True, np.diff(value) != 0)[: len(value)]
        places = [place for place, of_place in enumerate(shown.actors) if of_place == actor]
        counters += [Counter(place, name, unit, time[changes], value[changes]) for place in places]
    return sorted(counters, key=lambda counter: counter.place)


def _cut(time: Any, value: Any, window: Window) -> tuple[Any, Any]:
    """Return values from the window's begin to the last change in it."""
    first, last = window
    begin, end = np.searchsorted(time, (first, last), side="right").tolist()
    before = int(value[begin - 1]) if begin else 0
    return np.append(first, time[begin:end]), np.append(before, value[begin:end])


MOST_RANKS = 64
MOST_SLICES = 200_000
AT_ONCE = 1 << 16  # slices or events written at a time


class Facts(Struct, frozen=True, eq=False):
    """Exported facts of some slices: their nodes, and the group by the rank's name for it."""

    nodes: Nodes
    group: Words

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Return codes of name, kind and group, node, bytes, waiting time and completion."""
        nodes = self.nodes
        columns = (nodes.name, nodes.kind, self.group.codes, nodes.node, nodes.bytes)
        every = (*columns, nodes.waited_ns, nodes.completed)
        return zip(*(column.tolist() for column in every), strict=True)


class Contents(Struct, frozen=True, eq=False):
    """Contents by slice; `start_ns` and `end_ns` have an entry for each."""

    shown: Shown
    slices: Chosen
    tracks: Tracks
    start_ns: Any
    end_ns: Any
    messages: MessageArrows  # also of collectives, if messages were recorded
    arrivals: Arrivals
    collectives: CollectiveSlices  # in the order in which they started
    path: list[PathSlice]
    counters: list[Counter]
    left_out: tuple[str, ...]
    blocks: VisibleBlocks
    groups: RunGroups

    def facts(self, entries: Any) -> Facts:
        """Return the facts of some slices, in their order."""
        rows, places = self.slices.row[entries], self.slices.place[entries]
        every = distinct(rows)
        nodes = self.blocks.nodes(every).take(np.searchsorted(every, rows))
        rank = np.array(self.shown.ranks, np.int64)[places]
        return Facts(nodes, self.groups.of_ranks(rank, nodes.actor, nodes.group, nodes.groups))


def contents_of(run: RunDirectory, ranks: str | None, window: Window, limit: int = MOST_SLICES) -> Contents:
    """Gather the contents from a run's files."""
    shown = shown_ranks(run, ranks, MOST_RANKS)
    blocks = VisibleBlocks(run, shown)
    slices = blocks.chosen(window, limit)
    start, end, tracks = _laid_out(blocks, slices)
    pairs, chains = pairs_and_chains(run, blocks, shown, slices, start, end, window)
    arrows = f"draws {limit:,} of {plural(len(pairs), 'message')}" if len(pairs) > limit else ""
    rank_of_slice = np.array(shown.ranks, np.int32)[slices.place]
    arrivals, messages = arrivals_of(_some(pairs, limit), start, end, rank_of_slice)
    path, path_left_out = critical_path(run, window, limit)
    parts = (
        collectives_under_way(run, shown, window),
        chunks_in_dimensions(run, shown, window),
        links_in_use(run, shown, window),
        memory_in_use(run, shown, window),
        queues_at_ports(run, window),
    )
    counters, no_room = _within([counter for part in parts for counter in part], limit)
    several = len(shown.actors) - len(shown.place_of_actor())
    unclear = f"draws no arrows at {plural(several, 'rank')} that behave alike" if several else ""
    return Contents(
        shown=shown,
        slices=slices,
        tracks=tracks,
        start_ns=start,
        end_ns=end,
        messages=messages,
        arrivals=arrivals,
        collectives=chains,
        path=path,
        counters=counters,
        left_out=tuple(
            filter(None, (*shown.left_out, slices.left_out, unclear, arrows, path_left_out, no_room))
        ),
        blocks=blocks,
        groups=RunGroups(run),
    )


def in_rows(*columns: Any) -> Iterator[tuple[int, ...]]:
    """Yield columns as rows, some at a time: as objects, all would take several times the memory."""
    for first in range(0, len(columns[0]), AT_ONCE):
        yield from zip(*(column[first : first + AT_ONCE].tolist() for column in columns), strict=True)


def _laid_out(blocks: VisibleBlocks, slices: Chosen) -> tuple[Any, Any, Tracks]:
    """Return start, end and track of each slice."""
    rows = distinct(slices.row)
    start, end, lane, lanes = blocks.spans(rows)
    if rows is not slices.row:
        at = np.searchsorted(rows, slices.row)
        start, end, lane = start[at], end[at], lane[at]
    return start, end, tracks_of(slices.place, lane, lanes, start, end)


def _some(pairs: Any, limit: int) -> Any:
    """Return at most `limit` pairs, spread evenly over all of them."""
    return pairs if len(pairs) <= limit else pairs[np.arange(limit) * len(pairs) // limit]


def _within(counters: list[Counter], limit: int) -> tuple[list[Counter], str]:
    """Return as many counters as fit with all their values, and a note on the rest."""
    kept, room = [], limit
    for counter in counters:
        if len(counter.time_ns) <= room:
            kept.append(counter)
            room -= len(counter.time_ns)
    lost = len(counters) - len(kept)
    return kept, f"has no room for {plural(lost, 'counter')} of {len(counters)}" if lost else ""
