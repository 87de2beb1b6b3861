"""Closed forms: the best interval of checkpoints, to first order, and the least spares."""

from __future__ import annotations

from math import exp, log, sqrt


def best_interval(rate: float, checkpoint: float) -> float:
    """Return the best work between checkpoints, to first order (Young 1974)."""
    return sqrt(2 * checkpoint / rate)


def least_loss(rate: float, checkpoint: float) -> float:
    """Return the share of the time that checkpoints and lost work take at that interval, to first order."""
    return sqrt(2 * checkpoint * rate)


def spares_for(needed: int, available: float, probability: float, most: int) -> int | None:
    """Return the least spares with which enough units are available; None: more than `most`."""
    if available >= 1:
        return 0
    least = needed * log(available)  # logarithm of the probability that all of them are available
    reached, term = exp(least), exp(least)
    for spares in range(most + 1):
        if reached >= probability:
            return spares
        term *= (needed + spares) * (1 - available) / (spares + 1)
        reached += term
    return None
