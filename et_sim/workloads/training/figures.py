"""Predicted costs of a plan without a simulation: operations, traffic, memory and the bubble.

Operations and traffic are counted in the traces that the plan makes. The bubble is that of the pipeline on a
network that takes no time; kernel times come from a machine, or from the traces.

The peak memory of a rank is the most that is alive in its trace, on a network that keeps up. Kernels run one
after another. An exchange of shared weights or gradients beside them ends during the next kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.unique import unique
from et_sim.memory import CLASSES, Accesses, changes, classes_of, lifetimes
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.order import dependency_lists
from et_sim.trace.tensors import tensor_uses
from et_sim.trace.workload import Step, Workload
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Pass, pass_label
from et_sim.workloads.training.bounds import KernelTimes, ends_of_passes, passes_by_place
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.operations import tokens_of
from et_sim.workloads.training.plan import PIPELINE, Plan
from et_sim.workloads.training.step import make_training


class Memory(Struct, frozen=True):
    """The memory of one rank at its peak, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int  # outputs of layers, until their backward pass
    temporary: int  # scores of all words; tensors that are recomputed, gathered, or not yet reduced
    workspace: int = 0  # an assumed share for kernels, libraries and fragmentation

    @property
    def total(self) -> int:
        """Return the sum of all classes."""
        return sum(getattr(self, name) for name in self.__struct_fields__)

    def with_workspace(self, share: float) -> Memory:
        """Return the same memory with a workspace that is a share of everything else."""
        return replace(self, workspace=round((self.total - self.workspace) * share))


def most_memory(trace: Trace) -> Memory:
    """Return the peak memory of a rank with this trace."""
    uses, (start, end) = tensor_uses(trace, trace.source), _turns(trace)
    alive = lifetimes(
        Accesses(
            owner=np.zeros(len(uses.row), np.int64),
            tensor=uses.tensor,
            bytes=uses.bytes,
            is_write=uses.is_write,
            node=uses.row,
            start_ns=start[uses.row],
            end_ns=end[uses.row],
        )
    )
    changed = changes(alive)
    if not len(changed.time_ns):
        return Memory(0, 0, 0, 0, 0)
    time = changed.time_ns[int(np.argmax(changed.alive_bytes))]
    is_alive = (alive.start_ns <= time) & (time < alive.end_ns)
    sizes = np.zeros(len(CLASSES), np.int64)
    np.add.at(sizes, classes_of(uses.names)[alive.tensor[is_alive]], alive.bytes[is_alive])
    return Memory(**dict(zip(CLASSES[:-1], sizes.tolist(), strict=False)))


def _turns(trace: Trace) -> tuple[Any, Any]:
    """Return the begin and the end of each node if kernels are long and exchanges of states are short."""
    lengths = np.zeros(len(trace), np.int64)
    lengths[trace.tensors.row[np.diff(trace.tensors.start) > 0]] = 1
    lengths[trace.kind == NodeKind.COMP] = len(trace) + 1
    data, ctrl = dependency_lists(trace)
    end = [0] * len(trace)
    for row, length in enumerate(lengths.tolist()):
        end[row] = max((end[other] for other in (*data.of(row), *ctrl.of(row))), default=0) + length
    ends = np.array(end, np.int64)
    return ends - lengths, ends


MESSAGES = "send"


class PlanTraffic(Struct, frozen=True):
    """The bytes of a rank's collectives of one kind along one axis, or of its messages, in a step."""

    over: str
    kind: str
    times: int
    bytes: int


class Stage(Struct, frozen=True):
    """One place along the pipeline."""

    place: int
    layers: tuple[int, ...]  # by chunk
    memory: Memory
    operations: int  # on one rank
    compute_ns: int
    bubble: float  # share of the step in which a rank of the stage has nothing to compute
    traffic: tuple[PlanTraffic, ...]


