"""Times of an engine's host, fitted to a part of measured servings and judged on the others.

Each row is simulated as a whole with the times so far, and with one of them longer; a step by least squares
of the logarithms of predicted by measured times follows from these. Passes have known times on the device, so
a further simulation of a row only forms its batches again. Rows whose cache is full are not compared, and
times to the first token only where the client is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import plural
from et_sim.serving.engines.description import Engine
from et_sim.serving.replicas import MachineTimes
from et_sim.validation.serving_rows import CLOSED_CAMPAIGN, ServedRow
from et_sim.validation.servings import is_full, served

STEPS: Mapping[str, float] = MappingProxyType(  # ns, by which a time is longer on trial
    {"layer": 5e3, "expert-layer": 5e3, "pass": 2e5, "prompt-pass": 1e6, "before": 5e6, "before-layer": 1e5}
)
USUAL = ("layer", "before")
MOST_FIGURES = 3
ROWS_OF_FIGURE = 3  # the fewest that are fitted, for each figure
FEWEST_LEFT = 3  # rows that judge
ROUNDS, HALVINGS = 5, 3
NEAR = 0.02  # of a step of trial: the search ends at this difference
LATENCIES = ("tpot", "ttft")


class Fit(Struct, frozen=True):
    """Fitted times, and the ratios of predicted to measured latencies before and after, by part of rows."""

    engine: Engine
    figures: Mapping[str, float]  # ns
    before: Mapping[str, Mapping[str, Sequence[float]]]
    after: Mapping[str, Mapping[str, Sequence[float]]]
    left_out: Mapping[str, int]  # reasons for which rows are not compared, and their numbers


def names_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of times that are fitted; refuse unknown ones, and too many."""
    for name in given:
        if name not in STEPS:
            raise UsageError(f"there is no time {name!r}", remedy=f"known: {', '.join(STEPS)}")
    if not 1 <= len(set(given)) <= MOST_FIGURES or len(set(given)) < len(given):
        raise UsageError(f"--figures names {len(given)} times", remedy=f"give 1 to {MOST_FIGURES}, each once")
    return tuple(given)


def part_of(rows: Sequence[ServedRow], columns: Sequence[Mapping[str, str]], part: str) -> set[int]:
    """Return the numbers of the rows of a part: every N-th for 1/N, or those with a value in a column."""
    column, equals, values = part.partition("=")
    if equals:
        if column not in columns[0]:
            raise UsageError(
                f"--part {part}: the rows have no column {column!r}", remedy=f"known: {', '.join(columns[0])}"
            )
        wanted = set(values.split(","))
        return {row.number for row, of in zip(rows, columns, strict=True) if of[column] in wanted}
    first, slash, every = part.partition("/")
    is_step = slash and first == "1" and every.isdecimal() and int(every) > 1
    if is_step and int(every) > len(rows):
        raise UsageError(
            f"--part is {part!r}, and the file has {plural(len(rows), 'row')}", remedy="give more rows"
        )
    if not is_step:
        raise UsageError(
            f"--part is {part!r}",
            remedy="give 1/2 for every second row, or COLUMN=VALUE for rows with a value, as in"
            " model_path=Qwen/Qwen3-32B",
        )
    return {row.number for row in rows[:: int(every)]}


class Servings(Struct):
    """Rows of one engine, which share the times of kernels."""

    rows: Sequence[ServedRow]
    names: tuple[str, ...]
    engine: Engine
    shared: dict[str, MachineTimes] = field(default_factory=dict)

    def with_times(self, figures: Sequence[float]) -> Engine:
        """Return the engine with other times of the host."""
        times = {f"{name.replace('-', '_')}_ns": time for name, time in zip(self.names, figures, strict=True)}
        return replace(self.engine, host=replace(self.engine.host, **times))

    def times(self) -> list[float]:
        """Return the engine's own times."""
        return [getattr(self.engine.host, f"{name.replace('-', '_')}_ns") for name in self.names]

    def ratio(self, row: ServedRow, engine: Engine) -> dict[str, float] | str:
        """Return predicted by measured latencies of a row, or the reason for which there are none."""
        assert row.case is not None
        known = self.shared.setdefault(row.case.machine, MachineTimes())
        try:
            outcome = served(row.case, engine, shared=known)
        except EtSimError as error:
            return error.cause
        if is_full(outcome, row.case.load.concurrency):
            return "the cache is full"
        summary = outcome.summary()
        tpot = summary["tpot_ns"]
        found: dict[str, float] = {}
        if tpot is not None and row.tpot_ms:
            found["tpot"] = tpot["mean"] / 1e6 / row.tpot_ms
        if row.ttft_ms and row.campaign == CLOSED_CAMPAIGN:
            found["ttft"] = summary["ttft_ns"]["mean"] / 1e6 / row.ttft_ms
        return found or "no latency is measured"


