"""Axes, along which phases of collectives run, by row of the axis table; and ways, the axes of one group.

There is an axis for each dimension, one through the whole system in rank order, one for each ring whose order
the system file gives, one for each side of groups that are laid out on the machine, one for each of their
rings, and one for each group as it is listed.

A group that spans the system goes through the dimensions of the machine, one that is laid out on it along its
own sides, and one that is as it is listed along itself. Where rings with an order of their own go along a
side, chunks take them in turn; those that go through uneven nodes at the same time have queues of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.collectives import RING, Algorithm, CostFixes, PhaseOperation
from et_sim.machine.model import Machine
from et_sim.plan import records
from et_sim.plan.groups import GroupShape, GroupTable
from et_sim.plan.layout import EqualLines, Layout, Ring, rings_through, sides_of_system
from et_sim.plan.records import NO_AXIS

# Sub-groups as listed pay this fixed time per endpoint transfer; the system file cannot change it.
SUBGROUP_ENDPOINT_NS = 10
SEVERAL_DIMENSIONS = -1


class Axis(NamedTuple):
    """Equal lines of ranks, or of members of a group."""

    stride: int
    members: int
    dimension: int  # that its messages cross, or SEVERAL_DIMENSIONS
    in_group: bool = False
    ring: Ring = ()  # places around it, if it is a ring with an order of its own


class Axes:
    """The axes of a machine, and of groups on it."""

    def __init__(self, machine: Machine) -> None:
        self.grid = machine.network.grid
        self._endpoint_ns = machine.system.endpoint_delay_ns
        self._system_rings = machine.system.rings
        self.of_machine = sides_of_system(self.grid)
        self._rows = [Axis(side.stride, side.members, side.dimension) for side in self.of_machine]
        self._real = [d for d, axis in enumerate(self._rows) if axis.members > 1]
        self.of_system = len(self._rows)
        self._known = {axis: row for row, axis in enumerate(self._rows)}
        self._rows.append(Axis(1, self.grid.ranks, 0 if len(self._rows) == 1 else SEVERAL_DIMENSIONS))

    def __getitem__(self, row: int) -> Axis:
        if row < 0:
            raise IndexError(f"there is no axis {row}")
        return self._rows[row]

    def rings_of_side(self, side: EqualLines, *, in_group: bool) -> tuple[int, ...]:
        """Return the axes of the rings with an order of their own along a side."""
        axis = self._axis(side, in_group=in_group)._replace(dimension=SEVERAL_DIMENSIONS)
        return tuple(self._row(axis._replace(ring=ring)) for ring in self._rings(side))

    def _rings(self, side: EqualLines) -> tuple[Ring, ...]:
        if side.blocks:
            return rings_through(side.blocks)
        is_whole = side.members == self.grid.dimensions[side.dimension].npus
        return self._system_rings[side.dimension] if self._system_rings and is_whole else ()

    def of_side(self, side: EqualLines, *, in_group: bool) -> int:
        """Return the axis along a side, in the order of its places."""
        return self._row(self._axis(side, in_group=in_group))

    def of_all(self, group: GroupShape) -> int:
        """Return the axis through all members of a group, which is laid out or spans the system."""
        if group.spans_system:
            return self.of_system
        return self._row(Axis(1, group.members, SEVERAL_DIMENSIONS, in_group=True))

    def _axis(self, side: EqualLines, *, in_group: bool) -> Axis:
        is_whole = side.members == self.grid.dimensions[side.dimension].npus
        dimension = side.dimension if is_whole and not in_group else SEVERAL_DIMENSIONS
        return Axis(side.stride, side.members, dimension, in_group)

    def _row(self, axis: Axis) -> int:
        if axis not in self._known:
            self._known[axis] = len(self._rows)
            self._rows.append(axis)
        return self._known[axis]

    def is_ring(self, row: int) -> bool:
        """Return whether an axis is a ring with an order of its own; a group as it is listed (NO_AXIS) is
        none.
        """
        return row != NO_AXIS and bool(self[row].ring)

    def in_one_dimension(self, row: int) -> int:
        """Return the only dimension that has NPUs in place of the axis through all ranks, if there is only
        one.
        """
        return self._real[0] if row == self.of_system and len(self._real) == 1 else row

    def of_tree(self, name: str, group: GroupShape, involved: tuple[bool, ...] | None) -> int | None:
        """Return the axis of a collective over a tree, or None if each member is alone."""
        if not group.spans_system:
            if group.members == 1:
                return None
            return NO_AXIS if group.is_as_listed else self.of_all(group)
        if involved is None or group.listed:
            involved = (True,) * self.of_system
        chosen = [d for d in self._real if d < len(involved) and involved[d]]
        if chosen == self._real and chosen:
            return self.of_system
        if len(chosen) > 1:
            raise MachineError(
                f"a {name} over {len(chosen)} of {len(self._real)} dimensions; it must go "
                "over one of them or all",
                place="involved_dim",
                remedy="use a communicator group instead of involved_dim",
            )
        return chosen[0] if chosen else None

    def lines(self, row: int, members: Any) -> Any:
        """Return the members of each line along an axis; the last two axes of `members` hold groups."""
        stride, count = self[row].stride, self[row].members
        shape = members.shape[:-2]
        return np.moveaxis(members.reshape(*shape, -1, count, stride), -2, -1).reshape(*shape, -1, count)

    def roots(self, rows: Iterable[int], members: int, root: int) -> Any:
        """Return whether each member is the root of its part; phases along the axes join the parts."""
        position, is_root = np.arange(members), np.ones(members, np.bool_)
        for row in rows:
            stride, count, *_ = self[row]
            is_root &= position // stride % count == root // stride % count
        return is_root

    def finish(self, groups: GroupTable) -> tuple[Any, Any, Any]:
        """Return the axis table, the orders of rings, and the row of every group's own axis."""
        of_groups = [
            (0, len(groups.members(row)), groups.first_member(row), 0, SUBGROUP_ENDPOINT_NS)
            for row in range(1, len(groups))
        ]
        first, slot = [], 0
        for axis in self._rows:
            slot += axis.in_group
            begin = records.IN_GROUP if axis.in_group else records.IN_SYSTEM
            bounds = (begin, slot * axis.in_group, self._endpoint_ns)
            first.append((axis.stride, axis.members, *bounds))
        out = records.table(records.AXIS, len(first) + len(of_groups))
        columns = np.array(first + of_groups, np.int64).T
        names = ("stride", "members", "members_first", "slot", "endpoint_ns")
        for name, column in zip(names, columns, strict=True):
            out[name] = column
        rows = np.arange(len(first), len(out))
        return out, self._orders(out), np.concatenate([[self.of_system], rows])

    def _orders(self, axes: Any) -> Any:
        """Set in the axis table where orders begin, and return the orders: places by position, and back."""
        axes["order_first"] = records.NO_ORDER
        orders, count = [np.zeros(0, np.int64)], 0
        for row, axis in enumerate(self._rows):
            if axis.ring:
                axes["order_first"][row] = count
                orders += [np.array(axis.ring), np.argsort(axis.ring)]
                count += 2 * len(axis.ring)
        return np.concatenate(orders).astype(np.int32)


