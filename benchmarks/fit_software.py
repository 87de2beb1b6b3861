"""Fit named figures of a description of software to measured steps, with errors on steps left out.

    python benchmarks/fit_software.py steps_today.csv --rows 1-12 --software torchtitan \\
        --figure host.launch=3e3:500:2e4 --figure shares.after-gather.values=2:1:4
    python benchmarks/fit_software.py iterations.json --rows llm_foundry_mpt:1-78:8 --software fsdp1 \\
        --figure host.launch=6e3:500:2e4

Rows of a CSV file have the columns `make` and `run`, commands of et-sim, and `measured_s`; those of a JSON
file are read as `et-sim validate` reads them (TABLE:FIRST-LAST:EVERY). A figure is a path of keys with its
first, least and largest value; times are in nanoseconds. At most six may be given.

Each step of the fit simulates every row once as it is, and once for each figure with that figure a little
larger or smaller; logarithms of the times are taken as linear in the figures. Errors on rows left out follow
from the same lines: figures are fitted without a row, and predict it. Nothing is written but a table
and the figures, as a file of one's own could have them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

MOST_FIGURES = 6
STEP = 0.1  # of the range of a figure, by which it is changed to see what it does
Simulate = Callable[[str], float]  # seconds, of a file of software


class Row(Struct, frozen=True):
    """A measured step, and how it is simulated."""

    name: str
    measured_s: float
    simulate: Simulate


class Figure(Struct, frozen=True):
    """A figure to fit."""

    path: tuple[str, ...]
    first: float
    least: float
    most: float

    @staticmethod
    def of(text: str) -> Figure:
        """Return the figure of an option, PATH=FIRST:LEAST:MOST."""
        path, _, numbers = text.partition("=")
        first, least, most = (float(word) for word in numbers.split(":"))
        if not 0 <= least <= first <= most or least == most:
            raise SystemExit(f"{text}: give 0 <= LEAST <= FIRST <= MOST, and a range")
        return Figure(tuple(path.split(".")), first, least, most)


class Fit(Struct, frozen=True):
    """Figures, and errors of rows as logarithms of predicted by measured."""

    values: np.ndarray
    before: np.ndarray
    after: np.ndarray
    left_out: np.ndarray


def fit(rows: Sequence[Row], figures: Sequence[Figure], software: str, steps: int) -> Fit:
    """Fit the figures by so many steps."""
    at, low, high = (
        np.array([getattr(figure, name) for figure in figures]) for name in ("first", "least", "most")
    )
    before = errors = _errors(rows, figures, software, at)
    slopes = np.zeros((len(rows), len(figures)))
    for _ in range(steps):
        for number in range(len(figures)):
            changed, span = at.copy(), STEP * (high - low)[number]
            changed[number] += span if at[number] + span <= high[number] else -span
            slopes[:, number] = _errors(rows, figures, software, changed) - errors
            slopes[:, number] /= changed[number] - at[number]
        at = _solved(slopes, errors, at, low, high)
        errors = _errors(rows, figures, software, at)
    left_out = []
    for row in range(len(rows)):
        others = np.arange(len(rows)) != row
        without = _solved(slopes[others], errors[others], at, low, high)
        left_out.append(errors[row] + float(slopes[row] @ (without - at)))
    return Fit(at, before, errors, np.array(left_out))


def _solved(slopes: Any, errors: Any, at: Any, low: Any, high: Any) -> Any:
    """Return the least squares of errors that are linear, within limits: figures at a limit stay there."""
    free = np.ones(len(at), np.bool_)
    result = at.copy()
    for _ in range(len(at) + 1):
        fixed = slopes[:, ~free] @ (result - at)[~free]
        scaled = slopes[:, free] * (high - low)[free]  # figures have different units
        change = np.linalg.lstsq(scaled, -(errors + fixed), rcond=1e-6)[0]
        result[free] = at[free] + change * (high - low)[free]
        outside = (result < low) | (result > high)
        result = np.clip(result, low, high)
        if not outside.any() or not free.any():
            break
        free &= ~outside
    return result


def _errors(rows: Sequence[Row], figures: Sequence[Figure], software: str, at: Any) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.json"
        path.write_text(json.dumps(description(figures, software, at)), encoding="utf-8")
        return np.array([math.log(row.simulate(str(path)) / row.measured_s) for row in rows])


def description(figures: Sequence[Figure], software: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a file of software that is like another but for the figures."""
    from et_sim.workloads.software.reading import keys_of_software

    content: dict[str, Any] = keys_of_software(software)
    for figure, value in zip(figures, values, strict=True):
        place = content
        for key in figure.path[:-1]:
            place = place.setdefault(key, {})
        place[figure.path[-1]] = float(f"{value:.4g}")
    return content


