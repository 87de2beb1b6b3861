"""Collective nodes of a template -> requests: which collective each one is, with which algorithm.

Not here: what a request becomes (`collective_lowering`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.collectives import Operation
from et_sim.collectives.tree import GOES_DOWN, GOES_UP
from et_sim.compute import Treatment
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.model import System
from et_sim.plan.collective_lowering import CollectiveRequest, CollectiveTables, Loads
from et_sim.plan.exchanges import PLAIN
from et_sim.plan.groups import GroupTable
from et_sim.plan.tables import Action
from et_sim.trace.columns import CollectiveKind, Trace
from et_sim.trace.order import edges, fits_row_order, issue_order
from et_sim.trace.process_groups import read_process_groups

NATIVE, UNSAID, ALONE = -1, -1, -1
SIZE = 1  # among the columns of a signature
NO_ROOT = -(2**40)  # is no rank that a trace can name


class CustomChoice:
    """Which collectives run a custom program: named by node, else by collective type."""

    def __init__(self, system: System, by_node: dict[int, str]) -> None:
        self._by_kind = {CollectiveKind[k.upper()]: p for k, p in system.custom_implementations.items()}
        self._by_node = by_node
        self.prefixes = tuple(dict.fromkeys([*by_node.values(), *self._by_kind.values()]))

    def codes(self, trace: Trace, rows: Any) -> Any:
        """Per row the number of its prefix, or NATIVE.

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
            keys = np.stack((trace.group[rows[listed]], trace.comm_type[rows[listed]]), axis=1)
            first, of_key = np.unique(keys, axis=0, return_index=True, return_inverse=True)[1:]
            out[listed] = out[listed[first[of_key.reshape(-1)]]]
        return out


def lower_collectives(
    nodes: Any,
    trace: Trace,
    rank: int,
    groups: GroupTable,
    collectives: CollectiveTables,
    custom: CustomChoice,
    place: str,
    template: int,
) -> list[str]:
    """Point collective nodes at their rows; returns the names of the groups the template uses.

    `rank` is any rank that runs the template: for the others, too, a name means a group of that shape.
    """
    used: list[str] = []
    own_groups = read_process_groups(trace)
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    if not len(rows):
        return used
    exchanges = collectives.exchanges.of_rows(template, rows)
    datatypes = trace.datatype[rows] if collectives.minds_datatypes else np.zeros(len(rows), np.int64)
    own = np.concatenate((_signature(trace, rows, custom), datatypes[:, None].astype(np.int64)), axis=1)
    own[exchanges != PLAIN, SIZE] = 0  # members put in different amounts
    before = _planned_before(trace, rows, collectives)
    signature = np.concatenate((own, exchanges[:, None], before[:, None]), axis=1)
    unique, first_at, of_row = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    loads: Loads = ()
    for index in np.argsort(unique[:, -1], kind="stable").tolist():
        at = first_at[index]
        kind, size, priority, name, dims, involved, code, root, datatype, exchange, before = unique[
            index
        ].tolist()
        where = f"{place}, {trace.describe(int(rows[at]))}"
        group = groups.canonical(trace.group_names[name], where, own_groups)
        group_row = groups.row(group, rank)
        if groups.is_rule(group) and (code != NATIVE or root != NO_ROOT):
            what = "runs a custom collective" if code != NATIVE else f"names the root {root}"
            raise TraceError(
                f"{trace.describe(int(rows[at]))} {what} in group {group!r}, "
                "which is another one for other ranks",
                place=place,
                remedy="expand the workload to a file per rank (et-convert expand)",
            )
        if exchange != PLAIN and code != NATIVE:
            raise TraceError(
                "an all-to-all with comm_split_sizes runs a custom program, which has sizes of its own",
                place=where,
                remedy="leave comm_split_sizes out",
            )
        request = CollectiveRequest(
            operation=Operation(kind),
            size=size,
            priority=priority,
            group=collectives.shape(group_row),
            involved=None if involved == UNSAID else tuple(bool(dims >> d & 1) for d in range(involved)),
            custom=None if code == NATIVE else (custom.prefixes[code], group_row),
            root=0 if root == NO_ROOT else _root_position(groups, group_row, root, where),
            exchange=exchange,
            loads=loads if before != ALONE else (),
            datatype=datatype_named(trace.datatypes[datatype]) or "",
        )
        row = collectives.add(request)
        if before != ALONE:
            loads = collectives.loads_after(request)
        which = rows[of_row.reshape(-1) == index]
        if row is None:  # nobody has to move anything: done at once
            nodes["action"][which] = Action.INSTANT
            nodes["treatment"][which] = Treatment.INSTANT
            continue
        if group not in used:
            used.append(group)
        nodes["detail"][which] = row
        nodes["member"][which] = used.index(group)
    _count_like(nodes, _in_program_order(trace, rows.astype(np.int32)))
    return used


