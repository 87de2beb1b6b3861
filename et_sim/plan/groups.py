"""Communicator groups: the group that a name stands for on a rank, and the places of its members.

Group row 0 is the whole system in rank order; other rows are made when they are first needed. A listed group
that holds every rank behaves like the whole system (its members' order in the file does not matter), but
counts its own collectives. Where groups are laid out on the machine, the order of their members in the file
does not matter either. Where traces describe groups themselves, a name may stand for different groups on
different ranks: each of these has a canonical name of its own. Where the last node of the machine is partly
filled, no group spans the machine, and that of all ranks is laid out as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.basics.group_names import group_key
from et_sim.machine.model import LogicalGrid
from et_sim.plan import records
from et_sim.plan.layout import Layout, classes_of_groups, sides_of_group
from et_sim.plan.records import UsedGroup
from et_sim.trace.group_attributes import ALL_RANKS
from et_sim.trace.workload import Workload

if TYPE_CHECKING:
    from et_sim.trace.group_rule import GroupRule

WHOLE_SYSTEM = ""
ALL_OF_PART = "\n"  # the group of all ranks, if they do not fill the last node
OwnGroups = Mapping[str, tuple[int, ...]]  # groups that a trace describes, by key


class GroupShape(Struct, frozen=True):
    """The properties of a group on which the lowering of a collective depends."""

    members: int
    spans_system: bool
    listed: bool  # as opposed to the implicit group of all ranks
    layout: Layout | None = None  # None: it spans the system, or is one ring as it is listed
    name: str = ""  # canonical; only where the group itself matters

    @property
    def is_as_listed(self) -> bool:
        """Return whether the group is one ring through its members, wherever they are."""
        return self.layout is None and not self.spans_system


class GroupTable:
    """All groups of a run, addressed by row."""

    def __init__(
        self,
        ranks: int,
        listed: Mapping[str, tuple[int, ...]],
        rules: Mapping[str, GroupRule],
        grid: LogicalGrid | None = None,
    ) -> None:
        """Take the groups and the grid on which they are laid out; without a grid, they are as they are
        listed.
        """
        self._ranks, self._grid = ranks, grid
        self._is_whole = grid is None or not grid.filled
        self._layouts: dict[int, Layout] = {}
        self._listed = listed
        self._rules = rules
        self._described: dict[str, tuple[int, ...]] = {}  # by canonical name
        if not self._is_whole:
            self._described[ALL_OF_PART] = tuple(range(ranks))
        self._canonical = {(name, frozenset(of)): name for name, of in listed.items()}
        self._rows: dict[tuple[str, int], int] = {(WHOLE_SYSTEM, 0): 0}
        self._members: list[Any] = [np.arange(ranks, dtype=np.int32)]
        self._as_listed = list(self._members)
        self._used: dict[str, UsedGroup] = {}
        self._first = [0]
        self._flat = 0
        self.names = [WHOLE_SYSTEM]  # per row, as in the input
        self.canonical_names = [WHOLE_SYSTEM]  # per row

    def canonical(self, name: str, place: str, groups: OwnGroups) -> str:
        """Return the canonical name of the group that a node calls `name`; raise if there is none.

        `groups` are those that the node's trace describes; they override all others.
        """
        key = group_key(name)
        if key in groups:
            return self._canonical_of_described(key, groups[key], place)
        if key == WHOLE_SYSTEM:
            return self._all
        if name in self._rules:
            return name
        if key in self._listed:
            return key
        known = [*groups, *self._listed, *self._rules]
        hint = did_you_mean(name, known) or (
            f"known groups: {', '.join(known[:8])}" if known else "pass the groups file with --groups"
        )
        raise TraceError(f"communicator group {name!r} is not defined", place=place, remedy=hint)

    def _canonical_of_described(self, key: str, members: tuple[int, ...], place: str) -> str:
        members = tuple(range(self._ranks)) if members == ALL_RANKS else members
        beyond = [rank for rank in members if not 0 <= rank < self._ranks]
        if beyond:
            raise TraceError(
                f"process group {key or '0'!r} lists rank {beyond[0]}; ranks are 0 to {self._ranks - 1}",
                place=place,
                remedy="describe a machine with more NPUs, or correct the trace's metadata",
            )
        if key == WHOLE_SYSTEM:
            if len(members) == self._ranks:
                return self._all
            raise TraceError(
                f'process group "0" lists {len(members)} ranks, but the machine has {self._ranks}',
                place=place,
                remedy="group 0 always holds all ranks: run on as many NPUs as the trace is from",
            )
        known = (key, frozenset(members))
        if known not in self._canonical:
            self._canonical[known] = f"{key}\n{len(self._described)}"
            self._described[self._canonical[known]] = members
        canonical = self._canonical[known]
        if len(members) < self._ranks and tuple(self._listing(canonical)) != members:
            raise TraceError(
                f"process group {key!r} lists its members in another order than elsewhere",
                place=place,
                remedy="list them in one order in all traces and in the groups file: it is that of the ring",
            )
        return canonical

    @property
    def _all(self) -> str:
        """Return the canonical name of the group of all ranks."""
        return WHOLE_SYSTEM if self._is_whole else ALL_OF_PART

    def _listing(self, name: str) -> tuple[int, ...]:
        """Return members of a group without a rule, as listed."""
        return self._described[name] if name in self._described else self._listed[name]

    def row(self, name: str, rank: int) -> int:
        """Return the row of the group that a canonical name stands for on `rank`; of a rule, by default the
        first.
        """
        rule = self._rules.get(name)
        first = max(rule.first(rank), 0) if rule else 0
        key = (name, first)
        if key not in self._rows:
            members = rule.members(first) if rule else self._listing(name)
            self._as_listed.append(np.array(members, np.int32))
            if self._is_in_order(len(members)):
                members = tuple(sorted(members))
            self._rows[key] = len(self._members)
            self._first.append(self._flat)
            self._flat += len(members)
            self._members.append(np.array(members, np.int32))
            self.names.append(self._shown(name))
            self.canonical_names.append(name)
        return self._rows[key]

    @property
    def are_laid_out(self) -> bool:
        """Return whether groups that are a part of the system run along sides of their own."""
        return self._grid is not None

    def classes(self, name: str) -> Any:
        """Return a number for each of the groups of a name; groups with equal numbers have equal layouts."""
        assert self._grid is not None
        return classes_of_groups(self._grid, self.all_of(name))

    def _is_in_order(self, members: int) -> bool:
        """Return whether members of a group of this size are placed by rank, not by their listed order."""
        return members == self._ranks or self._grid is not None

    def used(self, name: str) -> UsedGroup:
        """Return the group of a canonical name, as its name in the input and its members or rule."""
        if name not in self._used:
            rule = self._everyone() if name == WHOLE_SYSTEM else self._rules.get(name)
            self._used[name] = UsedGroup(self._shown(name), rule or self._listing(name))
        return self._used[name]

    def _everyone(self) -> GroupRule:
        from et_sim.trace.group_rule import GroupRule

        return GroupRule(self._ranks)

    def _shown(self, name: str) -> str:
        """Return a canonical name as the input has it."""
        return name.rpartition("\n")[0] if name in self._described else name

    def is_rule(self, name: str) -> bool:
        """Return whether a canonical name stands for different groups on different ranks."""
        return name in self._rules

    def __len__(self) -> int:
        return len(self._members)

    def shape(self, row: int) -> GroupShape:
        """Return the shape of a group."""
        return GroupShape(len(self._members[row]), self.spans_system(row), row > 0, self.layout(row))

    def layout(self, row: int) -> Layout | None:
        """Return the layout of a group on the machine; None if it is as listed, or spans the system."""
        if self._grid is None or self.spans_system(row):
            return None
        if row not in self._layouts:
            self._layouts[row] = sides_of_group(self._grid, self._members[row].astype(np.int64))
        return self._layouts[row]

    def all_of(self, name: str) -> Any:
        """Return the members of every group that a canonical name stands for, a row each, by position."""
        rule = self._rules.get(name)
        if name == WHOLE_SYSTEM:
            return np.arange(self._ranks)[None, :]
        if rule is None:
            return np.array(self._listing(name), np.int64)[self.order_of(name)][None, :]
        return rule.groups(self._ranks)

    def order_of(self, name: str) -> Any:
        """Return for each position the index of its member in the list of a group without a rule."""
        listing = self._listing(name)
        return np.argsort(listing) if self._is_in_order(len(listing)) else np.arange(len(listing))

    def spans_system(self, row: int) -> bool:
        """Return whether every place of the machine is a member's."""
        return len(self._members[row]) == self._ranks and (self._is_whole or row == 0)

    def members(self, row: int) -> Any:
        """Return ranks of the group, in the order of their positions."""
        return self._members[row]

    def as_listed(self, row: int) -> Any:
        """Return ranks of the group as its definition lists them, also if it holds all ranks."""
        return self._as_listed[row]

    def first_member(self, row: int) -> int:
        """Return where the group's members begin in the member table."""
        return self._first[row]

    def position(self, row: int, rank: int) -> int | None:
        """Return the rank's place in the group; None if it is not a member."""
        if row == 0:
            return rank if 0 <= rank < self._ranks else None
        places = np.flatnonzero(self._members[row] == rank)
        return int(places[0]) if len(places) else None

    def tables(self, axes: Any, queue_sets: Callable[[GroupShape], int]) -> tuple[Any, Any]:
        """Return the group table without `first_member`, and the ranks of all groups but the first."""
        out = records.table(records.GROUP, len(self._members))
        for row in range(len(out)):
            out[row].members = len(self._members[row])
            out[row].members_first, out[row].axis = self._first[row], axes[row]
            out[row].queue_sets = queue_sets(self.shape(row))
        return out, np.concatenate([np.empty(0, np.int32), *self._members[1:]])


def layout_classes(workload: Workload, grid: LogicalGrid | None) -> Iterator[Any]:
    """Yield, for every rule whose groups lie on the machine in several ways, the way of each rank's group."""
    if grid is None:
        return
    for rule in workload.group_rules.values():
        members = rule.groups(workload.ranks)
        of_group = classes_of_groups(grid, members)
        if of_group.any():
            of_rank = np.full(workload.ranks, -1)
            of_rank[members] = of_group[:, None]
            yield of_rank
