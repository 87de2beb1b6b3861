"""Collectives under way: which members block a phase, and why.

A phase goes on when all its members have started it. A member that has not is a laggard: it is in another
phase or behind a full queue, has yet to issue the collective, never will, or runs another collective under
the number of this one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.engine.stall.state import Chunk, NodeAt, SharedPhase, StalledState, Vertex
from et_sim.engine.state.records import PHASE_KEY_BITS
from et_sim.engine.state.run import NONE
from et_sim.machine.corrections import Correction
from et_sim.plan.records import IN_GROUP, IN_SYSTEM, Action


class Lag(StrEnum):
    """The reason for which a member has not joined a phase."""

    ELSEWHERE = "elsewhere"  # it will issue the collective after something else
    BEHIND = "behind"  # its chunk is in an earlier phase
    QUEUED = "queued"  # its chunk waits for a place in its queue
    ABSENT = "absent"  # it has no such collective
    MISMATCH = "mismatch"  # it runs another collective in its place
    RENUMBERED = "renumbered"  # it runs this collective under another number
    TURNED = "turned"  # it goes round the ring the other way


class Laggard(Struct, frozen=True):
    """A member that blocks a phase."""

    actor: int
    lag: Lag
    vertex: Vertex | None  # what that member has to finish first; None: nothing will help


class IssuedCollectives:
    """All collectives that were issued."""

    def __init__(self, still: StalledState) -> None:
        self._still = still
        run, plan = still.run, still.plan
        self._chunk_states = {
            name: table[name] for table in (run.chunks, run.visits) for name in table.dtype.names
        }
        self._running = {name: run.running[name] for name in run.running.dtype.names}
        self._member_group = plan.members["group"]
        self._running_of: dict[NodeAt, int] = {}
        for row in np.flatnonzero(self._running["chunks"] > 0).tolist():
            self._running_of[NodeAt(int(self._running["actor"][row]), int(self._running["node"][row]))] = row
        self._by_program = Correction.MATCH_BY_PROGRAM in plan.corrections
        self._read_history()
        self._unissued: dict[tuple[int, int], tuple[NodeAt, ...]] = {}

    def _read_history(self) -> None:
        """Read every collective ever issued, by member and in order."""
        still = self._still
        places = np.flatnonzero(still.outcome.nodes["number"] != NONE)
        actors = np.searchsorted(still.node_first, places, side="right") - 1
        rows = places - still.node_first[actors]
        plan_rows = still.plan.templates["node_first"][still.template[actors]] + rows
        joint = still.plan.nodes["action"][plan_rows] == Action.COLLECTIVE
        places, actors, rows, plan_rows = (column[joint] for column in (places, actors, rows, plan_rows))
        first = still.plan.actors["first_member"][actors]
        members = still.plan.actor_members[first + still.plan.nodes["member"][plan_rows]]
        sequences = still.outcome.nodes["number"][places].astype(np.int64)
        order = np.lexsort((sequences, members))
        self._history_sequence = sequences[order]
        self._history_collective = still.plan.nodes["detail"][plan_rows[order]]
        self._history_row = rows[order]
        self._history_first = np.searchsorted(members[order], np.arange(len(still.plan.members) + 1))

    def chunks(self, node: NodeAt) -> list[int]:
        """Return the started chunks of a collective, or its first waiting chunk if none has started."""
        running = self._running_of.get(node)
        if running is None:
            return []
        first, count = int(self._running["chunks_first"][running]), int(self._running["chunks"][running])
        waiting = [row for row in range(first, first + count) if not self._is_done(row)]
        started = [row for row in waiting if self._chunk_states["started"][row]]
        return started or waiting[:1]

    def node_of(self, chunk: Chunk) -> NodeAt:
        """Return the collective of a chunk."""
        running = self._chunk_states["running"][chunk.row]
        return NodeAt(int(self._running["actor"][running]), int(self._running["node"][running]))

    def number_of(self, chunk: Chunk) -> int:
        """Return the index of a chunk in its collective."""
        return chunk.row - int(self._running["chunks_first"][self._chunk_states["running"][chunk.row]])

    def operation(self, chunk: Chunk) -> int:
        """Return the operation of the chunk's phase (a `CollectiveKind`)."""
        return int(self._still.plan.phases["operation"][self._phase(chunk)])

    def _phase(self, chunk: Chunk) -> int:
        return int(self._chunk_states["phase_first"][chunk.row]) + int(self._chunk_states["phase"][chunk.row])

    def is_started(self, chunk: Chunk) -> bool:
        """Return whether the chunk runs its phase."""
        return bool(self._chunk_states["started"][chunk.row])

    def dimension(self, chunk: Chunk) -> int:
        """Return the dimension of the chunk's queue."""
        return int(self._still.plan.phases["dimension"][self._phase(chunk)])

    def occupants(self, chunk: Chunk) -> list[Chunk]:
        """Return the started chunks in the queue of a chunk."""
        row = int(self._still.run.queues["head"][self._chunk_states["queue"][chunk.row]])
        chunks = []
        while row != NONE and self._chunk_states["started"][row]:
            chunks.append(Chunk(row))
            row = int(self._chunk_states["next"][row])
        return chunks

    def phase_of(self, chunk: Chunk) -> SharedPhase:
        """Return the phase that a started chunk is in, with its fellow members."""
        chunk_row, states = chunk.row, self._chunk_states
        axis_row = int(states["axis"][chunk_row])
        axis = self._still.plan.axes[axis_row]
        base = 0
        if axis["members_first"] < 0:
            at = int(self._still.rank[states["actor"][chunk_row]])
            if axis["members_first"] == IN_GROUP:
                at = int(self._still.plan.members["position"][states["member"][chunk_row]])
            base = at - at // int(axis["stride"]) % int(axis["members"]) * int(axis["stride"])
        running = states["running"][chunk_row]
        sequence = int(states["phase_key"][chunk_row]) >> PHASE_KEY_BITS
        return SharedPhase(
            axis=axis_row,
            base=base,
            group=int(self._member_group[states["member"][chunk_row]]),
            sequence=sequence,
            phase=int(states["phase"][chunk_row]),
            direction=int(states["direction"][chunk_row]),
            first_sequence=sequence - self.number_of(chunk),
            collective=int(self._running["collective"][running]),
            place=int(states["position"][chunk_row]) if self._is_one_way(chunk_row) else NONE,
        )

    def _is_one_way(self, chunk_row: int) -> bool:
        program = self._still.plan.programs[self._chunk_states["program"][chunk_row]]
        return bool(program["goes_up"] != program["goes_down"])

    def _needed(self, shared: SharedPhase, waiter: Chunk) -> list[tuple[int, int]]:
        """Return the members that a waiting one needs: in a tree, those below or above it."""
        members = self.members(shared)
        if shared.place == NONE:
            return members
        trees = self._still.plan.trees
        first = int(self._chunk_states["tree_or_rank"][waiter.row]) - shared.place
        needed, pending = [], [shared.place]
        goes_up = self._still.plan.programs["goes_up"][self._chunk_states["program"][waiter.row]]
        while pending:
            row = trees[first + pending.pop()]
            after = [row["left"], row["right"]] if goes_up else [row["parent"]]
            pending += [int(place) for place in after if place != NONE]
            needed += [int(place) for place in after if place != NONE]
        return [members[place] for place in sorted(needed)]

    def members(self, shared: SharedPhase) -> list[tuple[int, int]]:
        """Return actor and row of every member along the phase's axis."""
        plan = self._still.plan
        axis = plan.axes[shared.axis]
        places = np.arange(int(axis["members"])) * int(axis["stride"]) + shared.base
        first = int(axis["members_first"])
        if first != IN_SYSTEM:
            of_group = int(plan.groups["members_first"][shared.group]) + places
            rows = of_group if first == IN_GROUP else first + np.arange(int(axis["members"]))
            actors, members = plan.actor_of_rank[plan.group_ranks[rows]], plan.group_members[rows]
            return list(zip(actors.tolist(), members.tolist(), strict=True))
        actors = plan.actor_of_rank[places]
        members = int(plan.groups["first_member"][shared.group]) + actors
        return list(zip(actors.tolist(), members.tolist(), strict=True))

    def chunk_of(self, shared: SharedPhase, actor: int) -> Chunk | None:
        """Return the chunk of a member that does not lag in a phase; None if it has completed the phase."""
        member = next(member for owner, member in self.members(shared) if owner == actor)
        at = int(self._history_first[member]) + self._ordinal(member, shared.first_sequence)
        running = self._running_of.get(NodeAt(actor, int(self._history_row[at])))
        if running is None:
            return None
        return Chunk(int(self._running["chunks_first"][running]) + shared.sequence - shared.first_sequence)

    def laggards(self, shared: SharedPhase, waiter: Chunk) -> list[Laggard]:
        """Return the members that block the phase, compared with a member that waits in it."""
        member = int(self._chunk_states["member"][waiter.row])
        ordinal = self._ordinal(member, shared.first_sequence)
        laggards = []
        for actor, other in self._needed(shared, waiter):
            if other != member:
                laggard = self._judge(shared, actor, other, member, ordinal)
                if laggard is not None:
                    laggards.append(laggard)
        return laggards or self._turned(shared, waiter)

    def _judge(
        self, shared: SharedPhase, actor: int, member: int, waiter: int, ordinal: int
    ) -> Laggard | None:
        if self._by_program:
            return self._judge_by_program(shared, actor, member)
        at = int(self._history_first[member]) + ordinal
        joined = at < self._history_first[member + 1]
        agrees = (
            joined
            and self._history_sequence[at] == shared.first_sequence
            and self._history_collective[at] == shared.collective
        )
        if agrees:
            return self._late_chunk(shared, NodeAt(actor, int(self._history_row[at])))
        differing = self._first_difference(member, waiter, ordinal)
        if differing is not None:
            here, there = differing
            alike = self._history_collective[here] == self._history_collective[there]
            return Laggard(actor, Lag.RENUMBERED if alike else Lag.MISMATCH, None)
        pending = self._pending(actor, member)
        if not pending:
            return Laggard(actor, Lag.ABSENT, None)
        same = [node for node in pending if self._detail(node) == shared.collective]
        return Laggard(actor, Lag.ELSEWHERE, (same or list(pending))[0])

    def _judge_by_program(self, shared: SharedPhase, actor: int, member: int) -> Laggard | None:
        """Return the laggard where numbers follow from places in the program, in any order of issue."""
        at = int(self._history_first[member]) + self._ordinal(member, shared.first_sequence)
        if at < self._history_first[member + 1] and self._history_sequence[at] == shared.first_sequence:
            return self._late_chunk(shared, NodeAt(actor, int(self._history_row[at])))
        pending = self._pending(actor, member)
        for node in pending:
            if self._detail(node) == shared.collective and self._number(node) == shared.first_sequence:
                return Laggard(actor, Lag.ELSEWHERE, node)
        first, last = int(self._history_first[member]), int(self._history_first[member + 1])
        issued = (NodeAt(actor, row) for row in self._history_row[first:last].tolist())
        runs_another = any(node in self._running_of for node in issued)
        return Laggard(actor, Lag.MISMATCH if runs_another else Lag.ABSENT, None)

    def _number(self, node: NodeAt) -> int:
        """Return the number that a collective has by its place in the program."""
        row = self._still.plan.nodes[self._still.plan_row(node)]
        collective = self._still.plan.collectives[row.detail]
        return int(collective.first_sequence + row.occurrence * collective.chunks)

    def _late_chunk(self, shared: SharedPhase, node: NodeAt) -> Laggard | None:
        """Return why a member that runs the same collective lags; None if it does not."""
        running = self._running_of.get(node)
        if running is None:
            return None  # it is through
        chunk_row = int(self._running["chunks_first"][running]) + shared.sequence - shared.first_sequence
        phase = int(self._chunk_states["phase"][chunk_row])
        if self._is_done(chunk_row) or phase > shared.phase:
            return None
        if phase < shared.phase:
            return Laggard(node.actor, Lag.BEHIND, Chunk(chunk_row))
        return (
            None
            if self._chunk_states["started"][chunk_row]
            else Laggard(node.actor, Lag.QUEUED, Chunk(chunk_row))
        )

    def _turned(self, shared: SharedPhase, waiter: Chunk) -> list[Laggard]:
        """Return members of a ring that go the other way than the waiting one; direct exchanges work either
        way.
        """
        program = self._still.plan.programs[self._chunk_states["program"][waiter.row]]
        if not program["turns"] or program["step_period"] == program["members"] - 1:
            return []
        laggards = []
        for actor, member in self.members(shared):
            at = int(self._history_first[member]) + self._ordinal(member, shared.first_sequence)
            running = self._running_of.get(NodeAt(actor, int(self._history_row[at])))
            if running is None:
                continue
            chunk_row = int(self._running["chunks_first"][running]) + shared.sequence - shared.first_sequence
            if self._chunk_states["direction"][chunk_row] != self._chunk_states["direction"][waiter.row]:
                laggards.append(Laggard(actor, Lag.TURNED, None))
        return laggards

    def _is_done(self, chunk_row: int) -> bool:
        states = self._chunk_states
        collective = self._running["collective"][states["running"][chunk_row]]
        return bool(states["phase"][chunk_row] == self._still.plan.collectives["phases"][collective])

    def _ordinal(self, member: int, sequence: int) -> int:
        """Return the number of collectives a member issued before this number."""
        first, last = self._history_first[member], self._history_first[member + 1]
        return int(np.searchsorted(self._history_sequence[first:last], sequence))

    def _first_difference(self, member: int, other: int, ordinal: int) -> tuple[int, int] | None:
        """Return where the histories of two members first differ, up to an ordinal; None if they do not."""
        a, b = int(self._history_first[member]), int(self._history_first[other])
        common = min(ordinal + 1, int(self._history_first[member + 1]) - a)
        same: Any = self._history_sequence[a : a + common] == self._history_sequence[b : b + common]
        same &= self._history_collective[a : a + common] == self._history_collective[b : b + common]
        differing = np.flatnonzero(~same)
        return (a + int(differing[0]), b + int(differing[0])) if len(differing) else None

    def _pending(self, actor: int, member: int) -> tuple[NodeAt, ...]:
        """Return the collectives an unfinished actor has yet to issue in a group, in ascending order."""
        if self._still.is_finished(actor):
            return ()
        if (actor, member) not in self._unissued:
            plan, template = self._still.plan, int(self._still.template[actor])
            first, count = int(plan.templates["node_first"][template]), int(plan.templates["nodes"][template])
            nodes = plan.nodes[first : first + count]
            place = int(self._still.node_first[actor])
            open_rows = np.flatnonzero(
                (nodes["action"] == Action.COLLECTIVE) & (self._still.start[place : place + count] == NONE)
            )
            member_of_row = plan.actor_members[
                int(plan.actors["first_member"][actor]) + nodes["member"][open_rows]
            ]
            self._unissued[actor, member] = tuple(
                NodeAt(actor, row) for row in open_rows[member_of_row == member].tolist()
            )
        return self._unissued[actor, member]

    def _detail(self, node: NodeAt) -> int:
        return int(self._still.plan.nodes["detail"][self._still.plan_row(node)])

    def group_name(self, node: NodeAt) -> str:
        """Return the communicator group of a collective as the input names it; "": the whole system."""
        actor = self._still.plan.actors[node.actor]
        member_index = self._still.plan.nodes["member"][self._still.plan_row(node)]
        member = self._still.plan.actor_members[int(actor["first_member"]) + int(member_index)]
        return self._still.plan.group_names[self._member_group[member]]
