"""Arrivals at collectives: issued communication nodes, the ranks of a collective, and the last one to come.

A rank has come when one of its queues has admitted a chunk: before that, its own communication delayed the
collective.

Classes are ranks with equal figures. When a rank waits for several others at once, its waiting is divided
among them in proportion to how long its communication waited for each. `waits` covers sends and receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.plan.records import Action, LoweredPlan
from et_sim.timeline.waiting.parties import Parties, parties


class Slowest(Struct, frozen=True):
    """The class that is waited for most, and the average time for which other ranks wait for it."""

    place: int
    cost_ns: int


def waited_for_most(waits: Mapping[tuple[int, int], int], classes: int) -> list[int | None]:
    """Return for each class the class that its communication waits for longest."""
    longest: list[tuple[int, int]] = [(0, 0)] * classes  # of ties, the lowest
    for (waiter, awaited), total in waits.items():
        longest[waiter] = max(longest[waiter], (total, -awaited))
    return [-awaited if total else None for total, awaited in longest]


def slowest(
    waits: Mapping[tuple[int, int], int], waiting_ns: Sequence[int], ranks: Sequence[int]
) -> Slowest | None:
    """Return the slowest class, or None if no rank waits.

    `waiting_ns` is the time of each rank of a class, and `ranks` their number.
    """
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


ROWS_AT_ONCE = 1 << 16  # larger blocks need much memory, and are no faster


class Issued(NamedTuple):
    """Issued nodes: their actors, rows of the plan's table of nodes, and rows of the node state."""

    actor: Any
    at: Any
    state_row: Any

    def where(self, rows: Any) -> Issued:
        """Return some of the nodes."""
        return Issued(*(column[rows] for column in self))


def issued(outcome: Outcome, actions: Iterable[Action]) -> Iterator[Issued]:
    """Yield all issued nodes with these actions, template by template."""
    start = np.asarray(outcome.nodes)["start_ns"]
    for every in nodes_with(outcome.plan, actions):
        is_issued = start[every.state_row] != NONE
        yield every if is_issued.all() else every.where(is_issued)


def nodes_with(plan: LoweredPlan, actions: Iterable[Action]) -> Iterator[Issued]:
    """Yield all nodes of actors with these actions, as if they were issued, template by template."""
    rows = np.flatnonzero(np.isin(np.arange(len(Action)), list(actions))[np.asarray(plan.nodes)["action"]])
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
        yield Issued(actor, row, state_row)


class CollectiveArrivals(Struct, frozen=True, eq=False):
    """Arrivals that collectives of actors waited for, by rows of the node state, ascending.

    `moving_ns` is the time from the first member's arrival to the last member's end. Arrival `a` is that of
    `actors[first[a]:first[a + 1]]`, ascending, which came at the same time.
    """

    state_row: Any
    admitted_ns: Any
    until_ns: Any
    moving_ns: Any
    arrival: Any
    first: Any
    actors: Any

    @staticmethod
    def none() -> CollectiveArrivals:
        """Return an empty record."""
        nothing = np.zeros(0, np.int64)
        return CollectiveArrivals(nothing, nothing, nothing, nothing, nothing, np.zeros(1, np.int64), nothing)

    @staticmethod
    def joined(parts: Sequence[CollectiveArrivals]) -> CollectiveArrivals:
        """Return the arrivals of several parts of a run, each in any order."""
        order = np.argsort(np.concatenate([part.state_row for part in parts]))
        arrivals_before = np.cumsum([0, *(len(part.first) - 1 for part in parts[:-1])])
        actors_before = np.cumsum([0, *(len(part.actors) for part in parts)])
        of_parts = list(zip(parts, arrivals_before, actors_before[:-1], strict=True))
        firsts = [part.first[:-1] + before for part, _, before in of_parts]
        return CollectiveArrivals(
            state_row=np.concatenate([part.state_row for part in parts])[order],
            admitted_ns=np.concatenate([part.admitted_ns for part in parts])[order],
            until_ns=np.concatenate([part.until_ns for part in parts])[order],
            moving_ns=np.concatenate([part.moving_ns for part in parts])[order],
            arrival=np.concatenate([part.arrival + before for part, before, _ in of_parts])[order],
            first=np.concatenate([*firsts, actors_before[-1:]]),
            actors=np.concatenate([part.actors for part in parts]),
        )

    def rows(self, state_row: Any) -> Any:
        """Return the positions of some collectives."""
        return np.searchsorted(self.state_row, state_row)

    def of_lowest_class(self, class_of_actor: Any) -> Any:
        """Return for each arrival the actor of the lowest class."""
        every = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        order = np.lexsort((class_of_actor[self.actors], every))
        return self.actors[order[self.first[:-1]]]


