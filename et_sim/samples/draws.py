"""Draws: random factors that are a function of seed, element and event alone.

There is no state: each number is a hash of the seed, the entry's kind, level and place among such entries
(or its cause and level, if it names a cause),
the element, the step, and the number of events of this kind that came before on the element. So neither the
number of ranks nor the plan, the network model or the order of samples changes a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from et_sim.machine.variation import Variation, VariationLevel, VariedKind
from et_sim.plan.splitmix import splitmix64, uniform
from et_sim.samples.families import factors_of

KINDS, LEVELS = tuple(VariedKind), tuple(VariationLevel)
NEGLIGIBLE = 1e-17  # influence of a step on later ones below which it is left out
FIRST, SECOND = 1, 2


class Draws:
    """The draws of one entry; `place` counts the entries before it with its kind and level."""

    def __init__(self, entry: Variation, place: int, seed: int) -> None:
        self.entry = entry
        self._factors = factors_of(entry)
        word: Any = np.uint64(seed)
        source = (KINDS.index(entry.kind), place)
        if entry.cause:
            source = (len(KINDS), int.from_bytes(blake2b(entry.cause.encode(), digest_size=7).digest()))
        for number in (source[0], LEVELS.index(entry.level), source[1]):
            word = _mixed(word, number)
        self._word = word

    def factors(self, elements: Any, step: int, events: int) -> Any:
        """Return a row of factors for each element: one for all events, or one for each of the events."""
        words = _mixed(self._word, elements)[:, None]
        match self.entry.level:
            case VariationLevel.ELEMENT:
                scores = _scores(words, FIRST)
            case VariationLevel.STEP:
                scores = self._along_steps(words, step)
                words = _mixed(words, step)
            case VariationLevel.EVENT:
                words = _mixed(_mixed(words, step), np.arange(events))
                scores = self._along(_scores(words, FIRST))
        return self._factors(scores, lambda: _scores(words, SECOND))

    def _along_steps(self, words: Any, step: int) -> Any:
        """Return the scores of a step, each correlated with that of the step before."""
        correlation = self.entry.correlation
        if not correlation:
            return _scores(_mixed(words, step), FIRST)
        reach = math.ceil(math.log(NEGLIGIBLE) / math.log(abs(correlation)))
        first = max(step - reach, 0)
        columns = [_scores(_mixed(words, at), FIRST) for at in range(first, step + 1)]
        return self._along(np.concatenate(columns, axis=1))[:, -1:]

    def _along(self, scores: Any) -> Any:
        """Return normal scores, each correlated with the one before in its row."""
        correlation = self.entry.correlation
        if correlation:
            fresh = math.sqrt(1 - correlation**2)
            for column in range(1, scores.shape[1]):
                scores[:, column] = correlation * scores[:, column - 1] + fresh * scores[:, column]
        return scores


def draws_of(entries: Sequence[Variation], seed: int) -> list[Draws]:
    """Return the draws of all entries; those without a cause draw by themselves."""
    before: dict[tuple[str, str], int] = {}
    draws = []
    for entry in entries:
        key = (entry.kind, entry.level)
        draws.append(Draws(entry, before.setdefault(key, 0), seed))
        before[key] += 1
    return draws


def _mixed(word: Any, numbers: Any) -> Any:
    """Return a word for each number, in two steps, so that no two pairs collide."""
    with np.errstate(over="ignore"):
        return splitmix64(splitmix64(numbers, FIRST) + word, SECOND)


def _scores(words: Any, number: int) -> Any:
    """Return a standard normal number for each word (Box and Muller)."""
    radius = np.sqrt(-2 * np.log1p(-uniform(splitmix64(words, 2 * number))))
    return radius * np.cos(2 * np.pi * uniform(splitmix64(words, 2 * number + 1)))
