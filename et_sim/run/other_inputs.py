"""Runs of other inputs than traces of all ranks: layer files, and ranks by themselves.

A layer file, a text workload of ASTRA-sim 1.0, becomes one trace that all ranks run (`et_sim.layerfile`);
afterwards the times of the trace's nodes are added up by layer, as in 1.0.

One rank of many can be simulated without the others, or several that do not wait for each other:
communication takes its recorded time. The network carries nothing, so it has as many NPUs as there are
traces.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError, TraceError, UsageError
from et_sim.engine.outcome import Outcome
from et_sim.machine import Machine, Notice, read_network_alone
from et_sim.machine.model import Implementations, Network
from et_sim.machine.version_1 import price_of
from et_sim.timeline import Phases
from et_sim.timeline.layers import LayerOfNode, LayerRun, bytes_sent
from et_sim.trace import Workload, read_workload
from et_sim.trace.columns import NodeKind
from et_sim.trace.files import read_traces, traces_of

NO_LAYER = -1


class LayerFileRun:
    """A layer file on a machine; `workload` and `machine` are simulated."""

    def __init__(self, path: str | Path, machine: Machine) -> None:
        from et_sim.layerfile import layer_program, read_layer_file
        from et_sim.layerfile.statistics import left_out

        settings, sizes = machine.layers, tuple(d.npus for d in machine.network.grid.dimensions)
        layer_file = read_layer_file(path)
        self._program = layer_program(
            layer_file, settings.passes, sizes, settings.compute_scale, settings.comm_scale
        )
        ranks = np.zeros(machine.network.ranks, np.int32)
        self.workload = Workload(
            (self._program.trace,),
            ranks,
            source=str(path),
            inputs=((str(path), layer_file.sha256),),
            notices=tuple(left_out(self._program)),
        )
        logical = self._program.logical
        self.machine = machine if logical is None else _cut(machine, logical.sizes, logical.physical)

    def figures(self, outcome: Outcome, phases: Phases) -> LayerRun:
        """Return the totals of the run for rank 0."""
        from et_sim.layerfile import layer_table

        first = int(outcome.plan.actors["node_first"][outcome.plan.actor_of_rank[0]])
        nodes = outcome.nodes[first : first + len(self._program.trace)]
        table = layer_table(self._program, np.array(nodes["start_ns"]), np.array(nodes["end_ns"]))
        issued = self._program.collectives
        layer, phase = (np.full(len(self._program.trace), NO_LAYER, np.int32) for _ in range(2))
        layer[issued.row], phase[issued.row] = issued.layer, issued.phase
        network = self.machine.network
        return LayerRun(
            names=table.names,
            compute_ns=table.compute_ns,
            exposed_ns=table.exposed_ns,
            total_ns=table.total_ns,
            finish_ns=table.finish_ns,
            pass_end_ns=table.pass_end_ns.tolist(),
            sent_bytes=bytes_sent(outcome.plan, network, phases.blocks()),
            dollars=price_of(network) if network.levels else None,
            dimensions=[f"{d.shape.value} {d.npus}" for d in network.grid.dimensions],
            layer_of=LayerOfNode(layer, phase),
        )


def workload_without_machine(path: str | Path, ranks: int | None) -> Workload:
    """Return a layer file for `ranks` ranks, for inspection only."""
    from et_sim.layerfile import layer_workload, read_layer_file

    layer_file = read_layer_file(path)
    if ranks is None:
        raise UsageError(
            "a layer file does not state the number of ranks",
            place=str(path),
            remedy="give the machine, too: --system and --network",
        )
    return layer_workload(layer_file, ranks, 1)[0]


def _cut(machine: Machine, sizes: tuple[int, ...], level_of: tuple[int, ...]) -> Machine:
    """Return the machine with dimensions and algorithms divided by model- and data-parallel groups."""
    network = machine.network
    if len(sizes) == len(network.grid.dimensions):
        return machine
    if not network.levels:
        raise MachineError(
            "model-parallel groups divide a dimension of the network, which is a network of 2.x",
            remedy="describe the network as dimensions that the groups do not divide, or in the form of 1.0",
        )
    cut = Network.of_cut_levels(network.levels, tuple(zip(sizes, level_of, strict=True)))
    cut = replace(cut, credits=network.credits)
    lists = {}
    for name in Implementations.__struct_fields__:
        names = getattr(machine.system.implementations, name)
        spans = names is not None and any(name.startswith("one") for name in names)
        if names is not None and not spans:
            names = tuple(names[level] for level in level_of if level < len(names))
        lists[name] = names
    system = replace(machine.system, implementations=Implementations(**lists))
    return replace(machine, network=cut, system=system)


def read_alone(path: str | Path) -> Workload:
    """Return the existing traces: all files of a prefix, whatever their ranks, or a single file."""
    files = traces_of(path)
    if not files:
        return read_workload(path)
    workload = read_traces(list(files.values()), str(path))
    if list(files) == list(range(len(files))):
        return workload
    ranks = ", ".join(f"{at} is rank {rank} of {path.name}" for at, (rank, path) in enumerate(files.items()))
    return structs.replace(workload, notices=(*workload.notices, f"ranks are renumbered: {ranks}"))


def refuse_without_times(workload: Workload) -> None:
    """Refuse a trace that communicates, but has no recorded time of communication: it would take none."""
    for trace in workload.templates:
        communicates = np.isin(trace.kind, (NodeKind.SEND, NodeKind.RECV, NodeKind.COLL))
        if communicates.any() and not (trace.duration_us | trace.duration_ns)[communicates].any():
            raise TraceError(
                "none of its sends, receives and collectives has a recorded time, and --alone needs them",
                place=trace.source,
                remedy="simulate all ranks together, or convert it with its timeline (--device)",
            )


def machine_alone(machine: Machine, ranks: int) -> Machine:
    """Return the machine without communication."""
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