def _planned_before(trace: Trace, rows: Any, collectives: CollectiveTables) -> Any:
    """Of collectives that wait for nothing: how many come before; only Themis in ASTRA-sim 1.0 minds.

    All others are planned alone.
    """
    before = np.full(len(rows), ALONE, np.int64)
    if collectives.sees_others:
        parents = np.diff(trace.data_start)[rows] + np.diff(trace.ctrl_start)[rows]
        roots = np.flatnonzero(parents == 0)
        before[roots] = np.arange(len(roots))
    return before


def _in_program_order(trace: Trace, rows: Any) -> Any:
    """Ascending, unless dependencies run against the node ids."""
    return rows if fits_row_order(*edges(trace)) else issue_order(trace, rows)[0]


def _count_like(nodes: Any, rows: Any) -> None:
    """Number the collectives of a template, in program order, among those of the same row and group."""
    rows = rows[nodes["action"][rows] == Action.COLLECTIVE]
    order = np.lexsort((np.arange(len(rows)), nodes["detail"][rows], nodes["member"][rows]))
    rows = rows[order]
    pairs = np.stack((nodes["member"][rows], nodes["detail"][rows]), axis=1)
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    place = np.arange(len(rows))
    nodes["occurrence"][rows] = place - np.maximum.accumulate(np.where(begins, place, 0))


def _signature(trace: Trace, rows: Any, custom: CustomChoice) -> Any:
    """What distinguishes collectives, one row of integers each."""
    says_involved = trace.has("involved_dim", rows)
    columns = (
        _operations(trace, rows),
        np.where(trace.comm_type[rows] == CollectiveKind.BARRIER, 0, trace.comm_bytes[rows]),  # moves nothing
        trace.comm_priority[rows],
        trace.group[rows],
        trace.involved_dims[rows],
        np.where(says_involved, trace.involved_count[rows].astype(np.int64), UNSAID),
        custom.codes(trace, rows),
        _roots(trace, rows),
    )
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def _roots(trace: Trace, rows: Any) -> Any:
    """The rank that data of a rooted collective comes from (comm_src) or goes to (comm_dst), if said."""
    kinds = trace.comm_type[rows]
    from_root = np.isin(kinds, [op for op in GOES_DOWN if op not in GOES_UP])
    to_root = np.isin(kinds, [op for op in GOES_UP if op not in GOES_DOWN])
    out = np.full(len(rows), NO_ROOT, np.int64)
    for which, name in ((from_root, "comm_src"), (to_root, "comm_dst")):
        said = which & trace.has(name, rows)
        out[said] = getattr(trace, name)[rows[said]]
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
    """In blocks or not, a reduce-scatter moves the same."""
    kinds = trace.comm_type[rows]
    in_blocks = kinds == CollectiveKind.REDUCE_SCATTER_BLOCK
    return np.where(in_blocks, int(CollectiveKind.REDUCE_SCATTER), kinds)
