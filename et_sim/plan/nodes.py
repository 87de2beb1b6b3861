"""Nodes of a template -> rows of the node table: what issuing each one does, and for how long.

Columns in, columns out: no Python object per node. Not here: peers and groups, which depend on the
rank (`channels`, `lowering`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compute import ComputeModel, Durations, Replay, Treatment
from et_sim.errors import TraceError
from et_sim.machine.corrections import Correction
from et_sim.machine.model import System
from et_sim.memory import MemoryModel
from et_sim.plan import tables
from et_sim.plan.tables import Action, Lane
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.units import LONGEST_NS, MOST_BYTES, format_bytes, format_ns


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What decides what nodes do, whichever template they are of."""

    system: System
    compute: ComputeModel
    memory: MemoryModel | None


def lower_nodes(trace: Trace, rules: NodeRules, rank: int, place: str) -> Any:
    """The node table of one template, which `rank` runs, without children, collectives and channels."""
    nodes = _lower(trace, rules, rank, place)
    _refuse_first(
        nodes["duration_ns"] > LONGEST_NS,
        trace,
        place,
        f"takes longer than {format_ns(LONGEST_NS)}",
        "correct its duration (which is in microseconds), or the machine",
    )
    return nodes


def _lower(trace: Trace, rules: NodeRules, rank: int, place: str) -> Any:
    nodes = tables.table(tables.NODE, len(trace))
    _assign_lanes(nodes, trace)
    _check_values(trace, place)
    replay = Replay()
    if rules.system.replay_only:
        rows = np.arange(len(trace))
        _time(nodes, rows, replay.durations(trace, rows))
        nodes["busy"] = ~trace.is_cpu
        _free_concurrent(nodes, trace)
        return nodes
    kind = trace.kind
    _check_attributes(trace, rules, place)
    instant = (kind == NodeKind.INVALID) | (kind == NodeKind.METADATA)
    nodes["action"][instant] = Action.INSTANT
    nodes["treatment"][instant] = Treatment.INSTANT
    compute = kind == NodeKind.COMP
    kernels = np.flatnonzero(compute & ~trace.is_cpu)
    nodes["busy"][kernels] = 1
    _time(nodes, kernels, rules.compute.durations(trace, kernels, rank))
    _lower_communication(nodes, trace)
    replayed = np.flatnonzero((compute & trace.is_cpu) | _replayed_broadcasts(trace, rules.system))
    _time(nodes, replayed, replay.durations(trace, replayed))
    _lower_memory(nodes, trace, rules.memory)
    if rules.system.behaviour.corrects(Correction.CONCURRENT_COMMUNICATION):
        _separate_lanes(nodes)
    _free_concurrent(nodes, trace)
    return nodes


def _assign_lanes(nodes: Any, trace: Trace) -> None:
    nodes["lane"] = Lane.COMMUNICATION
    nodes["lane"][trace.kind == NodeKind.COMP] = Lane.COMPUTE
    nodes["lane"][trace.kind == NodeKind.RECV] = Lane.RECEIVE
    nodes["lane"][trace.is_cpu] = Lane.CPU


def _separate_lanes(nodes: Any) -> None:
    """Lanes of their own for what shares one in the reference; recorded collectives stay there."""
    shared = nodes["lane"] == Lane.COMMUNICATION
    lanes = {Action.SEND: Lane.SEND, Action.MEMORY: Lane.MEMORY, Action.COLLECTIVE: Lane.COLLECTIVE}
    for action, lane in lanes.items():
        nodes["lane"][shared & (nodes["action"] == action)] = lane


def _free_concurrent(nodes: Any, trace: Trace) -> None:
    """Lanes without limit for nodes that their trace marks as concurrent."""
    computes = trace.kind == NodeKind.COMP
    for lane, which in (
        (Lane.COLLECTIVE, ~computes & (trace.kind != NodeKind.RECV)),
        (Lane.FREE_COMPUTE, computes),
        (Lane.FREE_CPU, trace.is_cpu),
    ):
        nodes["lane"][which & trace.is_concurrent] = lane


def _time(nodes: Any, rows: Any, found: Durations) -> None:
    """Give nodes the durations that a compute model found; those that take none complete in place."""
    instant = found.treatment == Treatment.INSTANT
    nodes["action"][rows] = np.where(instant, Action.INSTANT, Action.DELAY)
    nodes["duration_ns"][rows] = found.ns
    nodes["treatment"][rows] = found.treatment
    nodes["busy"][rows[instant]] = 0
    if found.bytes is not None:
        nodes["bytes"][rows] = found.bytes


