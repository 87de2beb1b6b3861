"""The timeline as an SVG picture: a lane per actor and resource, coloured by kind; or two, aligned.

The picture is a grid of pixel columns: in each, a lane takes the colour of the kind that filled most of it,
the paler the less it filled. So the file's size depends on the picture's and not on the number of rows.
Waiting for other ranks, or in a queue of its own, is a thin line: only moving bytes are as high as a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.intervals import filling, levels
from et_sim.basics.units import format_ns, plural
from et_sim.tables.declaration import NOT_COMMUNICATION
from et_sim.views.compare.changes import Comparison
from et_sim.views.compare.pairs import RankPair, most_different, parting_times
from et_sim.views.drawing.scene import (
    BACKWARD,
    LEFT,
    LIMIT,
    NEVER,
    PIXELS,
    TOP,
    Entry,
    Scene,
    colour_of,
    drawn_kinds,
    is_backward,
    label_of_ranks,
    runs_of,
)
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, Window, recorded_part
from et_sim.views.summary.rank_table import slowest_first
from et_sim.views.text import not_shown

MOST_ACTORS = 32
LANE_HEIGHT, ACTOR_GAP = 11, 7
WAITING_HEIGHT = 3
DENSITIES = 4  # steps of opacity
LEAST_SEPARATED = 5  # pixels
COLUMNS = ("actor", "name", "kind", "lane", "start_ns", "end_ns", "queued_ns", "waiting_ns")

LANES = ("cpu", "compute", "communication")
LANE_OF = {"cpu": "cpu", "compute": "compute"}  # all others share the lane of communication
THIN = "thin: waits for another rank, or in a queue of its own"
PALE = "pale: takes only part of the time"


class PictureLayer(Struct, frozen=True, eq=False):
    """The kind that fills most of each track and pixel column, -1: none; and how much of it, in steps.

    A track is a lane of an actor. Gaps separate slices that are wide enough.
    """

    kind: Any
    density: Any


class Painted(Struct, frozen=True, eq=False):
    """A layer of waiting, one of everything else, and the names of kinds."""

    waiting: PictureLayer
    moving: PictureLayer
    kinds: tuple[str, ...]

    @property
    def both(self) -> tuple[PictureLayer, PictureLayer]:
        """Return both layers."""
        return self.waiting, self.moving

    @property
    def is_used(self) -> Any:
        """Return which tracks hold anything."""
        return ((self.waiting.kind >= 0) | (self.moving.kind >= 0)).any(axis=1)

    def draw(self, scene: Scene, heights: dict[int, int]) -> None:
        """Draw moving above waiting, and above both the nodes that never completed."""
        never = self.kinds.index(NEVER)
        unended = np.where(self.waiting.kind == never, never, -1)
        for layer, height in (
            (self.waiting, WAITING_HEIGHT),
            (self.moving, LANE_HEIGHT - 1),
            (PictureLayer(unended, self.waiting.density), WAITING_HEIGHT),
        ):
            _draw(scene, layer, heights, self.kinds, height)


def legend_of(runs: Sequence[Painted]) -> list[Entry]:
    """Return the colours of the visible kinds."""
    kinds = [
        kind
        for run in runs
        for code, kind in enumerate(run.kinds)
        if any((layer.kind == code).any() for layer in run.both)
    ]
    return [(colour_of(kind), kind.replace("_", " ")) for kind in dict.fromkeys(kinds)]


def picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text, of some ranks and a window of time."""
    labels, window, scene = _labels(run, part), part.window_of(run), Scene()
    layers = painted(run, list(labels), window)
    heights = track_positions(layers.is_used, len(labels))
    bottom = max(heights.values(), default=TOP) + LANE_HEIGHT
    scene.axis(window, bottom)
    for position, name in enumerate(labels.values()):
        lanes = [y for track, y in heights.items() if track // len(LANES) == position]
        if lanes:
            scene.label(name, (lanes[0] + lanes[-1] + LANE_HEIGHT) // 2 + 4)
    layers.draw(scene, heights)
    scene.legend(legend_of((layers,)), bottom + 20)
    ended = f"{run.summary['status']}: {format_ns(run.summary['makespan_ns'])}"
    scene.text(LEFT + PIXELS, bottom + 20, ended, "end")
    pale = any(((at.kind >= 0) & (at.density < DENSITIES)).any() for at in layers.both)
    notes = "; ".join([THIN] * bool((layers.waiting.kind >= 0).any()) + [PALE] * pale)
    return scene.finish([*filter(None, (notes,)), *_remarks(run, part, len(labels))], bottom + 38)


def _labels(run: RunDirectory, part: Selection) -> dict[int, str]:
    """Return labels by actor: all actors with selected ranks, or the slowest."""
    part.check_ranks(run)
    actors = run.actors().select(["actor", "ranks", "finish_ns"]).to_pylist()
    actors = [{**actor, "ranks": ranks} for actor in actors if (ranks := part.names(actor["ranks"]))]
    chosen = actors if len(actors) <= MOST_ACTORS else slowest_first(actors)[:MOST_ACTORS]
    chosen = sorted(chosen, key=lambda actor: actor["actor"])
    return {actor["actor"]: label_of_ranks(actor["ranks"]) for actor in chosen}


def _remarks(run: RunDirectory, part: Selection, shown: int) -> list[str]:
    """Return notes on what the picture leaves out."""
    hidden = sum(bool(part.names(text)) for text in run.actors()["ranks"].to_pylist()) - shown
    kept = recorded_part(run)
    remarks = not_shown(hidden, "faster actor", ": --ranks chooses others")
    return [*remarks, *([f"the run holds only nodes of {kept}"] if kept else [])]


def painted(run: RunDirectory, actors: list[int], window: Window) -> Painted:
    """Return the activity of actors in the columns of a window."""
    shape, span = (len(actors) * len(LANES), PIXELS), window[1] - window[0]
    last = min(window[1], max(run.summary["makespan_ns"], window[0] + 1))  # end of nodes that never ended
    filled: list[dict[int, Any]] = [{}, {}]
    boundaries = np.zeros((2, *shape), np.bool_)
    kinds: tuple[str, ...] = (NEVER,)
    backward = None
    for batch in run.batches("timeline", COLUMNS):
        kinds = (*batch["kind"].dictionary.to_pylist(), NEVER, BACKWARD)  # all batches share them
        if backward is None:
            backward = is_backward((*batch["name"].dictionary.to_pylist(), None))
        drawn = _drawn(batch, actors, window, kinds, backward, last)
        for layer, (track, kind, start, end) in enumerate(drawn):
            for code in np.flatnonzero(np.bincount(kind)).tolist():
                this = kind == code
                more = filling(track[this], start[this], end[this], 1.0, shape, span)
                filled[layer][code] = filled[layer][code] + more if code in filled[layer] else more
            begin = start * (PIXELS / span)
            long = np.flatnonzero(((end - start) * (PIXELS / span) >= LEAST_SEPARATED) & (begin >= 1))
            boundaries[layer, track[long], begin[long].astype(np.int64)] = True
    never = kinds.index(NEVER)
    waiting, moving = (_fullest(*layer, never) for layer in zip(filled, boundaries, strict=True))
    return Painted(waiting, moving, kinds)


def _fullest(filled: dict[int, Any], boundaries: Any, foremost: int) -> PictureLayer:
    kind, most = np.full(boundaries.shape, -1, np.int16), np.zeros(boundaries.shape)
    for code, changes in sorted(filled.items(), key=lambda entry: (entry[0] != foremost, entry[0])):
        here = np.round(levels(changes), 9)  # sums of fractions leave dust
        kind[here > most] = code
        most = np.maximum(most, here)
    kind[boundaries] = -1
    return PictureLayer(kind, np.ceil(most * DENSITIES).clip(1, DENSITIES).astype(np.int16))


def _drawn(
    batch: Any, actors: list[int], window: Window, kinds: tuple[str, ...], backward: Any, last: int
) -> list[tuple[Any, ...]]:
    """Return track, kind, start and end in the window for some actors, of waiting and of everything else."""
    actor, start = numbers(batch["actor"]), numbers(batch["start_ns"])
    ended = integers(batch["end_ns"], missing=-1)
    end = np.where(ended < 0, last, ended)
    rows = np.flatnonzero(np.isin(actor, actors) & (end > start) & (start < window[1]) & (end > window[0]))
    lanes = (*batch["lane"].dictionary.to_pylist(), None)
    lane_codes = [LANES.index(LANE_OF.get(name, "communication")) for name in lanes]
    lane = np.array(lane_codes, np.int64)[coded(batch["lane"])[rows]]
    communicates = np.array([kind not in NOT_COMMUNICATION for kind in kinds])[coded(batch["kind"])[rows]]
    before = sum(integers(batch[name], missing=0)[rows] for name in ("queued_ns", "waiting_ns"))
    start, end = start[rows], end[rows]
    kind = drawn_kinds(coded(batch["kind"])[rows], coded(batch["name"])[rows], kinds, backward)
    kind = np.where(ended[rows] < 0, kinds.index(NEVER), kind)
    moved = np.where(communicates, np.minimum(start + before, end), start)
    moved = np.where(ended[rows] < 0, end, moved)
    track = np.searchsorted(actors, actor[rows]) * len(LANES) + lane
    pieces = []
    for begin, until in ((start, moved), (moved, end)):
        begin, until = np.clip(begin, *window), np.clip(until, *window)
        visible = np.flatnonzero(until > begin)
        pieces.append((track[visible], kind[visible], begin[visible] - window[0], until[visible] - window[0]))
    return pieces


def track_positions(is_used: Any, actors: int) -> dict[int, int]:
    """Return y by track; a resource that no actor uses has no track."""
    used = is_used.reshape(actors, len(LANES)).any(axis=0)
    positions, y = {}, TOP
    for actor in range(actors):
        for lane in np.flatnonzero(used).tolist():
            positions[actor * len(LANES) + lane] = y
            y += LANE_HEIGHT
        y += ACTOR_GAP
    return positions


def _draw(
    scene: Scene, layer: PictureLayer, heights: dict[int, int], kinds: tuple[str, ...], height: int
) -> None:
    """Draw one path per track, kind and density."""
    for track, y in heights.items():
        row = np.where(layer.kind[track] < 0, -1, layer.kind[track] * (DENSITIES + 1) + layer.density[track])
        top = y + (LANE_HEIGHT - 1 - height) // 2
        shapes: dict[int, str] = {}
        for x, width, code in runs_of(row):
            shapes[code] = shapes.get(code, "") + f"M{LEFT + x} {top}h{width}v{height}h-{width}z"
        shapes.pop(-1, None)
        for code in sorted(shapes):
            kind, steps = divmod(code, DENSITIES + 1)
            pale = f"{steps / DENSITIES:g}" if steps < DENSITIES else ""
            scene.path(shapes[code], fill=colour_of(kinds[kind]), fill_opacity=pale)


MOST_PAIRS = 12
RUN_GAP, PAIR_GAP = 3, 12
PAPER = ("#ffffff", "#f1f3f6")  # behind the rows of the first run, and of the second
MEANING = "above: A; below, on grey: B; dashed: the end of a run"
MARKED = "red: from here on they differ"


def aligned_picture(comparison: Comparison) -> str:
    """Return the SVG text: the lanes of two runs on one axis of time, for the ranks that differ most.

    A red mark shows where ranks begin to differ, a dashed line where a run ends.
    """
    runs, scene, y = (comparison.a, comparison.b), Scene(), TOP
    pairs, every = most_different(*runs, MOST_PAIRS)
    window = 0, max(*comparison.makespans_ns, 1)
    actors = [sorted({pair.actors[side] for pair in pairs}) for side in (0, 1)]
    layers = [painted(run, those, window) for run, those in zip(runs, actors, strict=True)]
    rows, ends = [], []  # (run, y of its tracks, top, bottom); (top, bottom) of pairs
    for pair in pairs:
        top = y
        for side, layer in enumerate(layers):
            heights = _heights(layer, actors[side].index(pair.actors[side]), y)
            bottom = max(heights.values(), default=y) + LANE_HEIGHT
            rows.append((side, heights, y, bottom))
            y = bottom + RUN_GAP
        ends.append((top, y - RUN_GAP))
        y += PAIR_GAP
    bottom = y - PAIR_GAP
    for side, _, top, end in rows:
        scene.rect(LEFT, top - 1, PIXELS, end - top + 1, PAPER[side])
    scene.axis(window, bottom)
    for x in dict.fromkeys(LEFT + PIXELS * time / window[1] for time in comparison.makespans_ns):
        scene.line(x, TOP - 4, x, bottom, "#333", stroke_dasharray="4 3")
    for at, (side, heights, top, end) in enumerate(rows):
        layers[side].draw(scene, heights)
        scene.label("AB"[side], (top + end) // 2 + 4)
        if side:
            begin = ends[at // 2][0]
            scene.label(label_of_ranks(pairs[at // 2].ranks), (begin + end + RUN_GAP) // 2 + 3, x=LEFT - 24)
    is_marked = _partings(scene, comparison, pairs, ends, window[1])
    scene.legend(legend_of(layers), bottom + 20)
    texts = [f"{MEANING}; {MARKED}" if is_marked else MEANING, *_notes(comparison, len(pairs), every)]
    return scene.finish(texts, bottom + 38)


def _heights(layers: Painted, place: int, y: int) -> dict[int, int]:
    """Return y by track, for the lanes that an actor uses, and at least one."""
    tracks = np.arange(place * len(LANES), (place + 1) * len(LANES))
    used = tracks[layers.is_used[tracks]].tolist()
    return {track: y + LANE_HEIGHT * row for row, track in enumerate(used or tracks[:1].tolist())}


def _partings(
    scene: Scene,
    comparison: Comparison,
    pairs: Sequence[RankPair],
    ends: Sequence[tuple[int, int]],
    whole: int,
) -> bool:
    """Mark where the ranks of each pair begin to differ; return whether any do."""
    if comparison.ranks is None:
        return False
    times = parting_times(comparison.a, comparison.b, [pair.actors for pair in pairs])
    for time, (top, bottom) in zip(times, ends, strict=True):
        if time is not None:
            x = LEFT + PIXELS * time / whole
            shape = f"M{x:.1f} {top - 2}V{bottom + 1}M{x - 4:.1f} {top - 6}h8l-4 5z"
            title = f"they differ from {format_ns(time)} on"
            scene.path(shape, title, class_="parting", stroke=LIMIT, fill=LIMIT)
    return any(time is not None for time in times)


def _notes(comparison: Comparison, shown: int, every: int) -> list[str]:
    """Return descriptions of the runs, and notes on what the picture leaves out."""
    texts = [_described(name, run) for name, run in (("A", comparison.a), ("B", comparison.b))]
    if comparison.ranks is None:
        a, b = (plural(run.summary["ranks"], "rank") for run in (comparison.a, comparison.b))
        texts.append(f"A has {a}, B {b}: shown are ranks that both have")
    texts += not_shown(every - shown, "row", " of ranks whose finish differs no more")
    return texts


def _described(name: str, run: RunDirectory) -> str:
    kept = recorded_part(run)
    text = f"{name}: {run.path.resolve().name}, {run.summary['status']}"
    text += f", {format_ns(run.summary['makespan_ns'])}"
    return f"{text}; it holds only nodes of {kept}" if kept else text