class _Meetings(Struct, frozen=True, eq=False, dict=True):
    """Collectives of members, and the parties that meet there."""

    state_row: Any
    member: Any  # ascending
    first_row: Any  # of each collective of a member
    count: Any  # and its rows
    party: Parties
    order: Any  # of these collectives, by party

    def blocks(self) -> Iterator[tuple[Any, Parties]]:
        """Yield some parties at a time, with the rows of their collectives."""
        if len(self.state_row) <= ROWS_AT_ONCE:
            yield from self._only
        else:
            yield from self._blocks()

    @cached_property
    def _only(self) -> list[tuple[Any, Parties]]:
        return list(self._blocks())

    def _blocks(self) -> Iterator[tuple[Any, Parties]]:
        order, count, of_row, done = self.order, self.count, self.party.of_row, 0
        behind = np.cumsum(count[order])
        while done < len(order):
            before = int(behind[done] - count[order[done]])
            until = max(int(np.searchsorted(behind, before + ROWS_AT_ONCE, side="right")), done + 1)
            last = int(of_row[order[until - 1]])
            until = int(np.searchsorted(of_row[order], last, side="right"))
            some = order[done:until]
            rows = np.arange(int(behind[until - 1]) - before)
            rows += np.repeat(self.first_row[some] - (np.cumsum(count[some]) - count[some]), count[some])
            first = int(of_row[order[done]])
            yield rows, self.party.some(first, last, np.repeat(of_row[some], count[some]))
            done = until


def arrivals(outcome: Outcome) -> CollectiveArrivals:
    """Return the arrivals of a run, computed for some parties at a time."""
    plan = outcome.plan
    collectives = plan.derived(_collectives)
    is_issued = outcome.nodes["start_ns"][collectives[0]] != NONE
    if is_issued.all():
        meetings = plan.derived(_meetings, *collectives)
    else:
        meetings = _meetings(plan, *(column[is_issued] for column in collectives))
    state_row, member = meetings.state_row, meetings.member
    admitted = _admitted(outcome, state_row)
    there = admitted != NONE
    is_whole = bool(there.all())
    came = (state_row, admitted) if is_whole else (state_row[there], admitted[there])
    known = [CollectiveArrivals.none()]
    for rows, party in meetings.blocks():
        comers = plan.derived(_comers, member, party) if is_whole else _comers(plan, member[there], party)
        table = _ArrivalTable.of(outcome, *came, comers)
        known.append(_arrivals(outcome, state_row[rows], admitted[rows], party, table))
    return CollectiveArrivals.joined(known)


def _collectives(plan: LoweredPlan) -> tuple[Any, Any, Any]:
    """Return rows of the node state, members, and rows of the plan's table, sorted by the last two."""
    parts: tuple[list[Any], ...] = ([np.zeros(0, np.int64)], *([np.zeros(0, np.int32)] for _ in range(2)))
    for nodes in nodes_with(plan, (Action.COLLECTIVE,)):
        usage = plan.actors["first_member"][nodes.actor] + plan.nodes["member"][nodes.at]
        columns = nodes.state_row, plan.actor_members[usage], plan.nodes["detail"][nodes.at]
        for part, column in zip(parts, columns, strict=True):
            part.append(column)
    state_row, member, collective = map(np.concatenate, parts)
    order = np.argsort(member * np.int64(len(plan.collectives)) + collective, kind="stable")
    return state_row[order], member[order], collective[order]


def _meetings(plan: LoweredPlan, state_row: Any, member: Any, collective: Any) -> _Meetings:
    """Return the meetings at collectives that are sorted by member and row of the plan."""
    is_new = np.append(True, (member[1:] != member[:-1]) | (collective[1:] != collective[:-1]))
    first_row = np.flatnonzero(is_new[: len(member)])
    party = parties(plan, member[first_row], collective[first_row])
    order, count = np.argsort(party.of_row, kind="stable"), np.diff(first_row, append=len(member))
    return _Meetings(state_row, member, first_row, count, party, order)


def _arrivals(
    outcome: Outcome, state_row: Any, admitted: Any, party: Parties, came: _ArrivalTable
) -> CollectiveArrivals:
    """Return the arrivals at collectives of some parties, by party."""
    state, end = outcome.nodes, outcome.nodes["end_ns"][state_row]
    stop = np.where(end == NONE, outcome.end_ns, end)
    until, arrival = np.where(admitted == NONE, stop, admitted), np.zeros(len(state_row), np.int64)
    there, moving = np.flatnonzero(admitted != NONE), np.zeros(len(state_row), np.int64)
    of_row, sequence = party.of_row[there], state["number"][state_row[there]]
    instance = came.instance(of_row, sequence)
    until[there], arrival[there] = came.last_until(instance, stop[there])
    ended = np.zeros(len(came.counts), np.int64)
    np.maximum.at(ended, instance, stop[there])
    moving[there] = ended[instance] - came.began(instance)
    actors, first = came.actor, came.first
    if not outcome.is_complete:
        awaited = np.full(len(state_row), NONE, np.int64)
        awaited[there] = _missing(outcome.plan, party, came, there, state_row, state)
        until = np.where(awaited >= 0, outcome.end_ns, until)
        arrival = np.where(awaited >= 0, len(first) - 1 + np.cumsum(awaited >= 0) - 1, arrival)
        extra = awaited[awaited >= 0]
        first = np.concatenate((first, first[-1] + 1 + np.arange(len(extra))))
        actors = np.concatenate((actors, extra))
    admitted = np.where(admitted == NONE, stop, admitted)
    return CollectiveArrivals(state_row, admitted, until, moving, arrival, first, actors)


