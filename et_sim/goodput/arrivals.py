"""Times of failures of many months, as functions of seed, month, kind of part and number of the failure.

More months, a longer time or other parts change no draw, so that settings are compared on equal failures.
Times are rounded to milliseconds: the last digits of logarithms differ between processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.goodput.setting import Part, Setting
from et_sim.plan.splitmix import splitmix64, uniform

ARRIVAL, DETECTION = 0, 1  # purposes of draws
NEWTON_STEPS = 40
DECIMALS = 3  # of times in seconds
_MASK = (1 << 62) - 1


class Arrivals(Struct, frozen=True):
    """Events of each month (a row) in order, in seconds; the last one of a row is never reached."""

    time: Any  # infinite after the last one
    part: Any  # its number; that of planned maintenance is the number of parts
    since: Any  # of the detection of a corruption: its time; else negative


def draws(seed: int, name: str, purpose: int, months: Any, numbers: Any) -> Any:
    """Return a number from 0 to 1 for each month (a row) and number of an event."""
    key = seed
    for letter in name.encode():
        key = int(splitmix64(letter, key)) & _MASK
    of_month = splitmix64(months, key ^ purpose)
    return uniform(splitmix64(of_month[:, None] + np.asarray(numbers, np.uint64), purpose))


def arrivals(setting: Setting, months: Any, horizon: float, seed: int) -> Arrivals:
    """Return the events of these months until the horizon."""
    times, parts, since = [], [], []
    for number, part in enumerate(setting.parts):
        if not part.rate:
            continue
        of_part = failure_times(setting, part, months, horizon, seed)
        times.append(of_part)
        parts.append(np.full(of_part.shape, number, np.int32))
        since.append(np.full(of_part.shape, -1.0))
        if part.corrupts:
            chance = draws(seed, part.name, DETECTION, months, np.arange(of_part.shape[1]))
            times.append(of_part - part.detection * np.log1p(-chance))
            parts.append(parts[-1])
            since.append(of_part)
    if setting.every:
        count = int(horizon / setting.every + 0.5)
        planned = setting.every * (np.arange(count) + 0.5)  # the first one in the middle of the first period
        shape = len(months), len(planned)
        times.append(np.broadcast_to(planned, shape))
        parts.append(np.full(shape, len(setting.parts), np.int32))
        since.append(np.full(shape, -1.0))
    end = np.full((len(months), 1), np.inf)
    time = np.round(np.concatenate([*times, end], axis=1), DECIMALS)
    order = np.argsort(time, axis=1, kind="stable")
    columns = (
        np.concatenate([*parts, np.zeros(end.shape, np.int32)], axis=1),
        np.round(np.concatenate([*since, np.full(end.shape, -1.0)], axis=1), DECIMALS),
    )
    return Arrivals(np.take_along_axis(time, order, 1), *(np.take_along_axis(c, order, 1) for c in columns))


def failure_times(setting: Setting, part: Part, months: Any, horizon: float, seed: int) -> Any:
    """Return the times of failures of a kind of part, in columns that reach beyond the horizon."""
    excess = (setting.early_factor - 1) * setting.early_decay
    expected = part.rate * (horizon + excess)
    count = int(expected + 6 * np.sqrt(expected)) + 8
    while True:
        chances = draws(seed, part.name, ARRIVAL, months, np.arange(count))
        exposure = np.cumsum(-np.log1p(-chances), axis=1) / part.rate
        times = exposure if not excess else _of_exposure(exposure, excess, setting.early_decay)
        if not len(times) or times[:, -1].min() > horizon:
            return times
        count *= 2


def _of_exposure(exposure: Any, excess: float, decay: float) -> Any:
    """Return the time t with t + excess * (1 - exp(-t / decay)) = exposure, by Newton's method.

    The left side is concave, so that no step from a time before the solution passes it.
    """
    time = np.maximum(exposure - excess, 0.0)
    for _ in range(NEWTON_STEPS):
        fading = np.exp(-time / decay)
        time = time - (time + excess * (1 - fading) - exposure) / (1 + excess / decay * fading)
    return time