def _lower_communication(nodes: Any, trace: Trace) -> None:
    kind = trace.kind
    point_to_point = (kind == NodeKind.SEND) | (kind == NodeKind.RECV)
    nodes["action"][kind == NodeKind.SEND] = Action.SEND
    nodes["action"][kind == NodeKind.RECV] = Action.RECEIVE
    nodes["detail"][point_to_point] = np.arange(int(point_to_point.sum()))
    collective = kind == NodeKind.COLL
    nodes["action"][collective] = Action.COLLECTIVE
    nodes["bytes"][point_to_point | collective] = trace.comm_bytes[point_to_point | collective]


def _replayed_broadcasts(trace: Trace, system: System) -> Any:
    """Broadcasts that only take the time the trace records, as in the reference."""
    broadcast = (trace.kind == NodeKind.COLL) & (trace.comm_type == CollectiveKind.BROADCAST)
    return broadcast & (not system.behaviour.corrects(Correction.SIMULATED_BROADCAST))


def _lower_memory(nodes: Any, trace: Trace, memory: MemoryModel | None) -> None:
    requests = np.flatnonzero((trace.kind == NodeKind.MEM_LOAD) | (trace.kind == NodeKind.MEM_STORE))
    if memory is None or not len(requests):
        return  # requests without a memory were refused
    nodes["action"][requests] = Action.MEMORY
    nodes["bytes"][requests] = trace.tensor_bytes[requests]
    nodes["duration_ns"][requests] = memory.service_ns(trace, requests)


def _check_values(trace: Trace, place: str) -> None:
    _refuse_first(
        (trace.comm_bytes > MOST_BYTES) | (trace.tensor_bytes > MOST_BYTES),
        trace,
        place,
        f"moves more than {format_bytes(MOST_BYTES)}",
        "correct comm_size or tensor_size, which are in bytes",
    )
    known = [int(kind) for kind in CollectiveKind]
    _refuse_first(
        (trace.kind == NodeKind.COLL) & ~np.isin(trace.comm_type, known),
        trace,
        place,
        "has a comm_type that no collective has",
        f"collective types are {known[0]} to {known[-1]}",
    )


def _check_attributes(trace: Trace, rules: NodeRules, place: str) -> None:
    """Refuse nodes that lack what their type needs; the first offending node is named."""
    kind, cpu = trace.kind, trace.is_cpu
    send, receive = kind == NodeKind.SEND, kind == NodeKind.RECV
    collective = kind == NodeKind.COLL
    memory = (kind == NodeKind.MEM_LOAD) | (kind == NodeKind.MEM_STORE)
    barrier = trace.comm_type == CollectiveKind.BARRIER
    needs = {
        "comm_size": send | receive | (collective & ~barrier),
        "comm_type": collective,
        "comm_dst": send,
        "comm_src": receive,
        "comm_tag": send | receive,
    }
    kernel = (kind == NodeKind.COMP) & ~cpu
    of_models = ((rules.memory, memory), (rules.compute, kernel))
    for model, which in of_models:
        for attribute in model.needs() if model is not None else ():
            needs[attribute] = needs.get(attribute, False) | which
    replayed = _replayed_broadcasts(trace, rules.system)
    for attribute, which in needs.items():
        missing = which & ~replayed & ~trace.has(attribute)
        _refuse_first(missing, trace, place, f"lacks the attribute {attribute!r}", "add it when converting")
    _refuse_first(
        (send | receive | collective) & cpu,
        trace,
        place,
        "is a communication node marked is_cpu_op",
        "communication runs on the device: set is_cpu_op to false",
    )
    if rules.memory is None:
        _refuse_first(
            memory,
            trace,
            place,
            "is a remote-memory request, and the machine has no remote memory",
            'describe one with --memory ("memory-type": "MEMORY_POOL", …)',
        )


def _refuse_first(wrong: Any, trace: Trace, place: str, what: str, remedy: str) -> None:
    if wrong.any():
        rows = np.flatnonzero(wrong)
        more = f", like {len(rows) - 1} more" if len(rows) > 1 else ""
        raise TraceError(f"{trace.describe(int(rows[0]))} {what}{more}", place=place, remedy=remedy)
