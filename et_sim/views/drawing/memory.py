"""One actor's local memory over time as a picture, stacked by class of tensors, with its peak and capacity.

Steps are reduced to the columns of the picture: each shows the classes at its highest use.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_bytes, format_ns
from et_sim.tables.declaration import CAPACITY
from et_sim.views.drawing.scene import LEFT, LETTER, LIMIT, PIXELS, TOP, Scene, nothing_to_draw, number
from et_sim.views.run.columns import coded, numbers
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection, recorded_part
from et_sim.views.summary.memory import NOT_TRACKED
from et_sim.views.text import shortened

COLUMNS, HEIGHT, GRID = PIXELS, 240, 4
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "#0072b2",
        "gradients": "#d55e00",
        "optimizer": "#cc79a7",
        "activations": "#009e73",
        "temporary": "#f0e442",
        "unknown": "#999999",
    }
)
HEADROOM = 1.08
NEAR = 1.5  # multiple of the peak up to which the capacity is in the picture
PEAK = "#333"
LEGIBLE: dict[str, Any] = {"stroke": "#fff", "stroke_width": "3", "paint_order": "stroke"}  # on any colour
OF_FULLEST = "of these ranks, the fullest; --ranks chooses others"


class ActorMemory(Struct, frozen=True, eq=False):
    """Contents of an actor's memory from each change on."""

    ranks: str
    time_ns: Any
    delta_bytes: Any
    alive_bytes: Any
    code: Any  # index of the class
    classes: tuple[str, ...]


def memory_picture(run: RunDirectory, part: Selection = EVERYTHING) -> str:
    """Return the SVG text."""
    part.check_ranks(run)
    if not run.holds("memory"):
        raise nothing_to_draw(NOT_TRACKED, run, part)
    memory, actors = fullest_actor(run, part)
    if memory is None:
        raise nothing_to_draw("no tensor is ever alive", run, part)
    makespan, capacity = max(run.summary["makespan_ns"], 1), capacity_of(run)
    peak, at_ns = int(memory.alive_bytes.max()), int(memory.time_ns[int(np.argmax(memory.alive_bytes))])
    has_line = capacity is not None and capacity <= NEAR * peak
    most = round(HEADROOM * max(peak, capacity if has_line and capacity else 0, 1))
    columns = (memory.time_ns, memory.delta_bytes, memory.alive_bytes, memory.code)
    stacked = stacked_levels(*columns, len(memory.classes), makespan)
    scene, bottom, entries = Scene(), TOP + HEIGHT, []
    scene.axis((0, makespan), bottom)
    for size in round_sizes(most):
        scene.level(_y(size, most), format_bytes(size))
    for at, name in enumerate(memory.classes):
        if stacked[:, at].any():
            lower, upper = stacked[:, :at].sum(axis=1), stacked[:, : at + 1].sum(axis=1)
            scene.path(_area(upper, lower, most), fill=COLOURS.get(name, PEAK))
            entries.append((COLOURS.get(name, PEAK), name))
    if has_line and capacity is not None:
        y = _y(capacity, most)
        scene.line(LEFT, y, LEFT + PIXELS, y, LIMIT, stroke_dasharray="6 4")
        side, anchor = (LEFT + 6, "start") if 2 * at_ns > makespan else (LEFT + PIXELS, "end")
        scene.text(side, y + 14, f"capacity: {format_bytes(capacity)}", anchor, fill=LIMIT, **LEGIBLE)
    x, y = LEFT + PIXELS * at_ns / makespan, _y(peak, most)
    text = f"peak: {format_bytes(peak)} at {format_ns(at_ns)}"
    scene.circle(x, y, 4, "#fff", stroke=PEAK, stroke_width=1.5)
    is_left = x + 10 + LETTER * len(text) < LEFT + PIXELS
    aside, anchor = (8, "start") if is_left else (-8, "end")
    scene.text(x + aside, y - 6, text, anchor, fill=PEAK, **LEGIBLE)
    scene.legend(entries, bottom + 24)
    named = f"rank{'' if memory.ranks.isdigit() else 's'} {shortened(memory.ranks, 60)}"
    texts = [f"{named}{f': {OF_FULLEST}' if actors > 1 else ''}"]
    if capacity and not has_line:
        texts.append(f"the capacity, {format_bytes(capacity)}, is above the picture")
    texts += [f"only of the recorded part: {kept}"] if (kept := recorded_part(run)) else []
    return scene.finish(texts, bottom + 42)


