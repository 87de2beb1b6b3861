"""Closed forms of renewal theory: goodput with periodic checkpoints, its best interval, and spares."""

from __future__ import annotations

from math import comb, exp, expm1, log, sqrt


def segment_seconds(rate: float, work: float, checkpoint: float, restart: float) -> float:
    """Return the expected time until some work and its checkpoint are done.

    Failures are a Poisson process; one begins the segment anew after a restart, which may fail, too.
    """
    if not rate:
        return work + checkpoint
    return exp(rate * restart) * expm1(rate * (work + checkpoint)) / rate


def goodput(rate: float, work: float, checkpoint: float, restart: float) -> float:
    """Return the share of the time that goes to kept work."""
    return work / segment_seconds(rate, work, checkpoint, restart)


def best_interval(rate: float, checkpoint: float) -> float:
    """Return the best work between checkpoints, to first order (Young 1974)."""
    return sqrt(2 * checkpoint / rate)


def least_loss(rate: float, checkpoint: float) -> float:
    """Return the share of the time that checkpoints and lost work take at that interval, to first order."""
    return sqrt(2 * checkpoint * rate)


def enough_of(needed: int, units: int, available: float) -> float:
    """Return the probability that enough units are available, each independently of the others."""
    return sum(
        comb(units, up) * available**up * (1 - available) ** (units - up) for up in range(needed, units + 1)
    )


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
