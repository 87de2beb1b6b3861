"""The host of a rank, where traces have none: it launches kernels and collectives, each in its turn.

A launch is a node of the host, which follows the launch before; a kernel begins after its own launch. So the
host runs ahead of the device while kernels are long, and the device waits for it where they are short. The
host waits for no device; if its software waits for messages, a launch follows the messages of its kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, plural
from et_sim.machine.model import Notice
from et_sim.trace.columns import BIT, NodeKind, Trace
from et_sim.trace.workload import Workload

KEY, LAUNCH, PLACE = "host-time", "launch", "system configuration"
_LAST_ID = np.iinfo(np.uint64).max


def with_host(
    workload: Workload, launch_ns: float, step_ns: float = 0.0, *, waits: bool = False
) -> tuple[Workload, list[Notice]]:
    """Return the workload with a launch before every kernel and collective, and a notice of traces without.

    A launch takes `launch_ns`; the first one follows after the time that the host needs for a step. `waits`:
    the host waits for the messages that kernels wait for.
    """
    if not launch_ns and not step_ns:
        return workload, []
    templates = tuple(_launched(trace, launch_ns, step_ns, waits) for trace in workload.templates)
    counts = workload.ranks_per_template.tolist()
    kept = sum(
        count
        for count, old, new in zip(counts, workload.templates, templates, strict=True)
        if new is old and len(old)
    )
    text = f"no effect on {plural(kept, 'rank')}, whose traces have a host of their own, or launch nothing"
    return structs.replace(workload, templates=templates), [Notice(PLACE, KEY, text)] if kept else []


def _launched(trace: Trace, launch_ns: float, step_ns: float, waits: bool) -> Trace:
    is_kernel = (trace.kind == NodeKind.COMP) & ~trace.is_gap
    counts = np.where(trace.has("launches"), trace.launches, 1)
    rows = np.flatnonzero((is_kernel | (trace.kind == NodeKind.COLL)) & (counts > 0))
    if trace.is_cpu.any() or not len(rows):
        return trace
    last, added, count = int(trace.node_id[-1]), len(rows), len(trace)
    lasts = np.minimum(counts[rows] * launch_ns, 2.0 * LONGEST_NS)
    lasts[0] += step_ns
    if last + added > _LAST_ID or lasts.max() > LONGEST_NS:
        raise MachineError(
            f'key "{KEY}" is {launch_ns:g} ns, which {trace.source} cannot hold',
            place=PLACE,
            remedy="give less, or number the nodes of the trace from 0",
        )
    node = {
        "node_id": np.arange(last + 1, last + 1 + added, dtype=np.uint64),
        "kind": np.full(added, NodeKind.COMP, np.uint8),
        "name": np.full(added, len(trace.names), np.int32),
        "duration_ns": lasts.astype(np.int64),
        "is_cpu": np.ones(added, np.bool_),
        "is_launch": np.ones(added, np.bool_),
        "present": np.full(added, BIT["is_cpu_op"] | BIT["launch"] | BIT["duration_ns"], np.uint32),
    }
    columns: dict[str, Any] = {}
    for name in trace.__struct_fields__:
        column = getattr(trace, name)
        if isinstance(column, np.ndarray) and len(column) == count and not name.endswith("_deps"):
            new: Any = node.get(name, np.zeros(added, column.dtype))
            columns[name] = np.concatenate((column, new))
    columns["ctrl_start"], columns["ctrl_deps"] = _with_launches(trace, rows, waits)
    columns["data_start"] = np.concatenate((trace.data_start, np.full(added, trace.data_start[-1])))
    return replace(trace, names=(*trace.names, LAUNCH), **columns)


def _with_launches(trace: Trace, rows: Any, waits: bool) -> tuple[Any, Any]:
    """Return what rows come after, then what launches do: the one before, and messages if the host waits."""
    count, added = len(trace), len(rows)
    first = np.diff(trace.ctrl_start)
    first[rows] += 1
    deps = np.insert(trace.ctrl_deps, trace.ctrl_start[rows + 1], np.arange(count, count + added))
    launches = np.arange(1, added)  # the first launch comes after no other
    before = np.arange(count, count + added - 1)
    if waits:
        waiting, messages = _messages(trace, rows)
        launches, before = np.concatenate((launches, waiting)), np.concatenate((before, messages))
    order = np.argsort(launches, kind="stable")
    sizes = np.concatenate((first, np.bincount(launches, minlength=added)))
    start = np.concatenate(([0], np.cumsum(sizes)))
    return start, np.concatenate((deps, before[order])).astype(np.int32)


def _messages(trace: Trace, rows: Any) -> tuple[Any, Any]:
    """Return the messages that some rows come after: the places of these rows, and the messages."""
    count = len(trace)
    is_message = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    place = np.full(count, -1)
    place[rows] = np.arange(len(rows))
    starts = (trace.ctrl_start, trace.data_start)
    after = np.concatenate([np.repeat(place, np.diff(start)) for start in starts])
    nodes = np.concatenate((trace.ctrl_deps, trace.data_deps))
    is_waiting = (after >= 0) & is_message[nodes]
    return after[is_waiting], nodes[is_waiting]
