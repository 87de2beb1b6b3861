"""Sixty-four-bit signatures of neighbourhoods, computed on whole columns.

Two ranks are told apart by their signatures. Different neighbourhoods have equal signatures with a
probability of about 2^-64 a pair; `partition` checks its result once more with another seed.
Not here: what a neighbourhood is (`partition`, `axes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan.splitmix import splitmix64


def rotations(words: Any, seed: int) -> Any:
    """The signature of every row of `words`, read round from each of its places (last axis)."""
    count = words.shape[-1]
    base = int(splitmix64(np.uint64(count), seed)) | 1  # odd, so it has an inverse
    with np.errstate(over="ignore"):
        powers = _powers(base, 2 * count)
        twice = np.concatenate((words, words), axis=-1) * powers
        sums = np.zeros((*words.shape[:-1], 2 * count + 1), np.uint64)
        np.cumsum(twice, axis=-1, out=sums[..., 1:])
        inverse = _powers(pow(base, -1, 1 << 64), count)
        return (sums[..., count : 2 * count] - sums[..., :count]) * inverse


def exchanges(words: Any, seed: int) -> Any:
    """The signature of every row of `words` as its places see it when they pair up over distances 1, 2, …."""
    count = words.shape[-1]
    place = np.arange(count)
    distance = 1
    with np.errstate(over="ignore"):
        while distance < count:
            partner = np.where(place // distance % 2 == 0, place + distance, place - distance)
            partner = np.minimum(partner, count - 1)
            words = splitmix64(words + splitmix64(words[..., partner], seed + distance), seed)
            distance *= 2
    return words


def _powers(base: int, count: int) -> Any:
    with np.errstate(over="ignore"):
        powers = np.full(count, base, np.uint64)
        powers[0] = 1
        return np.cumprod(powers, dtype=np.uint64)
