"""Lower bounds of a plan's time and memory on any network.

Kernels of a rank run one after another, passes follow the order of the schedule, and a stage needs the
outputs of another one. So the kernels alone, on a network that takes no time, bound the step from below.
Micro-batches are alike, so that the kernels of one are enough. The least memory of a rank is that of its
states, all of which the optimizer needs, and of the activations that wait for their backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.trace.columns import NodeKind, Trace
from et_sim.trace.order import dependency_lists
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Direction, Pass, pass_label, schedule
from et_sim.workloads.rank import Rank
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import PIPELINE, Plan
from et_sim.workloads.training.states import States
from et_sim.workloads.training.step import training_program
from et_sim.workloads.training.units import Unit, units_of

#: Times of the kernels at some rows of a rank's trace, in nanoseconds.
KernelTimes = Callable[[Trace, Any, int], Any]
Lengths = Mapping[Pass, int]
_Labels = Mapping[tuple[Direction, int], str]
_Key = tuple[bool, int, int]  # a pass: is forward, micro-batch, piece


def passes_by_place(plan: Plan) -> list[list[Pass]]:
    """Return the passes of each place of the pipeline, in order."""
    of_place = schedule(plan.schedule, plan.shape)
    return [list(of_place(place)) for place in range(plan.pipeline)]


def ends_of_passes(
    plan: Plan, orders: Sequence[Sequence[Pass]], lengths: Sequence[Lengths], until_sent: Sequence[Lengths]
) -> list[int]:
    """Return the time at which each place ends its passes, one after another, each after its inputs.

    `until_sent` is the time from the begin of a pass until it sends its outputs. If two passes run side by
    side, the second one may send as if it had begun together with the first.
    """
    sent: dict[_Key, int] = {}
    clock, at = [0] * plan.pipeline, [0] * plan.pipeline
    earliest = [0] * plan.pipeline
    left = sum(len(order) for order in orders)
    while left:
        for place, order in enumerate(orders):
            while at[place] < len(order):
                pass_ = order[at[place]]
                piece = plan.piece(place, pass_.chunk)
                ready = _ready(pass_, piece, plan.parts, sent)
                if ready is None:
                    break
                begin, key = max(clock[place], ready), _key(pass_, piece)
                clock[place] = begin + lengths[place][pass_]
                if pass_.direction is not Direction.WEIGHTS:
                    sent[key] = max(earliest[place], ready) + until_sent[place][pass_]
                earliest[place] = begin if pass_.is_paired else clock[place]
                at[place] += 1
                left -= 1
    return clock


def _ready(pass_: Pass, piece: int, parts: int, sent: Mapping[_Key, int]) -> int | None:
    """Return the time at which the inputs of a pass arrive; None: not yet computed."""
    if pass_.direction is Direction.WEIGHTS:
        return 0
    before = piece - 1 if pass_.direction is Direction.FORWARD else piece + 1
    return sent.get(_key(pass_, before)) if 0 <= before < parts else 0


def _key(pass_: Pass, piece: int) -> _Key:
    return pass_.direction is Direction.FORWARD, pass_.micro_batch, piece


class Bounds(Struct, frozen=True):
    """The least time of any run of a plan, and the least memory of its fullest rank."""

    time_ns: int
    memory_bytes: int


def bounds_of(model: Model, plan: Plan, kernel_ns: KernelTimes) -> Bounds:
    """Return the bounds of a plan; raise an error if it does not fit the model."""
    orders = passes_by_place(plan)
    least = replace(plan, micro_batches=_fewest(plan))
    program, layers = training_program(model, least), ModelLayers(model, plan)
    places = plan.axes.place(PIPELINE, np.arange(plan.ranks))
    known: dict[Hashable, _Kernels] = {}
    kernels, memory = [], 0
    for place in range(plan.pipeline):
        units = [units_of(layers, plan.part(model, place, chunk)) for chunk in range(plan.held)]
        memory = max(memory, _memory(plan, units, orders[place]))
        alike = tuple(tuple((unit.parts, *unit.weights[1:]) for unit in chunk) for chunk in units)
        if (alike, place * plan.is_dual) not in known:
            rank = int(np.flatnonzero(places == place)[-1])  # with the last tokens, which see most keys
            recorder = Rank(least.axes, rank, {}, "<bounds>")
            program(recorder)
            known[alike, place * plan.is_dual] = _kernels(recorder.recording.trace(), rank, kernel_ns)
        kernels.append(known[alike, place * plan.is_dual])
    firsts = [_labels(order, plan) for order in passes_by_place(least)]
    stages = list(zip(kernels, orders, firsts, strict=True))
    lengths = [stage.lengths(order, labels) for stage, order, labels in stages]
    sent = [stage.until_sent(order, labels) for stage, order, labels in stages]
    ends = ends_of_passes(plan, orders, lengths, sent)
    return Bounds(max(end + stage.rest_ns for end, stage in zip(ends, kernels, strict=True)), memory)


class _Kernels(Struct, frozen=True):
    """Kernel times of one place, by label of the pass."""

    pass_ns: dict[str, int]
    sent_ns: dict[str, int]  # from the begin of a pass until it sends
    rest_ns: int  # after all passes

    def lengths(self, order: Sequence[Pass], labels: _Labels) -> Lengths:
        """Return the time that each pass computes."""
        return {pass_: self.pass_ns.get(labels[pass_.direction, pass_.chunk], 0) for pass_ in order}

    def until_sent(self, order: Sequence[Pass], labels: _Labels) -> Lengths:
        """Return the time that each pass computes before it sends; 0: it sends nothing."""
        return {pass_: self.sent_ns.get(labels[pass_.direction, pass_.chunk], 0) for pass_ in order}


def _labels(order: Sequence[Pass], plan: Plan) -> _Labels:
    """Return the label of the first pass of each direction and chunk."""
    return {(pass_.direction, pass_.chunk): pass_label(pass_, plan.held) for pass_ in reversed(order)}


def _fewest(plan: Plan) -> int:
    """Return the fewest micro-batches that the schedule of a plan can have."""
    if plan.is_dual:
        return 2 * plan.pipeline
    return plan.pipeline if plan.chunks > 1 else 1


def _kernels(trace: Trace, rank: int, kernel_ns: KernelTimes) -> _Kernels:
    nanos = np.zeros(len(trace), np.int64)
    rows = np.flatnonzero(trace.kind == NodeKind.COMP)
    nanos[rows] = kernel_ns(trace, rows, rank)
    needed = _kernels_needed(trace)
    passes: dict[str, int] = {}
    sent: dict[str, int] = {}
    rest = 0
    names = [_label(trace, row) for row in range(len(trace))]
    for row in rows.tolist():
        if names[row]:
            passes[names[row]] = passes.get(names[row], 0) + int(nanos[row])
        else:
            rest += int(nanos[row])
    for row in np.flatnonzero(trace.kind == NodeKind.SEND).tolist():
        if trace.names[int(trace.name[row])] == f"{names[row]} send":  # others are within the stage
            before = rows[rows <= needed[row]].tolist()
            sent[names[row]] = sum(int(nanos[node]) for node in before if names[node] == names[row])
    return _Kernels(passes, sent, rest)


def _label(trace: Trace, row: int) -> str:
    """Return the label of a node's pass from its name; empty: it belongs to none."""
    words = trace.names[int(trace.name[row])].split(" ")
    if words[0] not in tuple(Direction) or len(words) < 2:
        return ""
    return " ".join(words[: 4 if words[2:3] == ["chunk"] else 2])


