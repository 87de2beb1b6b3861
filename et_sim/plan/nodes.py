"""Nodes of a template -> rows of the node table: the action and the duration of each one.

Columns in, columns out: no Python object per node. The tables of all templates follow one another, first
those of the workload's traces, then those of custom collectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.basics.units import LONGEST_NS, format_ns, plural
from et_sim.compute import ComputeModel, Durations, Replay, Treatment, is_recorded
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Notice, System
from et_sim.memory import MemoryModel
from et_sim.plan import records
from et_sim.plan.kernel_table import KernelPrices
from et_sim.plan.records import Action, Lane
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.group_attributes import NodeFault, bytes_put_in
from et_sim.trace.preflight.check import attribute_faults, communication_faults, value_faults
from et_sim.trace.stack import Stack


class NodeRules(Struct, frozen=True):
    """The models that determine the actions and durations of nodes."""

    system: System
    compute: ComputeModel
    memory: MemoryModel | None


class MissingAttributes(Struct):
    """Counts over all ranks of nodes whose traces lack attributes that a model needs."""

    rules: NodeRules
    kernels: int = 0
    replayed: int = 0
    kept: int = 0  # kernels that could be timed, but keep their recorded time
    first: tuple[str, str] | None = None  # the trace, and the node
    needed: dict[str, None] = field(default_factory=dict)  # attributes that some kernels lack
    communication: int = 0
    unsized: int = 0
    estimated: int = 0
    first_unsized: tuple[str, str] | None = None

    def add(self, stack: Stack, rank: int, ranks: Any, places: Sequence[str]) -> None:
        """Count templates that are lowered, each for as many ranks as run it; `rank` is like those."""
        trace, of_row = stack.trace, stack.spread(ranks)
        is_kernel = (trace.kind == NodeKind.COMP) & ~trace.is_cpu
        lacking = {} if self.rules.system.replay_only else self.rules.compute.lacking(trace, rank)
        is_timed = _has_figures(trace, lacking)
        self.kept += int(of_row[is_kernel & is_timed & _keeps_recorded(trace, self.rules.system)].sum())
        rows = np.flatnonzero(is_kernel & ~is_timed)
        self.needed |= dict.fromkeys(lacking) if len(rows) else {}
        self.kernels += int(of_row[is_kernel].sum())
        self.replayed += int(of_row[rows].sum())
        if self.first is None:
            self.first = _first_of(stack, rows[of_row[rows] > 0], places)
        if self.rules.system.replay_only or self.rules.system.replay_communication:
            return
        communicates = _communicates(trace)
        rows = np.flatnonzero(communicates & trace.is_unsized)
        self.communication += int(of_row[communicates].sum())
        self.estimated += int(of_row[communicates & trace.is_estimated].sum())
        if self.first_unsized is None:
            self.first_unsized = _first_of(stack, rows[of_row[rows] > 0], places)
        self.unsized += int(of_row[rows].sum())

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices for the user."""
        texts = []
        if self.first is not None:
            place, node = self.first
            needed = " and ".join(need.replace("'", "") for need in self.needed)
            lacking = f"{self.replayed:,} of {plural(self.kernels, 'kernel')} lack {needed}"
            texts.append((place, f"{lacking} and take their recorded time; the first is {node}"))
        if self.kept:
            kept = f"{self.kept:,} of {plural(self.kernels, 'kernel')} were recorded and keep their times"
            texts.append(("", f"{kept}; --retime computes their times from the machine"))
        of_all = f"of {self.communication:,} collectives and messages"
        if self.first_unsized is not None:
            place, node = self.first_unsized
            sentence = f"{self.unsized:,} {of_all} are of unknown size and take their recorded time"
            texts.append((place, f"{sentence} whatever the network; the first is {node}"))
        if self.estimated:
            sentence = f"the sizes of {self.estimated:,} {of_all} are estimates, from how long they took"
            texts.append(("", sentence))
        return tuple(Notice(place, "", text) for place, text in texts)


def _first_of(stack: Stack, rows: Any, places: Sequence[str]) -> tuple[str, str] | None:
    """Return the place and the node of the first of these rows."""
    if not len(rows):
        return None
    at, _ = stack.where(int(rows[0]))
    return places[at], stack.trace.describe(int(rows[0]))


