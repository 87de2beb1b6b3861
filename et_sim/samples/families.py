"""Factors of the families of distributions, as functions of normal scores.

A score of 0 is the median, and larger scores give larger factors. So factors are correlated as their scores
are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from et_sim.machine.variation import Family, MixturePart, Variation

Factors = Callable[[Any, Callable[[], Any]], Any]  # of scores, and a function of further independent scores
_POINTS, _FINE_POINTS = 4097, 1 << 16  # of tables over scores, and of the sums that they come from
_NEGLIGIBLE = 40.0  # e^-40 is the density of the ends of a table, relative to the largest
_NORMAL = NormalDist()


def factors_of(entry: Variation) -> Factors:
    """Return the function from scores to the factors of an entry."""
    by_score = _of_family(entry)
    if entry.factor == 1:
        return by_score
    return lambda scores, more: by_score(scores, more) * entry.factor


def _of_family(entry: Variation) -> Factors:
    spread = entry.spread or 0.0
    match entry.family:
        case Family.NORMAL:
            return lambda scores, _: np.maximum(1 + spread * scores, 0)
        case Family.LOG_NORMAL:
            return lambda scores, _: _log_normal(scores, spread)
        case Family.GAMMA:
            table = gamma_table(spread) if spread else None
            return lambda scores, _: (
                np.ones_like(scores) if table is None else np.exp(np.interp(scores, *table))
            )
        case Family.MIXTURE:
            return lambda scores, more: _mixture(entry.parts, scores, more)
        case Family.EMPIRICAL:
            values = np.sort(np.array(entry.factors))
            limits = np.array([_NORMAL.inv_cdf(rank / len(values)) for rank in range(1, len(values))])
            return lambda scores, _: values[np.searchsorted(limits, scores, side="right")]


def _log_normal(scores: Any, spread: Any) -> Any:
    """Return log-normal factors with a mean of 1."""
    variance = np.log1p(np.square(spread))
    return np.exp(np.sqrt(variance) * scores - variance / 2)


def _mixture(parts: tuple[MixturePart, ...], scores: Any, more: Callable[[], Any]) -> Any:
    """Return factors of parts that the scores choose; further scores give the place within a part."""
    weights = np.cumsum([part.weight for part in parts])
    limits = np.array([_NORMAL.inv_cdf(weight / weights[-1]) for weight in weights[:-1].tolist()])
    which = np.searchsorted(limits, scores, side="right")
    factors = np.array([part.factor for part in parts])[which]
    if not any(part.spread for part in parts):
        return factors
    return factors * _log_normal(more(), np.array([part.spread for part in parts])[which])


def gamma_table(spread: float) -> tuple[Any, Any]:
    """Return scores, and the logarithms of gamma factors with a mean of 1 there.

    The density of the logarithm t of a factor is proportional to exp(k (t - e^t)) for the shape
    k = 1 / spread^2. Its sums from the left and from the right give the scores.
    """
    shape = 1 / spread**2
    t = np.linspace(_end(shape, -1), _end(shape, 1), _FINE_POINTS)
    density = np.exp(shape * (t - np.exp(t) + 1))
    pieces = (density[1:] + density[:-1]) / 2
    below, above = np.cumsum(pieces), np.cumsum(pieces[::-1])[::-1]
    total = below[-1]
    below, above = below[:-1] / total, above[1:] / total
    t = t[1:-1]
    kept = np.flatnonzero((below > 1e-16) & (above > 1e-16))
    kept = kept[np.unique(np.linspace(0, len(kept) - 1, _POINTS).astype(np.int64))]
    scores = [
        _NORMAL.inv_cdf(low) if low < high else -_NORMAL.inv_cdf(high)
        for low, high in zip(below[kept].tolist(), above[kept].tolist(), strict=True)
    ]
    return np.array(scores), t[kept]


def _end(shape: float, side: int) -> float:
    """Return the logarithm of a factor below or above 1 with a negligible density (by bisection)."""
    wanted = _NEGLIGIBLE / shape
    near, far = 0.0, side * (wanted + 1 if side < 0 else math.log(wanted + 2) + math.sqrt(2 * wanted))
    for _ in range(60):
        middle = (near + far) / 2
        if math.exp(middle) - middle - 1 < wanted:
            near = middle
        else:
            far = middle
    return far
