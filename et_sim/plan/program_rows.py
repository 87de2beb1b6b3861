"""The programs of a workload's phases, each once: a program's row by what it is.

Not here: which phases there are (`collective_lowering`), and the tables (`program_tables`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from et_sim.basics.errors import MachineError
from et_sim.basics.units import MOST_BYTES
from et_sim.collectives import (
    Algorithm,
    CostFixes,
    InNetworkProgram,
    Operation,
    Peer,
    StepProgram,
    TreeProgram,
    lower,
)
from et_sim.collectives.tree import BY_SUBTREE
from et_sim.collectives.uneven import uneven_exchange
from et_sim.plan import tables
from et_sim.plan.axes import Axes
from et_sim.plan.program_tables import Program, program_tables

MOST_PROGRAMS = 1 << 20  # the engine names a program with 20 bits
SEVERAL = -1  # dimensions


class OwnSizes(NamedTuple):
    """Who sends what along a line, where every pair has bytes of its own: rank x distance."""

    to_ahead: Any
    ahead: Any

    @property
    def key(self) -> bytes:
        """Equal for equal sizes between equal ranks."""
        return bytes(self.to_ahead.tobytes() + self.ahead.tobytes())


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """What a program is."""

    axis: int  # NO_AXIS: that of a group
    members: int
    algorithm: Algorithm
    operation: Operation
    size: int
    root: int = 0  # position
    own: int = -1  # sizes of its own that it has; -1: it has none


class ProgramRows:
    """Builds programs; `row` returns where one is, `tables` the finished arrays."""

    def __init__(self, axes: Axes, fixes: CostFixes) -> None:
        self._axes, self._fixes = axes, fixes
        self._rows: dict[ProgramKey, int] = {}
        self._own_numbers: dict[bytes, int] = {}
        self._paced: dict[tuple[object, ...], int] = {}
        self._programs: list[tuple[Program, int]] = []  # with the dimension it runs along

    def add(self, program: Program, dimension: int) -> int:
        """The row of one more program."""
        if len(self._programs) == MOST_PROGRAMS:
            raise MachineError(
                f"the workload has more than {MOST_PROGRAMS} collective phases that differ in size",
                remedy="split the workload",
            )
        self._programs.append((program, dimension))
        return len(self._programs) - 1

    def row(self, key: ProgramKey, own: OwnSizes | None = None) -> int:
        """That of a program, which is new or known."""
        if own is not None:
            key = replace(key, own=self._own_numbers.setdefault(own.key, len(self._own_numbers)))
        if key not in self._rows:
            dimension = SEVERAL if key.axis == tables.NO_AXIS else self._axes[key.axis].dimension
            self._rows[key] = self.add(self._lowered(key, own), dimension)
        return self._rows[key]

    def paced(self, program: StepProgram, axis: int) -> int:
        """The row of a program at a pace of its own; equal ones share it."""
        time_ns = program.transfers.time_ns
        assert time_ns is not None
        arrays = (program.distance, program.message_bytes, time_ns)
        key = (axis, program.members, program.sends, *(one.tobytes() for one in arrays))
        if key not in self._paced:
            if self._axes.is_ring(axis):
                program = replace(program, peer=Peer.AHEAD)
            dimension = SEVERAL if axis == tables.NO_AXIS else self._axes[axis].dimension
            self._paced[key] = self.add(program, dimension)
        return self._paced[key]

    def _lowered(self, key: ProgramKey, own: OwnSizes | None) -> StepProgram | TreeProgram | InNetworkProgram:
        subgroup = key.axis == tables.NO_AXIS
        check_bytes(key.operation, key.size * key.members if key.operation in BY_SUBTREE else key.size)
        if own is None:
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
            program = uneven_exchange(key.algorithm, *own, subgroup=subgroup, fixes=self._fixes)
        if self._axes.is_ring(key.axis):
            assert isinstance(program, StepProgram)
            program = replace(program, peer=Peer.AHEAD)  # the other way round is a ring of its own
        return program

    def tables(self, local_mem_bw: float) -> dict[str, Any]:
        """The program, step, transfer and tree tables."""
        return program_tables(self._programs, local_mem_bw)


def check_bytes(operation: Operation, most: int) -> None:
    """Refuse a phase whose bytes cannot be counted."""
    if most > MOST_BYTES:
        raise MachineError(
            f"a phase of {operation.name.lower()} would hold {most} bytes per rank, more than {MOST_BYTES}",
            remedy="correct comm_size, which is in bytes",
        )
