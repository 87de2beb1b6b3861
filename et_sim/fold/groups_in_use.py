"""The groups that templates use: their members, the axes of their collectives, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.unique import unique, unique_rows
from et_sim.plan.lowering import Lowering
from et_sim.plan.records import Action


class PhasesOfCollectives:
    """The phases of each collective."""

    def __init__(self, lowering: Lowering) -> None:
        collectives = lowering.collectives
        self._collectives, self._plans = collectives.collectives(), collectives.chunk_plans()
        self._phases = collectives.phases()

    def of(self, collective: int) -> Any:
        """Return the phases of all chunks of a collective, by its row."""
        row, parts = self._collectives[collective], []
        plan = int(row.chunk_plan_first)
        while True:
            chunk_end, first = self._plans[plan].tolist()
            parts.append(self._phases[first : first + int(row.phases * row.rotations)])
            if chunk_end == row.chunks:
                return np.concatenate(parts)
            plan += 1


def axes_in_use(lowering: Lowering) -> dict[str, dict[int, Any]]:
    """Return for each name of groups the axes of its collectives, with a mask of the templates that use
    them.
    """
    nodes, phases = np.asarray(lowering.nodes), PhasesOfCollectives(lowering)
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE)
    template = np.searchsorted(lowering.templates["node_first"], rows, side="right") - 1
    detail, of_row = np.unique(nodes["detail"][rows], return_inverse=True)
    ways = [tuple(unique(phases.of(row)["axis"]).tolist()) for row in detail.tolist()]
    numbers = {way: number for number, way in enumerate(dict.fromkeys(ways))}
    way = np.array([numbers[way] for way in ways], np.int64)[of_row.reshape(-1)]
    found: dict[str, dict[int, Any]] = {}
    for user, usage, number in unique_rows(template, nodes["member"][rows], way).tolist():
        axes = found.setdefault(lowering.used_groups[user][usage], {})
        for axis in list(numbers)[number]:
            axes.setdefault(axis, np.zeros(len(lowering.templates), np.bool_))[user] = True
    return found


def groups_in_use(lowering: Lowering) -> list[tuple[str, Any, Any]]:
    """Return for each group its name, its number in each rank's template, and its members by place."""
    workload, groups = lowering.workload, lowering.groups
    names = sorted({name for used in lowering.used_groups for name in used if name})
    found = []
    for name in names:
        usage = np.array([used.index(name) if name in used else -1 for used in lowering.used_groups])
        usage_of_rank = usage[workload.template_of_rank]
        if not _spans_system(lowering, name):
            found.append((name, usage_of_rank, groups.all_of(name)))
    return found


def numbers_of_spanning_groups(lowering: Lowering) -> Any:
    """Return for each template a number for its order of the groups of all ranks; equal if that is."""
    spanning = [
        name
        for name in sorted({name for used in lowering.used_groups for name in used})
        if _spans_system(lowering, name)
    ]
    known: dict[tuple[int, ...], int] = {}
    numbers = [
        known.setdefault(tuple(used.index(name) if name in used else -1 for name in spanning), len(known))
        for used in lowering.used_groups
    ]
    return np.array(numbers, np.int64)


def _spans_system(lowering: Lowering, name: str) -> bool:
    if lowering.machine.network.grid.filled:
        return False
    if lowering.groups.is_rule(name):
        return lowering.workload.group_rules[name].count == lowering.workload.ranks
    return lowering.groups.spans_system(lowering.groups.row(name, 0))
