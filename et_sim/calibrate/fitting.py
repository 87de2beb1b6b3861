"""Least squares, by scipy, which is an optional dependency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from et_sim.basics.errors import UsageError

CALLS_PER_FIGURE = 20  # later calls gain little: waves of tiles leave steps in the residuals


def least_squares(
    residuals: Callable[[Any], Sequence[float]],
    start: Sequence[float],
    *,
    most: float,
    loss: float,
    highest: Sequence[float] = (),
) -> Any:
    """Return the least squares within `most` of the start and below `highest`.

    Outliers beyond `loss` have less weight.
    """
    try:
        from scipy import optimize
    except ImportError as error:
        raise UsageError(
            "fitting requires scipy, which is not installed", remedy="pip install 'et-sim[calibrate]'"
        ) from error
    above = [value + most for value in start]
    above = [min(pair) for pair in zip(above, highest or above, strict=True)]
    bounds = ([value - most for value in start], above)
    most_calls = CALLS_PER_FIGURE * len(start)
    return optimize.least_squares(
        residuals, list(start), bounds=bounds, loss="soft_l1", f_scale=loss, max_nfev=most_calls
    )
