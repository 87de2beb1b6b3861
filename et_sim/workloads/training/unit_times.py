"""Least times of the units of a model, from a short step of few layers that has the same kernels.

A unit takes at least the longest chain of kernels and exchanges from its first kernel to the first kernel of
the next unit: each node of the chain needs the one before. So the chains of all units of a pass follow each
other. Exchanges among replicas are not in these chains; their times follow from the weights of the units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.trace.columns import NodeKind, Trace
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.order import dependency_lists
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Direction
from et_sim.workloads.rank import Rank
from et_sim.workloads.training.bounds import KernelTimes
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import DATA, PIPELINE, Piece, Plan
from et_sim.workloads.training.step import training_program
from et_sim.workloads.training.units import Unit, units_of

EMBEDDING, HEAD = "embedding", ""  # labels of units
FEWEST_LAYERS = 4  # two on each place: the first and another one


class LeastWires(Protocol):
    """The least times of exchanges on a machine, in nanoseconds."""

    @property
    def node(self) -> int:
        """Return the number of ranks of a node."""

    @property
    def reduces(self) -> bool:
        """Return whether switches may reduce."""

    def collective_ns(self, kind: int, size: int, ranks: int, on_node: int) -> int:
        """Return the time of a collective of so many ranks, of which so many are on each node."""

    def ports_ns(self, kind: int, size: int, ranks: int, on_node: int) -> int:
        """Return the time in which the bytes of a collective cross the ports of a rank."""

    def message_ns(self, size: int, *, leaves_node: bool) -> int:
        """Return the time of a message."""


class UnitTime(NamedTuple):
    """The least time of a unit in a pass, from the begin of its first kernel."""

    until_next: int  # until the next unit begins
    until_end: int  # until its last kernel ends
    kernels: int  # of its kernels alone


PassTimes = Mapping[str, UnitTime]  # by label of the unit


class ShortModel(Struct, frozen=True):
    """A model of few layers that stands for another one, on two places of a pipeline unless that has one."""

    model: Model
    plan: Plan
    units: Mapping[str, Unit]  # by label
    alike_from: int | None  # all layers of the other model from this one on are alike

    def label(self, layer: int) -> str:
        """Return the label of a layer, or of the first one that is like it."""
        return f"layer {layer if self.alike_from is None else min(layer, self.alike_from)}"


def short_model(model: Model, plan: Plan, replicas: int) -> ShortModel:
    """Return a short model for all plans with the same shares of a layer, and up to so many replicas."""
    dense = _first_without_experts(model)
    is_short = dense is not None and model.layers > dense + FEWEST_LAYERS
    layers = dense + FEWEST_LAYERS if dense is not None and is_short else model.layers
    stages = 2 if layers > 2 and plan.pipeline > 1 else 1  # one with both ends may share their weights
    short = replace(
        plan,
        pipeline=stages,
        data=replicas,
        schedule="1f1b",
        chunks=1,
        micro_batches=1,
        stage_layers=(layers - layers // 2, layers // 2) if stages > 1 else (layers,),
    )
    step = replace(model, layers=layers) if is_short else model
    units = units_of(ModelLayers(step, short), Piece(0, layers, has_embedding=True, has_head=True))
    return ShortModel(step, short, {unit.label: unit for unit in units}, dense if is_short else None)


class UnitTimes(Struct, frozen=True):
    """The least times of the units of a model in both directions."""

    short: ShortModel
    forward: PassTimes
    backward: PassTimes
    until_sent: int  # from the first kernel of the last layer of a backward pass until it sends


def unit_times(short: ShortModel, kernel_ns: KernelTimes, wires: LeastWires | None) -> UnitTimes:
    """Return the least times of the units of a model."""
    model, plan = short.model, short.plan
    program = training_program(model, plan)
    forward: dict[str, UnitTime] = {}
    backward: dict[str, UnitTime] = {}
    until_sent = 0
    for place in range(plan.pipeline):
        of_place = plan.axes.place(PIPELINE, np.arange(plan.ranks)) == place
        rank = int(np.flatnonzero(of_place)[-1])  # with the last tokens, which see most keys
        rules: dict[str, GroupRule] = {}
        recorder = Rank(plan.axes, rank, rules, "<bounds>")
        program(recorder)
        trace = recorder.recording.trace()
        chains = _Chains(trace, _nanos(trace, rank, rules, kernel_ns, wires))
        forward |= chains.of(Direction.FORWARD)
        backward |= chains.of(Direction.BACKWARD)
        if place and short.alike_from is not None:
            until_sent = chains.until_sent(f"layer {plan.stage_layers[0]}")
    if short.alike_from is not None:  # the first of the equal layers may be followed by another kind
        backward[f"layer {short.alike_from}"] = backward[f"layer {model.layers - 1}"]
    return UnitTimes(short, forward, backward, until_sent)


def _first_without_experts(model: Model) -> int | None:
    """Return the number of first layers that differ from all others; None: others differ, too."""
    has_experts = [model.has_experts(layer) for layer in range(model.layers)]
    dense = has_experts.index(has_experts[-1])
    are_alike = model.has_equal_layers and all(of == has_experts[-1] for of in has_experts[dense:])
    return dense if are_alike else None


def _nanos(
    trace: Trace,
    rank: int,
    rules: Mapping[str, GroupRule],
    kernel_ns: KernelTimes,
    wires: LeastWires | None,
) -> list[int]:
    """Return the least time of each node; messages, and exchanges among replicas, take none."""
    nanos = np.zeros(len(trace), np.int64)
    rows = np.flatnonzero(trace.kind == NodeKind.COMP)
    nanos[rows] = kernel_ns(trace, rows, rank)
    if wires is None:
        return [int(of) for of in nanos]
    members = {name: _members(rule, rank, wires.node) for name, rule in rules.items()}
    for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
        group = trace.group_names[int(trace.group[row])]
        if _is_of_pass(trace, row) and not _is_of_replicas(trace, row, group):
            size = int(trace.comm_bytes[row])
            nanos[row] = wires.collective_ns(int(trace.comm_type[row]), size, *members[group])
    return [int(of) for of in nanos]


def _members(rule: GroupRule, rank: int, node: int) -> tuple[int, int]:
    """Return the number of ranks of a rank's group, and how many of them are on each node."""
    members = np.array(list(rule.members(rank)), np.int64)
    counts = np.unique(members // node, return_counts=True)[1]
    return len(members), int(counts.max())


def _is_of_pass(trace: Trace, row: int) -> bool:
    return trace.names[int(trace.name[row])].split(" ", 1)[0] in tuple(Direction)


def _is_of_replicas(trace: Trace, row: int, group: str) -> bool:
    """Return whether a collective gathers weights of replicas, or reduces their gradients."""
    return trace.names[int(trace.name[row])].endswith("weights all-gather") and DATA in group


class _Chains:
    """The chains of one rank's trace."""

    def __init__(self, trace: Trace, nanos: Sequence[int]) -> None:
        self._nanos = nanos
        self._kernels = (trace.kind == NodeKind.COMP).tolist()
        self._names = [trace.names[int(name)] for name in trace.name]
        self._sends = np.flatnonzero(trace.kind == NodeKind.SEND).tolist()
        data, ctrl = dependency_lists(trace)
        self._needs = [(*data.of(row), *ctrl.of(row)) for row in range(len(trace))]
        self._rows: dict[tuple[str, str], list[int]] = {}
        for row, name in enumerate(self._names):
            if self._kernels[row] and name.split(" ", 1)[0] in tuple(Direction):
                self._rows.setdefault((name.split(" ", 1)[0], _unit(name)), []).append(row)

    def of(self, direction: Direction) -> dict[str, UnitTime]:
        """Return the least times of the units of a pass, by label."""
        parts = [(label, rows) for (way, label), rows in self._rows.items() if way == direction]
        following = [rows[0] for _, rows in parts[1:]]
        times = {}
        for at, (label, rows) in enumerate(parts):
            end = self._longest(rows[0], rows[-1]) + self._nanos[rows[-1]]
            after = self._longest(rows[0], following[at]) if at < len(following) else end
            times[label] = UnitTime(after, end, sum(self._nanos[row] for row in rows))
        return times

    def until_sent(self, label: str) -> int:
        """Return the time from the first kernel of a layer's backward pass until the pass sends."""
        sends = [row for row in self._sends if self._names[row] == f"{Direction.BACKWARD} 0 send"]
        return self._longest(self._rows[Direction.BACKWARD, label][0], sends[0]) if sends else 0

    def _longest(self, first: int, last: int) -> int:
        """Return the longest time from the begin of one node to the begin of a later one."""
        begins = {first: 0}
        for row in range(first + 1, last + 1):
            ends = [begins[need] + self._nanos[need] for need in self._needs[row] if need in begins]
            if ends:
                begins[row] = max(ends)
        return begins.get(last, 0)


def _unit(name: str) -> str:
    """Return the label of the unit that a node of a pass belongs to."""
    words = name.split(" ")
    if words[2:3] == ["layer"]:
        return f"layer {words[3]}"
    return EMBEDDING if words[2:3] == [EMBEDDING] else HEAD