def lower_nodes(stack: Stack, rules: NodeRules, prices: KernelPrices, rank: int, place: str) -> Any:
    """Return the node table of templates without children and channels, and add the prices of kernels.

    `rank` runs one of the templates, or runs at the same speed as those that do.
    """
    trace = stack.trace
    table = records.table(records.NODE, len(trace))
    nodes = table.view(np.ndarray)  # plain arrays find their columns faster
    _lower(nodes, prices, stack, rules, rank, place)
    _refuse_first(
        nodes["duration_ns"] > LONGEST_NS,
        trace,
        place,
        f"takes longer than {format_ns(LONGEST_NS)}",
        "correct its duration (which is in microseconds), or the machine",
    )
    prices.finish_templates(len(trace))
    return table


def _lower(nodes: Any, prices: KernelPrices, stack: Stack, rules: NodeRules, rank: int, place: str) -> None:
    trace = stack.trace
    _assign_lanes(nodes, trace)
    _refuse(value_faults(trace), trace, place)
    replay = Replay()
    if rules.system.replay_only:
        rows = np.arange(len(trace))
        _time(nodes, rows, replay.durations(trace, rows))
        nodes["busy"] = ~(trace.is_cpu | trace.is_opaque)
        _free_concurrent(nodes, trace)
        return
    kind = trace.kind
    lacking = rules.compute.lacking(trace, rank)
    _check_attributes(trace, rules, lacking, place)
    instant = (kind == NodeKind.INVALID) | (kind == NodeKind.METADATA)
    nodes["action"][instant] = Action.INSTANT
    nodes["treatment"][instant] = Treatment.INSTANT
    compute = kind == NodeKind.COMP
    kernels = np.flatnonzero(compute & ~trace.is_cpu)
    nodes["busy"][kernels] = 1
    is_described = (_has_figures(trace, lacking) & ~_keeps_recorded(trace, rules.system))[kernels]
    described = kernels[is_described]
    modelled = rules.compute.durations(trace, described, rank)
    _time(nodes, described, modelled)
    prices.add(described, modelled)
    _time(nodes, kernels[~is_described], replay.durations(trace, kernels[~is_described]))
    communicates = _communicates(trace)
    if not rules.system.replay_communication:
        _lower_communication(nodes, stack)
        communicates &= trace.is_unsized | _replayed_broadcasts(trace, rules.system)
    replayed = np.flatnonzero((compute & trace.is_cpu) | trace.is_opaque | communicates)
    if len(replayed):
        _time(nodes, replayed, replay.durations(trace, replayed))
    _lower_memory(nodes, trace, rules.memory)
    if rules.system.behaviour.corrects(Correction.CONCURRENT_COMMUNICATION):
        _separate_lanes(nodes, trace, Lane.SEND if rules.system.library is None else Lane.FREE_SEND)
    _free_concurrent(nodes, trace)


def _communicates(trace: Trace) -> Any:
    """Return which nodes are messages or collectives."""
    kind = trace.kind
    return (kind == NodeKind.SEND) | (kind == NodeKind.RECV) | (kind == NodeKind.COLL)


def _keeps_recorded(trace: Trace, system: System) -> Any:
    """Return which nodes were recorded on a device, if nodes keep their recorded times."""
    keeps = system.replay_recorded and not system.replay_only
    return trace.has("stream") & is_recorded(trace) & (trace.kind == NodeKind.COMP) & keeps


def _has_figures(trace: Trace, lacking: Mapping[str, Any]) -> Any:
    """Return which nodes have all figures that the compute model needs to time a kernel."""
    has_figures = np.ones(len(trace), np.bool_)
    for lacks in lacking.values():
        has_figures &= ~lacks
    return has_figures


def _assign_lanes(nodes: Any, trace: Trace) -> None:
    nodes["lane"] = Lane.COMMUNICATION
    nodes["lane"][trace.kind == NodeKind.COMP] = Lane.COMPUTE
    nodes["lane"][trace.kind == NodeKind.RECV] = Lane.RECEIVE
    nodes["lane"][trace.is_cpu] = Lane.CPU


