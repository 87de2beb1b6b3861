"""Lanes of actors: how many nodes they hold.

Not here: which nodes wait for them (`engine.nodes.ready`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run
from et_sim.plan.records import UNLIMITED


@works_on_tables
def lane_row(run: Run, actor_row: int, lane: int) -> int:
    """Where the state of an actor's lane is."""
    return actor_row * len(run.plan.lane_limits) + lane


@works_on_tables
def is_unlimited(run: Run, lane: int) -> bool:
    """Return whether any number of nodes may be in the lane at a time."""
    return run.plan.lane_limits[lane] == UNLIMITED


@works_on_tables
def can_issue(run: Run, actor_row: int, lane: int) -> bool:
    """Return whether a node waits for the lane, and has room there."""
    state = run.lanes[lane_row(run, actor_row, lane)]
    return state.ready > 0 and state.busy < run.plan.lane_limits[lane]
