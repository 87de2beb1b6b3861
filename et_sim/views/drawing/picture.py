"""The timeline as an SVG picture: a lane per actor and resource, coloured by kind.

The picture is a grid of pixel columns: in each, a lane takes the colour of what filled most of it, so
the file's size depends on the picture's and not on the number of rows. Not here: anything interactive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from et_sim.errors import UsageError
from et_sim.intervals import filling, levels
from et_sim.units import format_ns, plural
from et_sim.views.drawing.colours import NEVER, colour_of
from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.rank_table import slowest_first
from et_sim.views.text import shortened

PIXELS = 900
MOST_ACTORS = 32
LEFT, TOP, RIGHT = 96, 34, 24
LANE_HEIGHT, ACTOR_GAP = 11, 7
TICKS = 6
LEAST_SEPARATED = 5  # pixels
COLUMNS = ("actor", "kind", "lane", "start_ns", "end_ns")

LANES = ("cpu", "compute", "communication")
LANE_OF = {"cpu": "cpu", "compute": "compute"}  # all others show in that of communication


def write_picture(run: RunDirectory, target: Path) -> None:
    """Draw a run into an SVG file."""
    try:
        target.write_text(picture(run), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot be written: {reason}", place=str(target), remedy="name a writable file"
        ) from None


def picture(run: RunDirectory) -> str:
    """The SVG text."""
    labels = _labels(run)
    makespan = max(int(run.summary["makespan_ns"]), 1)
    painted, kinds = _painted(run, list(labels), makespan)
    heights = _strip_positions(painted, len(labels))
    bottom = max(heights.values(), default=TOP) + LANE_HEIGHT
    parts = [*axis(makespan, bottom), *_actor_labels(list(labels.values()), heights)]
    parts += _tracks(painted, heights, kinds)
    used = [kind for code, kind in enumerate(kinds) if (painted == code).any()]
    hidden = run.summary["folded"]["actors"] - len(labels)
    parts += _legend(used, bottom + 20, hidden)
    right = f'x="{LEFT + PIXELS}" y="{bottom + 20}" text-anchor="end"'
    parts.append(f"<text {right}>{run.summary['status']}: {format_ns(run.summary['makespan_ns'])}</text>")
    return document(parts, bottom + 34)


def _labels(run: RunDirectory) -> dict[int, str]:
    """Actor -> label; all of them, or the slowest."""
    actors = run.actors().select(["actor", "ranks", "finish_ns"]).to_pylist()
    chosen = actors if len(actors) <= MOST_ACTORS else slowest_first(actors)[:MOST_ACTORS]
    chosen = sorted(chosen, key=lambda actor: actor["actor"])
    names = {a["actor"]: f"rank{'' if a['ranks'].isdigit() else 's'} {a['ranks']}" for a in chosen}
    return {actor: shortened(name, 14) for actor, name in names.items()}


def _painted(run: RunDirectory, actors: list[int], makespan: int) -> tuple[Any, tuple[str, ...]]:
    """Kind per track and pixel column; -1 where nothing happens, and between slices wide enough to tell.

    A track is a lane of an actor. Also the names of the kinds.
    """
    tracks, scale = len(actors) * len(LANES), PIXELS / makespan
    filled: dict[int, Any] = {}
    boundaries = np.zeros((tracks, PIXELS), np.bool_)
    kinds: tuple[str, ...] = ()
    for batch in run.batches("timeline", COLUMNS):
        kinds = kinds or (*batch["kind"].dictionary.to_pylist(), NEVER)
        track, kind, start, end = _drawn(batch, actors, makespan, kinds)
        for code in np.flatnonzero(np.bincount(kind)).tolist():
            this = kind == code
            more = filling(track[this], start[this], end[this], 1.0, (tracks, PIXELS), makespan)
            filled[code] = filled[code] + more if code in filled else more
        long = np.flatnonzero(((end - start) * scale >= LEAST_SEPARATED) & (start * scale >= 1))
        boundaries[track[long], (start[long] * scale).astype(np.int64)] = True
    painted, most = np.full((tracks, PIXELS), -1, np.int16), np.zeros((tracks, PIXELS))
    for code, changes in sorted(filled.items()):
        here = np.round(levels(changes), 9)  # sums of fractions leave dust
        painted[here > most] = code
        most = np.maximum(most, here)
    painted[boundaries] = -1
    return painted, kinds


def _drawn(batch: Any, actors: list[int], makespan: int, kinds: tuple[str, ...]) -> tuple[Any, ...]:
    """Track, kind, start and end of what takes time, of the actors that are shown."""
    actor, start = numbers(batch["actor"]), numbers(batch["start_ns"])
    ended = integers(batch["end_ns"], missing=-1)
    end = np.where(ended < 0, makespan, ended)
    rows = np.flatnonzero(np.isin(actor, actors) & (end > start))
    lanes = (*batch["lane"].dictionary.to_pylist(), None)
    lane_codes = [LANES.index(LANE_OF.get(name, "communication")) for name in lanes]
    lane = np.array(lane_codes, np.int64)[coded(batch["lane"])[rows]]
    kind = np.where(ended[rows] < 0, kinds.index(NEVER), coded(batch["kind"])[rows])
    return np.searchsorted(actors, actor[rows]) * len(LANES) + lane, kind, start[rows], end[rows]


def _strip_positions(painted: Any, actors: int) -> dict[int, int]:
    """Track -> its y; a resource that no actor uses gets no track."""
    used = (painted >= 0).any(axis=1).reshape(actors, len(LANES)).any(axis=0)
    positions, y = {}, TOP
    for actor in range(actors):
        for lane in np.flatnonzero(used).tolist():
            positions[actor * len(LANES) + lane] = y
            y += LANE_HEIGHT
        y += ACTOR_GAP
    return positions


def _tracks(painted: Any, heights: dict[int, int], kinds: tuple[str, ...]) -> list[str]:
    """One path per track and kind."""
    parts = []
    for track, y in heights.items():
        row = painted[track]
        boundaries = np.flatnonzero(np.diff(row)) + 1
        firsts = np.concatenate(([0], boundaries))
        lengths = np.diff(np.concatenate((firsts, [PIXELS])))
        for code in np.unique(row[row >= 0]).tolist():
            here = row[firsts] == code
            runs = zip(firsts[here].tolist(), lengths[here].tolist(), strict=True)
            shape = "".join(f"M{LEFT + x} {y}h{w}v{LANE_HEIGHT - 1}h-{w}z" for x, w in runs)
            parts.append(f'<path fill="{colour_of(kinds[code])}" d="{shape}"/>')
    return parts


def _actor_labels(labels: list[str], heights: dict[int, int]) -> list[str]:
    parts = []
    for position, label in enumerate(labels):
        lanes = [y for track, y in heights.items() if track // len(LANES) == position]
        if lanes:
            middle = (lanes[0] + lanes[-1] + LANE_HEIGHT) // 2 + 4
            parts.append(f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>')
    return parts


def axis(makespan: int, bottom: int) -> list[str]:
    """Vertical lines at round times, and the end."""
    step = round_step(makespan / TICKS)
    parts = []
    for moment in range(0, makespan + 1, step):
        x = LEFT + round(PIXELS * moment / makespan)
        parts.append(f'<path stroke="#d5d9de" d="M{x} {TOP - 6}V{bottom}"/>')
        anchor = "start" if moment == 0 else "middle"
        parts.append(f'<text x="{x}" y="{TOP - 12}" text-anchor="{anchor}">{format_ns(moment)}</text>')
    return parts


def round_step(span: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50, … that is not below `span`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= span:
                return digit * power
        power *= 10


def _legend(kinds: list[str], y: int, hidden: int) -> list[str]:
    parts, x = [], LEFT
    for kind in kinds:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour_of(kind)}"/>')
        parts.append(f'<text x="{x + 14}" y="{y}">{escape(kind.replace("_", " "))}</text>')
        x += 34 + 7 * len(kind)
    if hidden > 0:
        parts.append(f'<text x="{x}" y="{y}">… and {plural(hidden, "faster actor")}</text>')
    return parts


def document(parts: list[str], height: int) -> str:
    width = LEFT + PIXELS + RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11" fill="#333">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""])
