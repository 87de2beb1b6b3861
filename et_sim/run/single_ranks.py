"""Ranks that run by themselves: what of a workload is there, where communication takes its recorded time.

One rank of many can be simulated without the others, and several of them side by side, none waiting for
another. The network carries nothing, so it has as many NPUs as there are traces.

Not here: what replayed communication does in a plan (`plan.nodes`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import structs

from et_sim.basics.errors import TraceError
from et_sim.machine import Machine, Notice, read_network_alone
from et_sim.trace import Workload, read_workload
from et_sim.trace.columns import NodeKind
from et_sim.trace.files import read_traces, traces_of


def read_alone(path: str | Path) -> Workload:
    """The traces that are there: of a prefix all files, whichever ranks they are of, or a single file."""
    files = traces_of(path)
    if not files:
        return read_workload(path)
    workload = read_traces(list(files.values()), str(path))
    if list(files) == list(range(len(files))):
        return workload
    ranks = ", ".join(f"{at} is rank {rank} of {path.name}" for at, (rank, path) in enumerate(files.items()))
    return structs.replace(workload, notices=(*workload.notices, f"ranks are numbered anew: {ranks}"))


def refuse_without_times(workload: Workload) -> None:
    """Raise if nothing of what a trace communicates has a recorded time: it would take none."""
    for trace in workload.templates:
        communicates = np.isin(trace.kind, (NodeKind.SEND, NodeKind.RECV, NodeKind.COLL))
        if communicates.any() and not (trace.duration_us | trace.duration_ns)[communicates].any():
            raise TraceError(
                "none of its sends, receives and collectives has a recorded time, and --alone needs them",
                place=trace.source,
                remedy="simulate all ranks together, or convert it with its timeline (--device)",
            )


def machine_alone(machine: Machine, ranks: int) -> Machine:
    """The machine without communication."""
    network = machine.network
    if network.ranks != ranks:
        one_ring = {"topology": ["Ring"], "npus_count": [ranks], "bandwidth": [1.0], "latency": [0.0]}
        network = read_network_alone(one_ring)
    notice = Notice("", "alone", "every rank runs by itself: communication takes its recorded time")
    return replace(
        machine,
        network=network,
        system=replace(machine.system, replay_communication=True),
        groups={},
        warnings=(*machine.warnings, notice),
    )
