"""Least squares, by scipy, which is an optional dependency.

Not here: what is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from et_sim.basics.errors import UsageError

CALLS_PER_FIGURE = 20  # fits that have not ended by then creep: waves of tiles leave steps in what is fitted


def least_squares(
    residuals: Callable[[Any], Sequence[float]],
    start: Sequence[float],
    *,
    most: float,
    loss: float,
    highest: Sequence[float] = (),
) -> Any:
    """The `OptimizeResult` nearest to 0, within `most` of the start and below `highest`; outliers beyond
    `loss` pull less."""
    try:
        from scipy import optimize
    except ImportError as error:
        raise UsageError(
            "fitting needs scipy, which is not installed", remedy="pip install 'et-sim[calibrate]'"
        ) from error
    above = [value + most for value in start]
    above = [min(pair) for pair in zip(above, highest or above, strict=True)]
    bounds = ([value - most for value in start], above)
    most_calls = CALLS_PER_FIGURE * len(start)
    return optimize.least_squares(
        residuals, list(start), bounds=bounds, loss="soft_l1", f_scale=loss, max_nfev=most_calls
    )
