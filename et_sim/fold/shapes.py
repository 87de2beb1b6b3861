"""Shapes: templates that are the same program but for the ranks they name.

Names and ids of nodes count as part of the program, because an actor's timeline shows them. Templates are
compared in full only where a few sums agree, so workloads of many different traces cost next to nothing.

Not here: whom the programs talk to (`partition`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan.lowering import Lowering
from et_sim.trace.columns import Trace

# Node columns that say what a program does; where its children and details stand in other tables follows.
COMPARED = (
    "action",
    "lane",
    "treatment",
    "busy",
    "indegree",
    "children",
    "detail",
    "member",
    "duration_ns",
    "bytes",
)


def shapes_of_templates(lowering: Lowering) -> Any:
    """For every template the lowest template that is the same program."""
    count = len(lowering.workload.templates)
    shape = np.arange(count)
    alike: dict[tuple[int, ...], list[int]] = {}
    for template in range(count):
        candidates = alike.setdefault(_fingerprint(lowering, template), [])
        for other in candidates:
            if _is_same(lowering, template, other):
                shape[template] = other
                break
        else:
            candidates.append(template)
    return shape


def _nodes(lowering: Lowering, template: int) -> Any:
    row = lowering.templates[template]
    return lowering.nodes[int(row.node_first) : int(row.node_first) + int(row.nodes)]


def _fingerprint(lowering: Lowering, template: int) -> tuple[int, ...]:
    nodes, endpoints = _nodes(lowering, template), lowering.endpoints[template]
    place = np.arange(1, len(nodes) + 1)
    with np.errstate(over="ignore"):
        durations = int((nodes["duration_ns"] * place).sum())
        sizes = int((nodes["bytes"] * place).sum())
    return len(nodes), durations, sizes, len(endpoints.rows), len(endpoints.peers)


def _is_same(lowering: Lowering, one: int, two: int) -> bool:
    first, second = lowering.workload.templates[one], lowering.workload.templates[two]
    nodes, others = _nodes(lowering, one), _nodes(lowering, two)
    if first is second:  # but perhaps at another pace
        return np.array_equal(nodes["duration_ns"], others["duration_ns"])
    return (
        all(np.array_equal(nodes[column], others[column]) for column in COMPARED)
        and np.array_equal(_children(lowering, nodes), _children(lowering, others))
        and np.array_equal(first.node_id, second.node_id)
        and np.array_equal(first.kind, second.kind)
        and np.array_equal(first.is_cpu, second.is_cpu)
        and np.array_equal(first.is_gap, second.is_gap)
        and np.array_equal(first.is_copy, second.is_copy)
        and np.array_equal(first.comm_type, second.comm_type)
        and first.names == second.names
        and np.array_equal(first.name, second.name)
        and len(lowering.used_groups[one]) == len(lowering.used_groups[two])
        and _have_same_endpoints(lowering, one, two)
        and _measure_the_same(lowering, first, second)
    )


def _measure_the_same(lowering: Lowering, first: Trace, second: Trace) -> bool:
    """Whether what is measured beside time is the same: use of the machine, and local memory."""
    is_tracked = lowering.machine.system.track_local_mem
    return lowering.compute.same(first, second) and (not is_tracked or first.tensors.is_same(second.tensors))


def _children(lowering: Lowering, nodes: Any) -> Any:
    first = int(nodes["children_first"].min(initial=0))
    return lowering.children[first : first + int(nodes["children"].sum())]


def _have_same_endpoints(lowering: Lowering, one: int, two: int) -> bool:
    first, second = lowering.endpoints[one], lowering.endpoints[two]
    columns = ("is_send", "slot", "tag", "bytes")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in columns)
