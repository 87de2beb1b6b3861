"""Collectives of a workload -> rows of the collective, phase, program, step and line tables.

Equal collectives share rows, and equal phases share programs: the tables grow with the number of
*distinct* collectives. Not here: when anything runs, or who sits in which group (`groups`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.collectives import (
    Algorithm,
    Bundles,
    Operation,
    Peer,
    StepProgram,
    TreeProgram,
    lower,
    parse_algorithm,
)
from et_sim.compute import reduction_ns
from et_sim.errors import MachineError
from et_sim.machine.model import Machine
from et_sim.plan import tables
from et_sim.plan.custom import CustomTables
from et_sim.plan.groups import GroupShape, GroupTable
from et_sim.plan.phases import Part, PhaseStep, plan_phases, split_into_chunks
from et_sim.plan.tables import QueueCursor
from et_sim.units import LONGEST_NS, MOST_BYTES, format_ns

# Sub-groups pay this fixed time per endpoint transfer, whatever the system file says.
SUBGROUP_ENDPOINT_NS = 10
# Without `involved_dim`, a collective takes part in the first four dimensions.
DEFAULT_INVOLVED_DIMENSIONS = 4
# A listed group that holds all ranks ignores `involved_dim` and takes part in this many.
LISTED_GROUP_DIMENSIONS = 10
MOST_CHUNKS = 1 << 24
MOST_PROGRAMS = 1 << 20  # the engine names a program with 20 bits
ABSENT = -1

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


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """A program from files; what its members run begins at row `first_member` of the custom table."""

    members: int
    first_member: int


@dataclass(frozen=True, slots=True)
class _ProgramKey:
    line: int  # NO_LINE: that of a group
    members: int
    algorithm: Algorithm
    operation: Operation
    size: int


class CollectiveTables:
    """Builds the tables; `add` returns the row of a collective, `finish_*` the finished arrays."""

    def __init__(self, machine: Machine, groups: GroupTable, customs: CustomTables) -> None:
        self._machine = machine
        self._groups = groups
        self._customs = customs
        self._system_line = len(machine.network.dimensions)
        self._lines = self._dimension_lines()
        self._rows: dict[CollectiveRequest, int | None] = {}
        self._program_rows: dict[_ProgramKey, int] = {}
        self._programs: list[
            tuple[StepProgram | TreeProgram | CustomProgram, int]
        ] = []  # with the dimension it runs along
        self._phases: list[tuple[int, int, int, int, int]] = []
        self._collectives: list[tuple[int, int, int, int, int]] = []

    def add(self, request: CollectiveRequest) -> int | None:
        """The collective's row; None if nobody has to move anything."""
        if request not in self._rows:
            self._rows[request] = self._lower(request)
        return self._rows[request]

    def _lower(self, request: CollectiveRequest) -> int | None:
        if request.custom is not None:
            return self._lower_custom(request, *request.custom)
        spanning = request.group.spans_system
        algorithms = self._algorithms(request.operation, spanning)
        parts = self._parts(request, algorithms) if spanning else _group_part(request.group, algorithms[0])
        chunks, chunk_bytes = split_into_chunks(
            request.operation, request.size, self._machine.system.splits, self._machine.network.ranks
        )
        if not parts or not chunks:
            return None
        if chunks > MOST_CHUNKS:
            raise MachineError(
                f"a collective would be cut into {chunks} chunks, and {MOST_CHUNKS} are the most",
                place="system configuration",
                remedy='choose a smaller "preferred-dataset-splits"',
            )
        first = len(self._phases)
        for phase in plan_phases(request.operation, chunk_bytes, parts, self._machine.system.all_reduce_plan):
            self._add_phase(phase, algorithms, spanning)
        self._collectives.append(
            (int(request.operation), len(self._phases) - first, chunks, first, request.priority)
        )
        return len(self._collectives) - 1

    def _lower_custom(self, request: CollectiveRequest, prefix: str, group: int) -> int:
        """One chunk of one phase, in the first queue of dimension 0."""
        program = CustomProgram(request.group.members, self._customs.first_member(prefix, group))
        self._programs.append((program, -1))
        phase = (len(self._programs) - 1, tables.NO_LINE, 0, int(QueueCursor.NONE), int(request.operation))
        self._phases.append(phase)
        self._collectives.append((int(request.operation), 1, 1, len(self._phases) - 1, request.priority))
        return len(self._collectives) - 1

    def _algorithms(self, operation: Operation, spanning: bool) -> tuple[Algorithm, ...]:
        """One algorithm per dimension; the list ends at the first that spans the system."""
        key = KEY_OF_OPERATION[operation]
        names = getattr(self._machine.system.implementations, operation.name.lower())
        if not names:
            raise MachineError(
                f"the workload has {operation.name.lower()} collectives, and key {key!r} is not given",
                place="system configuration",
                remedy=f'add "{key}": ["ring"] with one algorithm per network dimension',
            )
        if not spanning:
            return (parse_algorithm(names[0] if len(names) == 1 else "ring"),)
        chosen: list[Algorithm] = []
        for name in names:
            chosen.append(parse_algorithm(name))
            if chosen[-1].spans_system:
                break
        return tuple(chosen)

    def _parts(self, request: CollectiveRequest, algorithms: tuple[Algorithm, ...]) -> list[Part]:
        involved = request.involved
        listed = request.group.listed
        if involved is None or listed:
            involved = (True,) * (LISTED_GROUP_DIMENSIONS if listed else DEFAULT_INVOLVED_DIMENSIONS)
        parts = []
        for dimension, algorithm in enumerate(algorithms):
            own = self._machine.network.dimensions[dimension].npus
            members = self._machine.network.ranks if algorithm.spans_system else own
            if members > 1 and dimension < len(involved) and involved[dimension]:
                parts.append(Part(dimension, members, algorithm.keeps_size))
        return parts

    def _add_phase(self, phase: PhaseStep, algorithms: tuple[Algorithm, ...], spanning: bool) -> None:
        algorithm = algorithms[phase.part.dimension]
        if not spanning:
            line = tables.NO_LINE
        else:
            line = self._system_line if algorithm.spans_system else phase.part.dimension
        key = _ProgramKey(line, phase.part.members, algorithm, phase.operation, phase.size)
        program = self._program(key)
        self._phases.append((program, line, phase.part.dimension, int(phase.cursor), int(phase.operation)))

    def _program(self, key: _ProgramKey) -> int:
        if key not in self._program_rows:
            if key.size > MOST_BYTES:
                raise MachineError(
                    f"a phase of {key.operation.name.lower()} would hold {key.size} bytes per rank",
                    remedy="correct comm_size, which is in bytes",
                )
            subgroup = key.line == tables.NO_LINE
            dimension = -1 if subgroup else self._lines[key.line][4]
            program = lower(key.algorithm, key.operation, key.members, key.size, subgroup=subgroup)
            if len(self._programs) == MOST_PROGRAMS:
                raise MachineError(
                    f"the workload has more than {MOST_PROGRAMS} collective phases that differ in size",
                    remedy="split the workload",
                )
            self._program_rows[key] = len(self._programs)
            self._programs.append((program, dimension))
        return self._program_rows[key]

    def _dimension_lines(self) -> list[tuple[int, int, int, int, int]]:
        """A line per dimension, then one through the whole system in rank order."""
        network, endpoint = self._machine.network, self._machine.system.endpoint_delay_ns
        lines = [
            (stride, dimension.npus, -1, endpoint, d)
            for d, (stride, dimension) in enumerate(zip(network.strides, network.dimensions, strict=True))
        ]
        along = 0 if len(network.dimensions) == 1 else -1
        return [*lines, (1, network.ranks, -1, endpoint, along)]

    def lines(self) -> tuple[Any, Any]:
        """(line table, the row of every group's own line)."""
        small = [
            (0, len(self._groups.members(row)), self._groups.first_member(row))
            for row in range(1, len(self._groups))
        ]
        out = tables.table(tables.LINE, len(self._lines) + len(small))
        for row, values in enumerate(self._lines):
            out[row].stride, out[row].members, out[row].members_first = values[:3]
            out[row].endpoint_ns = values[3]
        if small:
            rest = out[len(self._lines) :]
            rest["stride"], rest["members"], rest["members_first"] = np.array(small, np.int64).T
            rest["endpoint_ns"] = SUBGROUP_ENDPOINT_NS
        return out, np.arange(self._system_line, len(out))

    def collectives(self) -> np.ndarray:
        """The collective table."""
        out = tables.table(tables.COLLECTIVE, len(self._collectives))
        for row, values in enumerate(self._collectives):
            out[row] = values
        return out

    def phases(self) -> np.ndarray:
        """The phase table."""
        out = tables.table(tables.PHASE, len(self._phases))
        for row, values in enumerate(self._phases):
            out[row] = values
        return out

    def programs(self) -> dict[str, Any]:
        """The program, step and tree tables, and the reduction time per bundle."""
        programs = tables.table(tables.PROGRAM, len(self._programs))
        steps = _Column(tables.STEP)
        trees = _Column(tables.TREE)
        bundles = _Column(tables.BUNDLE)
        for row, (program, dimension) in zip(programs, self._programs, strict=True):
            row.dimension = dimension
            row.tree_first = row.custom_first = ABSENT
            if isinstance(program, CustomProgram):
                row.members, row.pairs, row.custom_first = program.members, 1, program.first_member
                row.step_period = row.bundle_period = 1
            elif isinstance(program, TreeProgram):
                _fill_tree(row, program, steps, trees, bundles)
            else:
                _fill_steps(row, program, steps, bundles)
        every = bundles.whole()
        reduces = every["reduction_ns"] != tables.NO_REDUCTION
        charged = reduction_ns(every["bytes"], self._machine.system.local_mem_bw)
        every["reduction_ns"][reduces] = charged[reduces]
        if every["reduction_ns"].max(initial=0) > LONGEST_NS:
            raise MachineError(
                f"a local reduction would take longer than {format_ns(LONGEST_NS)}",
                place="system configuration",
                remedy='correct "local-mem-bw", which is in GB/s',
            )
        return {
            "programs": programs,
            "steps": steps.whole(),
            "trees": trees.whole(),
            "bundles": every,
        }


