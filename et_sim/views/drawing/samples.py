"""Picture of samples: a histogram of the step with its percentiles; the slowest tenth has a colour."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import format_ns, plural
from et_sim.tables.goodput_tables import SAMPLES
from et_sim.views.drawing.scene import LEFT, PIXELS, TOP, Scene, nothing_to_draw
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import Selection
from et_sim.views.summary.samples import samples_of, step_times

HEIGHT, MOST_BARS = 150, 40
PERCENTILES = ("p50", "p90", "p99")
MOST, TAIL = ("#0072b2", "other samples"), ("#d55e00", "the slowest tenth")


def samples_picture(run: RunDirectory, part: Selection) -> str:
    """Return the SVG text; raise a refusal if there are no samples."""
    if not run.holds(SAMPLES.name):
        raise nothing_to_draw(SAMPLES.not_recorded, run, part)
    scene, bottom, sentences = _drawn(run)
    return scene.finish(sentences, bottom)


def samples_drawing(run: RunDirectory) -> str:
    """Return the picture as a part of a page."""
    scene, bottom, _ = _drawn(run)
    return scene.svg(bottom)


def _drawn(run: RunDirectory) -> tuple[Scene, int, list[str]]:
    samples, steps = samples_of(run), np.sort(step_times(run))
    slowest = steps[len(steps) - samples["blame"]["slowest"] :]
    low, high = int(steps[0]), max(int(steps[-1]), int(steps[0]) + 1)
    bars = min(MOST_BARS, len(steps))
    every, edges = np.histogram(steps, bars, (low, high))
    tail, _ = np.histogram(slowest, bars, (low, high))
    scene, most, bottom = Scene(), max(int(every.max()), 1), TOP + HEIGHT
    scene.label(f"{plural(most, 'sample')}", TOP + 8)
    _bars(scene, every - tail, np.zeros(bars), most, bottom, MOST)
    _bars(scene, tail, every - tail, most, bottom, TAIL)
    for name in PERCENTILES:
        estimate = samples["step"][name]
        x = LEFT + PIXELS * (estimate["value_ns"] - low) / (high - low)
        scene.line(x, TOP, x, bottom)
        scene.text(x, TOP - 4, name, "middle")
    for edge in (float(edges[0]), float(edges[bars // 3]), float(edges[2 * bars // 3])):
        scene.upright(
            LEFT + PIXELS * (edge - low) / (high - low),
            bottom,
            bottom + 6,
            format_ns(round(edge)),
            bottom + 18,
        )
    scene.legend([MOST, TAIL], bottom + 40)
    mean = format_ns(round(samples["step"]["mean"]["value_ns"]))
    sentence = f"the step of {samples['samples']:,} samples, {mean} in the mean"
    return scene, bottom + 76, [sentence]


def _bars(scene: Scene, counts: Any, below: Any, most: int, bottom: int, colour: tuple[str, str]) -> None:
    """Draw bars of counts above others."""
    width = PIXELS / len(counts)
    for at in np.flatnonzero(counts).tolist():
        high, base = (HEIGHT * float(column[at]) / most for column in (counts, below))
        scene.rect(
            LEFT + width * at, bottom - base - high, width, high, colour[0], f"{counts[at]:,}: {colour[1]}"
        )
