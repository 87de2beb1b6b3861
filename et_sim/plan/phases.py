"""From one collective to chunks and phases: how much goes when over which dimension.

Pure functions of a collective's type and size and of the dimensions that take part. Rounding is the
reference's: chunks all have the full chunk size, so the bytes moved are at least the bytes asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from et_sim.collectives import OVER_A_TREE, Operation
from et_sim.machine.model import AllReducePlan
from et_sim.plan.tables import QueueCursor


@dataclass(frozen=True, slots=True)
class Part:
    """A dimension that takes part: which one, and how many members its groups have."""

    dimension: int
    members: int
    keeps_size: bool = False  # its algorithm leaves as many bytes as it found
    whole_pieces: bool = False  # sizes that do not divide are rounded up


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """One phase of a chunk: an operation on one dimension, starting from `size` bytes per member."""

    part: Part
    operation: Operation
    size: int
    cursor: QueueCursor


def split_into_chunks(operation: Operation, size: int, splits: int, ranks: int) -> tuple[int, int]:
    """(number of chunks, bytes of each).

    A chunk holds at least one byte for every rank of the system, so small collectives grow; an
    all-gather and what goes over a tree are exempt, and their chunks hold at least one byte. A barrier is
    a single chunk.
    """
    if operation is Operation.BARRIER:
        return 1, 1
    chunk = size // splits
    exempt = operation is Operation.ALL_GATHER or operation in OVER_A_TREE
    if not exempt and chunk < ranks:
        return splits, ranks
    chunk = max(chunk, 1)
    return -(-size // chunk), chunk


def plan_phases(
    operation: Operation, size: int, parts: Sequence[Part], plan: AllReducePlan
) -> list[PhaseStep]:
    """The phases of one chunk of `size` bytes, in order; `parts` are ascending in dimension."""
    if operation is Operation.ALL_REDUCE and plan is AllReducePlan.LOCAL_BW_AWARE:
        return _inward_and_outward(size, parts)
    order = reversed(parts) if operation is Operation.ALL_GATHER else parts
    phases = []
    for part in order:
        phases.append(PhaseStep(part, operation, size, QueueCursor.NEXT))
        size = output_bytes(operation, size, part)
    return phases


def _inward_and_outward(size: int, parts: Sequence[Part]) -> list[PhaseStep]:
    """Reduce-scatter inwards, all-reduce on the last dimension, all-gather outwards."""
    phases = []
    for part in parts[:-1]:
        phases.append(PhaseStep(part, Operation.REDUCE_SCATTER, size, QueueCursor.FIRST))
        size = output_bytes(Operation.REDUCE_SCATTER, size, part)
    phases.append(PhaseStep(parts[-1], Operation.ALL_REDUCE, size, QueueCursor.FIRST))
    for part in reversed(parts[:-1]):
        phases.append(PhaseStep(part, Operation.ALL_GATHER, size, QueueCursor.LAST))
        size = output_bytes(Operation.ALL_GATHER, size, part)
    return phases


def output_bytes(operation: Operation, size: int, part: Part) -> int:
    """What a member holds after a phase."""
    if part.keeps_size:
        return size
    if operation is Operation.REDUCE_SCATTER:
        return -(-size // part.members) if part.whole_pieces else size // part.members
    if operation is Operation.ALL_GATHER:
        return size * part.members
    return size
