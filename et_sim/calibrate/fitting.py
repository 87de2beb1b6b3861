"""Least squares, by scipy, which is an optional dependency.

Not here: what is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from et_sim.basics.errors import UsageError


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
    return optimize.least_squares(residuals, list(start), bounds=bounds, loss="soft_l1", f_scale=loss)