class Imbalance(NamedTuple):
    """The load of the busiest expert and of the busiest rank, as multiples of the mean."""

    expert: float
    rank: float


class PlanFigures(Struct, frozen=True):
    """A plan in numbers."""

    name: str
    weights: int
    active_weights: int  # weights that one token uses
    plan: Plan
    ranks: int
    templates: int
    nodes: int
    amount: int  # units in the step, in all replicas
    unit: str  # such as tokens
    operations: int  # on all ranks
    ideal_ns: int  # length of the step on a network that takes no time
    stages: tuple[Stage, ...]
    step: Step | None = None  # model operations of the step, for a language model
    imbalance: Imbalance | None = None  # set if experts are uneven
    differing: int = 1  # ranks of a stage whose work differs, if experts are even

    def with_workspace(self, share: float) -> PlanFigures:
        """Return the figures with a workspace that is a share of the counted memory."""
        stages = (structs.replace(stage, memory=stage.memory.with_workspace(share)) for stage in self.stages)
        return structs.replace(self, stages=tuple(stages))

    @property
    def products_of_weights(self) -> int:
        """Return 6 operations for each active weight and token; scores of attention are not included."""
        return 6 * self.active_weights * self.amount

    @property
    def actors(self) -> int:
        """Return the distinct ranks of a run on a network that treats the ranks of a stage alike."""
        return len(self.stages) * self.differing if self.imbalance is None else self.templates


def figures(model: Model, plan: Plan, kernel_ns: KernelTimes | None = None) -> tuple[PlanFigures, Workload]:
    """Return the figures of a language model's plan, and its workload."""
    workload = make_training(model, plan)
    places = plan.axes.place(PIPELINE, np.arange(plan.ranks))
    traces = [_busiest(workload, places == place) for place in range(plan.pipeline)]
    ranks = [int(np.argmax(places == place)) for place in range(plan.pipeline)]
    ideal, busy = _ideal(plan, traces, ranks, kernel_ns)
    stages = tuple(
        _stage(
            place,
            tuple(plan.part(model, place, chunk).layers for chunk in range(plan.held)),
            trace,
            busy[place],
            ideal,
        )
        for place, trace in enumerate(traces)
    )
    weights = model.weights, model.active_weights
    result = _figures(workload, plan, model.name, weights, tokens_of(model, plan), "tokens", ideal, stages)
    imbalance, differing = _imbalance(ModelLayers(model, plan)), _differing(workload, places)
    return structs.replace(result, step=workload.step, imbalance=imbalance, differing=differing), workload


def _busiest(workload: Workload, ranks: Any) -> Trace:
    """Return the trace with most operations among some ranks; the first of equals."""
    numbers = unique(workload.template_of_rank[ranks]).tolist()
    traces: list[Trace] = [workload.templates[number] for number in numbers]
    return max(traces, key=lambda trace: int(trace.num_ops.sum()))


def _differing(workload: Workload, places: Any) -> int:
    """Return the number of different amounts of operations among the ranks of a stage.

    Ranks of a context axis without balance differ.
    """
    numbers = unique(workload.template_of_rank[places == 0]).tolist()
    return len({int(workload.templates[number].num_ops.sum()) for number in numbers})


def _imbalance(layers: ModelLayers) -> Imbalance | None:
    experts = layers.model.experts
    if experts is None or not layers.plan.expert_skew:
        return None
    tokens, ranks = layers.tokens_of_experts(experts), layers.tokens_sent(experts).each
    return Imbalance(*(max(of) * len(of) / sum(of) for of in (tokens, ranks)))


def figures_of_replicas(
    workload: Workload,
    plan: Plan,
    name: str,
    layers: int,
    weights: int,
    unit: str,
    kernel_ns: KernelTimes | None = None,
) -> PlanFigures:
    """Return the figures of a job in which every rank does the same."""
    trace = workload.templates[0]
    busy = int(_nanos(trace, 0, kernel_ns).sum())
    amount = plan.data * plan.micro_batches * plan.batch
    stage = _stage(0, (layers,), trace, busy, busy)
    return _figures(workload, plan, name, (weights, weights), amount, unit, busy, (stage,))


