"""Collective nodes of a template -> requests for collectives, with their algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import groups_of, sorted_groups
from et_sim.collectives import PhaseOperation
from et_sim.compute import Treatment
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.model import System
from et_sim.plan.collective_lowering import CollectiveRequest, CollectiveTables, Loads
from et_sim.plan.exchanges import PLAIN
from et_sim.plan.groups import GroupTable, OwnGroups
from et_sim.plan.records import Action
from et_sim.trace.columns import CollectiveKind, Trace
from et_sim.trace.group_attributes import read_process_groups
from et_sim.trace.stack import Stack

NATIVE, NOT_GIVEN, ALONE = -1, -1, -1
SIZE, GROUP = 1, 3  # among the columns of a signature
NO_ROOT = -(2**40)  # no rank that a trace can name


class CustomChoice:
    """The choice of custom programs for collectives: by node, else by collective type."""

    def __init__(self, system: System, by_node: dict[int, str]) -> None:
        self._by_kind = {CollectiveKind[k.upper()]: p for k, p in system.custom_implementations.items()}
        self._by_node = by_node
        self.prefixes = tuple(dict.fromkeys([*by_node.values(), *self._by_kind.values()]))

    def codes(self, trace: Trace, rows: Any, template: Any) -> Any:
        """Return for each row the number of its prefix, or NATIVE.

        A listed group settles on the algorithm of its first collective of a type, as the reference does.
        """
        out = np.full(len(rows), NATIVE, np.int64)
        operations = _operations(trace, rows)
        for code, prefix in enumerate(self.prefixes):
            for kind, of_kind in self._by_kind.items():
                if of_kind == prefix:
                    out[operations == kind] = code
        for node, prefix in self._by_node.items():
            out[trace.node_id[rows] == node] = self.prefixes.index(prefix)
        listed = np.flatnonzero(trace.group[rows] != 0)
        if self._by_node and len(listed):
            which = rows[listed]
            alike = groups_of(template[listed], trace.group[which], trace.comm_type[which])
            out[listed] = out[listed[alike.first[alike.of_row]]]
        return out


class _Alike(Struct, frozen=True):
    """The properties that distinguish collectives of templates."""

    kind: int
    size: int
    priority: int
    group: int  # index of the group's name; `datatype` likewise
    dims: int
    involved: int
    code: int
    root: int
    datatype: int
    exchange: int


class _Lowered(Struct, frozen=True):
    """The result of lowering collectives that are alike."""

    request: CollectiveRequest
    row: int | None  # None: no bytes have to move
    group: str
    is_rule: bool  # other ranks have another group of that name


def lower_collectives(
    nodes: Any,
    stack: Stack,
    lowest: Any,
    groups: GroupTable,
    collectives: CollectiveTables,
    custom: CustomChoice,
    places: Sequence[str],
) -> list[list[str]]:
    """Set the rows of collective nodes; return the names of the groups that each template uses.

    `lowest` has any rank that runs each template; for the others, a name stands for a group of the same
    shape.
    """
    trace = stack.trace
    used: list[list[str]] = [[] for _ in stack.heads]
    own_groups = {
        at: read_process_groups(stack.traces[at]) for at, head in enumerate(stack.heads) if head.metadata_text
    }
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    if not len(rows):
        return used
    from et_sim.trace.order import in_program_order

    template = stack.of_row[rows]
    exchanges = _exchanges(stack, rows, template, collectives)
    datatypes = np.zeros((2, len(rows)), np.int64)
    if collectives.uses_datatypes:
        datatypes[:] = stack.own_texts["datatype"][rows], trace.datatype[rows]
    signature = _signature(trace, rows, template, custom)
    signature[SIZE, exchanges != PLAIN] = 0  # members put in different amounts
    before = _planned_before(trace, rows, template, collectives)
    in_order = signature.copy()
    in_order[GROUP] = stack.own_texts["group"][rows]
    order, first = sorted_groups(template, before, *in_order, datatypes[0], exchanges)
    at = order[first]
    details, members = np.full((2, len(first)), NOT_GIVEN, np.int64)
    known: dict[_Alike, _Lowered] = {}
    loads: Loads = ()
    last = -1
    every = np.stack((template, before, rows, *signature, datatypes[1], exchanges), axis=1)[at].tolist()
    for index, (of, placed, row, *content) in enumerate(every):
        if of != last:
            last, loads = of, ()
        alike = _Alike(*content)
        lowered = known.get(alike) if placed == ALONE and of not in own_groups else None
        if lowered is None or lowered.is_rule:
            node = trace.describe(row)
            lowered = _lower(
                alike,
                trace,
                node,
                places[of],
                int(lowest[of]),
                own_groups.get(of, {}),
                groups,
                collectives,
                custom,
                loads if placed != ALONE else (),
            )
            if placed != ALONE:
                loads = collectives.loads_after(lowered.request)
            elif of not in own_groups:
                known[alike] = lowered
        if lowered.row is None:
            continue
        if lowered.group not in used[of]:
            used[of].append(lowered.group)
        details[index], members[index] = lowered.row, used[of].index(lowered.group)
    kind_of = np.empty(len(rows), np.int64)
    kind_of[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    detail, member = details[kind_of], members[kind_of]
    moves = detail != NOT_GIVEN
    done_at_once = rows[~moves]
    nodes["action"][done_at_once] = Action.INSTANT
    nodes["treatment"][done_at_once] = Treatment.INSTANT
    nodes["detail"][rows[moves]] = detail[moves]
    nodes["member"][rows[moves]] = member[moves]
    _count_like(nodes, in_program_order(stack, rows), template)
    return used


def _lower(
    alike: _Alike,
    trace: Trace,
    node: str,
    place: str,
    rank: int,
    own_groups: OwnGroups,
    groups: GroupTable,
    collectives: CollectiveTables,
    custom: CustomChoice,
    loads: Loads,
) -> _Lowered:
    """Make a request of collectives that are alike; `node` is the first of them, which `rank` runs."""
    where = f"{place}, {node}"
    group = groups.canonical(trace.group_names[alike.group], where, own_groups)
    group_row, is_rule = groups.row(group, rank), groups.is_rule(group)
    if is_rule and (alike.code != NATIVE or alike.root != NO_ROOT):
        subject = "runs a custom collective" if alike.code != NATIVE else f"names the root {alike.root}"
        raise TraceError(
            f"{node} {subject} in group {group!r}, which has other members on other ranks",
            place=place,
            remedy="expand the workload to a file per rank (et-convert expand)",
        )
    if alike.exchange != PLAIN and alike.code != NATIVE:
        raise TraceError(
            "an all-to-all with comm_split_sizes runs a custom program, which has sizes of its own",
            place=where,
            remedy="leave comm_split_sizes out",
        )
    involved = tuple(bool(alike.dims >> d & 1) for d in range(alike.involved))
    request = CollectiveRequest(
        operation=PhaseOperation(alike.kind),
        size=alike.size,
        priority=alike.priority,
        group=collectives.shape(group_row),
        involved=None if alike.involved == NOT_GIVEN else involved,
        custom=None if alike.code == NATIVE else (custom.prefixes[alike.code], group_row),
        root=0 if alike.root == NO_ROOT else _root_position(groups, group_row, alike.root, where),
        exchange=alike.exchange,
        loads=loads,
        datatype=datatype_named(trace.datatypes[alike.datatype]) or "",
    )
    return _Lowered(request, collectives.add(request), group, is_rule)


def _exchanges(stack: Stack, rows: Any, template: Any, collectives: CollectiveTables) -> Any:
    """Return the number of the exchange of each row."""
    exchange_of_row = np.full(len(rows), PLAIN, np.int64)
    for number in collectives.exchanges.templates:
        if number in stack.numbers:
            at = number - stack.number
            mine = template == at
            exchange_of_row[mine] = collectives.exchanges.of_rows(number, rows[mine] - stack.first[at])
    return exchange_of_row


def _planned_before(trace: Trace, rows: Any, template: Any, collectives: CollectiveTables) -> Any:
    """Return how many collectives without parents come before each such collective; only Themis needs it.

    All others are planned alone.
    """
    before = np.full(len(rows), ALONE, np.int64)
    if collectives.plans_jointly:
        parents = np.diff(trace.data_start)[rows] + np.diff(trace.ctrl_start)[rows]
        roots = np.flatnonzero(parents == 0)
        first = np.searchsorted(template[roots], template[roots])
        before[roots] = np.arange(len(roots)) - first
    return before


def _count_like(nodes: Any, rows: Any, template: Any) -> None:
    """Number the collectives of templates, in program order, among those of the same row and group."""
    is_one = nodes["action"][rows] == Action.COLLECTIVE
    rows, template = rows[is_one], template[is_one]
    order, first = sorted_groups(template, nodes["member"][rows], nodes["detail"][rows])
    place = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    nodes["occurrence"][rows[order]] = place


def _signature(trace: Trace, rows: Any, template: Any, custom: CustomChoice) -> Any:
    """Return the properties that distinguish collectives, a column of integers each."""
    has_involved = trace.has("involved_dim", rows)
    columns = (
        _operations(trace, rows),
        np.where(trace.comm_type[rows] == CollectiveKind.BARRIER, 0, trace.comm_bytes[rows]),  # moves nothing
        trace.comm_priority[rows],
        trace.group[rows],
        trace.involved_dims[rows],
        np.where(has_involved, trace.involved_count[rows].astype(np.int64), NOT_GIVEN),
        custom.codes(trace, rows, template),
        _roots(trace, rows),
    )
    return np.stack([column.astype(np.int64) for column in columns])


def _roots(trace: Trace, rows: Any) -> Any:
    """Return the rank from which (comm_src) or to which (comm_dst) rooted data goes, if given."""
    from et_sim.collectives.trees import GOES_DOWN, GOES_UP

    kinds = trace.comm_type[rows]
    from_root = np.isin(kinds, [op for op in GOES_DOWN if op not in GOES_UP])
    to_root = np.isin(kinds, [op for op in GOES_UP if op not in GOES_DOWN])
    out = np.full(len(rows), NO_ROOT, np.int64)
    for which, name in ((from_root, "comm_src"), (to_root, "comm_dst")):
        given = which & trace.has(name, rows)
        out[given] = getattr(trace, name)[rows[given]]
    return out


def _root_position(groups: GroupTable, group: int, root: int, place: str) -> int:
    position = groups.position(group, root)
    if position is None:
        raise TraceError(
            f"the root is rank {root}, which is not a member of the group",
            place=place,
            remedy="name a member as comm_src (broadcast, scatter) or comm_dst (reduce, gather)",
        )
    return position


def _operations(trace: Trace, rows: Any) -> Any:
    """Return the operations; a reduce-scatter in blocks moves the same bytes as one without."""
    kinds = trace.comm_type[rows]
    in_blocks = kinds == CollectiveKind.REDUCE_SCATTER_BLOCK
    return np.where(in_blocks, int(CollectiveKind.REDUCE_SCATTER), kinds)
