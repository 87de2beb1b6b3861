"""Where a chunk is and whom it talks to: phase keys, positions along an axis, ranks and members."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.phase_key import PHASE_BITS, PHASE_KEY_BITS
from et_sim.engine.state.run import Run


@works_on_tables
def phase_key_of(chunk: Any) -> int:
    """The key of the phase that a chunk is in."""
    return (chunk.sequence << PHASE_KEY_BITS) + (chunk.program << PHASE_BITS) + chunk.phase


@works_on_tables
def first_step_of(run: Run, chunk_row: int) -> int:
    """Where the steps of a chunk's program begin: those of its member, where each has its own."""
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    if program.own_steps == 0:
        return program.step_first
    place = run.plan.members[chunk.member].position * 2 + (chunk.direction < 0)
    return program.step_first + place * program.step_period


@works_on_tables
def expects(chunk: Any, step_key: int) -> bool:
    """Whether a chunk of a tree has posted the receive of a message."""
    return (chunk.credit >> step_key) & 1 == 1


@works_on_tables
def rank_at(run: Run, chunk_row: int, position: int) -> int:
    """The rank that sits at a position along the chunk's axis."""
    chunk = run.chunks[chunk_row]
    axis = run.plan.axes[chunk.axis]
    if axis.members_first >= 0:
        return run.plan.group_ranks[axis.members_first + position]
    here = chunk.position
    if axis.order_first >= 0:
        here = run.plan.orders[axis.order_first + here]
        position = run.plan.orders[axis.order_first + position]
    return run.plan.actors[chunk.actor].rank + (position - here) * axis.stride


@works_on_tables
def member_at(run: Run, chunk_row: int, position: int) -> int:
    """The row of the member, of the chunk's group, at a position along its axis."""
    chunk = run.chunks[chunk_row]
    axis = run.plan.axes[chunk.axis]
    if axis.members_first >= 0:
        return run.plan.group_members[axis.members_first + position]
    group = run.plan.groups[run.plan.members[chunk.member].group]
    return group.first_member + run.plan.actor_of_rank[rank_at(run, chunk_row, position)]
