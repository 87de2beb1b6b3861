"""What an exported timeline shows: slices in tracks, arrows between them, counters, and what was left out.

Not here: slices that are no nodes (`added`), formats (`perfetto`, `chrome`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.units import plural
from et_sim.views.drawing.flows import collectives, exchanges, messages
from et_sim.views.drawing.nodes import NONE, Nodes, Shown, shown_ranks
from et_sim.views.drawing.tracks import Tracks, tracks_of
from et_sim.views.drawing.visible_nodes import Slices, visible_nodes
from et_sim.views.export.added import Added, Message, arrivals_of, critical_path
from et_sim.views.export.counters import (
    Counter,
    chunks_in_dimensions,
    collectives_under_way,
    links_in_use,
    memory_in_use,
    queues_at_ports,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window

MOST_RANKS = 64
MOST_SLICES = 200_000
AT_ONCE = 1 << 16  # slices or events that are written


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """Slices are numbered; `start_ns` and `end_ns` have an entry for each."""

    nodes: Nodes
    shown: Shown
    slices: Slices
    tracks: Tracks
    start_ns: Any
    end_ns: Any
    messages: list[Message]  # where messages were recorded, also of collectives
    collectives: list[list[int]]  # in the order in which they started
    added: list[Added]  # slices that are no nodes; first those within others
    counters: list[Counter]
    left_out: tuple[str, ...]

    @property
    def has_path(self) -> bool:
        """Whether the critical path is shown."""
        return any(one.parent == NONE for one in self.added)

    def facts(self, entries: Any) -> Iterator[tuple[int, ...]]:
        """Of some slices: codes of name, kind and group, node, bytes, how long it waited, if it completed."""
        nodes, group = self.nodes.take(self.slices.row[entries]), self.slices.group.codes[entries]
        columns = (nodes.name, nodes.kind, group, nodes.node, nodes.bytes, nodes.waited_ns, nodes.completed)
        return zip(*(column.tolist() for column in columns), strict=True)


def contents_of(run: RunDirectory, ranks: str | None, window: Window, limit: int = MOST_SLICES) -> Contents:
    """Gather it from a run's files."""
    shown = shown_ranks(run, ranks, MOST_RANKS)
    nodes, slices = visible_nodes(run, shown, window, limit)
    start, end = nodes.start_ns[slices.row], nodes.end_ns[slices.row]
    tracks = tracks_of(slices.place, nodes.lane[slices.row], nodes.lanes, start, end)
    slice_of_row = _slice_of_row(nodes, shown, slices)
    pairs = _pairs(run, nodes, slice_of_row, window)
    arrows = f"draws {limit:,} of {plural(len(pairs), 'message')}" if len(pairs) > limit else ""
    ranks = np.array(shown.ranks, np.int64)[slices.place]
    added, arrows_drawn = arrivals_of(_some(pairs, limit), start, end, ranks)
    path, path_left_out = critical_path(run, window, limit)
    members = [slice_of_row[rows] for rows in collectives(nodes)] if not run.holds("messages") else []
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
        nodes=nodes,
        shown=shown,
        slices=slices,
        tracks=tracks,
        start_ns=start,
        end_ns=end,
        messages=arrows_drawn,
        collectives=[chain for found in members if len(chain := _chain(found, start, end)) > 1],
        added=added + path,
        counters=counters,
        left_out=tuple(
            filter(None, (*shown.left_out, slices.left_out, unclear, arrows, path_left_out, no_room))
        ),
    )


def _pairs(run: RunDirectory, nodes: Nodes, slice_of_row: Any, window: Window) -> Any:
    """The two slices of each arrow that a message draws."""
    found = [messages(nodes), *([exchanges(run, nodes, window)] if run.holds("messages") else ())]
    pairs = np.concatenate([np.stack([slice_of_row[rows] for rows in ends], axis=1) for ends in found])
    return pairs[(pairs != NONE).all(axis=1)]


def _some(pairs: Any, limit: int) -> Any:
    """At most so many of them, from beginning to end."""
    return pairs if len(pairs) <= limit else pairs[np.arange(limit) * len(pairs) // limit]


def _chain(slices: Any, start_ns: Any, end_ns: Any) -> list[int]:
    """Those there are, in the order in which they started: at one time, first those that take none."""
    there = slices[slices != NONE]
    takes_time = end_ns[there] > start_ns[there]
    found: list[int] = there[np.lexsort((there, takes_time, start_ns[there]))].tolist()
    return found


def _slice_of_row(nodes: Nodes, shown: Shown, slices: Slices) -> Any:
    """The slice of each node, where there is exactly one rank that shows its actor."""
    found = np.full(len(nodes), NONE)
    once = np.zeros(len(shown.ranks), np.bool_)
    once[list(shown.place_of_actor().values())] = True
    clear = once[slices.place]
    found[slices.row[clear]] = np.flatnonzero(clear)
    return found


def _within(counters: list[Counter], limit: int) -> tuple[list[Counter], str]:
    """As many counters as have room for all their values."""
    kept, room = [], limit
    for counter in counters:
        if len(counter.time_ns) <= room:
            kept.append(counter)
            room -= len(counter.time_ns)
    lost = len(counters) - len(kept)
    return kept, f"has no room for {plural(lost, 'counter')} of {len(counters)}" if lost else ""
