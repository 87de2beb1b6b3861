"""Equal ranks that meet only at barriers: one actor, which takes the times of the last rank to arrive.

Ranks of one program that do one thing after the other reach a barrier after the sum of their times. All
members leave it together, as late as if all had come with the last one. So the time of a step depends on one
rank for each part of the program between two barriers: at the end the last of all ranks, and in the part
before a barrier the last one of those with whom the next of these ranks met. The actor takes their times.

A collective is a barrier if its messages take no time, or if one switch tree reduces one chunk of all ranks.
The members of other collectives leave at different times, even if all but one of them came together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.engine.outcome import Outcome
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.members import Actors
from et_sim.plan.records import Action, LoweredPlan


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


def barriers_of(lowering: Lowering, nominal: Outcome) -> Barriers | None:
    """Return the barriers between the ranks of one actor; None if they do more than to meet at barriers.

    `nominal` is the outcome of the actor that stands for all ranks, without variation; its plan is not marked
    as folded if the order of events in a nanosecond was not watched.
    """
    plan = nominal.plan
    if len(plan.actors) > 1 or plan.memory_servers or len(plan.spans) or len(plan.slowing):
        return None
    template = plan.templates[plan.actors["template"][0]]
    nodes = np.asarray(plan.nodes)[template["node_first"] :][: template["nodes"]]
    if not np.isin(nodes["action"], (Action.INSTANT, Action.DELAY, Action.COLLECTIVE)).all():
        return None
    if not nominal.is_complete or nominal.network is not None or not _is_chain(nodes, plan.children):
        return None
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    groups = _groups(assemble(lowering, Actors.one_per_rank(plan.ranks)), rows)
    state = np.asarray(nominal.run.nodes)
    takes_time = state["end_ns"][rows] > state["start_ns"][rows]
    joins = [plan.is_folded and _joins_all(plan, detail) for detail in nodes["detail"][rows].tolist()]
    is_barrier = ~takes_time | (np.array(joins, bool) & (groups == groups[:, :1]).all(axis=1))
    return Barriers(rows, groups, len(nodes)) if is_barrier.all() else None


def _groups(plan: LoweredPlan, rows: Any) -> Any:
    """Return the group of each of some nodes, by node and rank."""
    first = plan.templates["node_first"][plan.actors["template"]]
    slots = np.asarray(plan.nodes)["member"][rows[:, None] + first]
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
    return len(np.unique(parents[follows])) == order[-1]


def _joins_all(plan: LoweredPlan, detail: int) -> bool:
    """Return whether one tree of switches reduces one chunk of all ranks in one phase."""
    collective = plan.collectives[detail]
    if collective["phases"] != 1 or collective["chunks"] != 1 or collective["rotations"] != 1:
        return False
    phase = plan.phases[plan.chunk_plans[collective["chunk_plan_first"]]["phase_first"]]
    program = plan.programs[phase["program"]]
    return bool(program["in_network"] and program["joins"] and program["members"] == plan.ranks)