def _separate_lanes(nodes: Any, trace: Trace, send: Lane) -> None:
    """Assign separate lanes to nodes that share one in the reference; recorded collectives stay there."""
    shared = nodes["lane"] == Lane.COMMUNICATION
    lanes = {Action.SEND: send, Action.MEMORY: Lane.MEMORY, Action.COLLECTIVE: Lane.COLLECTIVE}
    for action, lane in lanes.items():
        nodes["lane"][shared & (nodes["action"] == action)] = lane
    together = trace.has("comm_type") & (nodes["action"] == Action.MEMORY)
    nodes["lane"][shared & together] = Lane.COLLECTIVE  # members may issue them in different orders


def _free_concurrent(nodes: Any, trace: Trace) -> None:
    """Assign unlimited lanes to nodes that are marked as concurrent, and to those that no model times."""
    if trace.is_concurrent.any():
        computes = trace.kind == NodeKind.COMP
        for lane, which in (
            (Lane.COLLECTIVE, ~computes & (trace.kind != NodeKind.RECV)),
            (Lane.FREE_COMPUTE, computes),
            (Lane.FREE_CPU, trace.is_cpu),
        ):
            nodes["lane"][which & trace.is_concurrent] = lane
    nodes["lane"][trace.is_opaque] = Lane.FREE_CPU


def _time(nodes: Any, rows: Any, durations: Durations) -> None:
    """Set the durations of nodes by a compute model; those without duration complete in place."""
    instant = durations.treatment == Treatment.INSTANT
    nodes["action"][rows] = np.where(instant, Action.INSTANT, Action.DELAY)
    nodes["duration_ns"][rows] = durations.ns
    nodes["treatment"][rows] = durations.treatment
    nodes["busy"][rows[instant]] = 0
    if durations.bytes is not None:
        nodes["bytes"][rows] = durations.bytes


def _lower_communication(nodes: Any, stack: Stack) -> None:
    trace, kind = stack.trace, stack.trace.kind
    point_to_point = ((kind == NodeKind.SEND) | (kind == NodeKind.RECV)) & ~trace.is_unsized
    nodes["action"][kind == NodeKind.SEND] = Action.SEND
    nodes["action"][kind == NodeKind.RECV] = Action.RECEIVE
    before = np.concatenate(([0], np.cumsum(point_to_point)))  # numbered within their template
    nodes["detail"][point_to_point] = (before[:-1] - stack.spread(before[stack.first[:-1]]))[point_to_point]
    collective = kind == NodeKind.COLL
    nodes["action"][collective] = Action.COLLECTIVE
    nodes["bytes"][point_to_point | collective] = bytes_put_in(trace)[point_to_point | collective]


def _replayed_broadcasts(trace: Trace, system: System) -> Any:
    """Return the broadcasts that only take their recorded time, as in the reference."""
    broadcast = (trace.kind == NodeKind.COLL) & (trace.comm_type == CollectiveKind.BROADCAST)
    return broadcast & (not system.behaviour.corrects(Correction.SIMULATED_BROADCAST))


def _lower_memory(nodes: Any, trace: Trace, memory: MemoryModel | None) -> None:
    requests = np.flatnonzero((trace.kind == NodeKind.MEM_LOAD) | (trace.kind == NodeKind.MEM_STORE))
    if memory is None or not len(requests):
        return  # requests without a memory were refused
    nodes["action"][requests] = Action.MEMORY
    nodes["bytes"][requests] = trace.tensor_bytes[requests]
    nodes["duration_ns"][requests] = memory.service_ns(trace, requests)


def _check_attributes(trace: Trace, rules: NodeRules, lacking: Mapping[str, Any], place: str) -> None:
    """Refuse nodes that lack what their type needs; the first faulty node is named.

    A kernel that the compute model cannot time is replayed if its duration is recorded.
    """
    memory = (trace.kind == NodeKind.MEM_LOAD) | (trace.kind == NodeKind.MEM_STORE)
    kernel = (trace.kind == NodeKind.COMP) & ~trace.is_cpu & ~is_recorded(trace)
    needs: dict[str, Any] = dict.fromkeys(rules.memory.needs() if rules.memory is not None else (), memory)
    is_broadcast_replayed = not rules.system.behaviour.corrects(Correction.SIMULATED_BROADCAST)
    faults = communication_faults(trace, needs, is_broadcast_replayed=is_broadcast_replayed)
    if rules.system.replay_communication:
        faults = attribute_faults(trace, needs)
    _refuse(faults, trace, place)
    for attribute, lacks in lacking.items():
        remedy = "add it when converting"
        _refuse_first(kernel & lacks, trace, place, f"lacks the attribute {attribute}", remedy)
    if rules.memory is None:
        _refuse_first(
            memory,
            trace,
            place,
            "is a remote-memory request, but the machine has no remote memory",
            'describe one with --memory ("memory-type": "MEMORY_POOL", …)',
        )


