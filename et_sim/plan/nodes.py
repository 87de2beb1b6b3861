"""Nodes of a template -> rows of the node table: what issuing each one does, and for how long.

Columns in, columns out: no Python object per node. Not here: peers and groups, which depend on the
rank (`channels`, `lowering`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compute import Roofline, replay_ns
from et_sim.errors import TraceError
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Machine, MemoryKind, System
from et_sim.memory import service_ns
from et_sim.plan import tables
from et_sim.plan.tables import Action, Lane, Treatment
from et_sim.trace.columns import CollectiveKind, Has, NodeKind, Trace
from et_sim.units import LONGEST_NS, MOST_BYTES, format_bytes, format_ns


def lower_nodes(trace: Trace, machine: Machine, place: str) -> Any:
    """The node table of one template, without children, collectives and channels."""
    nodes = _lower(trace, machine, place)
    _refuse_first(
        nodes["duration_ns"] > LONGEST_NS,
        trace,
        place,
        f"takes longer than {format_ns(LONGEST_NS)}",
        "correct its duration (which is in microseconds), or the machine",
    )
    return nodes


def _lower(trace: Trace, machine: Machine, place: str) -> Any:
    nodes = tables.table(tables.NODE, len(trace))
    _assign_lanes(nodes, trace)
    recorded = recorded_ns(trace)
    _check_values(trace, place)
    if machine.system.replay_only:
        _replay(nodes, np.ones(len(trace), bool), trace, recorded)
        nodes["busy"] = ~trace.is_cpu
        _free_concurrent(nodes, trace)
        return nodes
    kind = trace.kind
    _check_attributes(trace, machine, place)
    instant = (kind == NodeKind.INVALID) | (kind == NodeKind.METADATA)
    nodes["action"][instant] = Action.INSTANT
    nodes["treatment"][instant] = Treatment.INSTANT
    compute = kind == NodeKind.COMP
    _replay(nodes, compute, trace, recorded)
    nodes["busy"] = compute & ~trace.is_cpu
    roofline = roofline_of(machine.system)
    if roofline is not None:
        _apply_roofline(nodes, compute & ~trace.is_cpu, trace, roofline)
    _lower_communication(nodes, trace)
    _replay(nodes, _replayed_broadcasts(trace, machine.system), trace, recorded)
    _lower_memory(nodes, trace, machine)
    if machine.system.corrects(Correction.CONCURRENT_COMMUNICATION):
        _separate_lanes(nodes)
    _free_concurrent(nodes, trace)
    return nodes


def recorded_ns(trace: Trace) -> Any:
    """How long each node took: exactly if the trace says so, else by its microseconds."""
    is_exact = (trace.present & int(Has.DURATION_NS)) != 0
    return np.where(is_exact, trace.duration_ns, replay_ns(trace.duration_us))


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


def _replay(nodes: Any, which: Any, trace: Trace, recorded: Any) -> None:
    nodes["action"][which] = Action.DELAY
    nodes["duration_ns"][which] = recorded[which]
    is_recorded = (trace.duration_us != 0) | ((trace.present & int(Has.DURATION_NS)) != 0)
    replayed = np.where(is_recorded, Treatment.REPLAYED, Treatment.DEFAULTED)
    nodes["treatment"][which] = replayed[which]


def roofline_of(system: System) -> Roofline | None:
    """What times the kernels; None if their recorded time does."""
    is_used = system.roofline and not system.replay_only
    return Roofline(system.peak_perf, system.local_mem_bw) if is_used else None


def _apply_roofline(nodes: Any, kernels: Any, trace: Trace, roofline: Roofline) -> None:
    """Kernels that touch no memory complete at once, as in the reference."""
    nodes["bytes"][kernels] = trace.tensor_bytes[kernels]
    empty = kernels & (trace.tensor_bytes == 0)
    nodes["action"][empty] = Action.INSTANT
    nodes["treatment"][empty] = Treatment.INSTANT
    nodes["busy"][empty] = 0
    timed = kernels & ~empty
    nodes["duration_ns"][timed] = roofline.duration_ns(trace.num_ops[timed], trace.tensor_bytes[timed])
    nodes["treatment"][timed] = Treatment.MODELLED


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
    return broadcast & (not system.corrects(Correction.SIMULATED_BROADCAST))


def _lower_memory(nodes: Any, trace: Trace, machine: Machine) -> None:
    memory = (trace.kind == NodeKind.MEM_LOAD) | (trace.kind == NodeKind.MEM_STORE)
    nodes["action"][memory] = Action.MEMORY
    nodes["bytes"][memory] = trace.tensor_bytes[memory]
    nodes["duration_ns"][memory] = service_ns(machine.memory, trace.tensor_bytes[memory])


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


def _check_attributes(trace: Trace, machine: Machine, place: str) -> None:
    """Refuse nodes that lack what their type needs; the first offending node is named."""
    kind, cpu = trace.kind, trace.is_cpu
    send, receive = kind == NodeKind.SEND, kind == NodeKind.RECV
    collective = kind == NodeKind.COLL
    memory = (kind == NodeKind.MEM_LOAD) | (kind == NodeKind.MEM_STORE)
    barrier = trace.comm_type == CollectiveKind.BARRIER
    kernel = (kind == NodeKind.COMP) & ~cpu if machine.system.roofline else np.zeros(len(trace), bool)
    needs = [
        (send | receive | (collective & ~barrier), Has.COMM_SIZE, "comm_size"),
        (collective, Has.COMM_TYPE, "comm_type"),
        (send, Has.COMM_DST, "comm_dst"),
        (receive, Has.COMM_SRC, "comm_src"),
        (send | receive, Has.COMM_TAG, "comm_tag"),
        (memory | kernel, Has.TENSOR_SIZE, "tensor_size"),
        (kernel, Has.NUM_OPS, "num_ops"),
    ]
    replayed = _replayed_broadcasts(trace, machine.system)
    for which, bit, attribute in needs:
        missing = which & ~replayed & ((trace.present & int(bit)) == 0)
        _refuse_first(missing, trace, place, f"lacks the attribute {attribute!r}", "add it when converting")
    _refuse_first(
        (send | receive | collective) & cpu,
        trace,
        place,
        "is a communication node marked is_cpu_op",
        "communication runs on the device: set is_cpu_op to false",
    )
    if machine.memory.kind is MemoryKind.NONE:
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
