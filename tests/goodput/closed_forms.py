"""Closed forms of renewal theory, and the binomial law of available units."""

from __future__ import annotations

from math import comb, exp, expm1


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


def enough_of(needed: int, units: int, available: float) -> float:
    """Return the probability that enough units are available, each independently of the others."""
    return sum(
        comb(units, up) * available**up * (1 - available) ** (units - up) for up in range(needed, units + 1)
    )
