"""Figures of a job over months: goodput, tokens, days, lost time by cause, and the worth of changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.estimates import mean_in_range, mean_of
from et_sim.goodput.arrivals import Arrivals, arrivals
from et_sim.goodput.formulas import spares_for
from et_sim.goodput.months import Months, follow, follow_each
from et_sim.goodput.presets import DAY
from et_sim.goodput.resolving import Resolved, with_interval
from et_sim.goodput.setting import LOSSES, Loss, Part, Setting

PERCENTS = (5, 10, 50, 90, 95)
SHOWN = (10, 50, 90)  # months that are drawn
FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)  # of the interval
MONTHS_COMPARED = 100  # of changes, on equal failures
MOST_SPARES = 4096


class Spread(Struct, frozen=True):
    """Mean with its 95 % interval, and percentiles over months."""

    mean: float
    mean_low: float | None  # None: there is one month
    mean_high: float | None
    percentiles: dict[int, float]


def spread(values: Any, most: float = math.inf) -> Spread:
    """Return the spread of a figure from 0 to `most` over months."""
    count, ordered = len(values), np.sort(values)
    at = {percent: float(ordered[max(-(-percent * count // 100) - 1, 0)]) for percent in PERCENTS}
    return Spread(*mean_in_range(values, most), at)


class Change(Struct, frozen=True):
    """A change of the setting, and the goodput with it, on the same failures."""

    name: str
    goodput: float
    more: float  # than without the change
    error: float  # half of the 95 % interval of `more`


class Outcome(Struct, frozen=True, eq=False):
    """All results."""

    resolved: Resolved
    setting: Setting
    months: Months
    days: float
    seed: int
    goodput: Any  # of each month
    effective: Any  # of each month
    finish_days: Any  # of each month; None without a goal
    intervals: list[tuple[float, float, float]]  # seconds, goodput, half of its 95 % interval
    changes: list[Change]
    courses: dict[int, tuple[int, list[tuple[float, float, int]]]]  # by percent: the month and its course
    spares: int | None  # with which nodes are enough for 95 % of the time


def evaluate(resolved: Resolved, checkpoints: Any, days: float, runs: int, seed: int, goal: float) -> Outcome:
    """Return the results of a job; `goal`: steps of the whole job, or 0."""
    months, horizon = np.arange(runs, dtype=np.int64), days * DAY
    events = arrivals(resolved.setting, months, horizon, seed)
    compared = min(runs, MONTHS_COMPARED)
    some = Arrivals(*(getattr(events, name)[:compared] for name in Arrivals.__struct_fields__))
    compare = _Comparison(some, horizon)
    write = resolved.write_seconds

    def at_interval(seconds: float) -> Setting:
        return with_interval(resolved.setting, checkpoints, write, seconds)

    centre = _interval(resolved.setting)
    candidates = {_interval(changed): changed for changed in (at_interval(centre * f) for f in FACTORS)}
    tried = sorted(candidates)
    of_each = compare.goodput([candidates[seconds] for seconds in tried])
    intervals = [(seconds, *_mean_and_error(values)) for seconds, values in zip(tried, of_each, strict=True)]
    setting = resolved.setting
    if not resolved.interval_is_given:
        setting = candidates[max(intervals, key=lambda entry: entry[1])[0]]
    result = follow(setting, events, horizon)
    goodput = result.steps * setting.step / result.clock
    return Outcome(
        resolved,
        setting,
        result,
        days,
        seed,
        goodput,
        result.kept / result.clock,
        _finish_days(setting, months, goal, seed, float(goodput.mean())) if goal else None,
        intervals,
        _changes(setting, compare, lambda factor: _faster_storage(setting, resolved, factor)),
        _courses(setting, goodput, horizon, seed),
        _spares_needed(setting),
    )


def _interval(setting: Setting) -> float:
    """Return the time of steps between checkpoints in storage."""
    return setting.cycle.steps * setting.cycle.copies * setting.step


class _Comparison:
    """Goodput of changed settings on the same failures."""

    def __init__(self, events: Arrivals, horizon: float) -> None:
        self._events, self._horizon = events, horizon

    def goodput(self, settings: Sequence[Setting]) -> Any:
        """Return the goodput of each setting (a row) and month."""
        months = follow_each(settings, self._events, self._horizon)
        return (months.steps * settings[0].step / months.clock).reshape(len(settings), -1)


def _mean_and_error(values: Any) -> tuple[float, float]:
    """Return a mean, and half of its 95 % interval."""
    mean = mean_of(values)
    return mean.value_ns, 0.0 if mean.high_ns is None else mean.high_ns - mean.value_ns


def _changes(setting: Setting, compare: _Comparison, storage: Callable[[float], Setting]) -> list[Change]:
    """Return the worth of some changes."""
    changed = {
        f"{spares} more hot spare{'s' * (spares > 1)}": replace(setting, hot=setting.hot + spares)
        for spares in (1, 2, 4, 8)
        if setting.parts
    }
    if setting.hot:
        changed["1 hot spare less"] = replace(setting, hot=setting.hot - 1)
    changed["storage twice as fast"] = storage(2.0)
    changed["storage half as fast"] = storage(0.5)
    recovery = setting.recovery
    changed["search and drain in half the time"] = replace(
        setting, recovery=replace(recovery, drain=recovery.drain / 2)
    )
    before, *of_each = compare.goodput([setting, *changed.values()])
    ported = replace(setting, parts=tuple(_with_second_port(part, setting) for part in setting.parts))
    if ported != setting:
        changed["a second port for each GPU"] = ported
        of_each += [*compare.goodput([ported])]
    return [
        Change(name, float(after.mean()), *_mean_and_error(after - before))
        for name, after in zip(changed, of_each, strict=True)
    ]


def _with_second_port(part: Part, setting: Setting) -> Part:
    """Return a part whose failures leave half of a GPU's bandwidth, until its node is replaced."""
    return replace(part, slow_step=setting.half_link_step) if part.is_link else part


