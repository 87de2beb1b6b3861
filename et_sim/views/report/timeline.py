"""The page's timeline: columns of numbers for the script that draws it, and a still picture for paper.

Columns are packed: each in the smallest type that holds it, in base 64. If there are too many nodes for a
page, short ones close together in a track become one; only a large magnification would separate them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of, unique
from et_sim.basics.units import LONGEST_NS, plural
from et_sim.views.critical.path import CriticalPath
from et_sim.views.drawing.blocks import Slices, visible_nodes
from et_sim.views.drawing.flows import collectives, find, messages
from et_sim.views.drawing.nodes import GAPS, NONE, Nodes, Shown, Tracks, shown_ranks, tracks_of
from et_sim.views.drawing.scene import BACKWARD, NEVER, colour_of, drawn_kinds, is_backward, lighter
from et_sim.views.drawing.timeline import picture
from et_sim.views.markup import section, tag, text
from et_sim.views.run.columns import integers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Window

MOST_RANKS = 64
MOST_SLICES = 100_000
MOST_NODES = 2_000_000  # that are considered
MOST_ARROWS = 50_000
MOST_BINS = 1 << 16  # of time, for merged nodes
TYPES = (("u1", np.uint8), ("u2", np.uint16), ("u4", np.uint32))


class Merged(Struct, frozen=True, eq=False):
    """Slices merged for drawing: the drawn slice of each, and figures of the drawn ones."""

    of_slice: Any
    first: Any  # the longest slice of each
    start_ns: Any
    end_ns: Any
    count: Any
    busy_ns: Any
    bin_ns: int  # 0: nothing was merged


def timeline_section(
    run: RunDirectory, ranks: str | None, window: Window, limit: int, path: CriticalPath | None
) -> str:
    """Return the timeline with its controls, data, and still picture."""
    shown = shown_ranks(run, ranks, MOST_RANKS)
    data, notes = _data(run, shown, window, limit, path)
    content = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    still = tag("div", picture(run), class_="still")
    sentences = " ".join(f"{text(note[0].upper() + note[1:])}." for note in notes)
    return section(
        "timeline",
        "Timeline",
        tag("p", sentences, class_="note") if sentences else "",
        '<div id="view" hidden></div>',
        still,
        tag("script", content, type="application/json", id="timeline-data"),
    )


def _data(
    run: RunDirectory, shown: Shown, window: Window, limit: int, path: CriticalPath | None
) -> tuple[dict[str, Any], list[str]]:
    nodes, slices = visible_nodes(run, shown, window, MOST_NODES)
    on_path = _on_path(nodes, path)
    kinds = [*(kind or "" for kind in nodes.kinds), NEVER, BACKWARD]
    kind = drawn_kinds(nodes.kind, nodes.name, kinds, is_backward(nodes.names))
    kind = np.where(nodes.completed, kind, kinds.index(NEVER))[slices.row]
    start, end = nodes.start_ns[slices.row], nodes.end_ns[slices.row]
    tracks = _tracks(nodes, slices, kind == kinds.index("gap") if "gap" in kinds else kind < 0)
    merged = merge(tracks.of_slice, kind, start, end, limit)
    still = np.bincount(merged.of_slice, nodes.still_ns[slices.row], len(merged.first)).astype(np.int64)
    order = np.lexsort((merged.start_ns, tracks.of_slice[merged.first]))
    drawn = nodes.take(slices.row[merged.first[order]])
    place_of = np.empty(len(order), np.int64)
    place_of[order] = np.arange(len(order))
    single = merged.count[merged.of_slice] == 1
    drawn_of = np.where(single, place_of[merged.of_slice], NONE)
    columns = {
        "track": tracks.of_slice[merged.first[order]],
        "start": merged.start_ns[order],
        "length": (merged.end_ns - merged.start_ns)[order],
        "kind": kind[merged.first[order]],
        "name": drawn.name,
        "group": slices.group.codes[merged.first[order]],
        "node": np.maximum(drawn.node, 0),
        "bytes": np.maximum(drawn.bytes, 0),
        "waited": drawn.waited_ns,
        "count": merged.count[order],
        "busy": (merged.busy_ns - still)[order],
        "still": still[order],
        "critical": np.bincount(merged.of_slice, on_path[slices.row], len(order))[order] > 0,
    }
    last = min(window[1], run.summary["makespan_ns"])
    data = {
        "from": min(window[0], last),
        "to": max(last, min(window[0], last) + 1),
        "ranks": [f"rank {rank}" for rank in shown.ranks],
        "slowest": _slowest(run, shown),
        "tracks": [list(track) for track in zip(tracks.place, tracks.lane, tracks.row, strict=True)],
        "kinds": [
            {"name": kind.replace("_", " "), "colour": colour_of(kind), "dark": lighter(kind)}
            for kind in kinds
        ],
        **_words(columns, {"name": nodes.names, "group": slices.group.texts}),
        "columns": {name: _packed(column) for name, column in columns.items()},
        "arrows": _arrows(nodes, shown, slices, drawn_of),
    }
    notes = [*shown.left_out, slices.left_out]
    if merged.bin_ns:
        count = int((merged.count > 1).sum())
        notes.append(f"draws short nodes that stand close together as one ({plural(count, 'such place')})")
    return data, [f"the timeline {note}" for note in notes if note]


def _tracks(nodes: Nodes, slices: Slices, is_gap: Any) -> Tracks:
    """Return rows for slices; all gaps of a rank share a row, although they may overlap."""
    start, end = nodes.start_ns[slices.row], nodes.end_ns[slices.row]
    lane = np.where(is_gap, len(nodes.lanes), nodes.lane[slices.row])
    return tracks_of(slices.place, lane, (*nodes.lanes, GAPS), start, np.where(is_gap, start, end))


def _slowest(run: RunDirectory, shown: Shown) -> list[int]:
    """Return the places of ranks, those that finish last first."""
    finish = integers(run.actors()["finish_ns"], missing=LONGEST_NS)[list(shown.actors)]
    return np.argsort(-finish, kind="stable").tolist()  # type: ignore[no-any-return]


def _on_path(nodes: Nodes, path: CriticalPath | None) -> Any:
    """Return which nodes are on the critical path, if it is known."""
    if path is None:
        return np.zeros(len(nodes), np.bool_)
    every = path.record.nodes
    there = unique(path.node[(path.node != NONE) & (path.spent_ns > 0)])
    rows = find(nodes, np.arange(len(nodes)), every.actor[there], every.node[there].astype(np.int64))
    is_on_path = np.zeros(len(nodes), np.bool_)
    is_on_path[rows[rows != NONE]] = True
    return is_on_path


def _words(columns: dict[str, Any], every: Mapping[str, Sequence[str | None]]) -> dict[str, list[str]]:
    """Return the names and groups that occur, and renumber the columns by them."""
    words = {}
    for name, texts in every.items():
        codes, columns[name] = np.unique(columns[name], return_inverse=True)
        columns[name] = columns[name].reshape(-1)
        words[f"{name}s"] = [texts[code] or "" for code in codes.tolist()]
    return words


def _packed(column: Any) -> list[str]:
    """Return type and content of a column of numbers that are not negative."""
    most = int(column.max(initial=0))
    for name, kind in TYPES:
        if most <= np.iinfo(kind).max:
            return [name, base64.b64encode(column.astype(kind).tobytes()).decode()]
    return ["f8", base64.b64encode(column.astype("<f8").tobytes()).decode()]


def merge(track: Any, kind: Any, start: Any, end: Any, limit: int) -> Merged:
    """Merge short, close slices of one track and kind, until about `limit` slices are left, or fewer."""
    count, length = len(track), end - start
    bin_ns = 0
    key = np.arange(count)
    if count > limit:
        first = int(start.min())
        bin_ns = max((int(end.max()) - first) // MOST_BINS, 1)
        like = groups_of(track, kind).of_row
        while True:
            bins = (start - first) // bin_ns
            places = like * (int(bins.max()) + 1) + bins
            key = np.where(length < bin_ns, places, int(places.max()) + 1 + np.arange(count))
            if len(unique(key)) <= limit or bool((length < bin_ns).all()):
                break
            bin_ns *= 2
    order = np.lexsort((-length, key))
    begins = np.flatnonzero(np.diff(key[order], prepend=-1)) if count else np.zeros(0, np.int64)
    of_slice = np.empty(count, np.int64)
    of_slice[order] = np.cumsum(np.isin(np.arange(count), begins)) - 1
    if not count:
        return Merged(of_slice, order, start, end, length, length, 0)
    return Merged(
        of_slice=of_slice,
        first=order[begins],
        start_ns=np.minimum.reduceat(start[order], begins),
        end_ns=np.maximum.reduceat(end[order], begins),
        count=np.diff(begins, append=count),
        busy_ns=np.add.reduceat(length[order], begins),
        bin_ns=bin_ns,
    )


def _arrows(nodes: Nodes, shown: Shown, slices: Slices, drawn_of: Any) -> list[list[int]]:
    """Return pairs and chains of drawn slices that arrows join."""
    once = np.zeros(len(shown.ranks), np.bool_)
    once[list(shown.place_of_actor().values())] = True
    clear = once[slices.place]
    of_row = np.full(len(nodes), NONE)
    of_row[slices.row[clear]] = drawn_of[clear]
    pairs = [[int(of_row[s]), int(of_row[r])] for s, r in zip(*messages(nodes), strict=True)]
    pairs = [pair for pair in pairs if NONE not in pair]
    for members in collectives(nodes):
        there = of_row[members]
        if len(there := there[there != NONE]) > 1:
            pairs.append(there.tolist())
    return pairs[:MOST_ARROWS]
