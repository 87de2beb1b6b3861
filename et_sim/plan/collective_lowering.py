"""Collectives of a workload -> rows of the collective, phase, program, step and axis tables.

Equal collectives share rows, and equal phases share programs: the tables grow with the number of
*distinct* collectives. Not here: when anything runs, or who sits in which group (`groups`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.collectives import (
    OVER_A_TREE,
    RING,
    Algorithm,
    CostFixes,
    Operation,
    Peer,
    StepProgram,
    lower,
)
from et_sim.collectives.tree import BY_SUBTREE
from et_sim.errors import MachineError
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Machine, System
from et_sim.plan import tables
from et_sim.plan.algorithms import AlgorithmChoice, SwitchReach
from et_sim.plan.axes import Axes
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

# Without `involved_dim`, a collective takes part in the first four dimensions.
DEFAULT_INVOLVED_DIMENSIONS = 4
# A listed group that holds all ranks ignores `involved_dim` and takes part in this many.
LISTED_GROUP_DIMENSIONS = 10
MOST_CHUNKS = 1 << 24
MOST_PROGRAMS = 1 << 20  # the engine names a program with 20 bits

Loads = tuple[tuple[int, float], ...]  # (dimension, time) in the planner's order; (): nothing is planned

PhaseRow = tuple[int, int, int, int, int, int]  # the columns of the phase table


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
        self._axes = Axes(machine)
        self.rings = self._axes.rings
        self.switches = SwitchReach(machine, groups, self._axes)
        self._choice = AlgorithmChoice(machine, self.switches)
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
        if shape.spans_system or not self.switches.trees.are_any:
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
        algorithms = self._choice.along_dimensions(request.operation, request.group)
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
        rings = self.rings.count(list(by_dimension)) if spanning else 1
        known: dict[tuple[int, Order, int], list[PhaseRow]] = {}
        phase_lists = []
        for route in routes:
            turns = [
                (route.chunks.size, route.orders[turn % len(route.orders)], turn % rings)
                for turn in range(math.lcm(len(route.orders), rings))
            ]
            for size, order, turn in dict.fromkeys(turns):
                if (size, order, turn) not in known:
                    visited = [by_dimension[dimension] for dimension in order if dimension in by_dimension]
                    phases = plan_phases(request.operation, size, visited, rules)
                    known[size, order, turn] = [self._phase(p, algorithms, spanning, turn) for p in phases]
            phase_lists.append([known[turn] for turn in turns])
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
        axis = self._axes.of_tree(request.operation.name.lower(), request.group, request.involved)
        runs = self._split(request)
        if axis is None or not runs:
            return None
        members, root = request.group.members, request.root
        if self._choice.is_left_to_switches(request.operation):
            axis = self._axes.in_one_dimension(axis)
        algorithm = self._choice.of_tree(request.operation, axis, request.group)
        if axis != tables.NO_AXIS:
            stride, members, _ = self._axes[axis]
            root = root // stride % members
        phase_lists = []
        for run in runs:
            program = self._program(_ProgramKey(axis, members, algorithm, request.operation, run.size, root))
            phase = (program, axis, 0, int(QueueCursor.NEXT), int(request.operation), run.size)
            phase_lists.append([[phase]])
        return self._add_collective(request, runs, phase_lists)

    def _parts(self, request: CollectiveRequest, algorithms: tuple[Algorithm, ...]) -> list[Part]:
        self._choice.check_reach(request.operation, request.involved, algorithms)
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

    def _group_part(self, group: GroupShape, algorithm: Algorithm) -> list[Part]:
        return [self._part(0, group.members, algorithm)] if group.members > 1 else []

    def _part(self, dimension: int, members: int, algorithm: Algorithm) -> Part:
        keeps_size = algorithm.keeps_size(self._accounting)
        return Part(dimension, members, keeps_size, self._accounting.whole_pieces)

    def _phase(
        self, phase: PhaseStep, algorithms: tuple[Algorithm, ...], spanning: bool, turn: int
    ) -> PhaseRow:
        algorithm = algorithms[phase.part.dimension]
        if not spanning:
            axis = tables.NO_AXIS
        elif algorithm.used_for(phase.operation, self._accounting) == RING:
            axis = self.rings.axis(phase.part.dimension, turn)
        else:
            axis = self._axes.of_system if algorithm.spans_system else phase.part.dimension
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
            dimension = -1 if subgroup else self._axes[key.axis].dimension
            program = lower(
                key.algorithm,
                key.operation,
                key.members,
                key.size,
                subgroup=subgroup,
                fixes=self._accounting,
                root=key.root,
            )
            if self.rings.is_ring(key.axis):
                assert isinstance(program, StepProgram)
                program = replace(program, peer=Peer.AHEAD)  # the other way round is a ring of its own
            if len(self._programs) == MOST_PROGRAMS:
                raise MachineError(
                    f"the workload has more than {MOST_PROGRAMS} collective phases that differ in size",
                    remedy="split the workload",
                )
            self._program_rows[key] = len(self._programs)
            self._programs.append((program, dimension))
        return self._program_rows[key]

    def axes(self) -> tuple[Any, Any, Any]:
        """(axis table, orders of rings, the row of every group's own axis)."""
        return self._axes.finish(self._groups)

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
