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
)
from et_sim.collectives.uneven import check_knows_sizes
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
from et_sim.plan.exchange_phases import line_of, pairs_of_chunk, pass_along, refuse_partial, split_pairs
from et_sim.plan.exchanges import PLAIN, Exchanges
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
from et_sim.plan.program_rows import OwnSizes, ProgramKey, ProgramRows, check_bytes
from et_sim.plan.program_tables import CustomProgram
from et_sim.plan.tables import QueueCursor

# Without `involved_dim`, a collective takes part in the first four dimensions.
DEFAULT_INVOLVED_DIMENSIONS = 4
# A listed group that holds all ranks ignores `involved_dim` and takes part in this many.
LISTED_GROUP_DIMENSIONS = 10
MOST_CHUNKS = 1 << 24

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
    exchange: int = PLAIN  # of an all-to-all with bytes for each pair: the number of its matrix
    loads: Loads = ()  # of collectives planned in the same nanosecond, where that matters


class CollectiveTables:
    """Builds the tables; `add` returns the row of a collective, `finish_*` the finished arrays."""

    def __init__(
        self, machine: Machine, groups: GroupTable, customs: CustomTables, exchanges: Exchanges
    ) -> None:
        self._machine = machine
        self.exchanges = exchanges
        self._groups = groups
        self._customs = customs
        self._axes = Axes(machine)
        self.rings = self._axes.rings
        self.switches = SwitchReach(machine, groups, self._axes)
        self._choice = AlgorithmChoice(machine, self.switches)
        self._rows: dict[CollectiveRequest, int | None] = {}
        self._loads_after: dict[CollectiveRequest, Loads] = {}
        self._accounting = accounting_of(machine.system)
        self._programs = ProgramRows(self._axes, self._accounting)
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
        chunks, before = sum(run.number for run in runs), 0
        phase_lists = []
        for route in routes:
            known: dict[tuple[int, Order, int], list[PhaseRow]] = {}
            turns = [
                (route.chunks.size, route.orders[turn % len(route.orders)], turn % rings)
                for turn in range(math.lcm(len(route.orders), rings))
            ]
            for size, order, turn in dict.fromkeys(turns):
                if (size, order, turn) in known:
                    continue
                visited = [by_dimension[dimension] for dimension in order if dimension in by_dimension]
                if request.exchange != PLAIN:
                    held = pairs_of_chunk(self.exchanges.matrix(request.exchange), chunks, before)
                    known[size, order, turn] = self._exchange(held, visited, algorithms, spanning, turn)
                    continue
                phases = plan_phases(request.operation, size, visited, rules)
                known[size, order, turn] = [self._phase(p, algorithms, spanning, turn) for p in phases]
            phase_lists.append([known[turn] for turn in turns])
            before += route.chunks.number
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

    def _exchange(
        self, held: Any, visited: list[Part], algorithms: tuple[Algorithm, ...], spanning: bool, turn: int
    ) -> list[PhaseRow]:
        """The phases of a chunk of which ranks hold bytes for each member."""
        if spanning and self._machine.system.shared_bus is not None:
            raise MachineError(
                "an all-to-all with bytes for each pair cannot cross a shared memory bus",
                place='system key "model-shared-bus"',
                remedy="leave the bus out, or comm_split_sizes",
            )
        rows = []
        for part in visited:
            algorithm = algorithms[part.dimension]
            check_knows_sizes(algorithm, part.members, len(held), self._accounting)
            axis = self._axis(part.dimension, algorithm, Operation.ALL_TO_ALL, spanning, turn)
            ring = self.rings.order(axis) if self.rings.is_ring(axis) else None
            line = line_of(self._axes[axis] if spanning else None, len(held), ring)
            phase, held = pass_along(held, line)
            step = PhaseStep(part, Operation.ALL_TO_ALL, phase.most, phase.most, QueueCursor.NEXT)
            own = OwnSizes(phase.to_ahead, line.ahead)
            rows.append(self._phase(step, algorithms, spanning, turn, own))
        refuse_partial(held)
        return rows

    def _split(self, request: CollectiveRequest) -> list[Chunks]:
        splits = self._machine.system.splits
        if request.exchange != PLAIN:
            return split_pairs(self.exchanges.matrix(request.exchange), splits)
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
        phase = (
            self._programs.add(program, -1),
            tables.NO_AXIS,
            0,
            int(QueueCursor.NONE),
            int(request.operation),
            request.size,
        )
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
            program = self._programs.row(
                ProgramKey(axis, members, algorithm, request.operation, run.size, root)
            )
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

    def _axis(
        self, dimension: int, algorithm: Algorithm, operation: Operation, spanning: bool, turn: int
    ) -> int:
        """Along what a phase in a dimension runs."""
        if not spanning:
            return tables.NO_AXIS
        if algorithm.used_for(operation, self._accounting) == RING:
            return self.rings.axis(dimension, turn)
        return self._axes.of_system if algorithm.spans_system else dimension

    def _phase(
        self,
        phase: PhaseStep,
        algorithms: tuple[Algorithm, ...],
        spanning: bool,
        turn: int,
        own: OwnSizes | None = None,
    ) -> PhaseRow:
        algorithm = algorithms[phase.part.dimension]
        axis = self._axis(phase.part.dimension, algorithm, phase.operation, spanning, turn)
        key = ProgramKey(axis, phase.part.members, algorithm, phase.operation, phase.size)
        most = phase.size
        if not self._machine.system.behaviour.wait_by_input:
            most = max(most, phase.output)
        check_bytes(phase.operation, most)
        return (
            self._programs.row(key, own),
            axis,
            phase.part.dimension,
            int(phase.cursor),
            int(phase.operation),
            most,
        )

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
        return self._programs.tables(self._machine.system.local_mem_bw)


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
