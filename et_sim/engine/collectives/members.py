"""The place of a chunk and its peers: phase keys, positions along an axis, ranks and members."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run
from et_sim.plan.records import IN_GROUP


@works_on_tables
def first_step_of(run: Run, chunk_row: int) -> int:
    """Return the first step of a chunk's program, or of its member's own steps."""
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    if program.own_steps == 0:
        return program.step_first
    place = run.plan.members[chunk.member].position * 2 + (chunk.direction < 0)
    return program.step_first + place * program.step_period


@works_on_tables
def expects(chunk: Any, step_key: int) -> bool:
    """Return whether a chunk of a tree has posted the receive of a message."""
    return (chunk.credit >> step_key) & 1 == 1


@works_on_tables
def _ahead(run: Run, axis: Any, here: int, there: int) -> int:
    """Return the distance between two positions along an axis, in ranks or in places of the group."""
    if axis.order_first >= 0:
        here = run.plan.orders[axis.order_first + here]
        there = run.plan.orders[axis.order_first + there]
    return (there - here) * axis.stride


@works_on_tables
def _place_in_group(run: Run, chunk_row: int, ahead: int) -> int:
    """Return the row, in the tables of groups, of the member `ahead` places after the chunk's."""
    member = run.plan.members[run.chunks[chunk_row].member]
    return run.plan.groups[member.group].members_first + member.position + ahead


@works_on_tables
def rank_at(run: Run, chunk_row: int, position: int) -> int:
    """Return the rank at a position along the chunk's axis."""
    return rank_on(run, chunk_row, run.chunks[chunk_row].axis, run.chunks[chunk_row].position, position)


@works_on_tables
def rank_on(run: Run, chunk_row: int, axis_row: int, here: int, there: int) -> int:
    """Return the rank at a position along an axis, on which the chunk's rank is `here`."""
    axis = run.plan.axes[axis_row]
    if axis.members_first >= 0:
        return run.plan.group_ranks[axis.members_first + there]
    ahead = _ahead(run, axis, here, there)
    if axis.members_first == IN_GROUP:
        return run.plan.group_ranks[_place_in_group(run, chunk_row, ahead)]
    return run.plan.actors[run.chunks[chunk_row].actor].rank + ahead


@works_on_tables
def member_at(run: Run, chunk_row: int, position: int) -> int:
    """Return the row of the member, of the chunk's group, at a position along its axis."""
    return member_on(run, chunk_row, run.chunks[chunk_row].axis, run.chunks[chunk_row].position, position)


@works_on_tables
def member_on(run: Run, chunk_row: int, axis_row: int, here: int, there: int) -> int:
    """Return the row of the member at a position along an axis, on which the chunk's member is `here`."""
    axis = run.plan.axes[axis_row]
    if axis.members_first >= 0:
        return run.plan.group_members[axis.members_first + there]
    if axis.members_first == IN_GROUP:
        ahead = _ahead(run, axis, here, there)
        return run.plan.group_members[_place_in_group(run, chunk_row, ahead)]
    group = run.plan.groups[run.plan.members[run.chunks[chunk_row].member].group]
    return group.first_member + run.plan.actor_of_rank[rank_on(run, chunk_row, axis_row, here, there)]


@works_on_tables
def position_from(program: Any, here: int, distance: int, direction: int) -> int:
    """Return the position at a distance from another one, in a direction."""
    if program.pairs:
        direction = 1 if (here // distance) % 2 == 0 else -1
    position = here + distance * direction
    if position >= program.members:
        position -= program.members
    elif position < 0:
        position += program.members
    return position
