"""Workload x machine -> `Plan`: everything that must happen, with all names resolved to numbers.

Not here: the rules for single nodes (`nodes`), collectives (`collective_lowering`), groups and
channels, which this module only puts together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import MachineError, TraceError
from et_sim.machine.model import Machine, StreamPolicy, System
from et_sim.machine.programs_file import read_programs
from et_sim.memory import server_of_ranks
from et_sim.plan import tables
from et_sim.plan.channels import ChannelTables
from et_sim.plan.collective_lowering import CollectiveTables
from et_sim.plan.collective_nodes import CustomChoice, lower_collectives
from et_sim.plan.custom import CustomTables
from et_sim.plan.groups import GroupTable
from et_sim.plan.nodes import lower_nodes
from et_sim.plan.tables import Plan
from et_sim.plan.templates import TemplateTables
from et_sim.trace.workload import Workload
from et_sim.units import LONGEST_NS, format_bytes, format_ns

STREAM_POLICY = {StreamPolicy.LIFO: 1, StreamPolicy.FIFO: -1, StreamPolicy.EXPLICIT: 0}


def build_plan(workload: Workload, machine: Machine) -> Plan:
    """Lower every rank of the workload onto the machine."""
    ranks, system = machine.network.ranks, machine.system
    _check_rank_count(workload, ranks)
    _refuse_unsimulated(machine)
    lowering = _Lowering(workload, machine)
    group_table, group_members = lowering.groups.tables()
    seats, member_seats = _build_seats(ranks, lowering.groups)
    actors, actor_seats = lowering.actors()
    templates, nodes, children = lowering.templates.finish()
    sizes = templates["nodes"][actors["template"]]
    actors["node_first"] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    channels, actor_channels = lowering.channels.finish()
    customs, custom_states = lowering.customs.finish()
    programs = lowering.collectives.programs()
    bus = _bus(system, int(programs["bundles"]["bytes"].max(initial=0)))
    return Plan(
        ranks=ranks,
        dimensions=len(machine.network.dimensions),
        queues_per_dim=system.queues_per_dim,
        running_limit=-(-system.active_chunks // system.queues_per_dim),
        stream_policy=STREAM_POLICY[system.policy],
        actor_of_rank=np.arange(ranks, dtype=np.int32),
        templates=templates,
        nodes=nodes,
        children=children,
        actors=actors,
        actor_channels=actor_channels,
        channels=channels,
        collectives=lowering.collectives.collectives(),
        phases=lowering.collectives.phases(),
        **programs,
        bus=bus,
        customs=customs,
        custom_states=custom_states,
        lines=lowering.collectives.lines(),
        groups=group_table,
        group_members=group_members,
        member_seats=member_seats,
        seats=seats,
        actor_seats=actor_seats,
        handshakes=int(channels["handshake"].max(initial=-1)) + 1,
        rendezvous=system.rendezvous,
        memory_servers=int(actors["memory_server"].max(initial=-1)) + 1,
        corrections=system.corrections,
    )


def _bus(system: System, most_bytes: int) -> Any:
    """The shared memory bus as a table of one row, or of none."""
    if system.shared_bus is None:
        return tables.table(tables.BUS, 0)
    slowest = max(
        system.shared_bus.gap_per_byte * most_bytes, system.local_reduction_delay * (most_bytes // 100)
    )
    if slowest > LONGEST_NS:
        raise MachineError(
            f"a transfer of {format_bytes(most_bytes)} on the shared bus would take longer than "
            f"{format_ns(LONGEST_NS)}",
            place="system configuration",
            remedy='correct "G" (ns per byte) or "local-reduction-delay" (ns per 100 bytes)',
        )
    bus = tables.table(tables.BUS, 1)
    row = bus[0]
    row.latency_ns, row.overhead_ns = system.shared_bus.latency, system.shared_bus.overhead
    row.gap_ns, row.reduction_delay_ns = system.shared_bus.gap, system.local_reduction_delay
    row.gap_per_byte = np.float32(system.shared_bus.gap_per_byte)  # single precision, as in the reference
    return bus


def _check_rank_count(workload: Workload, ranks: int) -> None:
    if workload.ranks != ranks:
        raise TraceError(
            f"the workload has {workload.ranks} ranks and the network connects {ranks} NPUs",
            place=workload.source,
            remedy="give one trace per NPU, or change npus_count in the network file",
        )


def _refuse_unsimulated(machine: Machine) -> None:
    system = machine.system
    asked = {
        "track-local-mem": system.track_local_mem,
    }
    for key, wanted in asked.items():
        if wanted:
            raise MachineError(
                f"key {key!r} asks for something that this version does not simulate",
                place="system configuration",
                remedy="remove the key to simulate without it",
            )


class _Lowering:
    """The tables under construction."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        self._workload = workload
        self._machine = machine
        self.groups = GroupTable(machine.network.ranks, machine.groups)
        self.channels = ChannelTables(machine.network.ranks)
        self.templates = TemplateTables(len(workload.templates))
        # Channels of the actors come first, so that an actor's place in them is its channel_first.
        self._channel_first = [
            self.channels.add(rank, workload.trace(rank)) for rank in range(machine.network.ranks)
        ]
        self.customs = CustomTables(self.groups, self.templates, self.channels)
        self.collectives = CollectiveTables(machine, self.groups, self.customs)
        choice = CustomChoice(machine.system, read_programs(machine.system.per_node_implementation))
        self._group_rows: list[list[int]] = []  # per template: the groups it uses
        for index, trace in enumerate(workload.templates):
            place = trace.source or workload.source
            nodes = lower_nodes(trace, machine, place)
            used = lower_collectives(nodes, trace, self.groups, self.collectives, choice, place)
            self._group_rows.append(used)
            self.templates.put(index, nodes, trace)

    def actors(self) -> tuple[Any, Any]:
        """(actor table but for `node_first`, seats of every actor in the groups its template uses)."""
        ranks = np.arange(self._workload.ranks, dtype=np.int32)
        actors = tables.table(tables.ACTOR, len(ranks))
        actors["template"] = self._workload.template_of_rank
        actors["rank"] = ranks
        actors["channel_first"] = self._channel_first
        counts = np.array([len(rows) for rows in self._group_rows], np.int64)[actors["template"]]
        first = np.concatenate(([0], np.cumsum(counts)))
        actors["seat_first"] = first[:-1]
        actors["memory_server"] = server_of_ranks(self._machine.memory, ranks)
        seats = np.empty(int(first[-1]), np.int32)
        for rank in np.flatnonzero(counts).tolist():
            rows = self._group_rows[actors["template"][rank]]
            seats[first[rank] : first[rank + 1]] = [self._seat(row, rank) for row in rows]
        return actors, seats

    def _seat(self, row: int, rank: int) -> int:
        position = self.groups.position(row, rank)
        if position is None:
            raise TraceError(
                f"rank {rank} has a collective in communicator group {self.groups.number(row)} "
                "and is not a member of it",
                place=self._workload.trace(rank).source or self._workload.source,
                remedy="add the rank to the group or the collective to another group",
            )
        return self.groups.first_seat(row) + position


def _build_seats(ranks: int, groups: GroupTable) -> tuple[Any, Any]:
    """One seat per rank in the system's own group, then one per member of every listed group."""
    group_table, members = groups.tables()
    seats = tables.table(tables.SEAT, ranks + len(members))
    seats["actor"][:ranks] = np.arange(ranks)
    seats["position"][:ranks] = np.arange(ranks)
    seats["actor"][ranks:] = members
    for row in range(1, len(group_table)):
        start = ranks + int(group_table[row].members_first)
        span = slice(start, start + int(group_table[row].members))
        seats["group"][span] = row
        seats["position"][span] = np.arange(int(group_table[row].members))
    return seats, np.arange(ranks, ranks + len(members), dtype=np.int32)
