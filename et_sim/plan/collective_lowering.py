"""Collectives of a workload -> rows of the collective, phase, program, step and axis tables.

Equal collectives share rows, and equal phases share programs: the tables grow with the number of *distinct*
collectives.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.collectives import (
    OVER_A_TREE,
    RING,
    Algorithm,
    CostFixes,
    PhaseOperation,
    StepProgram,
)
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Machine, Notice, System
from et_sim.plan import records
from et_sim.plan.algorithms import AlgorithmChoice, SwitchReach
from et_sim.plan.axes import Axes, DimensionWay, Ways
from et_sim.plan.custom import CustomTables
from et_sim.plan.exchanges import (
    PLAIN,
    Exchanges,
    line_of,
    pairs_of_chunk,
    pass_along,
    refuse_partial,
    split_pairs,
)
from et_sim.plan.groups import GroupShape, GroupTable
from et_sim.plan.library_rows import LibraryRow, LibraryRows, Wanted
from et_sim.plan.phases import (
    Chunks,
    PhasePart,
    PhaseRules,
    PhaseStep,
    bytes_to_cut,
    plan_phases,
    split_exactly,
    split_into_chunks,
    split_whole,
)
from et_sim.plan.programs import CustomProgram, OwnSizes, ProgramKey, ProgramRows, check_bytes
from et_sim.plan.records import QueueCursor

if TYPE_CHECKING:
    from et_sim.plan.dimension_order import Order, Route
    from et_sim.plan.library_phases import LibraryPhases, PacedPhase

# Without `involved_dim`, a collective takes part in the first four dimensions.
DEFAULT_INVOLVED_DIMENSIONS = 4
# A listed group that holds all ranks ignores `involved_dim` and takes part in this many.
LISTED_GROUP_DIMENSIONS = 10
MOST_CHUNKS = 1 << 24

Loads = tuple[tuple[int, float], ...]  # (dimension, time) in the planner's order; (): nothing is planned

PhaseRow = tuple[int, int, int, int, int, int, int]  # the columns of the phase table
PROGRAM = 0  # the column of its program


class CollectiveRequest(Struct, frozen=True):
    """A collective as the trace requests it; `involved` is None if the node lacks it."""

    operation: PhaseOperation
    size: int
    priority: int
    group: GroupShape
    involved: tuple[bool, ...] | None
    custom: tuple[str, int] | None = None  # prefix of the files of a custom program, row of its group
    root: int = 0  # its position in the group
    exchange: int = PLAIN  # number of the matrix of an all-to-all with bytes for each pair
    loads: Loads = ()  # of collectives planned in the same nanosecond, for greedy orders
    datatype: str = ""  # for libraries whose choice depends on it


class CollectiveTables:
    """The tables of collectives while they are built."""

    def __init__(
        self,
        machine: Machine,
        groups: GroupTable,
        customs: CustomTables,
        exchanges: Exchanges,
        library: LibraryPhases | None,
    ) -> None:
        self._machine = machine
        self.exchanges = exchanges
        self._groups = groups
        self._customs = customs
        self.axes = Axes(machine)
        self.switches = SwitchReach(machine, groups, self.axes)
        self._choice = AlgorithmChoice(machine, self.axes, self.switches)
        self._rows: dict[CollectiveRequest, int | None] = {}
        self._loads_after: dict[CollectiveRequest, Loads] = {}
        self._accounting = accounting_of(machine.system)
        self.ways = Ways(self.axes, self._accounting)
        self._programs = ProgramRows(self.axes, self._accounting)
        self._rules = _rules_of(machine.system)
        self._library = library
        self._of_library = LibraryRows()
        self._phases: list[PhaseRow] = []
        self._phase_lists: dict[tuple[PhaseRow, ...], int] = {}  # where each begins
        self._chunk_plans: list[tuple[int, int]] = []
        self._collectives: list[tuple[int, int, int, int, int, int]] = []

    @property
    def uses_datatypes(self) -> bool:
        """Return whether the cost of a collective depends on its datatype."""
        return self._library is not None

    @property
    def plans_jointly(self) -> bool:
        """Return whether the order of dimensions depends on collectives planned in the same nanosecond."""
        system = self._machine.system
        if not system.behaviour.sees_loads_of_this_time:
            return False
        from et_sim.plan.dimension_order import GREEDY

        return system.dimension_order in GREEDY

    def add(self, request: CollectiveRequest) -> int | None:
        """Return the collective's row; None if no bytes have to move."""
        if request not in self._rows:
            self._rows[request] = self._lower(request)
        return self._rows[request]

    def places(self, rows: Collection[int]) -> dict[int, CollectiveRequest]:
        """Return the requests of rows that are to take other collectives (`put`), and which are not found
        again.
        """
        found = {row: request for request, row in self._rows.items() if row is not None and row in rows}
        for request in found.values():
            del self._rows[request]
        return found

    def put(self, rows: Mapping[int, int]) -> None:
        """Put collectives in the places of others."""
        for place, row in rows.items():
            self._collectives[place] = self._collectives[row]

    def __len__(self) -> int:
        return len(self._collectives)

    def shape(self, row: int) -> GroupShape:
        """Return the shape of a group; where switches reduce, it holds the group's name."""
        shape = self._groups.shape(row)
        if shape.spans_system or not self.switches.trees.are_any:
            return shape
        return replace(shape, name=self._groups.canonical_names[row])

    def loads_after(self, request: CollectiveRequest) -> Loads:
        """Return the loads of the dimensions once an added collective is planned."""
        return self._loads_after.get(request, request.loads)

    def _lower(self, request: CollectiveRequest) -> int | None:
        from et_sim.plan.dimension_order import SCATTERING_EVERYWHERE

        self._check_dimensions(request)
        if request.custom is not None:
            return self._lower_custom(request, *request.custom)
        may_choose = request.exchange == PLAIN and self._choice.is_left_to_library(request.operation)
        if self._library is not None and may_choose:
            return self._lower_by_library(self._library, request)
        if request.operation in OVER_A_TREE:
            return self._lower_tree(request)
        algorithms = self._choice.along_sides(request.operation, request.group)
        ways = self._ways(request, algorithms)
        runs = self._split(request, math.lcm(*(way.own_rings for way in ways)))
        if not ways or not runs:
            return None
        routes = self._routes(request, runs, ways, len(algorithms))
        way_of = {way.number: way for way in ways}
        scheduler = self._machine.system.dimension_order
        is_scattered = scheduler in SCATTERING_EVERYWHERE and not request.group.is_as_listed
        rules = replace(self._rules, everywhere=is_scattered)
        rings = math.lcm(*(max(len(way.rings), 1) for way in ways))
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
                visited = [way_of[number] for number in order if number in way_of]
                if request.exchange != PLAIN:
                    held = pairs_of_chunk(self.exchanges.matrix(request.exchange), chunks, before)
                    known[size, order, turn] = self._exchange(held, visited, request.group, turn)
                    continue
                phases = plan_phases(request.operation, size, [self._part(way) for way in visited], rules)
                known[size, order, turn] = [self._phase(p, way_of[p.part.dimension], turn) for p in phases]
            phase_lists.append([known[turn] for turn in turns])
            before += route.chunks.number
        return self._add_collective(request, [route.chunks for route in routes], phase_lists)

    def _check_dimensions(self, request: CollectiveRequest) -> None:
        """Refuse a collective of all ranks along some dimensions that have no place for some of them."""
        grid, involved = self._machine.network.grid, request.involved
        is_of_all = request.group.members == grid.ranks
        if grid.filled and is_of_all and involved is not None and not all(involved[: len(grid.dimensions)]):
            raise MachineError(
                "a collective of all ranks goes along some dimensions, and the last node is partly filled",
                place="involved_dim",
                remedy="use a communicator group instead of involved_dim",
            )

    def _ways(self, request: CollectiveRequest, algorithms: tuple[Algorithm, ...]) -> list[DimensionWay]:
        """Return the ways in all dimensions that take part."""
        group, involved = request.group, request.involved
        ways = self.ways.of(request.operation, group, algorithms)
        if group.spans_system:
            self._choice.check_reach(request.operation, involved, algorithms)
            if involved is None or group.listed:
                involved = (True,) * (
                    LISTED_GROUP_DIMENSIONS if group.listed else DEFAULT_INVOLVED_DIMENSIONS
                )
            ways = [way for way in ways if way.number < len(involved) and involved[way.number]]
        return [way for way in ways if way.members > 1]

    def _routes(
        self, request: CollectiveRequest, runs: list[Chunks], ways: Sequence[DimensionWay], algorithms: int
    ) -> list[Route]:
        """Return the order of dimensions of every chunk; a group as it is listed has only one order."""
        from et_sim.plan.dimension_order import DimensionLoad, OrderedDimension, Route, empty_loads, routes

        if request.group.is_as_listed:
            return [Route(run, ((0,),)) for run in runs]
        system, dimensions = self._machine.system, self._machine.network.grid.dimensions
        members = {way.number: way.members for way in ways}
        sides = self.ways.sides(request.group)
        bandwidths = [dimensions[side.dimension].bandwidth for side in sides[:algorithms]]
        lanes = [
            OrderedDimension(members.get(number, 1), number in members, bandwidth, bandwidths[0])
            for number, bandwidth in enumerate(bandwidths)
        ]
        total = bytes_to_cut(request.size, system.splits, runs)
        gap = system.gap_denominator
        loads = [DimensionLoad(*load) for load in request.loads] or empty_loads(len(lanes))
        chosen = routes(system.dimension_order, request.operation, total, runs, lanes, gap, loads)
        if any(load.time for load in loads):
            self._loads_after[request] = tuple((load.dimension, load.time) for load in loads)
        return chosen

    def _exchange(
        self, held: Any, visited: Sequence[DimensionWay], group: GroupShape, turn: int
    ) -> list[PhaseRow]:
        """Return the phases of a chunk; `held` has the bytes that ranks hold for each member."""
        from et_sim.collectives.algorithm import check_own_sizes

        if self._machine.system.shared_bus is not None and not group.is_as_listed:
            raise MachineError(
                "an all-to-all with bytes for each pair cannot cross a shared memory bus",
                place='system key "model-shared-bus"',
                remedy="leave the bus out, or comm_split_sizes",
            )
        rows = []
        for way in visited:
            check_own_sizes(way.algorithm, way.members, len(held), self._accounting)
            row = way.axis_of(PhaseOperation.ALL_TO_ALL, self._accounting, turn)
            axis = None if row == records.NO_AXIS else self.axes[row]
            line = line_of(axis, len(held), axis.ring or None if axis else None)
            phase, held = pass_along(held, line)
            step = PhaseStep(
                self._part(way), PhaseOperation.ALL_TO_ALL, phase.most, phase.most, QueueCursor.NEXT
            )
            rows.append(self._phase(step, way, turn, OwnSizes(phase.to_ahead, line.ahead)))
        refuse_partial(held)
        return rows

    def _split(self, request: CollectiveRequest, rings: int = 1) -> list[Chunks]:
        """Return the chunks of a request, equally many on each of `rings` that run at the same time."""
        splits = self._machine.system.splits * rings
        if request.exchange != PLAIN:
            return split_pairs(self.exchanges.matrix(request.exchange), splits)
        if request.operation is PhaseOperation.BARRIER:
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
                f"a collective would be cut into {chunks} chunks; the limit is {MOST_CHUNKS}",
                place="system configuration",
                remedy='choose a smaller "preferred-dataset-splits"',
            )
        return runs

    def _add_collective(
        self, request: CollectiveRequest, runs: Sequence[Chunks], phase_lists: Sequence[list[list[PhaseRow]]]
    ) -> int:
        """Add a collective whose chunks take the phase lists of their run in turn; all lists are equally
        long.
        """
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

    def _lower_by_library(self, library: LibraryPhases, request: CollectiveRequest) -> int | None:
        """Return the row of a collective with the library's algorithm; all its chunks start at once."""
        layout = self.ways.sides(request.group)
        around = replace(request, operation=PhaseOperation.ALL_GATHER)
        ways = self._ways(around, (RING,) * len(layout))
        ways, layout = library.through_cards(self.axes, ways, layout, request.group)
        wanted = Wanted(request.operation, request.size, request.datatype, request.group, ways, layout)
        made = library.lower(*wanted)
        if made is None:
            return None
        is_root = self.axes.roots((way.axis for way in ways), request.group.members, request.root)
        lists = [
            [self._paced_phase(phase, request, turn, is_root) for phase in chunk]
            for turn, chunk in enumerate(made.chunks)
        ]
        row = self._add_collective(request, [Chunks(len(lists), request.size)], [lists])
        programs = tuple(tuple(phase[PROGRAM] for phase in phases) for phases in lists)
        self._of_library.add(row, LibraryRow(made, wanted, programs))
        return row

    def on(self, machine: Machine) -> CollectiveTables | None:
        """Return the tables for a machine with other figures that only its library reads; None if messages
        differ, and not only their paces.
        """
        library, paces = library_of(machine), list[tuple[int, StepProgram | None]]()
        if library is None or self._library is None or library.figures == self._library.figures:
            return self
        again = copy.copy(self)
        again._library, again._of_library = library, LibraryRows()
        for row, one in self._of_library:
            made = library.again(one.made, one.wanted, one.parts, self._library)
            if made is one.made:
                again._of_library.add(row, one)
                paces += [(program, None) for programs in one.programs for program in programs]
                continue
            if made is None or not one.sends_as(made):
                return None
            again._of_library.add(row, replace(one, made=made))
            for programs, phases in zip(one.programs, made.chunks, strict=True):
                paces += zip(programs, (phase.program for phase in phases), strict=True)
        found = self._programs.at_other_paces(paces)
        if found is None:
            return None
        again._programs = found
        return again

    def with_paces(self, programs: Any, transfers: Any) -> tuple[Any, Any]:
        """Return tables of the same collectives at other paces, with the paces of these."""
        return self._programs.with_paces(programs, transfers)

    def _paced_phase(
        self, phase: PacedPhase, request: CollectiveRequest, turn: int, is_root: Any
    ) -> PhaseRow:
        way, program = phase.way, phase.program
        axis = way.axis_of(PhaseOperation.ALL_GATHER, self._accounting, turn)
        check_bytes(request.operation, request.size * request.group.members)
        if phase.links.differ:
            from et_sim.plan.library_bytes import with_own_bytes

            program = with_own_bytes(program, phase.links, self.axes[axis], is_root)
        return (
            self._programs.paced(program, axis),
            axis,
            way.dimension,
            way.queues_of(turn),
            int(QueueCursor.NEXT),
            int(request.operation),
            request.size,
        )

    def _lower_custom(self, request: CollectiveRequest, prefix: str, group: int) -> int:
        """Return the row of a collective of one chunk with one phase, in the first queue of dimension 0."""
        program = CustomProgram(request.group.members, self._customs.first_member(prefix, group))
        self._customs.compare(prefix, group, request.operation, request.size)
        phase = (
            self._programs.add(program, -1),
            records.NO_AXIS,
            0,
            0,
            int(QueueCursor.NONE),
            int(request.operation),
            request.size,
        )
        return self._add_collective(request, [Chunks(1, request.size)], [[[phase]]])

    def _lower_tree(self, request: CollectiveRequest) -> int | None:
        """Return the row of a collective with one phase along one axis, in a queue of dimension 0."""
        axis = self.axes.of_tree(request.operation.name.lower(), request.group, request.involved)
        runs = self._split(request)
        if axis is None or not runs:
            return None
        members, root = request.group.members, request.root
        if self._choice.is_left_to_switches(request.operation):
            axis = self.axes.in_one_dimension(axis)
        algorithm = self._choice.of_tree(request.operation, axis, request.group)
        if axis != records.NO_AXIS:
            stride, members = self.axes[axis][:2]
            root = root // stride % members
        phase_lists = []
        for run in runs:
            program = self._programs.row(
                ProgramKey(axis, members, algorithm, request.operation, run.size, root)
            )
            phase = (program, axis, 0, 0, int(QueueCursor.NEXT), int(request.operation), run.size)
            phase_lists.append([[phase]])
        return self._add_collective(request, runs, phase_lists)

    def _part(self, way: DimensionWay) -> PhasePart:
        keeps_size = way.algorithm.keeps_size(self._accounting)
        return PhasePart(way.number, way.members, keeps_size, self._accounting.whole_pieces)

    def _phase(
        self, phase: PhaseStep, way: DimensionWay, turn: int, sizes: OwnSizes | None = None
    ) -> PhaseRow:
        axis = way.axis_of(phase.operation, self._accounting, turn)
        key = ProgramKey(axis, phase.part.members, way.algorithm, phase.operation, phase.size)
        most = phase.size
        if not self._machine.system.behaviour.wait_by_input:
            most = max(most, phase.output)
        check_bytes(phase.operation, most)
        return (
            self._programs.row(key, sizes),
            axis,
            way.dimension,
            way.queues_of(turn),
            int(phase.cursor),
            int(phase.operation),
            most,
        )

    @property
    def notices(self) -> list[Notice]:
        """Return the notice of the collective that would gain most from more bytes, if there is one."""
        return self._of_library.notices

    def queue_sets(self, group: GroupShape) -> int:
        """Return the number of sets of queues that members of a group use at most."""
        return self.ways.queue_sets(group)

    def axis_tables(self) -> tuple[Any, Any, Any]:
        """Return the axis table, the orders of rings, and the row of every group's own axis."""
        return self.axes.finish(self._groups)

    def collectives(self) -> np.ndarray:
        """Return the collective table without the numbers of chunks in all programs (`first_sequence`)."""
        return records.filled(records.COLLECTIVE, [(*values, 0) for values in self._collectives])

    @property
    def have_own_steps(self) -> bool:
        """Return whether members of some phase send bytes of their own."""
        return self._programs.have_own_steps

    @property
    def library_choices(self) -> tuple[str, ...]:
        """Return the library's choice for each collective; empty without a library."""
        return self._of_library.choices(len(self._collectives))

    @property
    def library_nodes(self) -> tuple[int, ...]:
        """Return the number of nodes of each collective of the library; 0 of others."""
        return self._of_library.nodes(len(self._collectives))

    @property
    def held(self) -> Any:
        """Return the processors, or thousandths of memory, that each collective takes from kernels."""
        return self._of_library.held(len(self._collectives))

    def chunk_plans(self) -> np.ndarray:
        """Return the table of chunks that have the same phases."""
        return records.filled(records.CHUNK_PLAN, self._chunk_plans)

    def phases(self) -> np.ndarray:
        """Return the phase table."""
        return records.filled(records.PHASE, self._phases)

    def programs(self) -> dict[str, Any]:
        """Return the program, step, transfer and tree tables."""
        return self._programs.tables(self._machine.system.local_mem_bw)


def library_of(machine: Machine) -> LibraryPhases | None:
    """Return the phases of the collectives of a machine's library, if it has one."""
    system = machine.system
    if system.library is None:
        return None
    from et_sim.plan.library_phases import LibraryPhases

    return LibraryPhases(system.library, machine.network, system.endpoint_delay_ns, system.local_mem_bw)


def _rules_of(system: System) -> PhaseRules:
    """Return the rules by which the phases of chunks are made."""
    if system.behaviour.are_queues_shared_both_ways:
        return PhaseRules(system.all_reduce_plan, inward=QueueCursor.NEXT, outward=QueueCursor.NEXT)
    return PhaseRules(system.all_reduce_plan, system.behaviour.corrects(Correction.ALL_QUEUES))


def accounting_of(system: System) -> CostFixes:
    """Return the cost fixes that the corrections enable."""
    return CostFixes(
        exact_halving_doubling=system.behaviour.corrects(Correction.EXACT_HALVING_DOUBLING),
        tree_operations=system.behaviour.corrects(Correction.TREE_OPERATIONS),
        direct_reductions=system.behaviour.corrects(Correction.DIRECT_REDUCTIONS),
        whole_pieces=system.behaviour.corrects(Correction.EXACT_CHUNKS),
    )
