"""Collectives that waited for each other in queues until nothing else was left to happen.

Ranks that run collectives one at a time, in different orders, wait for each other for ever; a library hangs
then. The corrected profile lets queues go over their limits, so the time up to then is that of no machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.trace.columns import collective_name
from et_sim.trace.workload import Workload

if TYPE_CHECKING:
    from et_sim.engine.blocked import Blocked


class _Collective(Struct, frozen=True, order=True):
    group: str
    operation: str
    node_name: str
    group_row: int


def deadlocks(outcome: Outcome, workload: Workload) -> list[dict[str, Any]]:
    """Return the collectives that waited for each other, an entry for each set of them at each time."""
    if not outcome.is_complete:  # the report of the stall explains it
        return []
    return [entry for blocked in outcome.blocked for entry in _entries(outcome, workload, blocked)]


def _entries(outcome: Outcome, workload: Workload, blocked: Blocked) -> Iterator[dict[str, Any]]:
    """Yield an entry for each set of collectives that waited for each other at one time."""
    import networkx as nx

    graph: Any = nx.Graph()
    ranks: dict[_Collective, set[int]] = {}
    issued: dict[_Collective, int] = {}
    for wait in blocked.waits:
        own = _collective(outcome, workload, wait.actor, wait.node)
        ranks.setdefault(own, set()).update((outcome.plan.actor_of_rank == wait.actor).nonzero()[0].tolist())
        for node, since_ns in ((wait.node, wait.since_ns), *wait.behind):
            other = _collective(outcome, workload, wait.actor, node)
            graph.add_edge(own, other)
            issued[other] = max(issued.get(other, 0), since_ns)
    for members in sorted(sorted(part) for part in nx.connected_components(graph)):
        yield {
            "at_ns": blocked.ns,
            "waited_ns": blocked.ns - max(issued[one] for one in members),
            "collectives": [
                {
                    "operation": one.operation,
                    "node_name": one.node_name,
                    "group": one.group,
                    "waiting": format_ranks(sorted(ranks.get(one, ()))),
                }
                for one in members
            ],
        }


def _collective(outcome: Outcome, workload: Workload, actor: int, node: int) -> _Collective:
    """Return the collective of a node as members of its group share it."""
    plan, state = outcome.plan, outcome.plan.actors[actor]
    row = int(plan.templates[state.template].node_first) + node
    member = plan.actor_members[int(state.first_member) + int(plan.nodes[row].member)]
    group, trace = int(plan.members[member].group), workload.templates[int(state.template)]
    operation = collective_name(int(trace.comm_type[node]))
    return _Collective(plan.group_names[group], operation, trace.node_name(node), group)
