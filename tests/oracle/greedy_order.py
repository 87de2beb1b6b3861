"""The offline greedy order of dimensions, transcribed rule by rule and without regard for speed.

State is a list of (dimension, load) pairs that persists from chunk to chunk of one collective. Written from
the description of the rules alone, independently of `et_sim.plan.dimension_order`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEBI = 1048576.0


@dataclass
class Dimension:
    size: int
    bandwidth: float
    involved: bool

    @property
    def takes_part(self) -> bool:
        return self.involved and self.size > 1


class GreedyOrder:
    def __init__(self, kind: str, dimensions: list[Dimension], flexible: bool) -> None:
        self.gathers = kind == "all_gather"  # an all-reduce is treated as a reduce-scatter
        self.dimensions = dimensions
        self.flexible = flexible
        self.state: list[tuple[int, float]] = [(d, 0.0) for d in range(len(dimensions))]

    def relative(self, d: int) -> float:
        return self.dimensions[d].bandwidth / self.dimensions[0].bandwidth

    def next_chunk(self, remaining: int, recommended: int) -> tuple[int, tuple[int, ...]]:
        """Return the bytes of the next chunk and its order of dimensions, by rules 1 to 3."""
        self.insertion_sort()
        if self.gathers:
            self.state = self.state[::-1]
        room = self.slack()
        too_little = room < recommended if self.flexible else room < recommended // 16
        if too_little:
            ascending = list(range(len(self.dimensions)))
            by_number = dict(self.state)
            places = ascending[::-1] if self.gathers else ascending
            self.state = [(d, by_number[d]) for d in places]
            chunk = min(remaining, recommended)
            self.charge(ascending, chunk)
            return chunk, tuple(ascending)
        chunk = min(remaining, room) if self.flexible else min(remaining, recommended)
        order = [d for d, _ in self.state]
        self.charge(order, chunk)
        return chunk, tuple(order)

    def insertion_sort(self) -> None:
        sorted_so_far: list[tuple[int, float]] = []
        for item in self.state:
            at = len(sorted_so_far)
            while at > 0 and item[1] < sorted_so_far[at - 1][1]:
                at -= 1
            sorted_so_far.insert(at, item)
        self.state = sorted_so_far

    def slack(self) -> int:
        first = next(k for k, (d, _) in enumerate(self.state) if self.dimensions[d].takes_part)
        d, load = self.state[first]
        if not self.gathers:
            difference = abs(self.state[-1][1] - load)
            s = self.dimensions[d].size
            return math.floor(difference * self.relative(d) / ((s - 1) / s) * MEBI)
        last = max(k for k, (e, _) in enumerate(self.state) if self.dimensions[e].takes_part)
        e, last_load = self.state[last]
        difference = abs(last_load - load)
        room = math.floor(difference * self.relative(e) / (self.dimensions[e].size - 1) * MEBI)
        for k in range(last - 1, first - 1, -1):
            if self.dimensions[self.state[k][0]].takes_part:
                room = room // self.dimensions[self.state[k][0]].size
        return room

    def charge(self, order: list[int], chunk: int) -> None:
        """Charge the k-th entry of the list for the k-th dimension of the order."""
        size = chunk
        for k, d in enumerate(order):
            if not self.dimensions[d].takes_part:
                continue
            s = self.dimensions[d].size
            owner, load = self.state[k]
            if self.gathers:
                load += size / MEBI * (s - 1) / self.relative(d)
                size = size * s
            else:
                load += size / MEBI * ((s - 1) / s) / self.relative(d)
                size = size // s
            self.state[k] = (owner, load)


def planned(
    kind: str, total: int, recommended: list[int], dimensions: list[Dimension], flexible: bool
) -> list[tuple[int, tuple[int, ...]]]:
    """Return all chunks; without `flexible`, the k-th has the k-th recommended size."""
    order = GreedyOrder(kind, dimensions, flexible)
    results: list[tuple[int, tuple[int, ...]]] = []
    left = total
    while left:
        wanted = recommended[0] if flexible else recommended[len(results)]
        chunk, way = order.next_chunk(left, wanted)
        results.append((chunk, way))
        left -= chunk
    return results
