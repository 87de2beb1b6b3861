"""Axes: along what phases of collectives run, by row of the axis table.

There is one for each dimension, one through the whole system in rank order, one for each ring whose order the
system file gives, and one for each group. Not here: which axis a phase takes (`collective_lowering`), or who
the members of a group are (`groups`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from et_sim.errors import MachineError
from et_sim.machine.model import Machine
from et_sim.plan import tables
from et_sim.plan.groups import GroupShape, GroupTable
from et_sim.plan.rings import RingAxes

# Sub-groups pay this fixed time per endpoint transfer, whatever the system file says.
SUBGROUP_ENDPOINT_NS = 10
SEVERAL_DIMENSIONS = -1


class Axis(NamedTuple):
    """Equal lines of ranks."""

    stride: int
    members: int
    dimension: int  # that its messages cross, or SEVERAL_DIMENSIONS


class Axes:
    """The axes of a machine."""

    def __init__(self, machine: Machine) -> None:
        grid = machine.network.grid
        self._endpoint_ns = machine.system.endpoint_delay_ns
        self._rows = [
            Axis(stride, dimension.npus, d)
            for d, (stride, dimension) in enumerate(zip(grid.strides, grid.dimensions, strict=True))
        ]
        self._real = [d for d, axis in enumerate(self._rows) if axis.members > 1]
        self.of_system = len(self._rows)
        self._rows.append(Axis(1, grid.ranks, 0 if len(self._rows) == 1 else SEVERAL_DIMENSIONS))
        self.rings = RingAxes(machine.system.rings, len(self._rows))
        self._rows += [self._rows[d]._replace(dimension=SEVERAL_DIMENSIONS) for d in self.rings.dimension_of]

    def __getitem__(self, row: int) -> Axis:
        return self._rows[row]

    def in_one_dimension(self, row: int) -> int:
        """The only dimension that has NPUs, in place of the axis through all ranks."""
        return self._real[0] if row == self.of_system and len(self._real) == 1 else row

    def of_tree(self, name: str, group: GroupShape, involved: tuple[bool, ...] | None) -> int | None:
        """That of a collective over a tree: the group's, the system's, a dimension's; None: one's own."""
        if not group.spans_system:
            return tables.NO_AXIS if group.members > 1 else None
        if involved is None or group.listed:
            involved = (True,) * self.of_system
        chosen = [d for d in self._real if d < len(involved) and involved[d]]
        if chosen == self._real and chosen:
            return self.of_system
        if len(chosen) > 1:
            raise MachineError(
                f"a {name} over {len(chosen)} of {len(self._real)} dimensions is asked for, and it goes "
                "over one of them or all",
                place="involved_dim",
                remedy="use a communicator group instead of involved_dim",
            )
        return chosen[0] if chosen else None

    def finish(self, groups: GroupTable) -> tuple[Any, Any, Any]:
        """(axis table, orders of rings, the row of every group's own axis)."""
        small = [
            (0, len(groups.members(row)), groups.first_member(row), SUBGROUP_ENDPOINT_NS)
            for row in range(1, len(groups))
        ]
        first = [(axis.stride, axis.members, -1, self._endpoint_ns) for axis in self._rows]
        out = tables.table(tables.AXIS, len(first) + len(small))
        columns = np.array(first + small, np.int64).T
        for name, column in zip(("stride", "members", "members_first", "endpoint_ns"), columns, strict=True):
            out[name] = column
        of_groups = np.arange(len(first), len(out))
        return out, self.rings.fill(out), np.concatenate([[self.of_system], of_groups])