def steps_of(path: Path, chosen: str) -> list[Row]:
    """Return the rows of a CSV file with commands."""
    numbers = _numbers(chosen)
    with path.open(encoding="utf-8") as file:
        return [
            Row(f"{number} {row['model']}", float(row["measured_s"]), _of_commands(row, path.parent))
            for number, row in enumerate(csv.DictReader(file), 1)
            if number in numbers
        ]


def _of_commands(row: dict[str, str], folder: Path) -> Simulate:
    make, run = (shlex.split(row[name])[1:] for name in ("make", "run"))
    make = [str(folder / word) if word.startswith("models/") else word for word in make]

    def simulate(software: str) -> float:
        from et_sim.cli import main
        from et_sim.execution import execute
        from et_sim.run.options import RunOptions

        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
            job = str(Path(place) / "job")
            if main([*make, "--software", software, "-o", job]):
                raise SystemExit(f"cannot make: {shlex.join(make)}")
            options = RunOptions(machine=run[run.index("--machine") + 1], when_full="report")
            return execute(f"{job}.workload.json", options).makespan_ns / 1e9

    return simulate


def iterations_of(path: Path, chosen: str) -> list[Row]:
    """Return the rows of a table of iterations that are timed, of machines with a preset."""
    from et_sim.validation.predictions import machine_named
    from et_sim.validation.tables import iterations_of as read

    name, _, numbers = chosen.partition(":")
    table = next(table for table in json.loads(path.read_text(encoding="utf-8")) if table["id"] == name)
    rows = []
    for number, iteration in read(table):
        machine = machine_named(iteration.hardware) if iteration else None
        if iteration and machine and number in _numbers(numbers):
            rows.append(
                Row(f"{number} {iteration.label}", iteration.measured_s, _of_plan(iteration, machine))
            )
    return rows


def _of_plan(iteration: Any, machine: str) -> Simulate:
    def simulate(software: str) -> float:
        from et_sim.execution import execute
        from et_sim.run.options import RunOptions
        from et_sim.workloads import make_training

        workload = make_training(iteration.model, replace(iteration.plan, software=software))
        options = RunOptions(machine=f"{machine}:{iteration.plan.ranks}", when_full="report")
        return execute(workload, options).makespan_ns / 1e9

    return simulate


def _numbers(text: str) -> set[int]:
    """Return the numbers of FIRST-LAST, FIRST-LAST:EVERY, or several with commas between."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, every = part.partition(":")
        first, _, last = span.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1, int(every or 1)))
    return numbers


def percent(errors: np.ndarray) -> float:
    """Return the mean error, both ways alike."""
    return 100 * math.expm1(float(np.abs(errors).mean()))


def main() -> int:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--software", required=True)
    parser.add_argument("--figure", action="append", required=True, metavar="PATH=FIRST:LEAST:MOST")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    figures = [Figure.of(text) for text in options.figure]
    if len(figures) > MOST_FIGURES:
        raise SystemExit(f"{len(figures)} figures: at most {MOST_FIGURES} may be fitted")
    read = steps_of if options.file.suffix == ".csv" else iterations_of
    rows = read(options.file, options.rows)
    if len(rows) <= len(figures):
        raise SystemExit(f"{len(rows)} rows for {len(figures)} figures: give more rows")
    found = fit(rows, figures, options.software, options.steps)
    print("before   fitted  left out  row")
    for row, *errors in zip(rows, found.before, found.after, found.left_out, strict=True):
        print("".join(f"{100 * math.expm1(error):+7.1f}% " for error in errors), row.name)
    words = zip(("before", "fitted", "left out"), (found.before, found.after, found.left_out), strict=True)
    print(", ".join(f"{word} E {percent(errors):.1f} %" for word, errors in words))
    for figure, value in zip(figures, found.values, strict=True):
        at = "" if figure.least < value < figure.most else " (at a limit)"
        print(f"{'.'.join(figure.path)} {value:.4g}{at}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
