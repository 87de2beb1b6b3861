"""The programs of a workload's phases, each stored once: their rows by key, and the tables of all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, MOST_BYTES, format_ns
from et_sim.collectives import (
    Algorithm,
    CostFixes,
    Peer,
    PhaseOperation,
    StepProgram,
    Transfers,
)
from et_sim.compute import reduction_ns
from et_sim.plan import records
from et_sim.plan.axes import Axes

if TYPE_CHECKING:
    from et_sim.collectives import InNetworkProgram, TreeProgram

ABSENT = -1


class CustomProgram(Struct, frozen=True):
    """A program from files; the rows of its members begin at `first_member` of the custom table."""

    members: int
    first_member: int


if TYPE_CHECKING:
    Program = StepProgram | TreeProgram | InNetworkProgram | CustomProgram


def program_tables(programs: Sequence[tuple[Program, int]], local_mem_bw: float) -> dict[str, Any]:
    """Return the tables of programs by their names in the plan; each program has a dimension."""
    rows = records.table(records.PROGRAM, len(programs))
    steps, trees, transfers = _Column(records.STEP), _Column(records.TREE), _Column(records.TRANSFER)
    rows["window"] = records.NO_LIMIT
    for row, (program, dimension) in zip(rows, programs, strict=True):
        row.dimension = dimension
        row.tree_first = row.custom_first = ABSENT
        if isinstance(program, CustomProgram):
            row.members, row.custom_first = program.members, program.first_member
            row.step_period = row.transfer_period = 1
        elif isinstance(program, StepProgram):
            _fill_steps(row, program, steps, transfers, local_mem_bw)
        else:
            _fill_trees(row, program, trees)
    every_transfer, every_tree = transfers.whole(), trees.whole()
    _charge(every_tree, "up_reduction_ns", "up_bytes", local_mem_bw)
    _charge(every_tree, "down_reduction_ns", "down_bytes", local_mem_bw)
    return {"programs": rows, "steps": steps.whole(), "trees": every_tree, "transfers": every_transfer}


class _Column:
    """A table that grows by blocks."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._blocks = [np.zeros(0, dtype)]
        self._rows = 0

    def add(self, block: Any) -> int:
        """Append a block; return where it begins."""
        self._blocks.append(block)
        self._rows += len(block)
        return self._rows - len(block)

    def whole(self) -> Any:
        """Return all blocks as one table."""
        return np.concatenate(self._blocks).view(np.recarray)


def _fill_steps(
    row: Any, program: StepProgram, steps: _Column, transfers: _Column, local_mem_bw: float
) -> None:
    row.members, row.sends = program.members, program.sends
    row.start_transfers, row.half = program.start_transfers, program.half
    row.paced = program.transfers.time_ns is not None
    row.pairs, row.turns = program.peer is Peer.PAIR, program.peer is Peer.SHIFT
    row.step_period, row.transfer_period = len(program.distance), len(program.transfers.size)
    row.burst = program.start_transfers if program.half else 1
    if program.own is not None:
        row.own_steps, row.burst = len(program.own.sent), 1 + program.own.longest_gap
    row.window = _window_of(program)
    row.copy_ns = program.copy_ns
    row.step_first = steps.add(_steps(program))
    row.transfer_first = transfers.add(_transfers(program.transfers, local_mem_bw))


def _fill_trees(row: Any, program: TreeProgram | InNetworkProgram, trees: _Column) -> None:
    from et_sim.collectives import TreeProgram

    if isinstance(program, TreeProgram):
        _fill_tree(row, program, trees)
    else:
        _fill_in_network(row, program, trees)


def _fill_tree(row: Any, program: TreeProgram, trees: _Column) -> None:
    row.members, row.sends, row.start_transfers = program.members, program.messages, 1
    row.goes_up, row.goes_down, row.trees = program.goes_up, program.goes_down, program.trees
    row.step_period = row.transfer_period = 1
    places = np.zeros(len(program.parent), records.TREE)
    for name in ("parent", "left", "right", "up_bytes", "down_bytes"):
        places[name] = getattr(program, name)
    is_leaf = (program.left == ABSENT) & (program.right == ABSENT)
    places["up_reduction_ns"] = _marked(np.full(len(places), program.reduces_up))
    places["down_reduction_ns"] = _marked(program.reduces_down & ~is_leaf)
    row.tree_first = trees.add(places)


