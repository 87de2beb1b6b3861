"""What an exported timeline shows: slices in tracks, arrows between them, counters, and what was left out.

Not here: formats (`perfetto`, `chrome`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.units import plural
from et_sim.views.drawing.flows import collectives, exchanges, messages
from et_sim.views.drawing.nodes import NONE, Nodes, Shown, shown_ranks
from et_sim.views.drawing.tracks import Tracks, tracks_of
from et_sim.views.drawing.visible_nodes import Slices, visible_nodes
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


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """Slices are numbered; `start_ns` and `end_ns` have an entry for each."""

    nodes: Nodes
    shown: Shown
    slices: Slices
    tracks: Tracks
    start_ns: Any
    end_ns: Any
    messages: list[tuple[int, int]]  # send, receive; where messages were recorded, also of collectives
    collectives: list[list[int]]  # in the order in which they started
    counters: list[Counter]
    left_out: tuple[str, ...]


def contents_of(run: RunDirectory, ranks: str | None, window: Window, limit: int = MOST_SLICES) -> Contents:
    """Gather it from a run's files."""
    shown = shown_ranks(run, ranks, MOST_RANKS)
    nodes, slices = visible_nodes(run, shown, window, limit)
    start, end = nodes.start_ns[slices.row], nodes.end_ns[slices.row]
    tracks = tracks_of(slices.place, nodes.lane[slices.row], nodes.lanes, start, end)
    slice_of_row = _slice_of_row(nodes, shown, slices)
    sends, receives = (slice_of_row[rows] for rows in messages(nodes))
    both = (sends != NONE) & (receives != NONE)
    pairs = list(zip(sends[both].tolist(), receives[both].tolist(), strict=True))
    members = [slice_of_row[rows] for rows in collectives(nodes)] if not run.holds("messages") else []
    if run.holds("messages"):
        one, other = (slice_of_row[rows] for rows in exchanges(run, nodes, window))
        seen = (one != NONE) & (other != NONE)
        pairs += list(zip(one[seen].tolist(), other[seen].tolist(), strict=True))
    arrows = f"draws {limit:,} of {plural(len(pairs), 'message')}" if len(pairs) > limit else ""
    joined = [there.tolist() for found in members if len(there := found[found != NONE]) > 1]
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
        messages=pairs[:limit],
        collectives=joined,
        counters=counters,
        left_out=tuple(filter(None, (*shown.left_out, slices.left_out, unclear, arrows, no_room))),
    )


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