def _kernels_needed(trace: Trace) -> list[int]:
    """Return the last kernel that each node waits for; all earlier kernels precede that one."""
    is_kernel = (trace.kind == NodeKind.COMP).tolist()
    data, ctrl = dependency_lists(trace)
    needed = [-1] * len(trace)
    for row in range(len(trace)):
        for other in (*data.of(row), *ctrl.of(row)):
            needed[row] = max(needed[row], other if is_kernel[other] else needed[other])
    return needed


def _memory(plan: Plan, chunks: Sequence[Sequence[Unit]], order: Sequence[Pass]) -> int:
    """Return the least memory of a rank of a place, in bytes."""
    states = States.of(plan)
    units = [unit for chunk in chunks for unit in chunk]
    kept = [
        sizes for unit in units for sizes in (states.weights(unit.weights), states.gradients(unit.weights))
    ]
    dense, expert = (sum(unit.weights.trained[kind] for unit in units) for kind in range(2))
    shares = states.shares
    kept.append(states.optimizer(-(-dense // shares[0]) + -(-expert // shares[1])))
    left = [sum(unit.left_bytes for unit in chunk if not unit.is_offloaded) for chunk in chunks]
    waiting = most = 0
    for pass_ in order:
        if pass_.direction is Direction.FORWARD:
            waiting += left[pass_.chunk]
            most = max(most, waiting)
        elif pass_.direction in (Direction.BACKWARD, Direction.WEIGHTS):
            waiting -= left[pass_.chunk]
    return sum(size for sizes in kept for size in sizes.values()) + most