def _faster_storage(setting: Setting, resolved: Resolved, factor: float) -> Setting:
    """Return the setting with faster storage; times that the job states stay, and so does the least time that
    the network takes.
    """
    write = max(resolved.write_seconds / factor, resolved.least_write)
    faster = with_interval(setting, resolved.checkpoints, write, _interval(setting))
    recovery = setting.recovery
    load = write if recovery.load == recovery.write else recovery.load
    return replace(faster, recovery=replace(recovery, load=load, write=write))


def _finish_days(setting: Setting, months: Any, goal: float, seed: int, goodput: float) -> Any:
    """Return the days in which each month's job reaches its goal."""
    horizon = goal * setting.step / max(goodput, 0.01) * 1.25
    while True:
        result = follow(setting, arrivals(setting, months, horizon, seed), horizon, goal)
        if result.is_finished.all():
            return result.clock / DAY
        horizon *= 2


def _courses(
    setting: Setting, goodput: Any, horizon: float, seed: int
) -> dict[int, tuple[int, list[tuple[float, float, int]]]]:
    """Return the course of the months at some percentiles."""
    order = np.argsort(goodput, kind="stable")
    courses = {}
    for percent in SHOWN:
        month = int(order[max(-(-percent * len(order) // 100) - 1, 0)])
        events = arrivals(setting, np.array([month], np.int64), horizon, seed)
        courses[percent] = month, follow(setting, events, horizon, record=True).course
    return courses


def _spares_needed(setting: Setting) -> int | None:
    """Return the spares with which enough nodes are usable for 95 % of the time, by the binomial law."""
    down = sum(part.rate * part.nodes * part.repair for part in setting.parts)
    return spares_for(setting.nodes, 1 / (1 + down / setting.nodes), 0.95, MOST_SPARES)


def loss_shares(outcome: Outcome) -> dict[str, float]:
    """Return the share of the time of each cause, kept steps included: they add up to 1."""
    whole = float(outcome.months.clock.sum())
    kept = float(outcome.months.steps.sum()) * outcome.setting.step / whole
    lost = {LOSSES[cause]: float(outcome.months.lost[:, cause].sum()) / whole for cause in Loss}
    return {"kept steps": kept, **lost}
