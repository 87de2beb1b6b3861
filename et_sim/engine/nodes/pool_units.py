"""Units of the stages of a memory pool: which ones a request passes, and what part of a group's each one has.

Not here: how long they take (`pool`, `pool_shares`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, Run
from et_sim.machine.memory import MOST_STAGES
from et_sim.plan.pool_tables import STORES


@works_on_tables
def unit_of(run: Run, row: int, hop: Any) -> int:
    """The unit of a stage that a request passes."""
    rank = run.plan.actors[run.requests[row].actor].rank
    return int(hop.unit_first + rank // hop.npus_per_unit)


@works_on_tables
def part_of(run: Run, joint_row: int, way_row: int, number: int) -> tuple[int, int]:
    """How many units of a stage a group passes, and for how many parts of its bytes each of them has one."""
    way = run.plan.memory_ways[way_row]
    hop = run.plan.memory_hops[way.hop_first + number]
    stamp = stamp_of(joint_row, number)
    units = parts = _mark_units(run, joint_row, hop, -stamp - number - 1)
    stores = way_row % 2 == STORES
    for other in range(0 if stores else number + 1, number if stores else way.hops):  # nearer to the NPUs
        nearer = run.plan.memory_hops[way.hop_first + other]
        parts = min(parts, _mark_units(run, joint_row, nearer, -stamp - other - 1))
    return units, parts


@works_on_tables
def is_new_unit(run: Run, unit_row: int, joint_row: int, number: int) -> bool:
    """Whether a unit is seen for the first time among those of a group in a stage; from now on it is not."""
    unit, stamp = run.units[unit_row], stamp_of(joint_row, number) + 1
    is_new = unit.seen != stamp
    unit.seen = stamp
    return bool(is_new)


@works_on_tables
def stamp_of(joint_row: int, number: int) -> int:
    """A number for a group's request in a stage, behind which there is room for those of the stages."""
    return (joint_row * MOST_STAGES + number) * MOST_STAGES


@works_on_tables
def _mark_units(run: Run, joint_row: int, hop: Any, stamp: int) -> int:
    """How many units of a stage the members of a group pass."""
    found, at = 0, run.joints[joint_row].head - 1
    while at != NONE:
        unit = run.units[unit_of(run, at, hop)]
        if unit.seen != stamp:
            unit.seen = stamp
            found += 1
        at = run.requests[at].next
    return found
