"""Integers as bits that look random: for signatures, and for random numbers without an order."""

from __future__ import annotations

from typing import Any

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_BITS_OF_A_DOUBLE = 53


def splitmix64(values: Any, seed: int) -> Any:
    """Return every integer as 64 bits that look random (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(values).astype(np.uint64) + np.uint64((seed + 1) * GOLDEN & _MASK)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform(words: Any) -> Any:
    """Return mixed words as numbers from 0 to 1, without 1."""
    return (words >> np.uint64(64 - _BITS_OF_A_DOUBLE)) * 2.0**-_BITS_OF_A_DOUBLE
