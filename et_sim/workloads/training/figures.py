"""What a plan will cost, before anything is simulated: operations, traffic, memory and the bubble.

Operations and traffic are counted in the traces that the plan makes. The bubble is that of the pipeline with
the traces' own times of computation and a network that takes no time.

Not here: how it is shown (`et_sim.cli.plan`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.workload import Workload
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Direction, Pass, Shape, pass_label, schedule
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.memory import Memory, memory
from et_sim.workloads.training.plan import PIPELINE, Plan
from et_sim.workloads.training.step import make_training

MESSAGES = "send"


class Traffic(NamedTuple):
    """What one rank puts into collectives of one kind along one axis, or sends, in the whole step."""

    over: str
    kind: str
    times: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """One place along the pipeline."""

    place: int
    layers: tuple[int, ...]  # of each chunk
    memory: Memory
    operations: int  # of one rank
    compute_ns: int
    bubble: float  # share of the step in which a rank of the stage has nothing to compute
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """A plan in numbers."""

    model: Model
    plan: Plan
    ranks: int
    templates: int
    nodes: int
    tokens: int  # of the step, in all replicas
    operations: int  # of all ranks
    ideal_ns: int  # the step, if the network took no time
    stages: tuple[Stage, ...]

    @property
    def model_operations(self) -> int:
        """Six for each weight that a token meets, and token; attention's scores are not in it."""
        return 6 * self.model.active_weights * self.tokens


def figures(model: Model, plan: Plan) -> tuple[Figures, Workload]:
    """Those of a plan, and the workload that they are of."""
    workload = make_training(model, plan)
    axes, layers = plan.axes, Layers(model, plan)
    every = np.arange(plan.ranks)
    places = axes.place(PIPELINE, every)
    counts = workload.ranks_per_template.tolist()
    operations = [int(trace.num_ops.sum()) for trace in workload.templates]
    traces = [workload.trace(int(np.argmax(places == place))) for place in range(plan.pipeline)]
    ideal, busy = _ideal(plan, traces)
    return Figures(
        model=model,
        plan=plan,
        ranks=plan.ranks,
        templates=len(workload.templates),
        nodes=workload.nodes,
        tokens=plan.data * plan.micro_batches * plan.batch * model.sequence,
        operations=sum(count * of for count, of in zip(counts, operations, strict=True)),
        ideal_ns=ideal,
        stages=tuple(
            Stage(
                place,
                tuple(plan.part(model, place, chunk).layers for chunk in range(plan.chunks)),
                memory(layers, place),
                int(trace.num_ops.sum()),
                busy[place],
                1 - busy[place] / ideal if ideal else 0.0,
                traffic(trace),
            )
            for place, trace in enumerate(traces)
        ),
    ), workload


def traffic(trace: Trace) -> tuple[Traffic, ...]:
    """What a rank of a trace sends, by group and kind."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero((trace.kind == NodeKind.COLL) | (trace.kind == NodeKind.SEND)).tolist():
        if trace.kind[row] == NodeKind.SEND:
            key = ("", MESSAGES)
        else:
            kind = CollectiveKind(int(trace.comm_type[row])).name.lower().replace("_", "-")
            key = (trace.group_names[int(trace.group[row])], kind)
        entry = found.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += int(trace.comm_bytes[row])
    return tuple(Traffic(*key, *entry) for key, entry in sorted(found.items()))


def _ideal(plan: Plan, traces: Sequence[Trace]) -> tuple[int, list[int]]:
    """How long the passes take one after the other, each after those that it needs; busy time by place."""
    shape = Shape(plan.pipeline, plan.micro_batches, plan.chunks)
    of_place = schedule(plan.schedule, shape)
    orders = [list(of_place(place)) for place in range(plan.pipeline)]
    lengths = [_lengths(trace, orders[place], plan.chunks) for place, trace in enumerate(traces)]
    done: dict[tuple[Direction, int, int], int] = {}  # by direction, micro-batch and piece
    clock, at = [0] * plan.pipeline, [0] * plan.pipeline
    left = sum(len(order) for order in orders)
    while left:
        for place, order in enumerate(orders):
            while at[place] < len(order):
                one = order[at[place]]
                ready = _ready(one, one.chunk * plan.pipeline + place, plan.parts, done)
                if ready is None:
                    break
                clock[place] = max(clock[place], ready) + lengths[place][one]
                done[one.direction, one.micro_batch, one.chunk * plan.pipeline + place] = clock[place]
                at[place] += 1
                left -= 1
    busy = [int(_nanos(trace).sum()) for trace in traces]
    rest = [whole - sum(by_pass.values()) for whole, by_pass in zip(busy, lengths, strict=True)]
    return max(end + more for end, more in zip(clock, rest, strict=True)), busy


def _ready(one: Pass, piece: int, parts: int, done: dict[tuple[Direction, int, int], int]) -> int | None:
    """When what a pass needs of other stages is there; None: not yet known."""
    if one.direction is Direction.WEIGHTS:
        return 0
    before = piece - 1 if one.direction is Direction.FORWARD else piece + 1
    return done.get((one.direction, one.micro_batch, before)) if 0 <= before < parts else 0


def _nanos(trace: Trace) -> Any:
    """Of each kernel, as the trace has it."""
    return np.where(trace.kind == NodeKind.COMP, trace.duration_us * 1000, 0)


def _lengths(trace: Trace, order: Sequence[Pass], chunks: int) -> dict[Pass, int]:
    """How long each pass computes."""
    nanos = _nanos(trace)
    total = dict.fromkeys((pass_label(one, chunks) for one in order), 0)
    for row in np.flatnonzero(nanos).tolist():
        words = trace.names[int(trace.name[row])].split(" ")
        label = " ".join(words[: 4 if chunks > 1 else 2])
        if label in total:
            total[label] += int(nanos[row])
    return {one: total[pass_label(one, chunks)] for one in order}