def _stage(place: int, layers: tuple[int, ...], trace: Trace, busy: int, ideal: int) -> Stage:
    bubble = 1 - busy / ideal if ideal else 0.0
    return Stage(place, layers, most_memory(trace), int(trace.num_ops.sum()), busy, bubble, traffic(trace))


def _figures(
    workload: Workload,
    plan: Plan,
    name: str,
    weights: tuple[int, int],
    amount: int,
    unit: str,
    ideal: int,
    stages: tuple[Stage, ...],
) -> PlanFigures:
    counts = workload.ranks_per_template.tolist()
    operations = [int(trace.num_ops.sum()) for trace in workload.templates]
    return PlanFigures(
        name=name,
        weights=weights[0],
        active_weights=weights[1],
        plan=plan,
        ranks=plan.ranks,
        templates=len(workload.templates),
        nodes=workload.nodes,
        amount=amount,
        unit=unit,
        operations=sum(count * of for count, of in zip(counts, operations, strict=True)),
        ideal_ns=ideal,
        stages=stages,
    )


def traffic(trace: Trace) -> tuple[PlanTraffic, ...]:
    """Return the traffic of a rank with a trace, by group and kind."""
    totals: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero((trace.kind == NodeKind.COLL) | (trace.kind == NodeKind.SEND)).tolist():
        if trace.kind[row] == NodeKind.SEND:
            key = ("", MESSAGES)
        else:
            kind = CollectiveKind(int(trace.comm_type[row])).name.lower().replace("_", "-")
            key = (trace.group_names[int(trace.group[row])], kind)
        entry = totals.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += int(trace.comm_bytes[row])
    return tuple(PlanTraffic(*key, *entry) for key, entry in sorted(totals.items()))


def _ideal(
    plan: Plan, traces: Sequence[Trace], ranks: Sequence[int], kernel_ns: KernelTimes | None
) -> tuple[int, list[int]]:
    """Return the length of the step without network time, and the busy time by place."""
    orders = passes_by_place(plan)
    nanos = [_nanos(trace, rank, kernel_ns) for trace, rank in zip(traces, ranks, strict=True)]
    lengths = [
        _lengths(trace, durations, order, plan.held)
        for trace, durations, order in zip(traces, nanos, orders, strict=True)
    ]
    ends = ends_of_passes(plan, orders, lengths, lengths)
    busy = [int(durations.sum()) for durations in nanos]
    rest = [whole - sum(by_pass.values()) for whole, by_pass in zip(busy, lengths, strict=True)]
    return max(end + more for end, more in zip(ends, rest, strict=True)), busy


def _nanos(trace: Trace, rank: int, kernel_ns: KernelTimes | None) -> Any:
    """Return the time of each kernel, by the machine or else by the trace; other nodes take 0."""
    nanos = np.where(trace.kind == NodeKind.COMP, trace.duration_us * 1000, 0)
    if kernel_ns is not None:
        rows = np.flatnonzero(trace.kind == NodeKind.COMP)
        nanos[rows] = kernel_ns(trace, rows, rank)
    return nanos


def _lengths(trace: Trace, nanos: Any, order: Sequence[Pass], chunks: int) -> dict[Pass, int]:
    """Return the time that each pass computes."""
    total = dict.fromkeys((pass_label(pass_, chunks) for pass_ in order), 0)
    for row in np.flatnonzero(nanos).tolist():
        words = trace.names[int(trace.name[row])].split(" ")
        label = " ".join(words[: 4 if chunks > 1 else 2])
        if label in total:
            total[label] += int(nanos[row])
    return {pass_: total[pass_label(pass_, chunks)] for pass_ in order}