def _group_part(group: GroupShape, algorithm: Algorithm) -> list[Part]:
    return [Part(0, group.members, algorithm.keeps_size)] if group.members > 1 else []


class _Column:
    """A table that grows by blocks."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._blocks = [np.zeros(0, dtype)]
        self._rows = 0

    def add(self, block: Any) -> int:
        """Append a block; returns where it begins."""
        self._blocks.append(block)
        self._rows += len(block)
        return self._rows - len(block)

    def whole(self) -> Any:
        """All blocks as one table."""
        return np.concatenate(self._blocks).view(np.recarray)


def _fill_steps(row: Any, program: StepProgram, steps: _Column, bundles: _Column) -> None:
    row.members, row.sends = program.members, program.sends
    row.start_bundles, row.half = program.start_bundles, program.half
    row.pairs = int(program.peer is Peer.PAIR)
    row.step_period, row.bundle_period = len(program.distance), len(program.bundles.size)
    row.step_first = steps.add(_steps(program.distance, program.message_bytes))
    row.bundle_first = bundles.add(_bundles(program.bundles))


def _fill_tree(row: Any, program: TreeProgram, steps: _Column, trees: _Column, bundles: _Column) -> None:
    """A tree sends up and down once; its one bundle row is the reduction of a whole message."""
    row.members, row.sends, row.start_bundles = program.members, 2, 1
    row.pairs = 1  # directions mean nothing to it
    nodes = np.zeros(len(program.parent), tables.TREE)
    nodes["parent"], nodes["left"], nodes["right"] = program.parent, program.left, program.right
    row.tree_first = trees.add(nodes)
    row.step_period = row.bundle_period = 1
    message = np.array([program.message_bytes], np.int64)
    row.step_first = steps.add(_steps(np.zeros(1, np.int32), message))
    whole = np.ones(1, np.bool_)
    row.bundle_first = bundles.add(_bundles(Bundles(message, whole, whole, whole)))


def _bundles(pattern: Bundles) -> Any:
    """Rows whose reduction is still marked only: 0 where there is one."""
    out = np.zeros(len(pattern.size), tables.BUNDLE)
    out["reduction_ns"] = np.where(pattern.reduces, 0, tables.NO_REDUCTION)
    out["bytes"], out["inward"], out["returns"] = pattern.size, pattern.inward, pattern.returns
    return out


def _steps(distance: Any, message_bytes: Any) -> Any:
    out = np.zeros(len(distance), tables.STEP)
    out["distance"], out["bytes"] = distance, message_bytes
    return out
