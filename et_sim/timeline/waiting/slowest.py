"""Whom ranks wait for most, and what the slowest ranks cost the others.

Classes are ranks with equal figures. When a rank waits for several others at once, its waiting is shared out
among them in proportion to how long its communication waited for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slowest:
    """The class that is waited for most, and how long every other rank waits for it on average."""

    place: int
    cost_ns: int


def waited_for_most(waits: Mapping[tuple[int, int], int], classes: int) -> list[int | None]:
    """Per class, the class that its communication waits for longest."""
    longest: list[tuple[int, int]] = [(0, 0)] * classes  # of ties, the lowest
    for (waiter, awaited), total in waits.items():
        longest[waiter] = max(longest[waiter], (total, -awaited))
    return [-awaited if total else None for total, awaited in longest]


def slowest(
    waits: Mapping[tuple[int, int], int], waiting_ns: Sequence[int], ranks: Sequence[int]
) -> Slowest | None:
    """`waiting_ns` is that of each rank of a class, and `ranks` how many it has. None: nobody waits."""
    every = [0] * len(ranks)
    for (waiter, _), total in waits.items():
        every[waiter] += total
    cost = [0] * len(ranks)
    for (waiter, awaited), total in waits.items():
        if waiter != awaited or len(ranks) == 1:
            cost[awaited] += ranks[waiter] * waiting_ns[waiter] * total // every[waiter]
    most = max(range(len(cost)), key=lambda place: cost[place])
    others = sum(ranks) - ranks[most] or sum(ranks)
    return Slowest(most, cost[most] // others) if cost[most] else None