class DimensionWay(Struct, frozen=True):
    """The axis of a collective's phases in one of its dimensions."""

    number: int  # index among the dimensions of the group
    dimension: int  # of the machine
    members: int
    algorithm: Algorithm
    axis: int
    rings: tuple[int, ...] = ()  # axes that chunks take in turn in ring phases
    own_rings: int = 1  # the number of rings that run at the same time
    own_queues: int = 0  # the first of the sets of queues of all rings but the first

    def axis_of(self, operation: PhaseOperation, fixes: CostFixes, turn: int) -> int:
        """Return the axis of a phase of a chunk."""
        takes_ring = bool(self.rings) and self.algorithm.used_for(operation, fixes) == RING
        return self.rings[turn % len(self.rings)] if takes_ring else self.axis

    def queues_of(self, turn: int) -> int:
        """Return the set of queues of a phase of a chunk."""
        ring = turn % self.own_rings
        return self.own_queues + ring - 1 if ring else self.dimension


class Ways:
    """The ways of groups on a machine."""

    def __init__(self, axes: Axes, fixes: CostFixes) -> None:
        self._axes, self._fixes = axes, fixes
        self._dimensions = len(axes.of_machine)

    def sides(self, group: GroupShape) -> Layout:
        """Return the sides of a group, or of the machine if the group spans it; a group as it is listed has
        none.
        """
        return self._axes.of_machine if group.spans_system else group.layout or ()

    def queue_sets(self, group: GroupShape) -> int:
        """Return the number of sets of queues that members of a group use at most."""
        sets_of_sides = sum(max(side.own_rings - 1, 0) for side in self.sides(group))
        return 1 if group.is_as_listed else self._dimensions + sets_of_sides

    def of(
        self, operation: PhaseOperation, group: GroupShape, algorithms: tuple[Algorithm, ...]
    ) -> list[DimensionWay]:
        """Return one way for each algorithm."""
        if group.is_as_listed:
            return [DimensionWay(0, 0, group.members, algorithms[0], NO_AXIS)]
        ways, own_queues = [], self._dimensions
        for number, (side, algorithm) in enumerate(zip(self.sides(group), algorithms, strict=False)):
            ways.append(self._along(number, side, algorithm, operation, group, own_queues))
            own_queues += max(side.own_rings - 1, 0)
        return ways

    def _along(
        self,
        number: int,
        side: EqualLines,
        algorithm: Algorithm,
        operation: PhaseOperation,
        group: GroupShape,
        own_queues: int,
    ) -> DimensionWay:
        in_group = not group.spans_system
        if algorithm.spans_system:
            whole = self._axes.of_all(group)
            return DimensionWay(number, side.dimension, group.members, algorithm, whole)
        along = DimensionWay(
            number, side.dimension, side.members, algorithm, self._axes.of_side(side, in_group=in_group)
        )
        is_round = algorithm.used_for(operation, self._fixes) == RING
        if side.blocks and not is_round:
            return along
        rings = self._axes.rings_of_side(side, in_group=in_group)
        return replace(along, rings=rings, own_rings=max(side.own_rings, 1), own_queues=own_queues)
