"""Microseconds as files write them, to whole nanoseconds without an error of rounding.

A timeline may write 1706850123211542, 4384738595456.951 or 1712345678901234.567. A float holds the second
one to within half a nanosecond, so taking its whole and its broken part one by one gives what the digits say;
the third is beyond that, and is read again digit by digit.

Not here: which clock the times are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

_FLOATS_TELL_BELOW = (
    2.0**43
)  # microseconds; neighbours are 0.98 ns apart there, so the nearest is within 0.49
_NS_PER_US = 1000
_LARGEST_US = 2**63 // _NS_PER_US


def nanoseconds(values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Exact nanoseconds of decoded microseconds; None if floats cannot say them: use `digits`."""
    times: npt.NDArray[Any] = np.array(values)
    if times.dtype == np.int64 and bool((np.abs(times) < _LARGEST_US).all()):
        scaled: npt.NDArray[np.int64] = times * _NS_PER_US
        return scaled
    if times.dtype != np.float64 or not bool((np.abs(times) < _FLOATS_TELL_BELOW).all()):
        return None
    whole = np.floor(times)
    exact: npt.NDArray[np.int64] = whole.astype(np.int64) * _NS_PER_US
    exact += np.rint((times - whole) * _NS_PER_US).astype(np.int64)
    return exact


def digits(numbers: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Exact nanoseconds of microseconds in decimal notation, in quotation marks or without."""
    return np.array([round(Decimal(number.decode().strip('"')) * _NS_PER_US) for number in numbers], np.int64)