def round_sizes(most: int) -> range:
    """Return powers of two, or multiples of one, up to a size."""
    return range(0, most + 1, 1 << max(most // GRID - 1, 0).bit_length())


def capacity_of(run: RunDirectory) -> int | None:
    """Return the local memory of an NPU; None if the machine does not state it."""
    text = run.metadata("memory").get(CAPACITY.encode(), b"").decode()
    return int(text) if text.isdecimal() else None


def fullest_actor(run: RunDirectory, part: Selection) -> tuple[ActorMemory | None, int]:
    """Return (memory of the selected actor with the highest peak, number of actors with memory)."""
    ranks = part.of_actors(run)
    most = np.full(len(ranks), -1, np.int64)
    for rows in run.batches("memory", ("actor", "alive_bytes")):
        np.maximum.at(most, numbers(rows["actor"]), numbers(rows["alive_bytes"]))
    most[[not of for of in ranks]] = -1
    chosen = int(np.argmax(most))
    if most[chosen] < 0:
        return None, 0
    parts: list[tuple[Any, ...]] = []
    classes: tuple[str, ...] = ()
    for rows in run.batches("memory", ("actor", "time_ns", "class", "delta_bytes", "alive_bytes")):
        classes = tuple(rows["class"].dictionary.to_pylist())
        of_actor = numbers(rows["actor"]) == chosen
        columns = (numbers(rows[name])[of_actor] for name in ("time_ns", "delta_bytes", "alive_bytes"))
        parts.append((*columns, coded(rows["class"])[of_actor]))
    time, delta, alive, code = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ActorMemory(ranks[chosen], time, delta, alive, code, classes), int((most >= 0).sum())


def stacked_levels(time: Any, delta: Any, alive: Any, code: Any, classes: int, makespan: int) -> Any:
    """Return, by column of the picture, the bytes of each class at the column's highest use."""
    by_class = np.zeros((len(time) + 1, classes), np.int64)
    by_class[np.arange(1, len(time) + 1), code] = delta
    by_class = np.cumsum(by_class, axis=0)  # after the n-th change
    boundaries = np.arange(COLUMNS + 1) * makespan // COLUMNS
    first = np.searchsorted(time, boundaries[:-1], side="right")
    last = np.searchsorted(time, boundaries[1:], side="left")
    at, before = first.copy(), np.append(0, alive)
    for column in np.flatnonzero(last > first).tolist():
        fullest = first[column] + int(np.argmax(alive[first[column] : last[column]]))
        if alive[fullest] > before[first[column]]:
            at[column] = np.searchsorted(time, time[fullest], side="right")
    return by_class[at]


def _y(size: float, most: int) -> float:
    return TOP + HEIGHT * (1 - size / most)


def _area(upper: Any, lower: Any, most: int) -> str:
    """Return the outline of the area between two levels."""
    changed = np.flatnonzero((np.diff(upper, prepend=-1) != 0) | (np.diff(lower, prepend=-1) != 0)).tolist()
    spans = list(zip(changed, [*changed[1:], COLUMNS], strict=True))
    there = "".join(f"L{LEFT + a} {number(_y(upper[a], most))}H{LEFT + b}" for a, b in spans)
    back = "".join(f"L{LEFT + b} {number(_y(lower[a], most))}H{LEFT + a}" for a, b in reversed(spans))
    return f"M{there[1:]}{back}Z"
