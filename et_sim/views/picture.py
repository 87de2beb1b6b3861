"""The timeline as an SVG picture: a lane per actor and resource, coloured by kind.

The picture is a grid of pixel columns: in each, a lane takes the colour of what filled most of it, so
the file's size depends on the picture's and not on the number of rows. Not here: anything interactive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from et_sim.errors import UsageError
from et_sim.units import format_ns
from et_sim.views.colours import NEVER, colour_of
from et_sim.views.rank_table import slowest_first
from et_sim.views.run_directory import RunDirectory
from et_sim.views.text import plural, shortened

PIXELS = 900
MOST_ACTORS = 32
LEFT, TOP, RIGHT = 96, 34, 24
LANE_HEIGHT, ACTOR_GAP = 11, 7
TICKS = 6
LEAST_SEPARATED = 5  # pixels
COLUMNS = ("actor", "kind", "lane", "start_ns", "end_ns")

LANES = ("cpu", "compute", "communication")
LANE_OF = {"cpu": "cpu", "compute": "compute"}  # all others show in that of communication


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """What is drawn: rows that take time, of the actors that are shown."""

    strip: Any  # actor position * len(LANES) + lane
    kind: Any  # index into `kinds`
    start: Any  # in pixels
    end: Any
    kinds: tuple[str, ...]


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
    slices = _slices(run, list(labels), makespan)
    painted = _paint(slices, len(labels) * len(LANES))
    heights = _strip_positions(painted, len(labels))
    bottom = max(heights.values(), default=TOP) + LANE_HEIGHT
    parts = [*_axis(makespan, bottom), *_actor_labels(list(labels.values()), heights)]
    parts += _strips(painted, heights, slices.kinds)
    used = [kind for code, kind in enumerate(slices.kinds) if (painted == code).any()]
    hidden = run.summary["folded"]["actors"] - len(labels)
    parts += _legend(used, bottom + 20, hidden)
    right = f'x="{LEFT + PIXELS}" y="{bottom + 20}" text-anchor="end"'
    parts.append(f"<text {right}>{run.summary['status']}: {format_ns(run.summary['makespan_ns'])}</text>")
    return _document(parts, bottom + 34)


def _labels(run: RunDirectory) -> dict[int, str]:
    """Actor -> label; all of them, or the slowest."""
    actors = run.actors().select(["actor", "ranks", "finish_ns"]).to_pylist()
    chosen = actors if len(actors) <= MOST_ACTORS else slowest_first(actors)[:MOST_ACTORS]
    chosen = sorted(chosen, key=lambda actor: actor["actor"])
    names = {a["actor"]: f"rank{'' if a['ranks'].isdigit() else 's'} {a['ranks']}" for a in chosen}
    return {actor: shortened(name, 14) for actor, name in names.items()}


def _slices(run: RunDirectory, actors: list[int], makespan: int) -> Slices:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = run.timeline(COLUMNS).unify_dictionaries()
    table = table.filter(pc.is_in(table["actor"], pa.array(actors, pa.int32()))).combine_chunks()
    columns = {name: table[name].combine_chunks() for name in COLUMNS}
    end = columns["end_ns"].fill_null(makespan).to_numpy(zero_copy_only=False)
    start = columns["start_ns"].to_numpy()
    lanes = columns["lane"]
    lane_codes = [LANES.index(LANE_OF.get(name, "communication")) for name in lanes.dictionary.to_pylist()]
    lane = np.array(lane_codes, np.int64)[lanes.indices.to_numpy()]
    names = columns["kind"].dictionary.to_pylist()
    kinds = (*names, "cpu", NEVER)
    kind = columns["kind"].indices.to_numpy().astype(np.int64)
    kind = np.where(lane == LANES.index("cpu"), len(names), kind)
    kind = np.where(columns["end_ns"].is_null().to_numpy(zero_copy_only=False), len(names) + 1, kind)
    strip = np.searchsorted(actors, columns["actor"].to_numpy()) * len(LANES) + lane
    scale, drawn = PIXELS / makespan, end > start
    return Slices(strip[drawn], kind[drawn], start[drawn] * scale, end[drawn] * scale, kinds)


def _paint(slices: Slices, strips: int) -> Any:
    """Kind per strip and pixel column; -1 where nothing happens, and between slices wide enough to tell."""
    painted = np.full((strips, PIXELS), -1, np.int16)
    most = np.zeros((strips, PIXELS))
    for code in range(len(slices.kinds)):
        this = slices.kind == code
        if this.any():
            filled = _filled(slices.strip[this], slices.start[this], slices.end[this], strips)
            painted[filled > most] = code
            most = np.maximum(most, filled)
    long = (slices.end - slices.start >= LEAST_SEPARATED) & (slices.start >= 1)
    painted[slices.strip[long], slices.start[long].astype(np.int64)] = -1
    return painted


def _filled(strip: Any, start: Any, end: Any, strips: int) -> Any:
    """How much of every pixel column is filled, as the growth of what is filled from the left.

    A slice adds max(x - start, 0) - max(x - end, 0) to what is filled left of x; each term is a slope
    that begins in some column, partly there and wholly in the columns after it.
    """
    growth = np.zeros((strips, PIXELS + 2))
    for edge, sign in ((start, 1.0), (end, -1.0)):
        column = np.minimum(edge.astype(np.int64), PIXELS)
        inside = column + 1 - edge
        np.add.at(growth, (strip, column), sign * inside)
        np.add.at(growth, (strip, column + 1), sign * (1 - inside))
    filled = np.cumsum(growth, axis=1)[:, :PIXELS]
    return np.where(filled > 1e-9, filled, 0.0)  # sums of fractions leave dust


def _strip_positions(painted: Any, actors: int) -> dict[int, int]:
    """Strip -> its y; a resource that no actor uses gets no strip."""
    used = (painted >= 0).any(axis=1).reshape(actors, len(LANES)).any(axis=0)
    positions, y = {}, TOP
    for actor in range(actors):
        for lane in np.flatnonzero(used).tolist():
            positions[actor * len(LANES) + lane] = y
            y += LANE_HEIGHT
        y += ACTOR_GAP
    return positions


def _strips(painted: Any, heights: dict[int, int], kinds: tuple[str, ...]) -> list[str]:
    """One path per strip and kind."""
    parts = []
    for strip, y in heights.items():
        row = painted[strip]
        edges = np.flatnonzero(np.diff(row)) + 1
        firsts = np.concatenate(([0], edges))
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
        lanes = [y for strip, y in heights.items() if strip // len(LANES) == position]
        if lanes:
            middle = (lanes[0] + lanes[-1] + LANE_HEIGHT) // 2 + 4
            parts.append(f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>')
    return parts


def _axis(makespan: int, bottom: int) -> list[str]:
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


def _document(parts: list[str], height: int) -> str:
    width = LEFT + PIXELS + RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11" fill="#333">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>", ""])
