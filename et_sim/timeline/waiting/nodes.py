"""The communication nodes of a run that were issued, many actors at a time.

Whom ranks wait for most, and what the slowest ranks cost the others. Classes are ranks with equal figures.
When a rank waits for several others at once, its waiting is shared out among them in proportion to how long
its communication waited for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.records import Action


class Slowest(Struct, frozen=True):
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


ROWS_AT_ONCE = 1 << 16  # more need much memory, and are no faster


class Issued(NamedTuple):
    """Nodes that were issued: their actors, rows of the plan's table of nodes, and rows of the node state."""

    actor: Any
    nodes: Any
    state_row: Any

    def where(self, rows: Any) -> Issued:
        """Some of them."""
        return Issued(*(column[rows] for column in self))


def issued(outcome: Outcome, actions: Iterable[Action]) -> Iterator[Issued]:
    """All that do one of these things, template after template."""
    plan, table = outcome.plan, np.asarray(outcome.plan.nodes)
    rows = np.flatnonzero(np.isin(table["action"], list(actions)))
    first = plan.templates["node_first"]
    begin, end = np.searchsorted(rows, (first, first + plan.templates["nodes"]))
    template = plan.actors["template"]
    actors = np.argsort(template, kind="stable")
    counts = (end - begin)[template[actors]]
    behind = np.cumsum(counts)
    at = 0
    while at < len(actors):
        before = int(behind[at] - counts[at])
        until = max(int(np.searchsorted(behind, before + ROWS_AT_ONCE, side="right")), at + 1)
        batch, count = actors[at:until], counts[at:until]
        at = until
        if not count.any():
            continue
        actor = np.repeat(batch, count)
        shift = begin[template[batch]] - (np.cumsum(count) - count)
        row = rows[np.arange(len(actor)) + np.repeat(shift, count)]
        state_row = plan.actors["node_first"][actor] + row - first[template[actor]]
        is_issued = np.flatnonzero(outcome.nodes["start_ns"][state_row] != NONE)
        yield Issued(actor[is_issued], table[row[is_issued]], state_row[is_issued])