def _admitted(outcome: Outcome, state_row: Any) -> Any:
    """Return when collectives joined the others of their group; from then on, their own rank delays nothing.

    In runs of 1.0 in which chunks start together, no member is admitted before the last one has come.
    """
    state = outcome.nodes
    admitted, start = state["admitted_ns"][state_row], state["start_ns"][state_row]
    if outcome.plan.version_1.starts_together:
        return start
    return np.where((admitted == NONE) & (state["end_ns"][state_row] != NONE), start, admitted)


class _Comers(Struct, frozen=True, eq=False):
    """Members that come to collectives, once for each of their parties."""

    row: Any  # of their collectives
    of_party: Any
    actor: Any


def _comers(plan: LoweredPlan, member: Any, party: Parties) -> _Comers:
    """Return the members that come to the collectives of parties; `member` are those of all collectives."""
    sizes = np.diff(party.first)
    first_of_member = np.searchsorted(member, party.members)
    count = np.searchsorted(member, party.members, side="right") - first_of_member
    row = np.arange(int(count.sum())) + np.repeat(first_of_member - (np.cumsum(count) - count), count)
    of_party = np.repeat(np.repeat(np.arange(len(sizes)), sizes), count)
    return _Comers(row, of_party, plan.members["actor"][member[row]].astype(np.int64))


def _instances(_: LoweredPlan, comers: _Comers, numbers: bytes) -> tuple[Any, Any, Any, Any]:
    """Return the different sequence numbers; parties and these as one, ascending; which of them each member
    comes to, and the number of members.
    """
    sequences, sequence = np.unique(np.frombuffer(numbers, np.int64), return_inverse=True)
    keys = comers.of_party * len(sequences) + sequence.reshape(-1)
    keys, instance = np.unique(keys, return_inverse=True)
    instance = instance.reshape(-1)
    return sequences, keys, instance, np.bincount(instance, minlength=len(keys))


class _ArrivalTable(Struct, frozen=True, eq=False):
    """Arrivals of actors at the collectives of parties, sorted by collective, time and actor."""

    instance_keys: Any  # party and sequence number as one, ascending
    sequences: Any
    times: Any
    key: Any  # per arriving actor: instance and time as one, ascending
    actor: Any
    first: Any  # of the actors with the same instance and time
    counts: Any  # per instance, the number of arrivals

    @staticmethod
    def of(outcome: Outcome, state_row: Any, admitted: Any, comers: _Comers) -> _ArrivalTable:
        """Return the collectives of `comers`, which are at rows of the node state, and came when admitted."""
        number = outcome.nodes["number"][state_row[comers.row]].astype(np.int64)
        sequences, keys, instance, counts = outcome.plan.derived(_instances, comers, number.tobytes())
        times, time = np.unique(admitted[comers.row], return_inverse=True)
        key = instance * len(times) + time.reshape(-1)
        order = np.lexsort((comers.actor, key))
        key, actor = key[order], comers.actor[order]
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        return _ArrivalTable(keys, sequences, times, key, actor, np.append(begins, len(key)), counts)

    def instance(self, party: Any, sequence: Any) -> Any:
        """Return the collective of a party with a sequence number."""
        at = np.searchsorted(self.sequences, sequence)
        return np.searchsorted(self.instance_keys, party * len(self.sequences) + at)

    def began(self, instance: Any) -> Any:
        """Return the first arrivals at collectives."""
        first = np.searchsorted(self.key, instance * len(self.times))
        return self.times[self.key[first] % len(self.times)]

    def last_until(self, instance: Any, end: Any) -> tuple[Any, Any]:
        """Return the last arrival at a collective before each of these times, and its time."""
        time = np.searchsorted(self.times, end, side="right") - 1
        key = instance * len(self.times) + time
        at = np.searchsorted(self.key, key, side="right") - 1
        return self.times[self.key[at] % len(self.times)], np.searchsorted(self.first, at, side="right") - 1


def _missing(plan: Any, party: Parties, came: _ArrivalTable, rows: Any, state_row: Any, state: Any) -> Any:
    """Return for collectives without an end a member that never came; NONE for all others."""
    state_row, of_row = state_row[rows], party.of_row[rows]
    awaited, end = np.full(len(rows), NONE, np.int64), state["end_ns"][state_row]
    instance = came.instance(of_row, state["number"][state_row])
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
