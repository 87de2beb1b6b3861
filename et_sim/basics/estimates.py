"""The mean and percentiles of samples, with intervals that hold the true ones in 95 % of all studies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec import Struct

PERCENTILES = (50, 90, 99)
TAIL = 0.025  # probability outside of an interval, on each side


class Estimate(Struct, frozen=True):
    """An estimated time and its 95 % interval; None: the samples do not limit it on that side."""

    value_ns: float
    low_ns: float | None
    high_ns: float | None


def mean_of(samples: Any) -> Estimate:
    """Return the mean, with an interval by Student's t; a single sample has none."""
    values = np.asarray(samples, float)
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Estimate(mean, None, None)
    half = student_t(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half)


def mean_in_range(samples: Any, most: float = math.inf) -> tuple[float, float | None, float | None]:
    """Return the mean of values from 0 to `most` and its interval, which stays in this range.

    It is Student's of the logit, or of the logarithm where nothing limits the values above, to first order; a
    single value has none.
    """
    mean = mean_of(samples)
    value, high = mean.value_ns, mean.high_ns
    room = 1 - value / most
    if high is None or high <= value or room <= 0:
        return value, mean.low_ns, high
    factor = math.exp((high - value) / (value * room))
    return value, value / (value / most + room * factor), value / (value / most + room / factor)


def percentile_of(samples: Any, percent: int) -> Estimate:
    """Return a percentile, with the interval between two of the ordered samples.

    The number of samples below the true percentile is binomial, whatever their distribution.
    """
    values = np.sort(np.asarray(samples, float))
    low, high = ranks_around(len(values), percent / 100)
    return Estimate(
        float(np.percentile(values, percent)),
        None if low is None else float(values[low - 1]),
        None if high is None else float(values[high - 1]),
    )


def estimates(samples: Any) -> dict[str, Estimate]:
    """Return the mean and all percentiles by name."""
    return {"mean": mean_of(samples)} | {
        f"p{percent}": percentile_of(samples, percent) for percent in PERCENTILES
    }


def ranks_around(count: int, share: float) -> tuple[int | None, int | None]:
    """Return the ranks, from 1, of the samples that hold a quantile between them; None: there is none.

    The lower one is above the quantile with a probability of 2.5 % at most, and the upper one below it.
    """
    below = 0.0  # probability that so many samples or fewer are below the quantile
    low = high = None
    for number, probability in enumerate(_binomial(count, share)):
        below += probability
        if below <= TAIL:
            low = number + 1
        if high is None and below >= 1 - TAIL and number < count:
            high = number + 1
    return low, high


def _binomial(count: int, share: float) -> Sequence[float]:
    """Return the probabilities of 0 to `count` successes."""
    whole = math.lgamma(count + 1)
    yes, no = math.log(share), math.log1p(-share)
    return [
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * yes + (count - k) * no)
        for k in range(count + 1)
    ]


def student_t(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t (exact for 1 and 2, else Hill's expansion)."""
    if freedom == 1:
        return math.tan(math.pi * (0.5 - TAIL))
    if freedom == 2:
        inner = 1 - 2 * TAIL
        return inner * math.sqrt(2 / (1 - inner**2))
    z, n = NormalDist().inv_cdf(1 - TAIL), freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4