def _fill_in_network(row: Any, program: InNetworkProgram, trees: _Column) -> None:
    row.members, row.in_network, row.joins = program.members, True, program.root is None
    row.start_transfers = row.trees = row.step_period = row.transfer_period = 1
    for name in ("up_fixed", "up_each", "down_fixed", "down_each"):
        setattr(row, name, getattr(program, name))
    places = np.zeros(program.members, records.TREE)
    for name in ("parent", "left", "right"):
        places[name] = ABSENT
    places["up_reduction_ns"] = places["down_reduction_ns"] = records.NO_REDUCTION
    places["up_bytes"] = program.up_fixed + program.up_each
    places["down_bytes"] = program.down_fixed + program.down_each
    row.goes_up = row.goes_down = True
    row.sends = 2  # a member sends one message and receives one
    if program.root is not None:
        is_root = np.arange(program.members) == program.root
        places["up_bytes"][~is_root] = places["down_bytes"][is_root] = 0
        places["parent"][~is_root] = program.root
        row.goes_up, row.sends = False, 1
    row.tree_first = trees.add(places)


def _transfers(pattern: Transfers, local_mem_bw: float) -> Any:
    out = np.zeros(len(pattern.size), records.TRANSFER)
    out["bytes"], out["inward"], out["returns"] = pattern.size, pattern.inward, pattern.returns
    if pattern.time_ns is None:
        out["reduction_ns"] = _marked(pattern.reduces)
        _charge(out, "reduction_ns", "bytes", local_mem_bw)
    else:
        out["reduction_ns"] = _pauses_of(pattern)
    return out


def _pauses_of(pattern: Transfers) -> Any:
    """Return the pauses of a program at a pace of its own."""
    assert pattern.time_ns is not None
    return np.where(pattern.time_ns > 0, pattern.time_ns, records.NO_REDUCTION)


def _window_of(program: StepProgram) -> int:
    return records.NO_LIMIT if program.window is None else program.window


def _steps(program: StepProgram) -> Any:
    sizes = program.own
    blocks = 1 if sizes is None else len(sizes.sent)
    out = np.zeros(blocks * len(program.distance), records.STEP)
    out["distance"] = np.tile(program.distance, blocks)
    out["bytes"] = program.message_bytes if sizes is None else sizes.sent.reshape(-1)
    out["incoming"] = 0 if sizes is None else sizes.received.reshape(-1)
    return out


def _marked(reduces: Any) -> Any:
    """Return 0 where there will be a reduction, and `NO_REDUCTION` elsewhere."""
    return np.where(reduces, 0, records.NO_REDUCTION)


def _charge(rows: Any, time: str, size: str, local_mem_bw: float) -> None:
    """Fill in the times of the reductions that are marked."""
    reduces = rows[time] != records.NO_REDUCTION
    rows[time][reduces] = reduction_ns(rows[size][reduces], local_mem_bw)
    if rows[time].max(initial=0) > LONGEST_NS:
        raise MachineError(
            f"a local reduction would take longer than {format_ns(LONGEST_NS)}",
            place="system configuration",
            remedy='correct "local-mem-bw", which is in GB/s',
        )


_PacedKey = tuple[int, *tuple[object, ...]]  # its axis, and all that distinguishes it from others
MOST_PROGRAMS = 1 << 20  # the engine names a program with 20 bits
SEVERAL = -1  # dimensions


class OwnSizes(NamedTuple):
    """The bytes that ranks send along a line, where every pair has its own: rank x distance."""

    to_ahead: Any
    ahead: Any

    @property
    def key(self) -> bytes:
        """Return a key that is equal for equal sizes between equal ranks."""
        return bytes(self.to_ahead.tobytes() + self.ahead.tobytes())


class ProgramKey(Struct, frozen=True):
    """The properties that distinguish programs."""

    axis: int  # NO_AXIS: the axis of a group
    members: int
    algorithm: Algorithm
    operation: PhaseOperation
    size: int
    root: int = 0  # position
    own: int = -1  # number of its own sizes; -1: none


