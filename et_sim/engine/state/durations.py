"""Durations of nodes: those of their template, or of the pace of their actor."""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def duration_of(run: Run, actor_row: int, node: int) -> int:
    """Return how long a node takes if nothing slows it."""
    actor = run.plan.actors[actor_row]
    if actor.pace_first != NONE:
        return run.plan.paces[actor.pace_first + node]
    return run.plan.nodes[run.plan.templates[actor.template].node_first + node].duration_ns
