"""Predictions of et-sim: a program's recordings, converted and run on another machine.

A collective of the converted trace follows the ground truth's network: every member sends a message when it
begins (on a network that takes no time), and after the last begin the collective takes the time of its bytes.
Kind, bytes and members are those that the converter found. Kernels, host and
stragglers change by `time-factors` of the system file.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from playing import Played
from program import Machine, Program
from recording import Form, write

from converters.pytorch.converting import Done
from converters.pytorch.folders import convert_all, jobs_of_folder
from et_sim import TraceBuilder, Workload, read_workload, simulate
from et_sim.trace import Trace
from et_sim.trace.columns import CollectiveKind, NodeKind

_SYSTEM = {
    "profile": "corrected",
    "scheduling-policy": "FIFO",
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["direct"],
    "all-gather-implementation": ["direct"],
}
_TRANSFER = "transfer"


@dataclass(frozen=True)
class Converted:
    """The traces of all ranks, and the reports of the converter."""

    traces: list[Trace]
    reports: list[dict[str, Any]]


def converted(program: Program, played: list[Played], form: Form) -> Converted:
    """Return recordings, written and converted as a folder, as by `et-convert pytorch`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recorded").mkdir()
        write(folder / "recorded", program, played, form)
        jobs, _ = jobs_of_folder(folder / "recorded", str(folder / "run"), frozenset())
        done: list[Done] = list(convert_all(jobs, 1, lambda *_: None))
        workload = read_workload(folder / "run")
        return Converted(
            [workload.trace(rank) for rank in range(workload.ranks)], [rank.report for rank in done]
        )


def spelled(found: Converted, program: Program) -> list[Trace]:
    """Return the traces with transfers as messages and gaps, on the network of the recorded machine."""
    tags: dict[Any, int] = {}
    return [_spelled(trace, rank, program, tags) for rank, trace in enumerate(found.traces)]


def predicted_ns(traces: list[Trace], machine: Machine) -> list[int]:
    """Return the end of each rank in et-sim, for traces whose transfers are messages and gaps."""
    on_network = [_on_network(trace, machine) for trace in traces]
    return _run(Workload.of(on_network), _SYSTEM | _factors(machine))


def replayed_ns(found: Converted) -> list[int]:
    """Return the time of each rank if everything takes the measured time."""
    ends = _run(Workload.of(found.traces), _SYSTEM | {"replay-only": 1})
    return [end - trace.start_ns for end, trace in zip(ends, found.traces, strict=True)]


def _factors(machine: Machine) -> dict[str, Any]:
    """Return the machine as keys of the system file; host and gaps of threads are one."""
    factors: list[dict[str, Any]] = []
    if machine.kernels != 1:
        factors.append({"kernels": machine.kernels, "copies": machine.kernels})
    if machine.host != 1:
        factors.append({"operators": machine.host, "launches": machine.host})
        factors.append({"gaps": machine.host, "name": "gap*"})
    for rank, factor in machine.straggler.items():
        of_rank: dict[str, Any] = {"ranks": str(rank)}
        factors.append(of_rank | dict.fromkeys(("kernels", "copies", "operators", "launches"), factor))
        factors.append(of_rank | {"gaps": factor, "name": "*gap*"})
    return {"time-factors": factors} if factors else {}


def _run(workload: Workload, system: dict[str, Any]) -> list[int]:
    network = {
        "topology": ["FullyConnected"],
        "npus_count": [workload.ranks],
        "bandwidth": [1000.0],
        "latency": [0],
    }
    if workload.ranks == 1:
        network["topology"] = ["Ring"]
    result = simulate(workload, system=system, network=network)
    return [int(end) for end in result.finish_ns]


def _on_network(trace: Trace, machine: Machine) -> Trace:
    """Return the trace with the times of transfers on another network."""
    if machine.network == 1:
        return trace
    is_transfer = trace.name == trace.names.index(_TRANSFER) if _TRANSFER in trace.names else trace.name < 0
    lasts = np.rint(trace.duration_ns * machine.network).astype(np.int64)
    return replace(trace, duration_ns=np.where(is_transfer, lasts, trace.duration_ns))


def _spelled(trace: Trace, rank: int, program: Program, tags: dict[Any, int]) -> Trace:
    """Return a rank's trace with its transfers as messages and gaps, each with a tag.

    The time of a transfer is a gap of a special name, which factors leave unchanged.
    """
    build = TraceBuilder()
    ids = trace.node_id.tolist()
    free = max(ids, default=0) + 1
    count: dict[Any, int] = {}
    for row in _in_order(trace):
        kind = NodeKind(int(trace.kind[row]))
        after = [ids[parent] for parent in trace.parents(row).tolist()]
        if kind == NodeKind.METADATA:
            build.invalid(node_id=ids[row], after=after)
        elif kind == NodeKind.COMP:
            marks = {name: 1 for name in ("gap", "launch", "copy") if getattr(trace, f"is_{name}")[row]}
            build.compute(
                trace.node_name(row),
                nanos=int(trace.duration_ns[row]),
                cpu=bool(trace.is_cpu[row]),
                concurrent=True,
                node_id=ids[row],
                after=after,
                attributes=marks,
            )
        else:
            key, members = _meeting(trace, row, kind, rank, program)
            count[key] = count.get(key, 0) + 1
            others = [member for member in members if member != rank]
            tag = tags.setdefault((key, count[key]), len(tags))
            for at, other in enumerate(others):
                build.send(other, 1, tag, after=after, node_id=free + 2 * at)
                build.receive(other, 1, tag, after=after, node_id=free + 2 * at + 1)
            arrived = [free + 2 * at + 1 for at in range(len(others))]
            free += 2 * len(others)
            build.compute(
                _TRANSFER,
                nanos=program.transfer_ns(int(trace.comm_bytes[row])),
                concurrent=True,
                node_id=ids[row],
                after=arrived or after,
                attributes={"gap": 1},
            )
    return replace(build.build(), start_ns=trace.start_ns)


def _meeting(
    trace: Trace, row: int, kind: NodeKind, rank: int, program: Program
) -> tuple[Any, tuple[int, ...]]:
    """Return a key of the transfers of one place, and the ranks that meet there."""
    if kind == NodeKind.COLL:
        group = trace.group_names[int(trace.group[row])]
        members = program.groups.get(group or "0", tuple(range(len(program.ranks))))
        return (group, CollectiveKind(int(trace.comm_type[row])).name), members
    ends = (int(trace.comm_dst[row]), rank) if kind == NodeKind.SEND else (rank, int(trace.comm_src[row]))
    first, second = ends if kind == NodeKind.SEND else (ends[0], ends[1])
    return ("message", second, first), tuple(sorted((first, second)))


def _in_order(trace: Trace) -> list[int]:
    """Return rows by measured start: transfers of one kind and group in the order in which they happened."""
    order: list[int] = np.lexsort((trace.node_id, _starts(trace))).tolist()
    return order


def _starts(trace: Trace) -> Any:
    """Return the begin of each node if everything takes the measured time."""
    count = len(trace)
    start = np.zeros(count, np.int64)
    duration = trace.duration_ns
    parents = [trace.parents(row).tolist() for row in range(count)]
    children: list[list[int]] = [[] for _ in range(count)]
    missing = [len(of_row) for of_row in parents]
    for row, of_row in enumerate(parents):
        for parent in of_row:
            children[parent].append(row)
    ready = [row for row in range(count) if not missing[row]]
    while ready:
        row = ready.pop()
        end = start[row] + duration[row]
        for child in children[row]:
            start[child] = max(start[child], end)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    return start