class ProgramRows:
    """The programs while they are collected; `row` returns a program's row, `tables` the finished arrays."""

    def __init__(self, axes: Axes, fixes: CostFixes) -> None:
        self._axes, self._fixes = axes, fixes
        self._rows: dict[ProgramKey, int] = {}
        self._own_numbers: dict[bytes, int] = {}
        self._paced: dict[_PacedKey, int] = {}
        self._programs: list[tuple[Program, int]] = []  # with the dimension it runs along

    def add(self, program: Program, dimension: int) -> int:
        """Return the row of one more program."""
        if len(self._programs) == MOST_PROGRAMS:
            raise MachineError(
                f"the workload has more than {MOST_PROGRAMS} collective phases that differ in size",
                remedy="split the workload",
            )
        self._programs.append((program, dimension))
        return len(self._programs) - 1

    def row(self, key: ProgramKey, sizes: OwnSizes | None = None) -> int:
        """Return the row of a program, which is added if it is new."""
        if sizes is not None:
            key = replace(key, own=self._own_numbers.setdefault(sizes.key, len(self._own_numbers)))
        if key not in self._rows:
            dimension = SEVERAL if key.axis == records.NO_AXIS else self._axes[key.axis].dimension
            self._rows[key] = self.add(self._lowered(key, sizes), dimension)
        return self._rows[key]

    def paced(self, program: StepProgram, axis: int) -> int:
        """Return the row of a program at a pace of its own; equal ones share it."""
        key = _key_of(program, axis)
        if key not in self._paced:
            if self._axes.is_ring(axis):
                program = replace(program, peer=Peer.AHEAD)
            dimension = SEVERAL if axis == records.NO_AXIS else self._axes[axis].dimension
            self._paced[key] = self.add(program, dimension)
        return self._paced[key]

    def at_other_paces(self, paces: Sequence[tuple[int, StepProgram | None]]) -> ProgramRows | None:
        """Return the programs with the pauses, windows and times of copies of others, which are given by row;
        None: with their own.

        None if other programs would be equal than before.
        """
        again = copy.copy(self)
        again._programs, again._paced = self._programs.copy(), {}
        key_of = {row: key for key, row in self._paced.items()}
        keys: dict[int, _PacedKey] = {}
        for row, other in paces:
            key = key_of[row]
            if other is not None:
                program, dimension = self._programs[row]
                assert isinstance(program, StepProgram)
                paced = {"transfers": other.transfers, "window": other.window, "copy_ns": other.copy_ns}
                program = replace(program, **paced)
                again._programs[row] = program, dimension
                key = _key_of(program, key[0])
            if keys.setdefault(row, key) != key or again._paced.setdefault(key, row) != row:
                return None
        return again

    def with_paces(self, programs: Any, transfers: Any) -> tuple[Any, Any]:
        """Return the tables of the same programs at other paces with the paces of these."""
        programs, transfers = programs.copy(), transfers.copy()
        windows, copies, firsts = (programs[name] for name in ("window", "copy_ns", "transfer_first"))
        pauses = transfers["reduction_ns"]
        for row in self._paced.values():
            program, _ = self._programs[row]
            assert isinstance(program, StepProgram)
            windows[row], copies[row] = _window_of(program), program.copy_ns
            first = firsts[row]
            pauses[first : first + len(program.transfers.size)] = _pauses_of(program.transfers)
        return programs, transfers

    def _lowered(
        self, key: ProgramKey, sizes: OwnSizes | None
    ) -> StepProgram | TreeProgram | InNetworkProgram:
        from et_sim.collectives.algorithm import lower, uneven_exchange
        from et_sim.collectives.trees import BY_SUBTREE

        subgroup = key.axis == records.NO_AXIS
        check_bytes(key.operation, key.size * key.members if key.operation in BY_SUBTREE else key.size)
        if sizes is None:
            program = lower(
                key.algorithm,
                key.operation,
                key.members,
                key.size,
                subgroup=subgroup,
                fixes=self._fixes,
                root=key.root,
            )
        else:
            program = uneven_exchange(key.algorithm, *sizes, subgroup=subgroup, fixes=self._fixes)
        if self._axes.is_ring(key.axis):
            assert isinstance(program, StepProgram)
            program = replace(program, peer=Peer.AHEAD)  # the opposite direction is a ring of its own
        return program

    @property
    def have_own_steps(self) -> bool:
        """Return whether members of some program send bytes of their own."""
        return any(
            isinstance(program, StepProgram) and program.own is not None for program, _ in self._programs
        )

    def tables(self, local_mem_bw: float) -> dict[str, Any]:
        """Return the program, step, transfer and tree tables."""
        return program_tables(self._programs, local_mem_bw)


def _key_of(program: StepProgram, axis: int) -> _PacedKey:
    """Return a key that is equal for equal programs at a pace of their own."""
    time_ns = program.transfers.time_ns
    assert time_ns is not None
    own = () if program.own is None else (program.own.sent, program.own.received)
    arrays = (program.distance, program.message_bytes, time_ns, *own)
    flow = (program.window, program.copy_ns)
    return axis, program.members, program.sends, *flow, *(column.tobytes() for column in arrays)


def check_bytes(operation: PhaseOperation, most: int) -> None:
    """Refuse a phase whose bytes cannot be counted."""
    if most > MOST_BYTES:
        raise MachineError(
            f"a phase of {operation.name.lower()} would hold {most} bytes per rank, above {MOST_BYTES}",
            remedy="correct comm_size, which is in bytes",
        )
