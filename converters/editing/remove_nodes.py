"""Removal of nodes from a graph; their successors then depend on their predecessors.

Invariant: of two nodes that stay, one waits for the other (directly or through others) exactly as before. A
dependency on a removed node is replaced by dependencies on its nearest ancestors that stay, in the same list
(data or control). An ancestor is left out if another one in the list is known to wait for it: nodes that stay
form chains, each link of which is a dependency, and only the last ancestor of a chain counts. Ancestors that
a parent that stays already has are left out as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from converters.editing.files import RecordedTrace, Rewiring, refuse_cycle
from converters.files import watched
from et_sim.basics.errors import TraceError
from et_sim.trace import Trace
from et_sim.trace.order import dependency_lists, edges, fits_row_order, settle

_MOST_STEPS = 400_000_000  # visited ancestors: some minutes
_NONE: dict[int, int] = {}


def remove_nodes(recorded: RecordedTrace, keep: Any) -> Rewiring:
    """Return the dependencies of the rows for which `keep` holds after all others are removed."""
    trace = recorded.trace
    order = row_order(recorded)
    walk = _Walk(trace, keep)
    for row in watched(order, len(trace), "nodes"):
        if walk.stays[row]:
            walk.stay(row)
        else:
            walk.leave(row)
    return walk.bridges


def row_order(recorded: RecordedTrace) -> Any:
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
    """A visit of all rows in order; `above[row]` maps chains to the last ancestor in them, for
    removed rows.
    """

    def __init__(self, trace: Trace, keep: Any) -> None:
        count = len(trace)
        self.bridges = Rewiring()
        self.stays = keep.tolist()
        self.data, self.ctrl = dependency_lists(trace)
        self.above: list[dict[int, int]] = [_NONE] * count
        self.given = [_NONE] * count  # per row that stays: ancestors it is known to wait for
        self.chains = NodeChains(trace, trace.is_cpu.tolist())
        self.steps = 0
        self.source = trace.source

    def leave(self, row: int) -> None:
        """Collect the ancestors of a row that leaves; equal collections are shared, not copied."""
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
        """Return the ancestors given to the row, and both lists with ancestors in place of parents that
        leave.
        """
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
        """Replace the parents of one list; `latest` and `known` are extended."""
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
        """Record an ancestor if it is the last known of its chain, and return whether it is."""
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


class NodeChains:
    """Nodes in chains: each link is a dependency, so that only the last ancestor of a chain counts."""

    def __init__(self, trace: Trace, side: list[bool]) -> None:
        count = len(trace)
        self.of = [-1] * count  # the chain of each row
        self.place = [0] * count  # the position in it
        self.children = np.bincount(edges(trace)[0], minlength=count).tolist()
        self._side = side
        self._last: list[int] = []  # the last row of each chain

    def link(self, row: int, parents: Iterable[int]) -> int:
        """Append the row to the chain of a parent and return that parent, or begin a new chain and return -1.

        Among the parents that end a chain, one on the same side (host or device) with the fewest children is
        chosen. A thread or stream is then continued by itself, not by what it launches.
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
