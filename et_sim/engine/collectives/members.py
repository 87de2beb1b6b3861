"""Where a stream is and whom it talks to: stages, positions on a line, ranks and seats."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.collectives.unexpected import PHASE_BITS, STAGE_BITS
from et_sim.engine.state.run import Run


@works_on_tables
def stage_of(stream: Any) -> int:
    """The stage a stream is in."""
    return (stream.sequence << STAGE_BITS) + (stream.program << PHASE_BITS) + stream.phase


@works_on_tables
def rank_at(run: Run, stream_row: int, position: int) -> int:
    """The rank that sits at a position of the stream's line."""
    stream = run.streams[stream_row]
    line = run.plan.lines[stream.line]
    if line.members_first >= 0:
        return run.plan.group_members[line.members_first + position]
    return run.plan.actors[stream.actor].rank + (position - stream.position) * line.stride


@works_on_tables
def seat_at(run: Run, stream_row: int, position: int) -> int:
    """The seat, in the stream's group, of the member at a position of its line."""
    stream = run.streams[stream_row]
    line = run.plan.lines[stream.line]
    if line.members_first >= 0:
        return run.plan.member_seats[line.members_first + position]
    group = run.plan.groups[run.plan.seats[stream.seat].group]
    return group.seat_first + run.plan.actor_of_rank[rank_at(run, stream_row, position)]
