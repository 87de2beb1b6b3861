"""Collective nodes of a template -> requests: which collective each one is, with which algorithm.

Not here: what a request becomes (`collective_lowering`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.collectives import Operation
from et_sim.errors import TraceError
from et_sim.machine.model import System
from et_sim.plan.collective_lowering import CollectiveRequest, CollectiveTables
from et_sim.plan.groups import GroupTable
from et_sim.plan.tables import Action, Treatment
from et_sim.trace.columns import CollectiveKind, Has, Trace
from et_sim.trace.process_groups import read_process_groups

NATIVE, UNSAID = -1, -1


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
        for code, prefix in enumerate(self.prefixes):
            for kind, of_kind in self._by_kind.items():
                if of_kind == prefix:
                    out[trace.comm_type[rows] == kind] = code
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
) -> list[str]:
    """Point collective nodes at their rows; returns the names of the groups the template uses.

    `rank` is any rank that runs the template: for the others, too, a name means a group of that shape.
    """
    used: list[str] = []
    own_groups = read_process_groups(trace)
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    signature = _signature(trace, rows, custom)
    unique, first_at, of_row = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    for index, (values, at) in enumerate(zip(unique.tolist(), first_at, strict=True)):
        kind, size, priority, name, dims, involved, code = values
        where = f"{place}, {trace.describe(int(rows[at]))}"
        group = groups.canonical(trace.group_names[name], where, own_groups)
        group_row = groups.row(group, rank)
        if code != NATIVE and groups.is_rule(group):
            raise TraceError(
                f"{trace.describe(int(rows[at]))} runs a custom collective in group {group!r}, "
                "which is another one for other ranks",
                place=place,
                remedy="expand the workload to a file per rank (et-convert expand)",
            )
        request = CollectiveRequest(
            operation=Operation(kind),
            size=size,
            priority=priority,
            group=groups.shape(group_row),
            involved=None if involved == UNSAID else tuple(bool(dims >> d & 1) for d in range(involved)),
            custom=None if code == NATIVE else (custom.prefixes[code], group_row),
        )
        row = collectives.add(request)
        which = rows[of_row.reshape(-1) == index]
        if row is None:  # nobody has to move anything: done at once
            nodes["action"][which] = Action.INSTANT
            nodes["treatment"][which] = Treatment.INSTANT
            continue
        if group not in used:
            used.append(group)
        nodes["detail"][which] = row
        nodes["seat"][which] = used.index(group)
    return used


def _signature(trace: Trace, rows: Any, custom: CustomChoice) -> Any:
    """What distinguishes collectives, one row of integers each."""
    says_involved = (trace.present[rows] & int(Has.INVOLVED_DIM)) != 0
    columns = (
        trace.comm_type[rows],
        trace.comm_bytes[rows],
        trace.comm_priority[rows],
        trace.group[rows],
        trace.involved_dims[rows],
        np.where(says_involved, trace.involved_count[rows].astype(np.int64), UNSAID),
        custom.codes(trace, rows),
    )
    return np.stack([column.astype(np.int64) for column in columns], axis=1)
