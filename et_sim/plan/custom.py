"""Custom collectives: programs of sends, receives and computations in trace files of their own.

A member runs the file of its place among the sorted members of its group (in the system's own group: of its
rank); peers are places in the group as its definition lists them, also if it holds all ranks. Corrected, both
are places in the list, and messages of different programs never match. All ready nodes are issued at once,
without lanes, endpoint delays or reductions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.units import exact_bytes
from et_sim.collectives import PhaseOperation
from et_sim.compute import Treatment, recorded_ns
from et_sim.machine.model import Notice
from et_sim.plan import records
from et_sim.plan.channels import WORKLOAD, ChannelTables, Endpoints, check_peers, find_endpoints, rank_place
from et_sim.plan.groups import GroupTable
from et_sim.plan.nodes import TemplateTables
from et_sim.plan.records import Action
from et_sim.trace.columns import NodeKind, Trace
from et_sim.trace.files import read_workload


class _Member(Struct, frozen=True, eq=False):
    rank: int
    template: int
    endpoints: Endpoints
    members: Any
    space: int  # of its messages


class CustomTables:
    """The custom programs, each read once, and their rows for members of groups."""

    def __init__(self, groups: GroupTable, templates: TemplateTables, *, by_position: bool) -> None:
        self._groups = groups
        self._templates = templates
        self._by_position = by_position
        self.notices: list[Notice] = []
        self.inputs: list[tuple[str, str]] = []  # files that were read: path, content hash
        self.are_misplaced = False  # some member runs the program of another place than its peers expect
        self._template_rows: dict[int, tuple[int, Endpoints]] = {}  # by trace
        self._traces: list[Trace] = []  # keeps the keys above alive
        self._first: dict[tuple[str, int], int] = {}
        self._members: list[_Member] = []

    def first_member(self, prefix: str, group: int) -> int:
        """Return where the rows of a group's members begin, in the order of their positions."""
        key = (prefix, group)
        if key not in self._first:
            self._first[key] = self._add_members(prefix, group)
        return self._first[key]

    def _add_members(self, prefix: str, group: int) -> int:
        members = self._groups.members(group).astype(np.int64)
        listed = self._groups.as_listed(group).astype(np.int64)
        programs = read_workload(prefix, len(members), may_be_more=True)
        self.notices += [Notice(prefix, "", text) for text in programs.notices]
        self.inputs += programs.inputs
        first = len(self._members)
        by_rank = np.argsort(listed)
        ascending = np.searchsorted(listed[by_rank], members)
        places = by_rank[ascending] if self._by_position else ascending
        self.are_misplaced |= bool((places != by_rank[ascending]).any())
        space = 1 + len(self._first) if self._by_position else WORKLOAD
        for rank, place in zip(members.tolist(), places.tolist(), strict=True):
            trace = programs.trace(place)
            row, endpoints = self._template(trace)
            check_peers(trace, rank_place(rank, trace), endpoints, len(members))
            self._members.append(_Member(rank, row, endpoints, listed, space))
        return first

    def _template(self, trace: Trace) -> tuple[int, Endpoints]:
        if id(trace) not in self._template_rows:
            row = self._templates.add(_lower(trace), trace)
            self._template_rows[id(trace)] = (row, find_endpoints(trace))
            self._traces.append(trace)
        return self._template_rows[id(trace)]

    def compare(self, prefix: str, group: int, operation: PhaseOperation, size: int) -> None:
        """Add a notice if a program moves less or more than a collective of that size can need."""
        count = len(self._groups.members(group))
        limits = _received_bytes(operation, count, size)
        members = self._members[self.first_member(prefix, group) :][:count]
        if limits is None or not any(len(member.endpoints.rows) for member in members):
            return  # a program of computations alone has a fixed time
        received = [int(m.endpoints.bytes[~m.endpoints.is_send].sum()) for m in members]
        strange = [place for place, amount in enumerate(received) if not limits[0] <= amount <= limits[1]]
        if strange:
            least, most = (exact_bytes(limit) for limit in limits)
            needs = least if least == most else f"{least} to {most}"
            operation_name, first = operation.name.lower(), strange[0]
            text = (
                f"rank {members[first].rank} receives {exact_bytes(received[first])} in the program, "
                f"and {operation_name} of {exact_bytes(size)} over {count} members takes {needs}"
            )
            self.notices.append(Notice(prefix, "", text))

    @property
    def are_used(self) -> bool:
        """Return whether any collective is a custom one."""
        return bool(self._members)

    def finish(self, channels: ChannelTables) -> Any:
        """Return the member table, and add the members' channels."""
        out = records.table(records.CUSTOM, len(self._members))
        for row, member in zip(out, self._members, strict=True):
            row.template = member.template
            row.channel_first = channels.add_custom(
                member.rank, member.endpoints, member.members, member.space
            )
        return out


def _received_bytes(operation: PhaseOperation, members: int, size: int) -> tuple[int, int] | None:
    """Return the least and the most bytes that a member can need with any algorithm; None if that depends.

    Pieces may have been rounded up, so a hundredth more passes.
    """
    others = (members - 1) * size
    least = {
        PhaseOperation.ALL_GATHER: others,
        PhaseOperation.ALL_REDUCE: min(size, others),
        PhaseOperation.REDUCE_SCATTER: min(size // members, others),
        PhaseOperation.ALL_TO_ALL: others // members,
    }
    return (least[operation], others + others // 100) if operation in least else None


def _lower(trace: Trace) -> Any:
    nodes = records.table(records.NODE, len(trace))
    kinds = (NodeKind.COMP, NodeKind.SEND, NodeKind.RECV)
    strange = np.flatnonzero(~np.isin(trace.kind, [int(kind) for kind in kinds]))
    if len(strange):
        raise TraceError(
            f"{trace.describe(int(strange[0]))} is neither a computation nor a send nor a receive",
            place=trace.source,
            remedy="a custom collective consists of these three",
        )
    message = trace.kind != NodeKind.COMP
    unsized = np.flatnonzero(message & ~trace.has("comm_size"))
    if len(unsized):
        raise TraceError(
            f"{trace.describe(int(unsized[0]))} lacks the attribute 'comm_size'",
            place=trace.source,
            remedy="give the number of bytes that it moves",
        )
    nodes["action"][trace.kind == NodeKind.COMP] = Action.DELAY
    nodes["action"][trace.kind == NodeKind.SEND] = Action.SEND
    nodes["action"][trace.kind == NodeKind.RECV] = Action.RECEIVE
    nodes["treatment"] = Treatment.MODELLED
    nodes["duration_ns"] = recorded_ns(trace)
    nodes["detail"][message] = np.arange(int(message.sum()))
    nodes["bytes"] = trace.comm_bytes
    return nodes
