"""Collectives of a workload -> rows of the collective, phase, program, step and axis tables.

Equal collectives share rows, and equal phases share programs: the tables grow with the number of
*distinct* collectives. Not here: when anything runs, or who sits in which group (`groups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.collectives import (
    IN_NETWORK,
    OVER_A_TREE,
    RING,
    TREE,
    Algorithm,
    CostFixes,
    Operation,
    lower,
    parse_algorithm,
)
from et_sim.collectives.tree import BY_SUBTREE
from et_sim.errors import MachineError
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GridFabric, Machine, Notice, System
from et_sim.machine.switch_trees import SwitchTrees
from et_sim.plan import tables
from et_sim.plan.custom import CustomTables
from et_sim.plan.dimension_order import (
    GREEDY,
    SCATTERING_EVERYWHERE,
    Lane,
    Load,
    Order,
    Route,
    empty_loads,
    routes,
)
from et_sim.plan.groups import GroupShape, GroupTable
from et_sim.plan.phases import (
    Chunks,
    Part,
    PhaseStep,
    Rules,
    bytes_to_cut,
    plan_phases,
    split_exactly,
    split_into_chunks,
    split_whole,
)
from et_sim.plan.program_tables import CustomProgram, Program, program_tables
from et_sim.plan.tables import QueueCursor
from et_sim.units import MOST_BYTES

# Sub-groups pay this fixed time per endpoint transfer, whatever the system file says.
SUBGROUP_ENDPOINT_NS = 10
# Without `involved_dim`, a collective takes part in the first four dimensions.
DEFAULT_INVOLVED_DIMENSIONS = 4
# A listed group that holds all ranks ignores `involved_dim` and takes part in this many.
LISTED_GROUP_DIMENSIONS = 10
MOST_CHUNKS = 1 << 24
MOST_PROGRAMS = 1 << 20  # the engine names a program with 20 bits

Loads = tuple[tuple[int, float], ...]  # (dimension, time) in the planner's order; (): nothing is planned

PhaseRow = tuple[int, int, int, int, int, int]  # the columns of the phase table

KEY_OF_OPERATION = {
    Operation.ALL_REDUCE: "all-reduce-implementation",
    Operation.ALL_GATHER: "all-gather-implementation",
    Operation.REDUCE_SCATTER: "reduce-scatter-implementation",
    Operation.ALL_TO_ALL: "all-to-all-implementation",
}


@dataclass(frozen=True, slots=True)
class CollectiveRequest:
    """A collective as the trace asks for it; `involved` is None when the node does not say."""

    operation: Operation
    size: int
    priority: int
    group: GroupShape
    involved: tuple[bool, ...] | None
    custom: tuple[str, int] | None = None  # prefix of the files of a custom program, row of its group
    root: int = 0  # its position in the group
    loads: Loads = ()  # of collectives planned in the same nanosecond, where that matters


@dataclass(frozen=True, slots=True)
class _ProgramKey:
    axis: int  # NO_AXIS: that of a group
    members: int
    algorithm: Algorithm
    operation: Operation
    size: int
    root: int = 0  # position


class CollectiveTables:
    """Builds the tables; `add` returns the row of a collective, `finish_*` the finished arrays."""

    def __init__(self, machine: Machine, groups: GroupTable, customs: CustomTables) -> None:
        self._machine = machine
        self._groups = groups
        self._customs = customs
        self._system_axis = len(machine.network.grid.dimensions)
        self._axes = self._dimension_axes()
        self._rows: dict[CollectiveRequest, int | None] = {}
        self._loads_after: dict[CollectiveRequest, Loads] = {}
        self._program_rows: dict[_ProgramKey, int] = {}
        self._programs: list[tuple[Program, int]] = []  # with the dimension it runs along
        self._accounting = accounting_of(machine.system)
        self._rules = _rules_of(machine.system)
        self._phases: list[PhaseRow] = []
        self._phase_lists: dict[tuple[PhaseRow, ...], int] = {}  # where each begins
        self._chunk_plans: list[tuple[int, int]] = []
        self._collectives: list[tuple[int, int, int, int, int, int]] = []
        self.switch_trees = SwitchTrees(machine.network)
        self.switched_axes: dict[int, None] = {}  # axes of the system that some program leaves to switches
        self.switched_groups: dict[str, None] = {}  # and groups that do not span it, by canonical name
        self.broadcasts_by_switches = False
        self._reached: dict[tuple[int, str], bool] = {}
        self.notices: dict[Notice, None] = {}

    @property
    def sees_others(self) -> bool:
        """Whether the way of chunks depends on collectives that are planned in the same nanosecond."""
        system = self._machine.system
        return system.behaviour.sees_loads_of_this_time and system.dimension_order in GREEDY

    def add(self, request: CollectiveRequest) -> int | None:
        """The collective's row; None if nobody has to move anything."""
        if request not in self._rows:
            self._rows[request] = self._lower(request)
        return self._rows[request]

    def shape(self, row: int) -> GroupShape:
        """What a collective of a group is lowered by; where switches reduce, that may be the group itself."""
        shape = self._groups.shape(row)
        if shape.spans_system or not self.switch_trees.are_any:
            return shape
        return replace(shape, name=self._groups.canonical_names[row])

    def loads_after(self, request: CollectiveRequest) -> Loads:
        """What is planned once an added collective is, too."""
        return self._loads_after.get(request, request.loads)

    def _lower(self, request: CollectiveRequest) -> int | None:
        if request.custom is not None:
            return self._lower_custom(request, *request.custom)
        if request.operation in OVER_A_TREE:
            return self._lower_tree(request)
        spanning = request.group.spans_system
        algorithms = self._algorithms(request.operation, request.group)
        parts = (
            self._parts(request, algorithms) if spanning else self._group_part(request.group, algorithms[0])
        )
        runs = self._split(request)
        if not parts or not runs:
            return None
        routes = self._routes(request, runs, parts, algorithms, spanning)
        by_dimension = {part.dimension: part for part in parts}
        scheduler = self._machine.system.dimension_order
        rules = replace(self._rules, everywhere=spanning and scheduler in SCATTERING_EVERYWHERE)
        known: dict[tuple[int, Order], list[PhaseRow]] = {}
        phase_lists = []
        for route in routes:
            for order in route.orders:
                key = (route.chunks.size, order)
                if key not in known:
                    visited = [by_dimension[dimension] for dimension in order if dimension in by_dimension]
                    phases = plan_phases(request.operation, route.chunks.size, visited, rules)
                    known[key] = [self._phase(p, algorithms, spanning) for p in phases]
            phase_lists.append([known[route.chunks.size, order] for order in route.orders])
        return self._add_collective(request, [route.chunks for route in routes], phase_lists)

    def _routes(
        self,
        request: CollectiveRequest,
        runs: list[Chunks],
        parts: list[Part],
        algorithms: tuple[Algorithm, ...],
        spanning: bool,
    ) -> list[Route]:
        """The order of dimensions of every chunk; a group that is a part of the system knows one only."""
        system, dimensions = self._machine.system, self._machine.network.grid.dimensions
        if not spanning:
            return [Route(run, ((0,),)) for run in runs]
        members = {part.dimension: part.members for part in parts}
        lanes = [
            Lane(members.get(d, 1), d in members, dimensions[d].bandwidth / dimensions[0].bandwidth)
            for d in range(len(algorithms))
        ]
        total = bytes_to_cut(request.size, system.splits, runs)
        gap = system.gap_denominator
        loads = [Load(*load) for load in request.loads] or empty_loads(len(lanes))
        found = routes(system.dimension_order, request.operation, total, runs, lanes, gap, loads)
        if any(load.time for load in loads):
            self._loads_after[request] = tuple((load.dimension, load.time) for load in loads)
        return found

    def _split(self, request: CollectiveRequest) -> list[Chunks]:
        splits = self._machine.system.splits
        if request.operation is Operation.BARRIER:
            return [Chunks(1, 1)]
        if self._machine.system.behaviour.are_chunks_alike:
            runs = split_whole(request.size, splits)
        elif self._accounting.whole_pieces:
            runs = split_exactly(request.size, splits)
        else:
            runs = split_into_chunks(request.operation, request.size, splits, self._machine.network.ranks)
        chunks = sum(run.number for run in runs)
        if chunks > MOST_CHUNKS:
            raise MachineError(
                f"a collective would be cut into {chunks} chunks, and {MOST_CHUNKS} are the most",
                place="system configuration",
                remedy='choose a smaller "preferred-dataset-splits"',
            )
        return runs

    def _add_collective(
        self, request: CollectiveRequest, runs: Sequence[Chunks], phase_lists: Sequence[list[list[PhaseRow]]]
    ) -> int:
        """A collective whose chunks follow one of the lists of their run in turn; all are equally long."""
        first, chunks = len(self._chunk_plans), 0
        for run, lists in zip(runs, phase_lists, strict=True):
            chunks += run.number
            rows = tuple(phase for phases in lists for phase in phases)
            self._chunk_plans.append((chunks, self._phase_list(rows)))
        phases, rotations = len(phase_lists[0][0]), len(phase_lists[0])
        self._collectives.append((int(request.operation), phases, chunks, first, rotations, request.priority))
        return len(self._collectives) - 1

    def _phase_list(self, phases: tuple[PhaseRow, ...]) -> int:
        if phases not in self._phase_lists:
            self._phase_lists[phases] = len(self._phases)
            self._phases += phases
        return self._phase_lists[phases]

    def _lower_custom(self, request: CollectiveRequest, prefix: str, group: int) -> int:
        """One chunk of one phase, in the first queue of dimension 0."""
        program = CustomProgram(request.group.members, self._customs.first_member(prefix, group))
        self._customs.compare(prefix, group, request.operation, request.size)
        self._programs.append((program, -1))
        row = len(self._programs) - 1
        phase = (row, tables.NO_AXIS, 0, int(QueueCursor.NONE), int(request.operation), request.size)
        return self._add_collective(request, [Chunks(1, request.size)], [[[phase]]])

    def _lower_tree(self, request: CollectiveRequest) -> int | None:
        """One phase along one axis, in a queue of dimension 0."""
        axis = self._tree_axis(request)
        runs = self._split(request)
        if axis is None or not runs:
            return None
        members, root, algorithm = request.group.members, request.root, TREE
        chosen = self._machine.system.implementations.broadcast or ()
        if request.operation is Operation.BROADCAST and IN_NETWORK.family in chosen:
            axis = self._same_dimension(axis)
            algorithm = self._by_switches(request.operation, axis, request.group)
        if axis != tables.NO_AXIS:
            stride, members = self._axes[axis][:2]
            root = root // stride % members
        phase_lists = []
        for run in runs:
            program = self._program(_ProgramKey(axis, members, algorithm, request.operation, run.size, root))
            phase = (program, axis, 0, int(QueueCursor.NEXT), int(request.operation), run.size)
            phase_lists.append([[phase]])
        return self._add_collective(request, runs, phase_lists)

    def _same_dimension(self, axis: int) -> int:
        """The only dimension that has NPUs, in place of the axis through all ranks."""
        real = [d for d, dimension in enumerate(self._machine.network.grid.dimensions) if dimension.npus > 1]
        return real[0] if axis == self._system_axis and len(real) == 1 else axis

    def _tree_axis(self, request: CollectiveRequest) -> int | None:
        """The group's own, the whole system's, or that of one dimension; None: nobody but oneself."""
        if not request.group.spans_system:
            return tables.NO_AXIS if request.group.members > 1 else None
        dimensions = self._machine.network.grid.dimensions
        real = [d for d, dimension in enumerate(dimensions) if dimension.npus > 1]
        involved = request.involved
        if involved is None or request.group.listed:
            involved = (True,) * len(dimensions)
        chosen = [d for d in real if d < len(involved) and involved[d]]
        if chosen == real and real:
            return self._system_axis
        if len(chosen) > 1:
            raise MachineError(
                f"a {request.operation.name.lower()} over {len(chosen)} of {len(real)} dimensions is asked "
                "for, and it goes over one of them or all",
                place="involved_dim",
                remedy="use a communicator group instead of involved_dim",
            )
        return chosen[0] if chosen else None

    def _algorithms(self, operation: Operation, group: GroupShape) -> tuple[Algorithm, ...]:
        """One algorithm per dimension; the list ends at the first that spans the system."""
        key = KEY_OF_OPERATION[operation]
        names = getattr(self._machine.system.implementations, operation.name.lower())
        if not names:
            raise MachineError(
                f"the workload has {operation.name.lower()} collectives, and key {key!r} is not given",
                place="system configuration",
                remedy="add it with one algorithm per network dimension, such as ring",
            )
        if not group.spans_system:
            if IN_NETWORK.family in names:
                return (self._by_switches(operation, tables.NO_AXIS, group),)
            return (parse_algorithm(names[0] if len(names) == 1 else "ring"),)
        chosen: list[Algorithm] = []
        for dimension, name in enumerate(names):
            algorithm = parse_algorithm(name)
            if algorithm == IN_NETWORK:
                algorithm = self._by_switches(operation, dimension, group)
            chosen.append(algorithm)
            if algorithm.spans_system:
                break
        return tuple(chosen)

    def _by_switches(self, operation: Operation, axis: int, group: GroupShape) -> Algorithm:
        """In-network if switches that reduce reach all members along an axis; else a ring, with a notice."""
        key = KEY_OF_OPERATION.get(operation, "broadcast-implementation")
        if not self.switch_trees.are_any:
            raise MachineError(
                f'key "{key}" is inNetwork, and no switch of the network reduces',
                place="system configuration",
                remedy='name those that do under "in-network" in the network file, or take another algorithm',
            )
        if operation is Operation.ALL_TO_ALL:
            raise MachineError(
                "inNetwork cannot do an all-to-all, in which there is nothing to reduce or to copy",
                place=f'system key "{key}"',
                remedy="use ring or direct for all-to-all",
            )
        place = (axis, group.name if axis == tables.NO_AXIS else "")
        if place not in self._reached:
            self._reached[place] = self._are_reached(*place)
        if self._reached[place]:
            self.broadcasts_by_switches |= operation is Operation.BROADCAST
            if axis == tables.NO_AXIS:
                self.switched_groups[group.name] = None
            else:
                self.switched_axes[axis] = None
            return IN_NETWORK
        instead = TREE if operation is Operation.BROADCAST else RING
        where = (
            f"group {self._groups.used(group.name).name}" if axis == tables.NO_AXIS else f"dimension {axis}"
        )
        if axis == self._system_axis:
            where = "the system"
        text = (
            f"no switches that reduce reach all members of {where}: {operation.name.lower()} there takes a "
            f"{instead.family} instead of inNetwork"
        )
        self.notices[Notice("system configuration", key, text)] = None
        return instead

    def _are_reached(self, axis: int, name: str) -> bool:
        """Whether there is a tree for every line along an axis, or for every group of a name."""
        if axis == tables.NO_AXIS:
            return all(self.switch_trees.over(members) is not None for members in self._groups.all_of(name))
        if isinstance(self._machine.network.fabric, GridFabric) and axis != self._system_axis:
            return any(number == axis for number, _ in self._machine.network.reducers)
        stride, members = self._axes[axis][:2]
        every = np.arange(self._machine.network.ranks)
        lines = every[every // stride % members == 0]
        return all(
            self.switch_trees.over(first + np.arange(members) * stride) is not None
            for first in lines.tolist()
        )

    def _parts(self, request: CollectiveRequest, algorithms: tuple[Algorithm, ...]) -> list[Part]:
        self._check_reach(request, algorithms)
        involved = request.involved
        listed = request.group.listed
        if involved is None or listed:
            involved = (True,) * (LISTED_GROUP_DIMENSIONS if listed else DEFAULT_INVOLVED_DIMENSIONS)
        parts = []
        for dimension, algorithm in enumerate(algorithms):
            own = self._machine.network.grid.dimensions[dimension].npus
            members = self._machine.network.ranks if algorithm.spans_system else own
            if members > 1 and dimension < len(involved) and involved[dimension]:
                parts.append(self._part(dimension, members, algorithm))
        return parts

    def _check_reach(self, request: CollectiveRequest, algorithms: tuple[Algorithm, ...]) -> None:
        """Refuse a collective of all NPUs that would leave some of them out without the trace saying so."""
        left = self._machine.network.grid.dimensions[len(algorithms) :]
        if request.involved is not None or algorithms[-1].spans_system or all(d.npus == 1 for d in left):
            return
        if self._machine.system.behaviour.must_reach_all:
            count = len(self._machine.network.grid.dimensions)
            raise MachineError(
                f"key {KEY_OF_OPERATION[request.operation]!r} has an algorithm for {len(algorithms)} of "
                f"{count} dimensions, and the workload has a {request.operation.name.lower()} of all NPUs",
                place="system configuration",
                remedy="give one algorithm per dimension, or say which take part in the trace (involved_dim)",
            )

    def _group_part(self, group: GroupShape, algorithm: Algorithm) -> list[Part]:
        return [self._part(0, group.members, algorithm)] if group.members > 1 else []

    def _part(self, dimension: int, members: int, algorithm: Algorithm) -> Part:
        keeps_size = algorithm.keeps_size(self._accounting)
        return Part(dimension, members, keeps_size, self._accounting.whole_pieces)

    def _phase(self, phase: PhaseStep, algorithms: tuple[Algorithm, ...], spanning: bool) -> PhaseRow:
        algorithm = algorithms[phase.part.dimension]
        if not spanning:
            axis = tables.NO_AXIS
        else:
            axis = self._system_axis if algorithm.spans_system else phase.part.dimension
        key = _ProgramKey(axis, phase.part.members, algorithm, phase.operation, phase.size)
        most = phase.size
        if not self._machine.system.behaviour.wait_by_input:
            most = max(most, phase.output)
        _check_bytes(phase.operation, most)
        return (
            self._program(key),
            axis,
            phase.part.dimension,
            int(phase.cursor),
            int(phase.operation),
            most,
        )

    def _program(self, key: _ProgramKey) -> int:
        if key not in self._program_rows:
            most = key.size * key.members if key.operation in BY_SUBTREE else key.size
            _check_bytes(key.operation, most)
            subgroup = key.axis == tables.NO_AXIS
            dimension = -1 if subgroup else self._axes[key.axis][4]
            program = lower(
                key.algorithm,
                key.operation,
                key.members,
                key.size,
                subgroup=subgroup,
                fixes=self._accounting,
                root=key.root,
            )
            if len(self._programs) == MOST_PROGRAMS:
                raise MachineError(
                    f"the workload has more than {MOST_PROGRAMS} collective phases that differ in size",
                    remedy="split the workload",
                )
            self._program_rows[key] = len(self._programs)
            self._programs.append((program, dimension))
        return self._program_rows[key]

    def _dimension_axes(self) -> list[tuple[int, int, int, int, int]]:
        """An axis per dimension, then one through the whole system in rank order."""
        grid, endpoint = self._machine.network.grid, self._machine.system.endpoint_delay_ns
        axes = [
            (stride, dimension.npus, -1, endpoint, d)
            for d, (stride, dimension) in enumerate(zip(grid.strides, grid.dimensions, strict=True))
        ]
        along = 0 if len(grid.dimensions) == 1 else -1
        return [*axes, (1, grid.ranks, -1, endpoint, along)]

    def axes(self) -> tuple[Any, Any]:
        """(axis table, the row of every group's own axis)."""
        small = [
            (0, len(self._groups.members(row)), self._groups.first_member(row))
            for row in range(1, len(self._groups))
        ]
        out = tables.table(tables.AXIS, len(self._axes) + len(small))
        for row, values in enumerate(self._axes):
            out[row].stride, out[row].members, out[row].members_first = values[:3]
            out[row].endpoint_ns = values[3]
        if small:
            rest = out[len(self._axes) :]
            rest["stride"], rest["members"], rest["members_first"] = np.array(small, np.int64).T
            rest["endpoint_ns"] = SUBGROUP_ENDPOINT_NS
        return out, np.arange(self._system_axis, len(out))

    def collectives(self) -> np.ndarray:
        """The collective table, but for the numbers of chunks in all programs (`first_sequence`)."""
        out = tables.table(tables.COLLECTIVE, len(self._collectives))
        for row, values in enumerate(self._collectives):
            out[row] = (*values, 0)
        return out

    def chunk_plans(self) -> np.ndarray:
        """The table of chunks that have the same phases."""
        out = tables.table(tables.CHUNK_PLAN, len(self._chunk_plans))
        for row, values in enumerate(self._chunk_plans):
            out[row] = values
        return out

    def phases(self) -> np.ndarray:
        """The phase table."""
        out = tables.table(tables.PHASE, len(self._phases))
        for row, values in enumerate(self._phases):
            out[row] = values
        return out

    def programs(self) -> dict[str, Any]:
        """The program, step, transfer and tree tables."""
        return program_tables(self._programs, self._machine.system.local_mem_bw)


def _rules_of(system: System) -> Rules:
    """How the phases of a collective's chunks are made."""
    if system.behaviour.are_queues_shared_both_ways:
        return Rules(system.all_reduce_plan, inward=QueueCursor.NEXT, outward=QueueCursor.NEXT)
    return Rules(system.all_reduce_plan, system.behaviour.corrects(Correction.ALL_QUEUES))


def accounting_of(system: System) -> CostFixes:
    """What the corrections say about the programs of collectives."""
    return CostFixes(
        exact_halving_doubling=system.behaviour.corrects(Correction.EXACT_HALVING_DOUBLING),
        tree_operations=system.behaviour.corrects(Correction.TREE_OPERATIONS),
        direct_reductions=system.behaviour.corrects(Correction.DIRECT_REDUCTIONS),
        whole_pieces=system.behaviour.corrects(Correction.EXACT_CHUNKS),
    )


def _check_bytes(operation: Operation, most: int) -> None:
    if most > MOST_BYTES:
        raise MachineError(
            f"a phase of {operation.name.lower()} would hold {most} bytes per rank, more than {MOST_BYTES}",
            remedy="correct comm_size, which is in bytes",
        )
