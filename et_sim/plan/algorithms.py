"""The choice of a collective's algorithm, by the system file and by the reach of reducing switches."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.collectives import IN_NETWORK, RING, TREE, Algorithm, PhaseOperation, parse_algorithm
from et_sim.machine.model import GridFabric, Machine, Notice
from et_sim.machine.switch_trees import SwitchTrees
from et_sim.plan import records
from et_sim.plan.axes import Axes
from et_sim.plan.groups import GroupShape, GroupTable

BY_LIBRARY = (
    PhaseOperation.ALL_REDUCE,
    PhaseOperation.ALL_GATHER,
    PhaseOperation.REDUCE_SCATTER,
    PhaseOperation.ALL_TO_ALL,
    PhaseOperation.BROADCAST,
    PhaseOperation.REDUCE,
    PhaseOperation.BARRIER,
)
KEY_OF_OPERATION = {
    PhaseOperation.ALL_REDUCE: "all-reduce-implementation",
    PhaseOperation.ALL_GATHER: "all-gather-implementation",
    PhaseOperation.REDUCE_SCATTER: "reduce-scatter-implementation",
    PhaseOperation.ALL_TO_ALL: "all-to-all-implementation",
    PhaseOperation.BROADCAST: "broadcast-implementation",
}

Place = tuple[int, str]  # an axis; and if it is none of the system, the canonical name of a group


class SwitchReach:
    """The axes and groups that leave collectives to switches."""

    def __init__(self, machine: Machine, groups: GroupTable, axes: Axes) -> None:
        self._network = machine.network
        self._groups = groups
        self._row_of = axes
        self._reached: dict[Place, bool] = {}
        self.trees = SwitchTrees(machine.network)
        self.axes: dict[int, None] = {}  # axes of the system that some program leaves to switches
        self.groups: dict[Place, None] = {}  # and those of groups that do not span it, with their names
        self.has_broadcasts = False
        self.notices: dict[Notice, None] = {}

    def algorithm(self, operation: PhaseOperation, axis: int, group: GroupShape) -> Algorithm:
        """Return the in-network algorithm if switches reach all members; else a ring, with a notice."""
        self._check(operation)
        is_of_system = axis != records.NO_AXIS and not self._row_of[axis].in_group
        place = (axis, "" if is_of_system else group.name)
        if place not in self._reached:
            self._reached[place] = self._are_reached(*place)
        if not self._reached[place]:
            return self._instead(operation, *place)
        self.has_broadcasts |= operation is PhaseOperation.BROADCAST
        if is_of_system:
            self.axes[axis] = None
        else:
            self.groups[place] = None
        return IN_NETWORK

    def _check(self, operation: PhaseOperation) -> None:
        key = KEY_OF_OPERATION[operation]
        if not self.trees.are_any:
            raise MachineError(
                f'key "{key}" is inNetwork, and no switch of the network reduces',
                place="system configuration",
                remedy='name those that do under "in-network" in the network file, or take another algorithm',
            )
        if operation is PhaseOperation.ALL_TO_ALL:
            raise MachineError(
                "inNetwork cannot do an all-to-all, in which there is nothing to reduce or to copy",
                place=f'system key "{key}"',
                remedy="use ring or direct for all-to-all",
            )

    def _are_reached(self, axis: int, name: str) -> bool:
        """Return whether there is a tree for every line along an axis, or for every group of a name."""
        if axis == records.NO_AXIS or self._row_of[axis].in_group:
            return all(self.trees.over(line) is not None for line in self.lines(axis, name))
        if isinstance(self._network.fabric, GridFabric) and axis != self._row_of.of_system:
            return any(number == axis for number, _ in self._network.reducers)
        stride, members = self._row_of[axis][:2]
        every = np.arange(self._network.ranks)
        lines = every[every // stride % members == 0]
        return all(
            self.trees.over(first + np.arange(members) * stride) is not None for first in lines.tolist()
        )

    def lines(self, axis: int, name: str) -> Any:
        """Return the members along an axis of all groups that a canonical name stands for, a row each."""
        return self.lines_of(axis, self._groups.all_of(name))

    def lines_of(self, axis: int, members: Any) -> Any:
        """Return the members of each line along an axis; the last two axes of `members` hold groups."""
        return members if axis == records.NO_AXIS else self._row_of.lines(axis, members)

    def _instead(self, operation: PhaseOperation, axis: int, name: str) -> Algorithm:
        instead = TREE if operation is PhaseOperation.BROADCAST else RING
        where = f"dimension {axis}"
        if name:
            where = f"group {self._groups.used(name).name}"
        elif axis == self._row_of.of_system:
            where = "the system"
        text = (
            f"no switches that reduce reach all members of {where}: {operation.name.lower()} there takes a "
            f"{instead.family} instead of inNetwork"
        )
        self.notices[Notice("system configuration", KEY_OF_OPERATION[operation], text)] = None
        return instead


class AlgorithmChoice:
    """The lists of algorithms in the system file."""

    def __init__(self, machine: Machine, axes: Axes, switches: SwitchReach) -> None:
        self._system = machine.system
        self._dimensions = machine.network.grid.dimensions
        self._axes, self._switches = axes, switches

    def of_tree(self, operation: PhaseOperation, axis: int, group: GroupShape) -> Algorithm:
        """Return the algorithm of an operation over a tree of members or of switches."""
        if self.is_left_to_switches(operation):
            return self._switches.algorithm(operation, axis, group)
        return TREE

    def is_left_to_switches(self, operation: PhaseOperation) -> bool:
        """Return whether the system file leaves an operation over a tree to switches."""
        chosen = self._system.implementations.broadcast or ()
        return operation is PhaseOperation.BROADCAST and IN_NETWORK.family in chosen

    def is_left_to_library(self, operation: PhaseOperation) -> bool:
        """Return whether the library supports an operation and the system file names no algorithm for it."""
        named = getattr(self._system.implementations, operation.name.lower(), None)
        return operation in BY_LIBRARY and not named

    def along_sides(self, operation: PhaseOperation, group: GroupShape) -> tuple[Algorithm, ...]:
        """Return one algorithm per side; the list ends at the first that spans the system or group."""
        names = self._names(operation)
        if group.layout is not None:
            return self._along_own_sides(operation, group, names)
        if not group.spans_system:
            if IN_NETWORK.family in names:
                return (self._switches.algorithm(operation, records.NO_AXIS, group),)
            return (parse_algorithm(names[0] if len(names) == 1 else "ring"),)
        chosen: list[Algorithm] = []
        for dimension, name in enumerate(names):
            algorithm = parse_algorithm(name)
            if algorithm == IN_NETWORK:
                algorithm = self._switches.algorithm(operation, dimension, group)
            chosen.append(algorithm)
            if algorithm.spans_system:
                break
        return tuple(chosen)

    def _along_own_sides(
        self, operation: PhaseOperation, group: GroupShape, names: tuple[str, ...]
    ) -> tuple[Algorithm, ...]:
        """Return the algorithms of a machine whose dimensions are the sides of the group."""
        chosen: list[Algorithm] = []
        last = parse_algorithm(names[-1])
        for side in group.layout or ():
            if side.dimension >= len(names) and not last.spans_system:
                self._refuse_partial(operation, f"a group across dimension {side.dimension}", len(names))
                break
            algorithm = parse_algorithm(names[side.dimension]) if side.dimension < len(names) else last
            if algorithm == IN_NETWORK:
                axis = self._axes.of_side(side, in_group=True)
                algorithm = self._switches.algorithm(operation, axis, group)
            elif side.blocks and not (operation is PhaseOperation.ALL_TO_ALL or algorithm.spans_system):
                algorithm = RING
            chosen.append(algorithm)
            if algorithm.spans_system:
                break
        return tuple(chosen)

    def _names(self, operation: PhaseOperation) -> tuple[str, ...]:
        names: tuple[str, ...] = getattr(self._system.implementations, operation.name.lower())
        if not names and self._system.library is not None:
            return ("direct",) * len(self._dimensions)  # bytes for each pair: a library copies all at once
        if not names:
            raise MachineError(
                f"the workload has {operation.name.lower()} collectives, and key "
                f"{KEY_OF_OPERATION[operation]!r} is not given",
                place="system configuration",
                remedy="add it with one algorithm per network dimension, such as ring",
            )
        return names

    def check_reach(
        self, operation: PhaseOperation, involved: tuple[bool, ...] | None, algorithms: tuple[Algorithm, ...]
    ) -> None:
        """Refuse a collective of all NPUs that leaves some of them out although the trace does not restrict
        it.
        """
        left = self._dimensions[len(algorithms) :]
        if involved is not None or algorithms[-1].spans_system or all(d.npus == 1 for d in left):
            return
        instead = ", or name those that take part in the trace (involved_dim)"
        self._refuse_partial(operation, "all NPUs", len(algorithms), instead)

    def _refuse_partial(self, operation: PhaseOperation, of: str, algorithms: int, instead: str = "") -> None:
        """Refuse a collective that would leave members out, where it has to reach all."""
        if self._system.behaviour.must_reach_all:
            raise MachineError(
                f"key {KEY_OF_OPERATION[operation]!r} has an algorithm for {algorithms} of "
                f"{len(self._dimensions)} dimensions, and the workload has {operation.name.lower()} of " + of,
                place="system configuration",
                remedy="give one algorithm per dimension" + instead,
            )
