"""Lanes of actors, and the number of nodes that they hold."""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run
from et_sim.plan.records import UNLIMITED


@works_on_tables
def lane_row(run: Run, actor_row: int, lane: int) -> int:
    """Return the row of the state of an actor's lane."""
    return actor_row * len(run.plan.lane_limits) + lane


@works_on_tables
def is_unlimited(run: Run, lane: int) -> bool:
    """Return whether any number of nodes may be in the lane at a time."""
    return run.plan.lane_limits[lane] == UNLIMITED


@works_on_tables
def can_issue(run: Run, actor_row: int, lane: int) -> bool:
    """Return whether a node waits for the lane, and the lane has a free place."""
    state = run.lanes[lane_row(run, actor_row, lane)]
    return state.ready > 0 and state.busy < run.plan.lane_limits[lane]
