"""The chunks and phases of a collective: how many bytes go over which dimension.

Pure functions of a collective's type and size and of the dimensions that take part. The reference rounds
twice: chunks all have the full chunk size, so the bytes moved are at least the bytes requested, and the bytes
of a phase are divided among its members without a rest, so some may get lost. `split_exactly` and
`Part.whole_pieces` correct this.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from et_sim.collectives import OVER_A_TREE, PhaseOperation
from et_sim.machine.model import AllReducePlan
from et_sim.plan.records import QueueCursor


class PhasePart(Struct, frozen=True):
    """A dimension that takes part, and the number of members of its groups."""

    dimension: int
    members: int
    keeps_size: bool = False  # its algorithm leaves as many bytes as it found
    whole_pieces: bool = False  # sizes that do not divide are rounded up


class PhaseStep(Struct, frozen=True):
    """One phase of a chunk: an operation on one dimension, from `size` to `output` bytes per member."""

    part: PhasePart
    operation: PhaseOperation
    size: int
    output: int
    cursor: QueueCursor


class PhaseRules(Struct, frozen=True):
    """The rules by which the phases of a chunk are made."""

    plan: AllReducePlan
    all_queues: bool = False  # an all-reduce over one dimension takes turns over all of its queues
    inward: QueueCursor = QueueCursor.FIRST  # how the phases of an all-reduce take queues
    outward: QueueCursor = QueueCursor.LAST
    everywhere: bool = False  # an all-reduce scatters and gathers in the last dimension, too


class Chunks(Struct, frozen=True):
    """A number of chunks of equal size."""

    number: int
    size: int


def split_into_chunks(operation: PhaseOperation, size: int, splits: int, ranks: int) -> list[Chunks]:
    """Return the chunks of a collective as the reference cuts them.

    A chunk holds at least one byte for every rank of the system, so small collectives grow. All-gathers and
    collectives over a tree are exempt: their chunks hold at least one byte.
    """
    chunk = size // splits
    exempt = operation is PhaseOperation.ALL_GATHER or operation in OVER_A_TREE
    if not exempt and chunk < ranks:
        return [Chunks(splits, ranks)]
    chunk = max(chunk, 1)
    return [Chunks(-(-size // chunk), chunk)] if size else []


def split_exactly(size: int, splits: int) -> list[Chunks]:
    """Return chunks that add up to the size and differ by at most one byte, the larger ones first."""
    if size == 0:
        return []
    chunk, larger = divmod(size, min(splits, size))
    runs = [Chunks(larger, chunk + 1), Chunks(min(splits, size) - larger, chunk)]
    return [run for run in runs if run.number]


def split_whole(size: int, splits: int) -> list[Chunks]:
    """Return the chunks as ASTRA-sim 1.0 cuts them: the last one holds the remainder."""
    if size == 0:
        return []
    chunk = max(size // splits, 1)
    number, left = divmod(size, chunk)
    return [run for run in (Chunks(number, chunk), Chunks(min(left, 1), left)) if run.number]


def bytes_to_cut(size: int, splits: int, runs: Sequence[Chunks]) -> int:
    """Return the bytes of all chunks without padding: the size, unless it was raised."""
    is_raised = runs[0].size > size // splits
    return sum(run.number * run.size for run in runs) if is_raised else size


def plan_phases(
    operation: PhaseOperation, size: int, order: Sequence[PhasePart], rules: PhaseRules
) -> list[PhaseStep]:
    """Return the phases of one chunk of `size` bytes; it visits the dimensions in the given order."""
    both_ways = operation is PhaseOperation.ALL_REDUCE and rules.plan is AllReducePlan.LOCAL_BW_AWARE
    if both_ways and (len(order) > 1 or not rules.all_queues):
        return _inward_and_outward(size, order, rules)
    phases = []
    for part in order:
        phases.append(PhaseStep(part, operation, size, _output(operation, size, part), QueueCursor.NEXT))
        size = phases[-1].output
    return phases


def _inward_and_outward(size: int, order: Sequence[PhasePart], rules: PhaseRules) -> list[PhaseStep]:
    """Return reduce-scatters inwards, an all-reduce on the last dimension, and all-gathers outwards.

    Where pieces were rounded up, a gather ends with no more bytes than its scatter began with.
    """
    both = order if rules.everywhere else order[:-1]
    inward = []
    for part in both:
        output = _output(PhaseOperation.REDUCE_SCATTER, size, part)
        inward.append(PhaseStep(part, PhaseOperation.REDUCE_SCATTER, size, output, rules.inward))
        size = output
    phases = list(inward)
    if not rules.everywhere:
        phases.append(PhaseStep(order[-1], PhaseOperation.ALL_REDUCE, size, size, rules.inward))
    for scatter in reversed(inward):
        output = min(_output(PhaseOperation.ALL_GATHER, size, scatter.part), scatter.size)
        phases.append(PhaseStep(scatter.part, PhaseOperation.ALL_GATHER, size, output, rules.outward))
        size = output
    return phases


def _output(operation: PhaseOperation, size: int, part: PhasePart) -> int:
    """Return the bytes that a member holds after a phase."""
    if part.keeps_size:
        return size
    if operation is PhaseOperation.REDUCE_SCATTER:
        return -(-size // part.members) if part.whole_pieces else size // part.members
    if operation is PhaseOperation.ALL_GATHER:
        return size * part.members
    return size
