"""A workload whose ranks store tensors in remote memory, and load them again, where local memory is full.

Every template is rewritten once. The moves are nodes of their own, behind the others, with dependencies.
Besides, sends and collectives that take turns do so in the order of the program: a node that waits for other
ranks must not hold a lane that an earlier node needs, which a move may have delayed. All added dependencies
point from earlier to later in each rank's program; so the run completes if it would complete with the nodes
of each rank one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.machine.model import LocalMemory
from et_sim.plan.lowering import Lowering
from et_sim.plan.records import UNLIMITED, Action
from et_sim.trace.columns import IntColumn, Trace
from et_sim.trace.tensors import tensor_uses
from et_sim.trace.workload import Workload

if TYPE_CHECKING:
    from et_sim.memory.spilling import Spills


class Moved(Struct, frozen=True):
    """The stores and loads of all ranks together."""

    stores: int = 0
    loads: int = 0
    stored_bytes: int = 0
    loaded_bytes: int = 0

    @property
    def is_any(self) -> bool:
        """Return whether anything moves."""
        return self.stores + self.loads > 0

    def with_moves(self, moves: Spills, ranks: int) -> Moved:
        """Return the sum with the moves of a program that this many ranks run."""
        of_moves = list(zip(moves.tensors, moves.is_store, strict=True))
        stored = [moves.sizes[tensor] for tensor, is_store in of_moves if is_store]
        loaded = [moves.sizes[tensor] for tensor, is_store in of_moves if not is_store]
        return Moved(
            self.stores + ranks * len(stored),
            self.loads + ranks * len(loaded),
            self.stored_bytes + ranks * sum(stored),
            self.loaded_bytes + ranks * sum(loaded),
        )

    def as_dict(self) -> dict[str, int]:
        """Return the counts for JSON files."""
        return asdict(self)


class Spilled(Struct, frozen=True, eq=False):
    """A workload with its moves."""

    workload: Workload
    moved: Moved
    too_large: dict[int, tuple[int, int]]  # by template: the first row whose tensors do not fit, and bytes

    def too_large_on(self, rank: int) -> tuple[int, str, int] | None:
        """Return the first node of a rank that spilling cannot help: its id, its name, and the bytes it
        needs.
        """
        template = int(self.workload.template_of_rank[rank])
        if template not in self.too_large:
            return None
        row, size = self.too_large[template]
        trace = self.workload.templates[template]
        return int(trace.node_id[row]), trace.node_name(row), size


def spilled(workload: Workload, lowering: Lowering, memory: LocalMemory) -> Spilled:
    """Return the workload with moves; `lowering` is of it, without them."""
    from et_sim.memory.spilling import spills
    from et_sim.trace.order import program_order

    templates, too_large, moved = list(workload.templates), {}, Moved()
    for template, ranks in enumerate(workload.ranks_per_template.tolist()):
        if not ranks:
            continue
        trace = workload.templates[template]
        rank = int(np.argmax(workload.template_of_rank == template))
        order = program_order(trace)
        moves = spills(tensor_uses(trace, trace.source or workload.source), order, memory.capacity_bytes)
        before, after = _turns(trace, lowering, rank, order)
        templates[template] = _with_moves(trace, moves, before, after)
        if moves.too_large is not None:
            too_large[template] = moves.too_large
        moved = moved.with_moves(moves, ranks)
    return Spilled(replace(workload, templates=tuple(templates)), moved, too_large)


def _turns(trace: Trace, lowering: Lowering, rank: int, order: list[int]) -> tuple[IntColumn, IntColumn]:
    """Return dependencies between communication nodes that share a lane: (before, after).

    Where a lane holds k nodes, each node follows the one that is k places before it.
    """
    template = lowering.templates[lowering.workload.template_of_rank[rank]]
    nodes = lowering.nodes[template["node_first"] : template["node_first"] + len(trace)]
    action = nodes["action"]
    waits = (action == Action.SEND) | (action == Action.COLLECTIVE)
    waits |= (action == Action.MEMORY) & trace.has("comm_type")
    in_order = np.array(order, np.int64)
    in_order = in_order[waits[in_order]]
    before, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for lane in unique(nodes["lane"][in_order]).tolist():
        room = int(lowering.streams.limits[lane])
        rows = in_order[nodes["lane"][in_order] == lane]
        if room < min(UNLIMITED, len(rows)):
            before.append(rows[:-room])
            after.append(rows[room:])
    return np.concatenate(before), np.concatenate(after)


def _with_moves(trace: Trace, moves: Spills, before: IntColumn, after: IntColumn) -> Trace:
    from et_sim.trace.builder import TraceBuilder
    from et_sim.trace.builder_nodes import ID, appended

    build = TraceBuilder(source=trace.source)
    first = int(trace.node_id[-1]) + 1 if len(trace) else 0
    if first + len(moves.tensors) > ID[1]:
        raise TraceError(
            f"node ids go up to {first - 1}; none is left for stores and loads of tensors",
            place=trace.source,
            remedy='number the nodes anew, or set "when-full" to another value',
        )
    for number, (tensor, is_store) in enumerate(zip(moves.tensors, moves.is_store, strict=True)):
        size, name = moves.sizes[tensor], trace.tensors.texts[tensor]
        if is_store:
            build.store(size, name=f"store {name}", inputs={name: size}, node_id=first + number)
        else:
            build.load(size, name=f"load {name}", outputs={name: size}, node_id=first + number)
    parents = np.concatenate((np.array(moves.parents, np.int64), before))
    children = np.concatenate((np.array(moves.children, np.int64), after))
    return appended(trace, build.build(), parents, children)
