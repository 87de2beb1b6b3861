"""Shapes: templates that are the same program except for the ranks they name.

Names and ids of nodes count as part of the program, because an actor's timeline shows them. Templates are
compared in full only where a few sums agree, so workloads of many different traces cost next to nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan.lowering import Lowering
from et_sim.plan.splitmix import splitmix64

# Node columns that define a program; places of children and details in other tables follow from them.
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
    """Return for every template the lowest template that is the same program."""
    count = len(lowering.workload.templates)
    shape = np.arange(count)
    alike: dict[tuple[int, ...], list[int]] = {}
    for template, fingerprint in enumerate(_fingerprints(lowering)):
        candidates = alike.setdefault(fingerprint, [])
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


def _fingerprints(lowering: Lowering) -> list[tuple[int, ...]]:
    """Return a few sums of each template, and a hash of its names."""
    first, count = lowering.templates["node_first"], lowering.templates["nodes"]
    nodes = np.asarray(lowering.nodes)
    place = splitmix64(np.arange(len(nodes)) - np.repeat(first, count), 0).view(np.int64)
    sums = []
    with np.errstate(over="ignore"):
        for name in ("duration_ns", "bytes"):
            before = np.concatenate(([0], np.cumsum(nodes[name] * place)))
            sums.append(before[first + count] - before[first])
    endpoints = lowering.endpoints
    columns = [column.tolist() for column in (count, *sums, endpoints.counts, endpoints.slots)]
    names = (names for stack in lowering.workload.stacks() for names in stack.names)
    return [
        (*figures, hash(names_of_template))
        for *figures, names_of_template in zip(*columns, names, strict=False)
    ]


def _is_same(lowering: Lowering, one: int, two: int) -> bool:
    first, second = lowering.workload.templates[one], lowering.workload.templates[two]
    nodes, others = _nodes(lowering, one), _nodes(lowering, two)
    if first is second:  # but perhaps at another pace
        same = np.array_equal(nodes["duration_ns"], others["duration_ns"])
        return same and _use_the_same(lowering, one, two)
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
        and _use_the_same(lowering, one, two)
        and (not lowering.machine.system.track_local_mem or first.tensors.is_same(second.tensors))
    )


def _use_the_same(lowering: Lowering, one: int, two: int) -> bool:
    """Return whether kernels that take equal times are timed alike, and use the machine equally well."""
    if lowering.kernels is None:
        return True
    first, second = (lowering.kernels.of_template(lowering.templates[template]) for template in (one, two))
    return first.is_same(second)


def _children(lowering: Lowering, nodes: Any) -> Any:
    first = int(nodes["children_first"].min(initial=0))
    return lowering.children[first : first + int(nodes["children"].sum())]


def _have_same_endpoints(lowering: Lowering, one: int, two: int) -> bool:
    first, second = lowering.endpoints[one], lowering.endpoints[two]
    columns = ("is_send", "slot", "tag", "bytes")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in columns)
