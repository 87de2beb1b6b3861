"""Two runs on one axis of time: the lanes in both, one below the other, of the ranks that differ most.

A red mark shows where ranks begin to differ, a dashed line where a run ends. Not here: which ranks belong
together (`compare.pairs`), and how lanes are painted (`picture`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from et_sim.basics.units import format_ns, plural
from et_sim.views.compare.changes import Comparison
from et_sim.views.compare.pairs import Pair, most_different
from et_sim.views.compare.parting import parting_times
from et_sim.views.drawing.colours import colour_of
from et_sim.views.drawing.picture import LANE_HEIGHT, LANES, PictureLayer, painted, strips
from et_sim.views.drawing.svg import (
    LEFT,
    PIXELS,
    TOP,
    axis,
    document,
    label,
    label_of_ranks,
    legend,
    sentences,
)
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part

MOST_PAIRS = 12
RUN_GAP, PAIR_GAP = 3, 12
PARTED = "#c00000"
PAPER = ("#ffffff", "#f1f3f6")  # behind the rows of the first run, and of the second
MEANING = "above: A; below, on grey: B; dashed: the end of a run"
MARKED = "red: from here on they differ"


def aligned_picture(found: Comparison) -> str:
    """The SVG text."""
    runs = found.a, found.b
    pairs, every = most_different(*runs, MOST_PAIRS)
    window = 0, max(*found.makespans_ns, 1)
    actors = [sorted({pair.actors[side] for pair in pairs}) for side in (0, 1)]
    layers = [painted(run, those, window) for run, those in zip(runs, actors, strict=True)]
    papers, parts, y, ends = [], [], TOP, []
    for pair in pairs:
        top = y
        for side, (waiting, moving, kinds) in enumerate(layers):
            heights = _heights(waiting, moving, actors[side].index(pair.actors[side]), y)
            bottom = max(heights.values(), default=y) + LANE_HEIGHT
            papers.append(_paper(y, bottom, PAPER[side]))
            parts += strips(waiting, moving, heights, kinds)
            parts.append(label("AB"[side], (y + bottom) // 2 + 4))
            y = bottom + RUN_GAP
        parts.append(_name(pair, top, y))
        ends.append((top, y - RUN_GAP))
        y += PAIR_GAP
    bottom = y - PAIR_GAP
    lines = [*axis(window, bottom), *_ends(found, window[1], bottom)]
    marks = _partings(found, pairs, ends, window[1])
    texts = [f"{MEANING}; {MARKED}" if marks else MEANING, *_remarks(found, len(pairs), every)]
    used = dict.fromkeys(
        kind
        for waiting, moving, kinds in layers
        for code, kind in enumerate(kinds)
        if any((layer.kind == code).any() for layer in (waiting, moving))
    )
    key = legend([(colour_of(kind), kind.replace("_", " ")) for kind in used], bottom + 20)
    body = [*papers, *lines, *parts, *marks, *key, *sentences(texts, bottom + 38)]
    return document(body, bottom + 34 + 15 * len(texts))


def _heights(waiting: PictureLayer, moving: PictureLayer, place: int, y: int) -> dict[int, int]:
    """Track -> its y, for the lanes that an actor uses; at least one."""
    tracks = np.arange(place * len(LANES), (place + 1) * len(LANES))
    used = tracks[((waiting.kind[tracks] >= 0) | (moving.kind[tracks] >= 0)).any(axis=1)].tolist()
    return {track: y + LANE_HEIGHT * row for row, track in enumerate(used or tracks[:1].tolist())}


def _paper(y: int, bottom: int, colour: str) -> str:
    return f'<rect x="{LEFT}" y="{y - 1}" width="{PIXELS}" height="{bottom - y + 1}" fill="{colour}"/>'


def _name(pair: Pair, top: int, y: int) -> str:
    return label(label_of_ranks(pair.ranks), (top + y) // 2 + 3, x=LEFT - 24)


def _ends(found: Comparison, whole: int, bottom: int) -> list[str]:
    """A dashed line where each run ends."""
    xs = dict.fromkeys(LEFT + PIXELS * time / whole for time in found.makespans_ns)
    return [f'<path stroke="#333" stroke-dasharray="4 3" d="M{x:.1f} {TOP - 4}V{bottom}"/>' for x in xs]


def _partings(
    found: Comparison, pairs: Sequence[Pair], ends: Sequence[tuple[int, int]], whole: int
) -> list[str]:
    """Where the ranks of each pair begin to differ; nothing of runs with other ranks."""
    if found.ranks is None:
        return []
    parts = []
    times = parting_times(found.a, found.b, [pair.actors for pair in pairs])
    for time, (top, bottom) in zip(times, ends, strict=True):
        if time is not None:
            x = LEFT + PIXELS * time / whole
            said = f"<title>they differ from {format_ns(time)} on</title>"
            shape = f"M{x:.1f} {top - 2}V{bottom + 1}M{x - 4:.1f} {top - 6}h8l-4 5z"
            parts.append(f'<path class="parting" stroke="{PARTED}" fill="{PARTED}" d="{shape}">{said}</path>')
    return parts


def _remarks(found: Comparison, shown: int, every: int) -> list[str]:
    """What the runs are, and what is left out."""
    texts = [_said("A", found.a), _said("B", found.b)]
    if found.ranks is None:
        ranks = [run.summary["ranks"] for run in (found.a, found.b)]
        texts.append(
            f"A has {plural(ranks[0], 'rank')}, B {plural(ranks[1], 'rank')}: shown are ranks that both have"
        )
    if shown < every:
        texts.append(f"… and {plural(every - shown, 'row')} of ranks whose finish differs no more")
    return texts


def _said(name: str, run: RunDirectory) -> str:
    kept = recorded_part(run)
    text = f"{name}: {run.path.resolve().name}, {run.summary['status']}"
    text += f", {format_ns(run.summary['makespan_ns'])}"
    return f"{text}; it holds only nodes of {kept}" if kept else text
