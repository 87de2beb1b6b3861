"""Custom collectives: programs of sends, receives and computations in trace files of their own.

A member runs the file of its place among the sorted members of its group (in the system's own group: of
its rank); peers are places in the group as its definition lists them. All ready nodes are issued at once,
without lanes, endpoint delays or reductions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compute import replay_ns
from et_sim.errors import TraceError
from et_sim.plan import tables
from et_sim.plan.channels import ChannelTables
from et_sim.plan.groups import GroupTable
from et_sim.plan.peers import Endpoints, check_peers, find_endpoints, rank_place
from et_sim.plan.tables import Action, Treatment
from et_sim.plan.templates import TemplateTables
from et_sim.trace.columns import Has, NodeKind, Trace
from et_sim.trace.files import read_workload


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    rank: int
    template: int
    endpoints: Endpoints
    members: Any
    state_first: int


class CustomTables:
    """Reads custom programs once each, and gives every member of a group its row."""

    def __init__(self, groups: GroupTable, templates: TemplateTables) -> None:
        self._groups = groups
        self._templates = templates
        self._template_rows: dict[int, tuple[int, Endpoints]] = {}  # by trace
        self._traces: list[Trace] = []  # keeps the keys above alive
        self._first: dict[tuple[str, int], int] = {}
        self._members: list[_Member] = []
        self._state = 0

    def first_member(self, prefix: str, group: int) -> int:
        """Where the rows of a group's members begin, in the order of their positions."""
        key = (prefix, group)
        if key not in self._first:
            self._first[key] = self._add_members(prefix, group)
        return self._first[key]

    def _add_members(self, prefix: str, group: int) -> int:
        members = self._groups.members(group).astype(np.int64)
        programs = read_workload(prefix, len(members))
        first = len(self._members)
        for rank, place in zip(members.tolist(), np.argsort(np.argsort(members)).tolist(), strict=True):
            trace = programs.trace(place)
            row, endpoints = self._template(trace)
            check_peers(trace, rank_place(rank, trace), endpoints, len(members))
            self._members.append(_Member(rank, row, endpoints, members, self._state))
            self._state += len(trace)
        return first

    def _template(self, trace: Trace) -> tuple[int, Endpoints]:
        if id(trace) not in self._template_rows:
            row = self._templates.add(_lower(trace), trace)
            self._template_rows[id(trace)] = (row, find_endpoints(trace))
            self._traces.append(trace)
        return self._template_rows[id(trace)]

    @property
    def are_used(self) -> bool:
        """Whether any collective is a custom one."""
        return bool(self._members)

    def finish(self, channels: ChannelTables) -> tuple[Any, int]:
        """(member table, how many nodes have a state); adds the members' channels."""
        out = tables.table(tables.CUSTOM, len(self._members))
        for row, member in zip(out, self._members, strict=True):
            row.template, row.state_first = member.template, member.state_first
            row.channel_first = channels.add_custom(member.rank, member.endpoints, member.members)
        return out, self._state


def _lower(trace: Trace) -> Any:
    nodes = tables.table(tables.NODE, len(trace))
    kinds = (NodeKind.COMP, NodeKind.SEND, NodeKind.RECV)
    strange = np.flatnonzero(~np.isin(trace.kind, [int(kind) for kind in kinds]))
    if len(strange):
        raise TraceError(
            f"{trace.describe(int(strange[0]))} is neither a computation nor a send nor a receive",
            place=trace.source,
            remedy="a custom collective consists of these three",
        )
    message = trace.kind != NodeKind.COMP
    unsized = np.flatnonzero(message & ((trace.present & int(Has.COMM_SIZE)) == 0))
    if len(unsized):
        raise TraceError(
            f"{trace.describe(int(unsized[0]))} lacks the attribute 'comm_size'",
            place=trace.source,
            remedy="say how many bytes it moves",
        )
    nodes["action"][trace.kind == NodeKind.COMP] = Action.DELAY
    nodes["action"][trace.kind == NodeKind.SEND] = Action.SEND
    nodes["action"][trace.kind == NodeKind.RECV] = Action.RECEIVE
    nodes["treatment"] = Treatment.MODELLED
    nodes["duration_ns"] = replay_ns(trace.duration_us)
    nodes["detail"][message] = np.arange(int(message.sum()))
    nodes["bytes"] = trace.comm_bytes
    return nodes
