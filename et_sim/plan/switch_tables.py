"""Trees of switches that reduce -> rows of the switch and branch tables, for the actors of a plan.

Every line of an axis that is left to switches, and every such group, has a tree. Lines whose members are the
same actors have equal trees, and share one: an actor represents all of its ranks there, too. In a folded plan
all trees are regular (`can_be_folded`), so that only the last of all members matters, whichever branch it
has: each level is one switch, and all actors are connected to the lowest one, as one of the ranks there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.unique import unique
from et_sim.machine.model import LogicalGrid
from et_sim.machine.switch_trees import NO_INDEX, SwitchTree
from et_sim.plan import records
from et_sim.plan.collective_lowering import CollectiveTables
from et_sim.plan.groups import GroupTable
from et_sim.plan.members import Actors


def can_be_folded(collectives: CollectiveTables, grid: LogicalGrid) -> bool:
    """Return whether all trees along an axis or of a name are regular and cost the same."""
    every = [_lines(grid, axis) for axis in collectives.switches.axes]
    every += [collectives.switches.lines(*place) for place in collectives.switches.groups]
    for lines in every:
        trees = [collectives.switches.trees.over(line) for line in lines]
        if any(tree is None or tree.figures is None for tree in trees):
            return False
        if collectives.switches.has_broadcasts and any(tree and len(tree.switches) > 1 for tree in trees):
            return False  # ranks near the root get the data earlier
        if len({tree.figures for tree in trees if tree is not None}) > 1:
            return False
    return True


def _lines(grid: LogicalGrid, axis: int) -> Any:
    """Return the ranks of every line along an axis; the last axis goes through all of them."""
    if axis == len(grid.dimensions):
        return np.arange(grid.ranks)[None, :]
    stride, members = grid.strides[axis], grid.dimensions[axis].npus
    ranks = np.arange(grid.ranks).reshape(-1, members, stride)
    return np.moveaxis(ranks, 1, -1).reshape(-1, members)


class SwitchTables:
    """The switch and branch tables while they are built."""

    def __init__(self, actors: Actors, group_members: Any, usages: int, axes: int, slots: Any) -> None:
        """Take the number of `axes` of the system, and by axis the slot of a group's members along it."""
        self._actors, self._group_members = actors, group_members
        self._axes, self._usages, self._slots = axes, usages, slots
        self._switches: list[tuple[float, ...]] = []
        self._branches: list[tuple[int, ...]] = []
        count = len(actors) * axes + usages * (1 + int(slots.max(initial=0)))
        self._own = np.full(count, NO_INDEX, np.int32)

    def add_axis(self, collectives: CollectiveTables, grid: LogicalGrid, axis: int) -> None:
        """Add the trees of an axis of the system."""
        known: set[bytes] = set()
        for line in _lines(grid, axis):
            ranks = self._actors.of_rank[line]
            key = unique(ranks).tobytes() if self._actors.is_folded else ranks.tobytes()
            if key not in known:
                known.add(key)
                rows = self._add(collectives.switches.trees.over(line), np.full(len(line), NO_INDEX), line)
                for actor, branch in rows:
                    self._own[actor * self._axes + axis] = branch

    def add_group(self, collectives: CollectiveTables, groups: GroupTable, row: int, axis: int) -> None:
        """Add the trees of a group: one, or one for each line along an axis."""
        ranks = np.asarray(groups.members(row), np.int64)
        first = groups.first_member(row)
        members = self._group_members[first : first + len(ranks)]
        lines = collectives.switches.lines_of(axis, np.stack((ranks, members))[:, None])
        slot = 0 if axis == records.NO_AXIS else int(self._slots[axis])
        base = len(self._actors) * self._axes + slot * self._usages
        for line, of_line in zip(*lines, strict=True):
            if self._own[base + of_line[0]] != NO_INDEX:
                continue  # a group of the same actors is already there
            for actor, branch in self._add(collectives.switches.trees.over(line), of_line, line):
                place = np.flatnonzero(self._actors.of_rank[line] == actor)[0]
                self._own[base + of_line[place]] = branch

    def _add(self, tree: SwitchTree | None, members: Any, ranks: Any) -> list[tuple[int, int]]:
        """Return actor and branch of all that are connected to a tree."""
        assert tree is not None
        place_of = {rank: rank for rank in ranks.tolist()}
        if self._actors.is_folded:
            tree, there = _merged(tree)
            place_of = dict.fromkeys(place_of, there)
        base, branches = len(self._switches), []
        member_of = dict(zip(ranks.tolist(), members.tolist(), strict=True))
        below: list[list[int]] = [[] for _ in tree.switches]
        for place, switch in enumerate(tree.switches):
            if switch.parent != NO_INDEX:
                below[switch.parent].append(place)
        branch_of = {0: NO_INDEX}
        for place, switch in enumerate(tree.switches):
            first, row, seen = len(self._branches), base + place, set()
            for other in below[place]:
                branch_of[other] = len(self._branches)
                members_there = tree.switches[other].members
                self._branches.append((row, base + other, NO_INDEX, NO_INDEX, NO_INDEX, members_there))
            for rank in switch.ranks:
                actor = int(self._actors.of_rank[rank])
                if actor not in seen:
                    seen.add(actor)
                    branches.append((actor, len(self._branches)))
                    self._branches.append((row, NO_INDEX, place_of[rank], actor, member_of[rank], 1))
            count = len(self._branches) - first
            stands = branch_of[place], first, count, switch.members, base, len(tree.switches)
            figures = switch.reducer.bytes_per_ns, switch.reducer.latency_ns
            self._switches.append((switch.endpoint, switch.server, switch.kind, *stands, *figures))
        return branches

    def finish(self) -> dict[str, Any]:
        """Return the tables by their names in the plan."""
        return {
            "switches": records.filled(records.SWITCH, self._switches),
            "branches": records.filled(records.BRANCH, self._branches),
            "own_branches": self._own if self._switches else self._own[:0],
        }


def _merged(tree: SwitchTree) -> tuple[SwitchTree, int]:
    """Return a regular tree with one switch per level, all ranks on the lowest, and one rank from there."""
    chain, at = [0], 0
    while not tree.switches[at].ranks:
        at = next(place for place, switch in enumerate(tree.switches) if switch.parent == at)
        chain.append(at)
    every = tuple(rank for switch in tree.switches for rank in switch.ranks)
    levels = [
        replace(tree.switches[place], parent=level - 1, ranks=every if level + 1 == len(chain) else ())
        for level, place in enumerate(chain)
    ]
    return SwitchTree(tuple(levels), tree.figures), tree.switches[at].ranks[0]


def switch_tables(
    collectives: CollectiveTables,
    groups: GroupTable,
    grid: LogicalGrid,
    actors: Actors,
    group_members: Any,
    members: int,
    slots: Any,
) -> dict[str, Any]:
    """Return all trees of a plan; `group_members` are the rows of the listed members, `members` all rows."""
    tables = SwitchTables(actors, group_members, members, len(grid.dimensions) + 1, slots)
    for axis in collectives.switches.axes:
        tables.add_axis(collectives, grid, axis)
    for row in range(1, len(groups)):
        for axis, name in collectives.switches.groups:
            if name == groups.canonical_names[row]:
                tables.add_group(collectives, groups, row, axis)
    trees = collectives.switches.trees
    names = {"switch_classes": tuple(kind.name for kind in trees.kinds)}
    return tables.finish() | names | {"switch_endpoints": trees.endpoints, "switch_servers": trees.servers}
