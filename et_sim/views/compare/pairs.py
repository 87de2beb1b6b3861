"""Ranks that did the same in either of two runs: one entry for all that share an actor in both.

Runs with different numbers of ranks have the lower ones in common. Not here: what changed (`changes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.units import format_ranks, parse_ranks
from et_sim.views.run.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Pair:
    """Some ranks, the actor of each run that stands for them, and when they finish; None: never."""

    ranks: str
    first_rank: int
    actors: tuple[int, int]
    finish_ns: tuple[int | None, int | None]

    @property
    def difference_ns(self) -> int:
        """How much later they finish in the second run, or earlier; 0 if in either they never do."""
        before, after = self.finish_ns
        return 0 if before is None or after is None else after - before


def most_different(a: RunDirectory, b: RunDirectory, most: int) -> tuple[list[Pair], int]:
    """(the pairs whose finish differs most, by their first rank; how many there are in all)"""
    ranks = min(a.summary["ranks"], b.summary["ranks"])
    actors = np.stack([actor_of_rank(run)[:ranks] for run in (a, b)])
    pairs, first, of_rank = np.unique(actors, axis=1, return_index=True, return_inverse=True)
    finish = [run.actors()["finish_ns"].to_pylist() for run in (a, b)]
    found = [
        Pair("", rank, (in_a, in_b), (finish[0][in_a], finish[1][in_b]))
        for (in_a, in_b), rank in zip(pairs.T.tolist(), first.tolist(), strict=True)
    ]
    order = sorted(range(len(found)), key=lambda at: (-abs(found[at].difference_ns), found[at].first_rank))[
        :most
    ]
    of_rank = of_rank.reshape(-1)
    named = [
        Pair(
            format_ranks(np.flatnonzero(of_rank == at)),
            found[at].first_rank,
            found[at].actors,
            found[at].finish_ns,
        )
        for at in order
    ]
    return sorted(named, key=lambda one: one.first_rank), len(found)


def actor_of_rank(run: RunDirectory) -> Any:
    """The actor of every rank."""
    of_rank = np.zeros(run.summary["ranks"], np.int64)
    for actor, ranks in enumerate(run.actors()["ranks"].to_pylist()):
        for piece in parse_ranks(ranks):
            of_rank[piece.start : piece.stop : piece.step] = actor
    return of_rank
