"""The points that no other one beats: none is as good in both of two figures and better in one of them."""

from __future__ import annotations

from collections.abc import Sequence


def front_of(costs: Sequence[float], times: Sequence[float]) -> list[int]:
    """Numbers of the rows on the Pareto front of two figures that are to be small, by rising costs.

    Of rows that are equal in both, the first one counts.
    """
    found: list[int] = []
    for row in sorted(range(len(costs)), key=lambda row: (costs[row], times[row], row)):
        if not found or times[row] < times[found[-1]]:
            found.append(row)
    return found