def fit(rows: Sequence[ServedRow], part: set[int], names: tuple[str, ...], engine: Engine) -> Fit:
    """Fit times of the host to the rows of a part, and judge them on the others."""
    servings = Servings(rows, names, engine)
    ratios = {row.number: servings.ratio(row, engine) for row in rows if row.case is not None}
    reasons = [row.why for row in rows if row.case is None]
    reasons += [why for why in ratios.values() if isinstance(why, str)]
    compared = [row for row in rows if not isinstance(ratios.get(row.number, ""), str)]
    fitted = [row for row in compared if row.number in part]
    judged = [row for row in compared if row.number not in part]
    for kept, fewest, use in (
        (fitted, ROWS_OF_FIGURE * len(names), f"for {plural(len(names), 'fitted time')}"),
        (judged, FEWEST_LEFT, "left to judge"),
    ):
        if len(kept) < fewest:
            raise UsageError(
                f"there {'is' if len(kept) == 1 else 'are'} {plural(len(kept), 'row')} of {len(rows)} {use},"
                f" and {fewest} are needed",
                remedy="give more rows, another --part, or fewer --figures"
                + (f"; not compared: {reasons[0]}" if reasons else ""),
            )
    found = _least(servings, fitted)
    best = servings.with_times(found)
    then = {row.number: servings.ratio(row, best) for row in compared}
    reasons += [why for why in then.values() if isinstance(why, str)]
    before, after = (
        {
            name: _columns([of[row.number] for row in some if not isinstance(then[row.number], str)])
            for name, some in (("fitted", fitted), ("left out", judged))
        }
        for of in (ratios, then)
    )
    counts = {why: reasons.count(why) for why in reasons}
    return Fit(best, dict(zip(names, found, strict=True)), before, after, counts)


def _columns(ratios: Sequence[Any]) -> dict[str, list[float]]:
    return {name: [each[name] for each in ratios if name in each] for name in LATENCIES}


def _least(servings: Servings, rows: Sequence[ServedRow]) -> list[float]:
    """Return the times with the least squares of errors, none below 0."""

    def errors(figures: Sequence[float]) -> Any:
        engine = servings.with_times(figures)
        found = [servings.ratio(row, engine) for row in rows]
        return np.array(
            [
                math.log(each[name])
                for each in found
                if isinstance(each, dict)
                for name in LATENCIES
                if name in each
            ]
        )

    steps = np.array([STEPS[name] for name in servings.names])
    at = np.array(servings.times())
    now = errors(at.tolist())
    for _ in range(ROUNDS):
        trials = [
            errors((at + steps * (np.arange(len(steps)) == number)).tolist()) for number in range(len(steps))
        ]
        if any(len(trial) != len(now) for trial in trials):
            raise UsageError(
                "with longer times of the host, the cache of a fitted row is full, and it cannot be compared",
                remedy="leave rows with nearly full caches out of the file",
            )
        slopes = np.stack([trial - now for trial in trials], axis=1)
        _check_effects(servings.names, slopes)
        change = np.linalg.lstsq(slopes, -now, rcond=None)[0] * steps
        for halving in range(HALVINGS + 1):
            other = np.maximum(at + change / 2**halving, 0.0)
            then = errors(other.tolist())
            if len(then) == len(now) and (then**2).sum() < (now**2).sum():
                break
        else:
            break
        is_near = bool((abs(other - at) < NEAR * steps).all())
        at, now = other, then
        if is_near:
            break
    return [float(f"{value:.4g}") for value in at.tolist()]


def _check_effects(names: Sequence[str], slopes: Any) -> None:
    """Refuse a time that no row depends on, so that no row can state it."""
    for name, of_rows in zip(names, slopes.T, strict=True):
        if not of_rows.any():
            raise UsageError(
                f"no fitted row depends on {name}",
                remedy="leave it out of --figures, or fit rows of models and batches that have it",
            )


def description(fit: Fit, like: str, part: str, path: Path) -> dict[str, Any]:
    """Return the keys of the engine's description, with bands of the rows that were left out."""
    count = len(fit.after["fitted"]["tpot"])
    source = f"et-sim calibrate serving: {plural(count, 'row')} of {path.name}, those of --part {part}"
    host = {name: f"{value:.0f}ns" for name, value in fit.figures.items()}
    bands = {
        name: [round(float(each), 3) for each in np.quantile(1 / np.array(ratios), [0.1, 0.9])]
        for name, ratios in fit.after["left out"].items()
        if len(ratios) >= FEWEST_LEFT
    }
    return {
        "like": like,
        "about": f"{like} with times of its host fitted to {path.name}",
        "host": host,
        "errors": bands,
        "fitted": {f"host: {name}": source for name in host},
        "sources": {"errors": f"rows of {path.name} that were left out: 10th and 90th percentile"},
    }
