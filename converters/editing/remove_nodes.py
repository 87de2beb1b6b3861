"""Nodes leave a graph: what came after them comes after what they came after.

Of two nodes that stay, one waits for the other (directly or through others) exactly as before; that is the
invariant. A dependency on a node that leaves becomes dependencies on its nearest ancestors that stay, in the
same list (data or control). Ancestors that another one of them is known to wait for are left out: nodes that
stay are strung into chains, each link of which is a dependency, and of a chain only the last ancestor counts;
and what a parent that stays was given already is not given again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from converters.editing.files import Recorded, Rewiring, refuse_cycle
from converters.files import watched
from et_sim.basics.errors import TraceError
from et_sim.trace import Trace
from et_sim.trace.order import dependency_lists, edges, fits_row_order, settle

_MOST_STEPS = 400_000_000  # ancestors looked at: some minutes
_NONE: dict[int, int] = {}


def remove_nodes(recorded: Recorded, keep: Any) -> Rewiring:
    """Return dependencies of the rows for which `keep` holds once all others have left."""
    trace = recorded.trace
    order = row_order(recorded)
    walk = _Walk(trace, keep)
    for row in watched(order, len(trace), "nodes"):
        if walk.stays[row]:
            walk.stay(row)
        else:
            walk.leave(row)
    return walk.bridges


def row_order(recorded: Recorded) -> Any:
    """Return all rows, each after its parents."""
    parent, child = edges(recorded.trace)
    count = len(recorded.trace)
    if fits_row_order(parent, child) and not _waits_for_itself(recorded.trace):
        return range(count)
    order = settle(parent, child, np.zeros(count, np.uint8))[0]
    if len(order) < count or _waits_for_itself(recorded.trace):
        raise refuse_cycle(recorded)
    return order.tolist()


def _waits_for_itself(trace: Trace) -> bool:
    return len(edges(trace)[0]) < len(trace.data_deps) + len(trace.ctrl_deps)


class _Walk:
    """Visits rows in order; `above[row]` maps chains to the last ancestor in them, for rows that leave."""

    def __init__(self, trace: Trace, keep: Any) -> None:
        count = len(trace)
        self.bridges = Rewiring()
        self.stays = keep.tolist()
        self.data, self.ctrl = dependency_lists(trace)
        self.above: list[dict[int, int]] = [_NONE] * count
        self.given = [_NONE] * count  # per row that stays: a collection that it is known to wait for
        self.chains = Chains(trace, trace.is_cpu.tolist())
        self.steps = 0
        self.source = trace.source

    def leave(self, row: int) -> None:
        """Gather the ancestors of a row that leaves; equal collections are shared, not copied."""
        held, owned = _NONE, False
        for parent in (*self.data.of(row), *self.ctrl.of(row)):
            ancestors = {self.chains.of[parent]: parent} if self.stays[parent] else self.above[parent]
            if not ancestors or ancestors is held:
                continue
            if not held:
                held = ancestors
                continue
            self.count(len(ancestors))
            for chain, ancestor in ancestors.items():
                known = held.get(chain)
                if known is None or self.chains.place[known] < self.chains.place[ancestor]:
                    if not owned:
                        held, owned = dict(held), True
                        self.count(len(held))
                    held[chain] = ancestor
        self.above[row] = held

    def stay(self, row: int) -> None:
        """Replace the parents that leave, and continue a chain."""
        data, ctrl = self.data.of(row), self.ctrl.of(row)
        if all(map(self.stays.__getitem__, (*data, *ctrl))):
            if data or ctrl:
                self.given[row] = self.given[(data or ctrl)[0]]
        else:
            self.given[row], data, ctrl = self.replaced(data, ctrl)
            self.bridges.data[row], self.bridges.ctrl[row] = data, ctrl
        if self.chains.children[row]:
            self.chains.link(row, (*data, *ctrl))

    def replaced(self, data: list[int], ctrl: list[int]) -> tuple[dict[int, int], list[int], list[int]]:
        """What the row is given, and both lists with ancestors in the places of parents that leave."""
        latest: dict[int, int] = {}  # by chain
        known: dict[int, dict[int, int]] = {}  # by identity: collections that need not be given
        for parent in (*data, *ctrl):
            if self.stays[parent]:
                self.note(latest, parent)
                known[id(self.given[parent])] = self.given[parent]
        lists = [self.one_replaced(parents, latest, known) for parents in (data, ctrl)]
        return max(reversed(known.values()), key=len, default=_NONE), lists[0], lists[1]

    def one_replaced(
        self, parents: list[int], latest: dict[int, int], known: dict[int, dict[int, int]]
    ) -> list[int]:
        """One list; `latest` and `known` grow by what it is given."""
        added: dict[int, int] = {}
        for parent in parents:
            if self.stays[parent]:
                continue
            above = self.above[parent]
            self.bridges.bridged += bool(above)
            self.bridges.dropped += not above
            if id(above) not in known:
                known[id(above)] = above
                self.count(len(above))
                added |= {
                    self.chains.of[ancestor]: ancestor
                    for ancestor in above.values()
                    if self.note(latest, ancestor)
                }
        self.bridges.added += len(added)
        return [parent for parent in parents if self.stays[parent]] + sorted(added.values())

    def note(self, latest: dict[int, int], ancestor: int) -> bool:
        """Return whether it is later in its chain than what is known."""
        known = latest.get(self.chains.of[ancestor])
        if known is not None and self.chains.place[known] >= self.chains.place[ancestor]:
            return False
        latest[self.chains.of[ancestor]] = ancestor
        return True

    def count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise TraceError(
                "nodes that leave join too many others: bridging their dependencies would take very long",
                place=self.source,
                remedy="edit a shorter part of the trace (et-convert slice), or keep the nodes",
            )


class Chains:
    """Nodes strung together: each link is a dependency, so that of a chain only the last ancestor counts."""

    def __init__(self, trace: Trace, side: list[bool]) -> None:
        count = len(trace)
        self.of = [-1] * count  # the chain of each row
        self.place = [0] * count  # within it
        self.children = np.bincount(edges(trace)[0], minlength=count).tolist()
        self._side = side
        self._last: list[int] = []  # row of each chain

    def link(self, row: int, parents: Iterable[int]) -> int:
        """Make the row the last of the chain of a parent, which is returned, or the first of a new one (-1).

        Of the parents that end a chain, one on the same side (such as host or device) with the fewest
        children: a thread or stream is then continued by itself, not by what it launches.
        """
        best = -1
        for parent in parents:
            is_end = self._side[parent] == self._side[row] and self._last[self.of[parent]] == parent
            if is_end and (best < 0 or self.children[parent] < self.children[best]):
                best = parent
        if best < 0:
            self.of[row] = len(self._last)
            self._last.append(row)
        else:
            self.of[row] = self.of[best]
            self.place[row] = self.place[best] + 1
            self._last[self.of[row]] = row
        return best