def _refuse(faults: Iterator[NodeFault], trace: Trace, place: str) -> None:
    for fault in faults:
        raise TraceError(fault.sentence(trace), place=place, remedy=fault.remedy)


def _refuse_first(wrong: Any, trace: Trace, place: str, fault: str, remedy: str) -> None:
    if wrong.any():
        _refuse(iter([NodeFault(wrong, fault, remedy)]), trace, place)


class _TemplateBlock(Struct, frozen=True):
    """Templates one after the other: their nodes, and the children of these."""

    sizes: Any
    nodes: Any
    children: Any


class TemplateTables:
    """The node tables: first those of the workload's templates, in their order, then any others."""

    def __init__(self, workload_templates: int, lanes: int) -> None:
        self._workload_templates, self._lanes = workload_templates, lanes
        self._parts: list[_TemplateBlock] = []
        self._others: list[_TemplateBlock] = []

    def put(self, nodes: Any, stack: Stack) -> None:
        """Append the next of the workload's templates, whose nodes are lowered."""
        self._parts.append(
            _TemplateBlock(np.diff(stack.first), nodes, _attach_children(nodes, stack.trace, stack))
        )

    def add(self, nodes: Any, trace: Trace) -> int:
        """Add another template; return its number."""
        self._others.append(_TemplateBlock(np.array([len(trace)]), nodes, _attach_children(nodes, trace)))
        return self._workload_templates + len(self._others) - 1

    def finish(self) -> tuple[Any, Any, Any, Any]:
        """Return the template table, where lanes begin in each, the node table, and the children."""
        parts = [*self._parts, *self._others]
        sizes = np.concatenate([part.sizes for part in parts])
        templates = records.table(records.TEMPLATE, len(sizes))
        templates["nodes"], templates["node_first"] = sizes, np.cumsum(sizes) - sizes
        child_first = 0
        for part in parts:
            part.nodes["children_first"] += child_first
            child_first += len(part.children)
        every = np.concatenate([part.nodes for part in parts]).view(np.recarray)
        lane = np.repeat(np.arange(len(sizes)) * self._lanes, sizes) + every["lane"]
        per_lane = np.bincount(lane, minlength=len(sizes) * self._lanes).reshape(-1, self._lanes)
        lane_first = np.cumsum(per_lane, axis=1) - per_lane
        return templates, lane_first, every, np.concatenate([part.children for part in parts])


def _attach_children(nodes: Any, trace: Trace, stack: Stack | None = None) -> Any:
    """Fill the indegree and the children columns; return the children, grouped by parent.

    Children are rows of their own template, where there are several.
    """
    if not len(trace.data_deps) and not len(trace.ctrl_deps):
        return np.zeros(0, np.int32)  # the columns are 0 already
    count = max(len(trace), 1)
    rows = np.arange(len(trace), dtype=np.int64)
    child = np.concatenate(
        (np.repeat(rows, np.diff(trace.data_start)), np.repeat(rows, np.diff(trace.ctrl_start)))
    )
    parent = np.concatenate((trace.data_deps, trace.ctrl_deps)).astype(np.int64)
    edges = unique(parent * count + child)  # a parent listed twice counts once
    parent, child = edges // count, edges % count
    nodes["indegree"] = np.bincount(child, minlength=len(trace))
    nodes["children"] = np.bincount(parent, minlength=len(trace))
    if len(trace):
        nodes["children_first"] = np.concatenate(([0], np.cumsum(nodes["children"])[:-1]))
    if stack is not None and len(stack) > 1:
        child -= stack.spread(stack.first[:-1])[child]
    return child.astype(np.int32)
