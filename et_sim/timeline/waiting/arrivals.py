"""Who came last to every collective: until then, those that came before merely waited.

A rank has come when a queue of its own has let a chunk in: before that, other communication of its own held
the collective up.

Not here: who takes part (`parties`), and nodes that are no collectives (`waits`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.tables import Action
from et_sim.timeline.waiting.nodes import issued
from et_sim.timeline.waiting.parties import Parties, parties


class CollectiveArrivals(Struct, frozen=True, eq=False):
    """Per collective of an actor, by its row of the node state, ascending: what it waited for.

    Arrival `a` is that of `actors[first[a]:first[a + 1]]`, ascending, which came at one time.
    """

    state_row: Any
    admitted_ns: Any
    until_ns: Any
    arrival: Any
    first: Any
    actors: Any

    def rows(self, state_row: Any) -> Any:
        """Where some collectives stand here."""
        return np.searchsorted(self.state_row, state_row)

    def of_lowest_class(self, class_of_actor: Any) -> Any:
        """Per arrival, that of its actors which is of the lowest class."""
        every = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        order = np.lexsort((class_of_actor[self.actors], every))
        return self.actors[order[self.first[:-1]]]


def arrivals(outcome: Outcome) -> CollectiveArrivals:
    """Those of a run."""
    plan, state = outcome.plan, outcome.nodes
    parts = [np.zeros((3, 0), np.int64)]
    for nodes in issued(outcome, (Action.COLLECTIVE,)):
        usage = plan.actors["first_member"][nodes.actor] + nodes.nodes["member"]
        parts.append(np.stack((nodes.state_row, plan.actor_members[usage], nodes.nodes["detail"])))
    state_row, member, collective = np.concatenate(parts, axis=1).astype(np.int64)
    order = np.argsort(member, kind="stable")
    state_row, member, collective = state_row[order], member[order], collective[order]
    party = parties(plan, member, collective)
    admitted = _admitted(outcome, state_row)
    came = _Came.of(outcome, state_row, member, admitted, party)
    end = state["end_ns"][state_row]
    stop = np.where(end == NONE, outcome.end_ns, end)
    until, arrival = np.where(admitted == NONE, stop, admitted), np.zeros(len(state_row), np.int64)
    there = np.flatnonzero(admitted != NONE)
    until[there], arrival[there] = came.last_until(
        party.of_row[there], state["sequence"][state_row[there]], stop[there]
    )
    actors, first = came.actor, came.first
    if not outcome.is_complete:
        awaited = np.full(len(state_row), NONE, np.int64)
        awaited[there] = _missing(plan, party, came, there, state_row, state)
        until = np.where(awaited >= 0, outcome.end_ns, until)
        arrival = np.where(awaited >= 0, len(first) - 1 + np.cumsum(awaited >= 0) - 1, arrival)
        extra = awaited[awaited >= 0]
        first = np.concatenate((first, first[-1] + 1 + np.arange(len(extra))))
        actors = np.concatenate((actors, extra))
    order, admitted = np.argsort(state_row), np.where(admitted == NONE, stop, admitted)
    return CollectiveArrivals(state_row[order], admitted[order], until[order], arrival[order], first, actors)


def _admitted(outcome: Outcome, state_row: Any) -> Any:
    """When collectives came to the others of their group: from then on, nothing of their own rank holds them.

    In runs of 1.0 in which chunks start together, no member is admitted before the last one has come.
    """
    state = outcome.nodes
    admitted, start = state["admitted_ns"][state_row], state["start_ns"][state_row]
    if outcome.plan.version_1.starts_together:
        return start
    return np.where((admitted == NONE) & (state["end_ns"][state_row] != NONE), start, admitted)


class _Came(Struct, frozen=True, eq=False):
    """Who came when to the collectives of parties, sorted by collective, time and actor."""

    instance_keys: Any  # party and sequence number as one, ascending
    sequences: Any
    times: Any
    key: Any  # per arriving actor: instance and time as one, ascending
    actor: Any
    first: Any  # of the actors that came to the same at the same time
    counts: Any  # per instance, how many came

    @staticmethod
    def of(outcome: Outcome, state_row: Any, member: Any, admitted: Any, party: Parties) -> _Came:
        """Members' collectives, once for each party that they are in."""
        plan, state = outcome.plan, outcome.nodes
        there = np.flatnonzero(admitted != NONE)
        state_row, member, admitted = state_row[there], member[there], admitted[there]
        sizes = np.diff(party.first)
        first_of_member = np.searchsorted(member, party.members)
        count = np.searchsorted(member, party.members, side="right") - first_of_member
        total = int(count.sum())
        row = np.arange(total) + np.repeat(first_of_member - (np.cumsum(count) - count), count)
        of_party = np.repeat(np.repeat(np.arange(len(sizes)), sizes), count)
        sequences, sequence = np.unique(state["sequence"][state_row[row]], return_inverse=True)
        times, time = np.unique(admitted[row], return_inverse=True)
        actor = plan.members["actor"][member[row]].astype(np.int64)
        keys, instance = np.unique(of_party * len(sequences) + sequence.reshape(-1), return_inverse=True)
        key = instance.reshape(-1) * len(times) + time.reshape(-1)
        order = np.lexsort((actor, key))
        key, actor = key[order], actor[order]
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        counts = np.bincount(instance.reshape(-1), minlength=len(keys))
        return _Came(keys, sequences, times, key, actor, np.append(begins, total), counts)

    def instance(self, party: Any, sequence: Any) -> Any:
        """Which collective that of a party with a sequence number is."""
        at = np.searchsorted(self.sequences, sequence)
        return np.searchsorted(self.instance_keys, party * len(self.sequences) + at)

    def last_until(self, party: Any, sequence: Any, end: Any) -> tuple[Any, Any]:
        """The last arrival at a collective before each of these times, and when it was."""
        time = np.searchsorted(self.times, end, side="right") - 1
        key = self.instance(party, sequence) * len(self.times) + time
        at = np.searchsorted(self.key, key, side="right") - 1
        return self.times[self.key[at] % len(self.times)], np.searchsorted(self.first, at, side="right") - 1


def _missing(plan: Any, party: Parties, came: _Came, rows: Any, state_row: Any, state: Any) -> Any:
    """Of some collectives, those that never ended: a member that never came; NONE of all others."""
    state_row, of_row = state_row[rows], party.of_row[rows]
    awaited, end = np.full(len(rows), NONE, np.int64), state["end_ns"][state_row]
    instance = came.instance(of_row, state["sequence"][state_row])
    first = np.append(np.searchsorted(came.key, np.arange(len(came.counts)) * len(came.times)), len(came.key))
    sizes = np.diff(party.first)
    lacking = np.flatnonzero((end == NONE) & (came.counts[instance] < sizes[of_row]))
    known: dict[int, int] = {}
    for row in lacking.tolist():
        number, of = int(instance[row]), int(of_row[row])
        if number not in known:
            every = plan.members["actor"][party.members[party.first[of] : party.first[of + 1]]]
            known[number] = int(np.setdiff1d(every, came.actor[first[number] : first[number + 1]]).min())
        awaited[row] = known[number]
    return awaited
