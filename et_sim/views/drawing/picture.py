"""The timeline as an SVG picture: a lane per actor and resource, coloured by kind.

The picture is a grid of pixel columns: in each, a lane takes the colour of what filled most of it, the paler
the less it filled, so the file's size depends on the picture's and not on the number of rows. What waits for
other ranks, or in a queue of its own, is a thin line: only what moves bytes is as high as a kernel.

Not here: anything interactive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.intervals import filling, levels
from et_sim.basics.units import format_ns, plural
from et_sim.tables.kinds import NOT_COMMUNICATION
from et_sim.views.drawing.colours import BACKWARD, NEVER, colour_of, drawn_kinds, is_backward
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
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.recorded_part import recorded_part
from et_sim.views.run.selection import EVERYTHING, Selection, Window
from et_sim.views.summary.rank_table import slowest_first

MOST_ACTORS = 32
LANE_HEIGHT, ACTOR_GAP = 11, 7
WAITING_HEIGHT = 3
DENSITIES = 4  # steps of opacity
LEAST_SEPARATED = 5  # pixels
COLUMNS = ("actor", "name", "kind", "lane", "start_ns", "end_ns", "queued_ns", "waiting_ns")

LANES = ("cpu", "compute", "communication")
LANE_OF = {"cpu": "cpu", "compute": "compute"}  # all others show in that of communication
THIN = "thin: waits for another rank, or in a queue of its own"
PALE = "pale: takes only part of the time"


@dataclass(frozen=True, slots=True, eq=False)
class PictureLayer:
    """What fills most of each track and pixel column, -1: nothing; and how much of it, in steps.

    A track is a lane of an actor. Nothing is between slices that are wide enough to tell.
    """

    kind: Any
    density: Any


def picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """The SVG text, of some ranks and a window of time."""
    labels, window = _labels(run, part), part.window_of(run)
    waiting, moving, kinds = painted(run, list(labels), window)
    is_used = ((waiting.kind >= 0) | (moving.kind >= 0)).any(axis=1)
    heights = strip_positions(is_used, len(labels))
    bottom = max(heights.values(), default=TOP) + LANE_HEIGHT
    parts = [*axis(window, bottom), *_actor_labels(list(labels.values()), heights)]
    parts += strips(waiting, moving, heights, kinds)
    used = [
        kind for code, kind in enumerate(kinds) if any((at.kind == code).any() for at in (waiting, moving))
    ]
    parts += legend([(colour_of(kind), kind.replace("_", " ")) for kind in used], bottom + 20)
    right = f'x="{LEFT + PIXELS}" y="{bottom + 20}" text-anchor="end"'
    parts.append(f"<text {right}>{run.summary['status']}: {format_ns(run.summary['makespan_ns'])}</text>")
    thin = (waiting.kind >= 0).any()
    pale = any(((at.kind >= 0) & (at.density < DENSITIES)).any() for at in (waiting, moving))
    texts = ["; ".join(filter(None, (THIN if thin else "", PALE if pale else "")))] if thin or pale else []
    texts += _remarks(run, part, len(labels))
    return document([*parts, *sentences(texts, bottom + 38)], bottom + 34 + 15 * len(texts))


def _labels(run: RunDirectory, part: Selection) -> dict[int, str]:
    """Actor -> label; all of them that have selected ranks, or the slowest."""
    part.check_ranks(run)
    actors = run.actors().select(["actor", "ranks", "finish_ns"]).to_pylist()
    actors = [{**actor, "ranks": some} for actor in actors if (some := part.names(actor["ranks"]))]
    chosen = actors if len(actors) <= MOST_ACTORS else slowest_first(actors)[:MOST_ACTORS]
    chosen = sorted(chosen, key=lambda actor: actor["actor"])
    return {actor["actor"]: label_of_ranks(actor["ranks"]) for actor in chosen}


def _remarks(run: RunDirectory, part: Selection, shown: int) -> list[str]:
    """What is left out."""
    hidden = sum(bool(part.names(text)) for text in run.actors()["ranks"].to_pylist()) - shown
    kept = recorded_part(run)
    found = [f"… and {plural(hidden, 'faster actor')}: --ranks chooses others"] if hidden else []
    return [*found, *([f"the run holds only nodes of {kept}"] if kept else [])]


def painted(
    run: RunDirectory, actors: list[int], window: Window
) -> tuple[PictureLayer, PictureLayer, tuple[str, ...]]:
    """What waits, and everything else, in columns of a window; and the names of kinds."""
    shape, span = (len(actors) * len(LANES), PIXELS), window[1] - window[0]
    last = min(window[1], max(run.summary["makespan_ns"], window[0] + 1))  # of what never ends
    filled: list[dict[int, Any]] = [{}, {}]
    boundaries = np.zeros((2, *shape), np.bool_)
    kinds: tuple[str, ...] = (NEVER,)
    backward = None
    for batch in run.batches("timeline", COLUMNS):
        kinds = (*batch["kind"].dictionary.to_pylist(), NEVER, BACKWARD)  # the same in all batches
        if backward is None:
            backward = is_backward((*batch["name"].dictionary.to_pylist(), None))
        drawn = _drawn(batch, actors, window, kinds, backward, last)
        for layer, (track, kind, start, end) in enumerate(drawn):
            for one in np.flatnonzero(np.bincount(kind)).tolist():
                this = kind == one
                more = filling(track[this], start[this], end[this], 1.0, shape, span)
                filled[layer][one] = filled[layer][one] + more if one in filled[layer] else more
            begin = start * (PIXELS / span)
            long = np.flatnonzero(((end - start) * (PIXELS / span) >= LEAST_SEPARATED) & (begin >= 1))
            boundaries[layer, track[long], begin[long].astype(np.int64)] = True
    never = kinds.index(NEVER)
    waiting, moving = (_fullest(*one, never) for one in zip(filled, boundaries, strict=True))
    return waiting, moving, kinds


def _fullest(filled: dict[int, Any], boundaries: Any, foremost: int) -> PictureLayer:
    kind, most = np.full(boundaries.shape, -1, np.int16), np.zeros(boundaries.shape)
    for code, changes in sorted(filled.items(), key=lambda one: (one[0] != foremost, one[0])):
        here = np.round(levels(changes), 9)  # sums of fractions leave dust
        kind[here > most] = code
        most = np.maximum(most, here)
    kind[boundaries] = -1
    return PictureLayer(kind, np.ceil(most * DENSITIES).clip(1, DENSITIES).astype(np.int16))


def _drawn(
    batch: Any, actors: list[int], window: Window, kinds: tuple[str, ...], backward: Any, last: int
) -> list[tuple[Any, ...]]:
    """Track, kind, start and end in the window, of what waits and of all else, of some actors."""
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
    found = []
    for begin, until in ((start, moved), (moved, end)):
        begin, until = np.clip(begin, *window), np.clip(until, *window)
        some = np.flatnonzero(until > begin)
        found.append((track[some], kind[some], begin[some] - window[0], until[some] - window[0]))
    return found


def strip_positions(is_used: Any, actors: int) -> dict[int, int]:
    """Track -> its y; a resource that no actor uses gets no track."""
    used = is_used.reshape(actors, len(LANES)).any(axis=0)
    positions, y = {}, TOP
    for actor in range(actors):
        for lane in np.flatnonzero(used).tolist():
            positions[actor * len(LANES) + lane] = y
            y += LANE_HEIGHT
        y += ACTOR_GAP
    return positions


def strips(
    waiting: PictureLayer, moving: PictureLayer, heights: dict[int, int], kinds: tuple[str, ...]
) -> list[str]:
    """What moves on top of what waits; but nothing hides what never completed."""
    parts = _strips(waiting, heights, kinds, WAITING_HEIGHT)
    parts += _strips(moving, heights, kinds, LANE_HEIGHT - 1)
    never = kinds.index(NEVER)
    return parts + _strips(
        PictureLayer(np.where(waiting.kind == never, never, -1), waiting.density),
        heights,
        kinds,
        WAITING_HEIGHT,
    )


def _strips(layer: PictureLayer, heights: dict[int, int], kinds: tuple[str, ...], height: int) -> list[str]:
    """One path per track, kind and density."""
    parts = []
    for track, y in heights.items():
        row = np.where(layer.kind[track] < 0, -1, layer.kind[track] * (DENSITIES + 1) + layer.density[track])
        firsts = np.flatnonzero(np.diff(row, prepend=-2))
        lengths = np.diff(firsts, append=PIXELS)
        top = y + (LANE_HEIGHT - 1 - height) // 2
        for code in np.unique(row[row >= 0]).tolist():
            here = row[firsts] == code
            kind, steps = divmod(code, DENSITIES + 1)
            runs = zip(firsts[here].tolist(), lengths[here].tolist(), strict=True)
            shape = "".join(f"M{LEFT + x} {top}h{w}v{height}h-{w}z" for x, w in runs)
            pale = f' fill-opacity="{steps / DENSITIES:g}"' if steps < DENSITIES else ""
            parts.append(f'<path fill="{colour_of(kinds[kind])}"{pale} d="{shape}"/>')
    return parts


def _actor_labels(labels: list[str], heights: dict[int, int]) -> list[str]:
    parts = []
    for position, name in enumerate(labels):
        lanes = [y for track, y in heights.items() if track // len(LANES) == position]
        if lanes:
            middle = (lanes[0] + lanes[-1] + LANE_HEIGHT) // 2
            parts.append(label(name, middle + 4))
    return parts
