"""All-reduces of gradients among new replicas, which a recording of one replica lacks.

A node belongs to the backward pass if its name contains "backward", or if an operator of the host with such a
name called or launched it. Gradients are assumed to become ready evenly over the time of these nodes, in one
pass or in the last of several equal ones. A bucket is reduced after the backward work that completes it and
after the bucket before. Successors of the last backward work also wait for the last bucket. This is repeated
in each iteration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from converters.editing.files import RecordedTrace, Rewiring, set_attributes, start_micros
from converters.editing.remove_nodes import row_order
from converters.editing.slicing import MARKER, iteration_of_rows
from converters.editing.stripping import durations_ns
from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes, plural
from et_sim.trace import Trace
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.order import dependency_lists
from et_sim.trace.schema import messages

_BACKWARD = re.compile("backward|^autograd::engine::evaluate_function", re.IGNORECASE)


class Gradients(Struct, frozen=True):
    """The gradients that each rank reduces with the other replicas in an iteration."""

    size_bytes: int
    bucket_bytes: int
    passes: int  # backward passes of an iteration; the last one completes the sums
    group: str = ""

    @property
    def ends(self) -> range | list[int]:
        """Return the number of bytes after which each bucket ends."""
        return [*range(self.bucket_bytes, self.size_bytes, self.bucket_bytes), self.size_bytes]


def backward_rows(recorded: RecordedTrace) -> Any:
    """Return a mask of the rows of the backward pass: computation of devices, or of the host if there is
    none.
    """
    trace = recorded.trace
    is_named_backward = np.array([bool(_BACKWARD.search(name)) for name in trace.names], np.bool_)
    if not is_named_backward.any():
        return np.zeros(len(trace), np.bool_)
    is_backward = is_named_backward[trace.name].tolist()
    data, ctrl = dependency_lists(trace)
    on_host, is_gap, is_launch = trace.is_cpu.tolist(), trace.is_gap.tolist(), trace.is_launch.tolist()
    for row in row_order(recorded):
        if is_backward[row]:
            continue
        if on_host[row]:
            is_backward[row] = any(is_backward[parent] and on_host[parent] for parent in ctrl.of(row))
            continue
        parents = data.of(row)
        parents = [
            *parents,
            *(grandparent for parent in parents if is_gap[parent] for grandparent in data.of(parent)),
        ]
        is_backward[row] = any(is_backward[parent] and is_launch[parent] for parent in parents)
    backward = np.array(is_backward, np.bool_) & (trace.kind == NodeKind.COMP) & ~trace.is_gap
    of_devices = backward & ~trace.is_cpu
    return of_devices if of_devices.any() else backward


def add_gradients(recorded: RecordedTrace, gradients: Gradients) -> tuple[Rewiring, list[Any], str]:
    """Return new dependencies, new nodes, and a note on them."""
    trace = recorded.trace
    backward = np.flatnonzero(backward_rows(recorded))
    if not len(backward):
        raise TraceError(
            "has no backward pass (no node is called backward, and none was called or launched by"
            " autograd::engine::evaluate_function), so the times of its gradients are unknown",
            place=recorded.source,
            remedy="leave --gradients out, or name the nodes of its backward pass so",
        )
    backward = backward[np.lexsort((backward, start_micros(recorded)[backward]))]
    iteration = _iterations(recorded)[backward]
    children = _children(trace)
    rewiring, nodes = Rewiring(), list[Any]()
    data, ctrl = dependency_lists(trace)
    next_id = int(trace.node_id.max(initial=0)) + 1
    for number in unique(iteration).tolist():
        rows = backward[iteration == number]
        for ready, size in zip(_ready(trace, rows, gradients), _sizes(gradients), strict=True):
            before = [int(trace.node_id[ready]), *([nodes[-1].id] if nodes else [])]
            nodes.append(_all_reduce(next_id + len(nodes), size, gradients.group, before))
        for row in _followers(trace, int(rows[-1]), children):
            held = rewiring.data.setdefault(row, data.of(row))
            rewiring.data[row], rewiring.ctrl[row] = [*held, len(trace) + len(nodes) - 1], ctrl.of(row)
    times = len(unique(iteration))
    notes = (
        f"{format_bytes(gradients.size_bytes)} in {plural(len(gradients.ends), 'all-reduce')} of group"
        f" {gradients.group}{f', in each of {times} iterations' if times > 1 else ''}, as"
        f" {plural(len(backward), 'backward node')} make them, evenly over their time"
    )
    return rewiring, nodes, notes


def _iterations(recorded: RecordedTrace) -> Any:
    """Return the iteration of each row; all rows have the same if none are marked."""
    if any(name.startswith(MARKER) for name in recorded.trace.names):
        return iteration_of_rows(recorded, [MARKER])
    return np.zeros(len(recorded.trace), np.int64)


def _ready(trace: Trace, rows: Any, gradients: Gradients) -> Iterator[int]:
    """Yield the row after which each bucket is ready."""
    lasts = durations_ns(trace)[rows].tolist()
    done = np.cumsum(lasts if any(lasts) else [1] * len(lasts)).tolist()
    size, at = gradients.size_bytes, 0
    for end in gradients.ends:
        share = (gradients.passes - 1) * size + end  # of all passes
        while done[at] * gradients.passes * size < done[-1] * share:
            at += 1
        yield int(rows[at])


def _sizes(gradients: Gradients) -> list[int]:
    return np.diff(gradients.ends, prepend=0).tolist()


def _children(trace: Trace) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    data, _ = dependency_lists(trace)
    for row in range(len(trace)):
        for parent in data.of(row):
            children.setdefault(parent, []).append(row)
    return children


def _followers(trace: Trace, row: int, children: dict[int, list[int]]) -> list[int]:
    """Return the direct successors of a row in its stream or thread, past gaps."""
    followers, todo = [], [row]
    while todo:
        for child in children.get(todo.pop(), ()):
            if trace.is_gap[child]:
                todo.append(child)
            elif bool(trace.is_cpu[child]) == bool(trace.is_cpu[row]):
                followers.append(child)
    return sorted(set(followers))


def _all_reduce(node_id: int, size: int, group: str, before: list[int]) -> Any:
    node = messages().Node(id=node_id, name="gradients all-reduce", type=int(NodeKind.COLL), data_deps=before)
    values = {"is_cpu_op": False, "comm_type": int(CollectiveKind.ALL_REDUCE), "comm_size": size}
    set_attributes(node, {**values, "pg_name": group, "concurrent": True})
    return node
