"""Actors: classes of ranks that behave identically, and so are simulated once.

Not here: which ranks those are (`fold`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Actors:
    """`of_rank[r]` is the actor of rank r; `representative[a]` the lowest rank of actor a."""

    of_rank: Any  # int32
    representative: Any  # int64, ascending
    link_classes: Any = None  # of each link, where actors share links that messages share; None: each its own

    def __len__(self) -> int:
        return len(self.representative)

    @property
    def is_folded(self) -> bool:
        """Whether any actor stands for several ranks."""
        return len(self.representative) < len(self.of_rank)

    @staticmethod
    def one_per_rank(ranks: int) -> Actors:
        """Nobody shares an actor."""
        return Actors(np.arange(ranks, dtype=np.int32), np.arange(ranks, dtype=np.int64))

    @staticmethod
    def of_classes(classes: Any, link_classes: Any = None) -> Actors:
        """One actor per distinct value of `classes`, numbered by lowest rank."""
        _, first, of_rank = np.unique(classes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return Actors(place[of_rank.reshape(-1)], first[order].astype(np.int64), link_classes)
