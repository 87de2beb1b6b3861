"""How far predictions are from measurements, in percent.

E is 100 (exp(mean |ln(predicted / measured)|) - 1), G the geometric mean of the relative errors, and bias the
geometric mean of predicted / measured, less one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

LEAST = 1e-6  # of a relative error in the geometric mean: an exact one would make it nothing


class Errors(Struct, frozen=True):
    """Of some rows."""

    rows: int
    e: float
    g: float
    mape: float
    bias: float
    largest: float

    @staticmethod
    def of(ratios: Sequence[float]) -> Errors:
        """Of predicted by measured, one row at least."""
        count, logarithms = len(ratios), [math.log(ratio) for ratio in ratios]
        relative = [abs(ratio - 1) for ratio in ratios]
        return Errors(
            count,
            100 * math.expm1(sum(map(abs, logarithms)) / count),
            100 * math.exp(sum(math.log(max(error, LEAST)) for error in relative) / count),
            100 * sum(relative) / count,
            100 * math.expm1(sum(logarithms) / count),
            100 * max(relative),
        )
