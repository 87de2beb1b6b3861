"""A walk back over the nodes of a run from the last one that ended, along its longest path.

It goes to the cause of a node's start or, where the node waited for another rank, to the node that this rank
had issued last. `et_sim.views.critical` finds the path through messages and links.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.records import Action
from et_sim.timeline.ready_times import cause_rows
from et_sim.timeline.waiting.arrivals import Issued
from et_sim.timeline.waiting.waits import COMMUNICATION, Waits


class Hops(Struct, frozen=True, eq=False):
    """Nodes of the path, the last first, and their times on it."""

    actor: Any
    row: Any
    since_ns: Any
    until_ns: Any


class Walk:
    """A walk over the path, from its end to its begin."""

    def __init__(self, outcome: Outcome, waits: Waits) -> None:
        self._outcome, self._all_waits = outcome, waits
        self._actors: dict[int, _Nodes] = {}

    def hops(self) -> Hops:
        """Return the nodes of the path."""
        hops: list[tuple[int, int, int, int]] = []
        actor = int(np.argmax(self._outcome.finish_ns))
        nodes = self._nodes(actor)
        row = int(np.argmax(np.asarray(nodes.end)))
        until = nodes.end[row]
        while row != NONE and until > 0:
            waited = nodes.waits.get(row)
            awaited = self._awaited(actor, row, nodes, *waited) if waited is not None else None
            if waited is not None and awaited is not None and waited[0] <= until:
                hops.append((actor, row, waited[0], until))
                (actor, row), until = awaited, waited[0]
                nodes = self._nodes(actor)
                continue
            begin = nodes.start[row]
            hops.append((actor, row, begin if begin < until else until, until))
            row = nodes.caused_by[row]
            until = nodes.end[row] if row != NONE else 0
        return Hops(*np.array(hops, np.int64).reshape(-1, 4).T)

    def _awaited(
        self, actor: int, row: int, nodes: _Nodes, since: int, awaited: int, sequence: int
    ) -> tuple[int, int] | None:
        """Return the actor and the node that a node waited for until then; None if unknown."""
        if nodes.message_node[row] != NONE:  # a receive waits for its send
            return nodes.message_from[row], nodes.message_node[row]
        if awaited == actor:
            return None
        other = self._nodes(awaited).coming.get((sequence, since))
        return None if other is None else (awaited, other)

    def _nodes(self, actor: int) -> _Nodes:
        """Return the nodes of an actor, cached for the actors of the path."""
        if actor not in self._actors:
            plan = self._outcome.plan
            first = int(plan.actors["node_first"][actor])
            count = int(plan.templates["nodes"][plan.actors["template"][actor]])
            rows = self._outcome.nodes[first : first + count]
            base = int(plan.templates["node_first"][plan.actors["template"][actor]])
            action = np.asarray(plan.nodes)["action"][base : base + count]
            sender = np.where(action == Action.RECEIVE, rows["number"], NONE)
            columns = (rows["start_ns"], rows["end_ns"], cause_rows(rows)[0], rows["partner"], sender)
            of_actor: list[Any] = [np.ascontiguousarray(column).data for column in columns]
            of_actor += self._communication(actor, base, action, first)
            self._actors[actor] = _Nodes(*of_actor)
        return self._actors[actor]

    def _communication(
        self, actor: int, base: int, action: Any, first: int
    ) -> tuple[dict[int, Any], dict[Any, int]]:
        """Return the waits of an actor's communication, and the times at which it joined collectives."""
        state = self._outcome.nodes[first : first + len(action)]
        row = np.flatnonzero(np.isin(action, COMMUNICATION) & (state["start_ns"] != NONE))
        nodes = Issued(np.full(len(row), actor), base + row, first + row)
        waits = self._all_waits.of(nodes)
        came = state["start_ns"][row] + np.maximum(waits.queued_ns, 0)
        of_group = np.flatnonzero(action[row] == Action.COLLECTIVE)
        sequence = state["number"][row]
        coming = dict(zip(_together(sequence[of_group], came[of_group]), row[of_group].tolist(), strict=True))
        waited = np.flatnonzero(waits.waiting_ns > 0)
        values = (came + waits.waiting_ns, waits.waits_for, sequence)
        of_row = dict(
            zip(row[waited].tolist(), _together(*(column[waited] for column in values)), strict=True)
        )
        return of_row, coming


class _Nodes(Struct, frozen=True):
    """Columns of an actor's nodes that yield Python's numbers."""

    start: Any
    end: Any
    caused_by: Any  # the last parent, or the node that had occupied the lane
    message_from: Any
    message_node: Any
    waits: Any  # by row: until when it waited, the actor, and the sequence number
    coming: Any  # row by sequence number and time


def _together(*columns: Any) -> Iterator[tuple[int, ...]]:
    """Yield the rows of columns as Python's numbers."""
    return zip(*(column.tolist() for column in columns), strict=True)
