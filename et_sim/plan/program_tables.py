"""Programs of collectives -> rows of the program, step, transfer and tree tables.

Not here: which programs a workload needs (`collective_lowering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_ns
from et_sim.collectives import InNetworkProgram, Peer, StepProgram, Transfers, TreeProgram
from et_sim.compute import reduction_ns
from et_sim.plan import tables

ABSENT = -1


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """A program from files; what its members run begins at row `first_member` of the custom table."""

    members: int
    first_member: int


Program = StepProgram | TreeProgram | InNetworkProgram | CustomProgram


def program_tables(programs: Sequence[tuple[Program, int]], local_mem_bw: float) -> dict[str, Any]:
    """The tables of programs, each with the dimension it runs along, by their names in the plan."""
    rows = tables.table(tables.PROGRAM, len(programs))
    steps, trees, transfers = _Column(tables.STEP), _Column(tables.TREE), _Column(tables.TRANSFER)
    for row, (program, dimension) in zip(rows, programs, strict=True):
        row.dimension = dimension
        row.tree_first = row.custom_first = ABSENT
        if isinstance(program, CustomProgram):
            row.members, row.custom_first = program.members, program.first_member
            row.step_period = row.transfer_period = 1
        elif isinstance(program, TreeProgram):
            _fill_tree(row, program, trees)
        elif isinstance(program, InNetworkProgram):
            _fill_in_network(row, program, trees)
        else:
            _fill_steps(row, program, steps, transfers, local_mem_bw)
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
        """Append a block; returns where it begins."""
        self._blocks.append(block)
        self._rows += len(block)
        return self._rows - len(block)

    def whole(self) -> Any:
        """All blocks as one table."""
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
    row.step_first = steps.add(_steps(program))
    row.transfer_first = transfers.add(_transfers(program.transfers, local_mem_bw))


def _fill_tree(row: Any, program: TreeProgram, trees: _Column) -> None:
    row.members, row.sends, row.start_transfers = program.members, program.messages, 1
    row.goes_up, row.goes_down, row.trees = program.goes_up, program.goes_down, program.trees
    row.step_period = row.transfer_period = 1
    places = np.zeros(len(program.parent), tables.TREE)
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
    places = np.zeros(program.members, tables.TREE)
    for name in ("parent", "left", "right"):
        places[name] = ABSENT
    places["up_reduction_ns"] = places["down_reduction_ns"] = tables.NO_REDUCTION
    places["up_bytes"] = program.up_fixed + program.up_each
    places["down_bytes"] = program.down_fixed + program.down_each
    row.goes_up = row.goes_down = True
    row.sends = 2  # what it sends, and what the switch sends it
    if program.root is not None:
        own = np.arange(program.members) == program.root
        places["up_bytes"][~own] = places["down_bytes"][own] = 0
        places["parent"][~own] = program.root
        row.goes_up, row.sends = False, 1
    row.tree_first = trees.add(places)


def _transfers(pattern: Transfers, local_mem_bw: float) -> Any:
    out = np.zeros(len(pattern.size), tables.TRANSFER)
    out["bytes"], out["inward"], out["returns"] = pattern.size, pattern.inward, pattern.returns
    if pattern.time_ns is None:
        out["reduction_ns"] = _marked(pattern.reduces)
        _charge(out, "reduction_ns", "bytes", local_mem_bw)
    else:
        out["reduction_ns"] = np.where(pattern.time_ns > 0, pattern.time_ns, tables.NO_REDUCTION)
    return out


def _steps(program: StepProgram) -> Any:
    own = program.own
    blocks = 1 if own is None else len(own.sent)
    out = np.zeros(blocks * len(program.distance), tables.STEP)
    out["distance"] = np.tile(program.distance, blocks)
    out["bytes"] = program.message_bytes if own is None else own.sent.reshape(-1)
    out["incoming"] = 0 if own is None else own.received.reshape(-1)
    return out


def _marked(reduces: Any) -> Any:
    """Where there will be a reduction (0), and where not."""
    return np.where(reduces, 0, tables.NO_REDUCTION)


def _charge(rows: Any, time: str, size: str, local_mem_bw: float) -> None:
    """Fill in the times of the reductions that are marked."""
    reduces = rows[time] != tables.NO_REDUCTION
    rows[time][reduces] = reduction_ns(rows[size][reduces], local_mem_bw)
    if rows[time].max(initial=0) > LONGEST_NS:
        raise MachineError(
            f"a local reduction would take longer than {format_ns(LONGEST_NS)}",
            place="system configuration",
            remedy='correct "local-mem-bw", which is in GB/s',
        )
