"""Pairs of actors that share ranks in two runs, and the first node that ends at another time.

Runs with different numbers of ranks share the lower ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_ns, format_ranks, parse_ranks
from et_sim.views.run.columns import integers, numbers
from et_sim.views.run.directory import RunDirectory


class RankPair(Struct, frozen=True):
    """Some ranks, the actor of each run that stands for them, and their finish times; None: never."""

    ranks: str
    first_rank: int
    actors: tuple[int, int]
    finish_ns: tuple[int | None, int | None]

    @property
    def difference_ns(self) -> int:
        """Return how much later they finish in the second run; 0 if they never finish in one run."""
        before, after = self.finish_ns
        return 0 if before is None or after is None else after - before


def most_different(a: RunDirectory, b: RunDirectory, most: int) -> tuple[list[RankPair], int]:
    """Return the pairs whose finish differs most, by their first rank, and the number of all pairs."""
    ranks = min(a.summary["ranks"], b.summary["ranks"])
    actors = np.stack([actor_of_rank(run)[:ranks] for run in (a, b)])
    pairs, first, of_rank = np.unique(actors, axis=1, return_index=True, return_inverse=True)
    finish = [run.actors()["finish_ns"].to_pylist() for run in (a, b)]
    apart = [
        RankPair("", rank, (in_a, in_b), (finish[0][in_a], finish[1][in_b]))
        for (in_a, in_b), rank in zip(pairs.T.tolist(), first.tolist(), strict=True)
    ]
    order = sorted(range(len(apart)), key=lambda at: (-abs(apart[at].difference_ns), apart[at].first_rank))[
        :most
    ]
    of_rank = of_rank.reshape(-1)
    named = [
        RankPair(
            format_ranks(np.flatnonzero(of_rank == at)),
            apart[at].first_rank,
            apart[at].actors,
            apart[at].finish_ns,
        )
        for at in order
    ]
    return sorted(named, key=lambda pair: pair.first_rank), len(apart)


def actor_of_rank(run: RunDirectory) -> Any:
    """Return the actor of every rank."""
    of_rank = np.zeros(run.summary["ranks"], np.int64)
    for actor, ranks in enumerate(run.actors()["ranks"].to_pylist()):
        for piece in parse_ranks(ranks):
            of_rank[piece.start : piece.stop : piece.step] = actor
    return of_rank


NEVER = -1


class Parting(Struct, frozen=True):
    """A node of a rank that ends at another time in the second run."""

    rank: int
    node: int
    kind: str
    name: str
    a_end_ns: int
    b_end_ns: int

    def as_text(self) -> str:
        """Return the node and its ends as text."""
        node = f'{self.kind} "{self.name}" (node {self.node}) of rank {self.rank}'
        return f"{node} ends at {format_ns(self.a_end_ns)}, then {format_ns(self.b_end_ns)}"


def first_parting(a: RunDirectory, b: RunDirectory) -> Parting | None:
    """Return the first difference; at one time, that of the lowest rank and node; None if there is none.

    Nodes that only one run has, recorded or completed are left out.
    """
    ends = _Ends(a), _Ends(b)
    pairs, ranks = np.unique(np.stack([actor_of_rank(run) for run in (a, b)]), axis=1, return_index=True)
    best: tuple[int, int, int, int, int, int] | None = None
    for (in_a, in_b), rank in sorted(
        zip(pairs.T.tolist(), ranks.tolist(), strict=True), key=lambda pair: pair[1]
    ):
        parting = _first(ends[0].of(in_a), ends[1].of(in_b))
        if parting is not None and (best is None or parting[0] < best[0]):
            best = (*parting, rank, in_a)
    if best is None:
        return None
    _, node, a_end, b_end, rank, actor = best
    kind, name = _named(a, actor, node)
    return Parting(rank, node, kind, name, a_end, b_end)


def parting_times(a: RunDirectory, b: RunDirectory, actors: Iterable[tuple[int, int]]) -> list[int | None]:
    """Return when each actor of the first run begins to differ from one of the second; None: never."""
    ends = _Ends(a), _Ends(b)
    partings = (_first(ends[0].of(in_a), ends[1].of(in_b)) for in_a, in_b in actors)
    return [None if parting is None else parting[0] for parting in partings]


class _Ends:
    """Ends of the nodes of every actor, by node."""

    def __init__(self, run: RunDirectory) -> None:
        actor, node, end = run.arrays("timeline", ("actor", "node", "end_ns")).values()
        order = np.lexsort((node, actor))
        self._node, self._end = node[order], end[order]
        self._first = np.searchsorted(actor[order], np.arange(len(run.actors()) + 1))

    def of(self, actor: int) -> tuple[Any, Any]:
        """Return (nodes, ends) of an actor."""
        rows = slice(self._first[actor], self._first[actor + 1])
        return self._node[rows], self._end[rows]


def _first(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[int, int, int, int] | None:
    """Return (time, node, its end, its end in the other run) of the first difference."""
    (node, a_end), (other, b_end) = a, b
    if not np.array_equal(node, other):
        node, in_a, in_b = np.intersect1d(node, other, assume_unique=True, return_indices=True)
        a_end, b_end = a_end[in_a], b_end[in_b]
    rows = np.flatnonzero((a_end != b_end) & (a_end != NEVER) & (b_end != NEVER))
    if not len(rows):
        return None
    times = np.minimum(a_end[rows], b_end[rows])
    row = rows[int(np.argmin(times))]
    return int(times.min()), int(node[row]), int(a_end[row]), int(b_end[row])


def _named(run: RunDirectory, actor: int, node: int) -> tuple[str, str]:
    """Return the kind and the name of a node."""
    for batch in run.batches("timeline", ("actor", "node", "kind", "name")):
        is_it = (integers(batch["actor"], missing=0) == actor) & (numbers(batch["node"]) == node)
        for row in np.flatnonzero(is_it).tolist():
            return str(batch["kind"][row].as_py()), str(batch["name"][row].as_py() or "")
    return "", ""
