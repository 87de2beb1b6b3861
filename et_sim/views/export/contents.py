"""What an exported timeline shows: slices in tracks, arrows between them, counters, and what was left out.

Of each slice its place, times and track are kept, some 30 bytes; what else is known of it is read from the
timeline when it is written. Not here: arrows and the critical path (`arrows`), formats (`perfetto`,
`chrome`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import plural
from et_sim.views.drawing.blocks import Blocks, Chosen, distinct
from et_sim.views.drawing.nodes import Nodes, Shown, Tracks, shown_ranks, tracks_of
from et_sim.views.export.arrows import (
    Arrivals,
    Chains,
    MessageArrows,
    Step,
    arrivals_of,
    critical_path,
    pairs_and_chains,
)
from et_sim.views.export.counters import (
    Counter,
    chunks_in_dimensions,
    collectives_under_way,
    links_in_use,
    memory_in_use,
    queues_at_ports,
)
from et_sim.views.run.columns import Words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.groups import RunGroups
from et_sim.views.run.selection import Window

MOST_RANKS = 64
MOST_SLICES = 200_000
AT_ONCE = 1 << 16  # slices or events that are written


class Facts(Struct, frozen=True, eq=False):
    """What is exported of some slices: their nodes, and the group as the rank calls it."""

    nodes: Nodes
    group: Words

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Codes of name, kind and group, node, bytes, how long it waited, if it completed."""
        nodes = self.nodes
        columns = (nodes.name, nodes.kind, self.group.codes, nodes.node, nodes.bytes)
        every = (*columns, nodes.waited_ns, nodes.completed)
        return zip(*(column.tolist() for column in every), strict=True)


class Contents(Struct, frozen=True, eq=False):
    """Slices are numbered; `start_ns` and `end_ns` have an entry for each."""

    shown: Shown
    slices: Chosen
    tracks: Tracks
    start_ns: Any
    end_ns: Any
    messages: MessageArrows  # where messages were recorded, also of collectives
    arrivals: Arrivals
    collectives: Chains  # in the order in which they started
    path: list[Step]
    counters: list[Counter]
    left_out: tuple[str, ...]
    blocks: Blocks
    groups: RunGroups

    def facts(self, entries: Any) -> Facts:
        """Of some slices, in their order."""
        rows, places = self.slices.row[entries], self.slices.place[entries]
        every = distinct(rows)
        nodes = self.blocks.nodes(every).take(np.searchsorted(every, rows))
        rank = np.array(self.shown.ranks, np.int64)[places]
        return Facts(nodes, self.groups.of_ranks(rank, nodes.actor, nodes.group, nodes.groups))


def contents_of(run: RunDirectory, ranks: str | None, window: Window, limit: int = MOST_SLICES) -> Contents:
    """Gather it from a run's files."""
    shown = shown_ranks(run, ranks, MOST_RANKS)
    blocks = Blocks(run, shown)
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
    """Columns as rows, some at a time: as objects, all would take several times the memory."""
    for first in range(0, len(columns[0]), AT_ONCE):
        yield from zip(*(column[first : first + AT_ONCE].tolist() for column in columns), strict=True)


def _laid_out(blocks: Blocks, slices: Chosen) -> tuple[Any, Any, Tracks]:
    """Start and end of each slice, and where it is drawn."""
    rows = distinct(slices.row)
    start, end, lane, lanes = blocks.spans(rows)
    if rows is not slices.row:
        at = np.searchsorted(rows, slices.row)
        start, end, lane = start[at], end[at], lane[at]
    return start, end, tracks_of(slices.place, lane, lanes, start, end)


def _some(pairs: Any, limit: int) -> Any:
    """At most `limit` pairs, spread evenly over all of them."""
    return pairs if len(pairs) <= limit else pairs[np.arange(limit) * len(pairs) // limit]


def _within(counters: list[Counter], limit: int) -> tuple[list[Counter], str]:
    """As many counters as have room for all their values."""
    kept, room = [], limit
    for counter in counters:
        if len(counter.time_ns) <= room:
            kept.append(counter)
            room -= len(counter.time_ns)
    lost = len(counters) - len(kept)
    return kept, f"has no room for {plural(lost, 'counter')} of {len(counters)}" if lost else ""
