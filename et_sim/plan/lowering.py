"""Workload x machine -> `Plan`: everything that must happen, with all names resolved to numbers.

Not here: the rules for single nodes (`nodes`), collectives (`collective_lowering`), groups and
channels, which this module only puts together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.collectives import Operation
from et_sim.errors import MachineError, TraceError
from et_sim.machine.model import Machine, StreamPolicy
from et_sim.memory import server_of_ranks
from et_sim.plan import tables
from et_sim.plan.channels import build_channels
from et_sim.plan.collective_lowering import CollectiveRequest, CollectiveTables
from et_sim.plan.groups import GroupTable
from et_sim.plan.nodes import lower_nodes
from et_sim.plan.tables import LANES, Action, Plan
from et_sim.trace.columns import Has, Trace
from et_sim.trace.workload import Workload

STREAM_POLICY = {StreamPolicy.LIFO: 1, StreamPolicy.FIFO: -1, StreamPolicy.EXPLICIT: 0}


def build_plan(workload: Workload, machine: Machine) -> Plan:
    """Lower every rank of the workload onto the machine."""
    ranks = machine.network.ranks
    _check_rank_count(workload, ranks)
    _refuse_unsimulated(machine)
    actor_rank = np.arange(ranks, dtype=np.int32)
    groups = GroupTable(ranks, machine.groups)
    collectives = CollectiveTables(machine, groups)
    lowered = _Templates(workload, machine, groups, collectives)
    channels, actor_channels, channel_first = build_channels(workload, ranks, actor_rank)
    seats, member_seats = _build_seats(ranks, groups)
    actor_seats, seat_first = lowered.seats_of_actors(actor_rank)
    actors = lowered.actors(actor_rank, channel_first, seat_first)
    actors["memory_server"] = server_of_ranks(machine.memory, actor_rank)
    programs = collectives.programs()
    group_table, group_members = groups.tables()
    system = machine.system
    return Plan(
        ranks=ranks,
        dimensions=len(machine.network.dimensions),
        queues_per_dim=system.queues_per_dim,
        running_limit=-(-system.active_chunks // system.queues_per_dim),
        stream_policy=STREAM_POLICY[system.policy],
        actor_of_rank=np.arange(ranks, dtype=np.int32),
        templates=lowered.templates,
        nodes=lowered.nodes,
        children=lowered.children,
        actors=actors,
        actor_channels=actor_channels,
        channels=channels,
        collectives=collectives.collectives(),
        phases=collectives.phases(),
        **programs,
        lines=collectives.lines(),
        groups=group_table,
        group_members=group_members,
        member_seats=member_seats,
        seats=seats,
        actor_seats=actor_seats,
        handshakes=int(channels["handshake"].max(initial=-1)) + 1,
        rendezvous=system.rendezvous,
        memory_servers=int(actors["memory_server"].max(initial=-1)) + 1,
    )


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
        "model-shared-bus": system.shared_bus is not None,
        "per-node-custom-implementation": system.per_node_implementation is not None,
        "…-implementation-custom": bool(system.custom_implementations),
        "track-local-mem": system.track_local_mem,
    }
    for key, wanted in asked.items():
        if wanted:
            raise MachineError(
                f"key {key!r} asks for something that this version does not simulate",
                place="system configuration",
                remedy="remove the key to simulate without it",
            )


class _Templates:
    """The node tables of all templates, end to end."""

    def __init__(
        self, workload: Workload, machine: Machine, groups: GroupTable, collectives: CollectiveTables
    ) -> None:
        self._workload = workload
        self._groups = groups
        self._group_rows: list[list[int]] = []  # per template: the groups it uses
        self.templates = tables.table(tables.TEMPLATE, len(workload.templates))
        nodes, children, node_first, child_first = [], [], 0, 0
        for index, trace in enumerate(workload.templates):
            place = trace.source or workload.source
            table = lower_nodes(trace, machine, place)
            self._group_rows.append(_lower_collectives(table, trace, groups, collectives, place))
            kids = _attach_children(table, trace)
            table["children_first"] += child_first
            _fill_template(self.templates[index], table, node_first)
            nodes.append(table)
            children.append(kids)
            node_first += len(table)
            child_first += len(kids)
        self.nodes: Any = np.concatenate(nodes).view(np.recarray)
        self.children = np.concatenate(children)

    def seats_of_actors(self, actor_rank: Any) -> tuple[Any, Any]:
        """(seats of every actor in the groups its template uses, where each actor's begin)."""
        of_actor = self._workload.template_of_rank[actor_rank]
        counts = np.array([len(rows) for rows in self._group_rows], np.int64)[of_actor]
        first = np.concatenate(([0], np.cumsum(counts)))
        seats = np.empty(int(first[-1]), np.int32)
        for actor in np.flatnonzero(counts):
            rank = int(actor_rank[actor])
            rows = self._group_rows[of_actor[actor]]
            seats[first[actor] : first[actor + 1]] = [self._seat(row, rank) for row in rows]
        return seats, first[:-1]

    def _seat(self, row: int, rank: int) -> int:
        position = self._groups.position(row, rank)
        if position is None:
            number = int(self._groups.tables()[0][row].number)
            raise TraceError(
                f"rank {rank} has a collective in communicator group {number} and is not a member of it",
                place=self._workload.trace(rank).source or self._workload.source,
                remedy="add the rank to the group or the collective to another group",
            )
        return self._groups.first_seat(row) + position

    def actors(self, actor_rank: Any, channel_first: Any, seat_first: Any) -> Any:
        """The actor table."""
        actors = tables.table(tables.ACTOR, len(actor_rank))
        actors["template"] = self._workload.template_of_rank[actor_rank]
        actors["rank"] = actor_rank
        sizes = self.templates["nodes"][actors["template"]]
        actors["node_first"] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        actors["channel_first"] = channel_first
        actors["seat_first"] = seat_first
        return actors


def _fill_template(row: Any, nodes: Any, node_first: int) -> None:
    row.node_first, row.nodes = node_first, len(nodes)
    per_lane = np.bincount(nodes["lane"], minlength=LANES)
    row.lane_first = np.concatenate(([0], np.cumsum(per_lane)[:-1]))


def _attach_children(nodes: Any, trace: Trace) -> Any:
    """Fill indegree and the children columns; returns the children, grouped by parent."""
    rows = np.arange(len(trace), dtype=np.int64)
    child = np.concatenate(
        (np.repeat(rows, np.diff(trace.data_start)), np.repeat(rows, np.diff(trace.ctrl_start)))
    )
    parent = np.concatenate((trace.data_deps, trace.ctrl_deps)).astype(np.int64)
    edges = np.unique(parent * len(trace) + child)  # a parent listed twice counts once
    parent, child = edges // max(len(trace), 1), edges % max(len(trace), 1)
    nodes["indegree"] = np.bincount(child, minlength=len(trace))
    nodes["children"] = np.bincount(parent, minlength=len(trace))
    nodes["children_first"] = np.concatenate(([0], np.cumsum(nodes["children"])[:-1])) if len(trace) else 0
    return child.astype(np.int32)


def _lower_collectives(
    nodes: Any, trace: Trace, groups: GroupTable, collectives: CollectiveTables, place: str
) -> list[int]:
    """Point collective nodes at their rows; returns the group rows the template uses."""
    used: list[int] = []
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    signature = np.stack(
        (
            trace.comm_type[rows].astype(np.int64),
            trace.comm_bytes[rows],
            trace.comm_priority[rows],
            trace.group[rows].astype(np.int64),
            trace.involved_dims[rows].astype(np.int64),
            np.where(
                trace.present[rows] & int(Has.INVOLVED_DIM), trace.involved_count[rows].astype(np.int64), -1
            ),
        ),
        axis=1,
    )
    unique, first_at, of_row = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    for index, (values, at) in enumerate(zip(unique.tolist(), first_at, strict=True)):
        group = groups.row(trace.group_names[values[3]], f"{place}, {trace.describe(int(rows[at]))}")
        request = CollectiveRequest(
            operation=Operation(values[0]),
            size=values[1],
            priority=values[2],
            group=group,
            involved=None if values[5] < 0 else tuple(bool(values[4] >> d & 1) for d in range(values[5])),
        )
        row = collectives.add(request)
        which = rows[of_row.reshape(-1) == index]
        if row is None:  # nobody has to move anything: done at once
            nodes["action"][which] = Action.INSTANT
            nodes["treatment"][which] = tables.Treatment.INSTANT
            continue
        if group not in used:
            used.append(group)
        nodes["detail"][which] = row
        nodes["seat"][which] = used.index(group)
    return used


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
