"""Ranks that send other bytes to their peers, or get other bytes from them, are not alike.

In an all-to-all with bytes for each pair, members have steps of their own. Two of them are alike only if
they send and receive the same in every step; whether their peers in these steps are alike, too, is found as
for all other exchanges (`axes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan.lowering import Lowering
from et_sim.plan.splitmix import splitmix64
from et_sim.plan.tables import Action


def sizes_of_ranks(lowering: Lowering) -> Any:
    """Per rank a number for all that its steps send and receive; None: no rank has steps of its own."""
    collectives = lowering.collectives
    if not collectives.exchanges.are_any:
        return None
    own = _OwnPrograms(collectives)
    seen = np.zeros(lowering.workload.ranks, np.uint64)
    for template, names in enumerate(lowering.used_groups):
        row = lowering.templates[template]
        nodes = lowering.nodes[int(row.node_first) : int(row.node_first) + int(row.nodes)]
        nodes = nodes[nodes["action"] == Action.COLLECTIVE]
        uses = np.unique(np.stack((nodes["member"], nodes["detail"]), axis=1), axis=0)
        ranks = np.flatnonzero(lowering.workload.template_of_rank == template)
        for usage, detail in uses.tolist():
            sizes = own.of_members(detail)
            if sizes is not None:
                mixed = splitmix64(sizes[_places(lowering, names[usage], ranks)] + np.uint64(detail), usage)
                with np.errstate(over="ignore"):
                    seen[ranks] += mixed
    return seen


def _places(lowering: Lowering, name: str, ranks: Any) -> Any:
    """Where ranks stand in the groups that they know by a name; in one of all ranks, at their own number."""
    members = lowering.groups.all_of(name)
    if members.shape[1] == lowering.workload.ranks:
        return ranks
    place = np.zeros(lowering.workload.ranks, np.int64)
    place[members] = np.arange(members.shape[1])
    return place[ranks]


class _OwnPrograms:
    """Signatures of members, by the collective's row."""

    def __init__(self, collectives: Any) -> None:
        self._collectives, self._plans = collectives.collectives(), collectives.chunk_plans()
        self._phases, self._tables = collectives.phases(), collectives.programs()
        self._of_program: dict[int, Any] = {}

    def of_members(self, collective: int) -> Any:
        """A number for each member; None: its phases have no steps of members."""
        programs = [program for program in self._programs(collective) if self._has_own(program)]
        if not programs:
            return None
        with np.errstate(over="ignore"):
            return sum((self._signature(program) for program in programs), np.uint64(0))

    def _programs(self, collective: int) -> list[int]:
        row = self._collectives[collective]
        plan, found = int(row.chunk_plan_first), set()
        while True:
            chunk_end, first = self._plans[plan].tolist()
            found |= set(self._phases["program"][first : first + int(row.phases * row.rotations)].tolist())
            if chunk_end == row.chunks:
                return sorted(found)
            plan += 1

    def _has_own(self, program: int) -> bool:
        return bool(self._tables["programs"]["own_steps"][program])

    def _signature(self, program: int) -> Any:
        if program not in self._of_program:
            row = self._tables["programs"][program]
            first, blocks = int(row["step_first"]), int(row["own_steps"])
            steps = self._tables["steps"][first : first + blocks * int(row["step_period"])]
            sizes = np.stack((steps["bytes"], steps["incoming"]), axis=1).reshape(blocks // 2, -1)
            with np.errstate(over="ignore"):
                column = splitmix64(np.arange(sizes.shape[1]), program + 1)
                self._of_program[program] = splitmix64(sizes.astype(np.uint64) + column, 11).sum(axis=1)
        return self._of_program[program]
