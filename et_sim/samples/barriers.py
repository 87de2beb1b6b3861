"""Equal ranks that meet only at barriers: one actor, which takes the times of the last rank to arrive.

Ranks of one program that do one thing after the other reach a barrier after the sum of their times. All
members leave it together, as late as if all had come with the last one. So the time of a step depends on one
rank for each part of the program between two barriers: at the end the last of all ranks, and in the part
before a barrier the last one of those with whom the next of these ranks met. The actor takes their times.

A collective after which each member has data of all others is a barrier if its messages take no time, or if
one switch tree reduces one chunk of all ranks. The members of other collectives leave at different times,
even if all but one of them came together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.collectives.program import PhaseOperation
from et_sim.engine.outcome import Outcome
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.members import Actors
from et_sim.plan.records import Action, LoweredPlan

MEETINGS = (
    PhaseOperation.ALL_REDUCE,
    PhaseOperation.ALL_GATHER,
    PhaseOperation.REDUCE_SCATTER,
    PhaseOperation.BARRIER,
)
ACTIONS = (Action.INSTANT, Action.DELAY, Action.COLLECTIVE)


class Barriers(Struct, frozen=True, eq=False):
    """The barriers of a program."""

    rows: Any  # of their nodes, in the order of the program
    groups: Any  # by barrier and rank: ranks with equal numbers meet
    nodes: int

    def sums(self, durations: Any) -> Any:
        """Return for each row of durations the time of each part of the program."""
        own = durations.copy()
        own[:, self.rows] = 0
        return np.add.reduceat(own, np.concatenate(([0], self.rows)), axis=1)

    def deciding(self, sums: Any) -> Any:
        """Return for each node the rank whose times decide; `sums` has a row for each rank."""
        arrival, before = sums[:, 0].copy(), []
        for number, group in enumerate(self.groups):
            before.append(_last_of_group(arrival, group))
            arrival = arrival[before[-1]] + sums[:, number + 1]
        ranks = [int(arrival.argmax())]
        for came in reversed(before):
            ranks.append(int(came[ranks[-1]]))
        sizes = np.diff(np.concatenate(([0], self.rows, [self.nodes])))
        return np.repeat(ranks[::-1], sizes)


def _last_of_group(arrival: Any, group: Any) -> Any:
    """Return for each rank the last one to arrive of its group; of equally late ones, the first."""
    order = np.lexsort((-arrival, group))  # stable, so equally late ranks keep their order
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    return order[begins[np.searchsorted(group[order][begins], group)]]


def meetings_of(plan: LoweredPlan) -> Any:
    """Return the nodes at which ranks of one program meet; None if they do more than to work and to meet."""
    if len(plan.templates) > 1 or plan.memory_servers or len(plan.spans) or len(plan.slowing):
        return None
    nodes = np.asarray(plan.nodes)
    if plan.actors["start_ns"].any() or not np.isin(nodes["action"], ACTIONS).all():
        return None
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    kinds = np.asarray(plan.collectives)["kind"][nodes["detail"][rows]]
    return rows if np.isin(kinds, MEETINGS).all() and _is_chain(nodes, plan.children) else None


def barriers_of(lowering: Lowering, rows: Any) -> Barriers:
    """Return the barriers at these nodes."""
    plan = assemble(lowering, Actors.one_per_rank(lowering.workload.ranks))
    return Barriers(rows, _groups(plan, rows), len(plan.nodes))


def take_no_time(nominal: Outcome, rows: Any) -> bool:
    """Return whether these nodes took no time on any rank of a run."""
    state = np.asarray(nominal.run.nodes).reshape(len(nominal.plan.actors), -1)[:, rows]
    return bool(nominal.is_complete and (state["start_ns"] == state["end_ns"]).all())


def without_meetings(plan: LoweredPlan, rows: Any) -> LoweredPlan:
    """Return a plan of one actor that passes these nodes at once."""
    nodes = plan.nodes.copy()
    nodes["action"][rows] = Action.INSTANT
    return replace(plan, nodes=nodes, is_folded=False)


def join_all(plan: LoweredPlan, rows: Any) -> bool:
    """Return whether all ranks meet at each of these nodes, where one tree of switches reduces one chunk."""
    return all(_joins_all(plan, detail) for detail in np.asarray(plan.nodes)["detail"][rows].tolist())


def _groups(plan: LoweredPlan, rows: Any) -> Any:
    """Return the group of each of some nodes, by node and rank."""
    slots = np.asarray(plan.nodes)["member"][rows][:, None]
    members = plan.actor_members[plan.actors["first_member"] + slots]
    return np.asarray(plan.members)["group"][members].astype(np.int64)


def _is_chain(nodes: Any, children: Any) -> bool:
    """Return whether each node with an effect waits for the one before it."""
    order = np.cumsum(nodes["action"] != Action.INSTANT) - 1
    counts = np.where(nodes["action"] == Action.INSTANT, 0, nodes["children"])
    parents = np.repeat(np.arange(len(nodes)), counts)
    at = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    child = np.asarray(children)[np.repeat(nodes["children_first"], counts) + at]
    follows = (order[child] == order[parents] + 1) & (nodes["action"][child] != Action.INSTANT)
    return bool(len(np.unique(parents[follows])) == order[-1])


def _joins_all(plan: LoweredPlan, detail: int) -> bool:
    """Return whether one tree of switches reduces one chunk of all ranks in one phase."""
    collective = plan.collectives[detail]
    if collective["phases"] != 1 or collective["chunks"] != 1 or collective["rotations"] != 1:
        return False
    phase = plan.phases[plan.chunk_plans[collective["chunk_plan_first"]]["phase_first"]]
    program = plan.programs[phase["program"]]
    return bool(program["in_network"] and program["joins"] and program["members"] == plan.ranks)
