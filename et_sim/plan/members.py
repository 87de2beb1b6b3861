"""Actors, which represent ranks that behave identically, and their membership of every group they use.

The member table begins with one member per actor in the whole system, in order; then one per actor for each
listed group that spans the system; then those of the other groups, actor by actor. A member that has no
collectives in a group comes at the end: messages to it wait there for ever.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import in_order_of_first
from et_sim.plan import records
from et_sim.plan.groups import WHOLE_SYSTEM, GroupTable
from et_sim.trace.workload import Workload


class Actors(Struct, frozen=True, eq=False):
    """`of_rank[r]` is the actor of rank r; `representative[a]` the lowest rank of actor a."""

    of_rank: Any  # int32
    representative: Any  # int64, ascending
    link_classes: Any = None  # class of each link, if actors share links; None: all links differ
    link_turns: Any = None  # the sources of messages on them (`LinkTurns`), if they carry one at a time
    limits: tuple[records.FoldLimit, ...] = ()  # reasons for more actors than different programs

    def __len__(self) -> int:
        return len(self.representative)

    @property
    def is_folded(self) -> bool:
        """Return whether any actor represents several ranks."""
        return len(self.representative) < len(self.of_rank)

    @staticmethod
    def one_per_rank(ranks: int, limits: tuple[records.FoldLimit, ...] = ()) -> Actors:
        """Return an actor for each rank."""
        return Actors(np.arange(ranks, dtype=np.int32), np.arange(ranks, dtype=np.int64), limits=limits)

    @staticmethod
    def of_classes(classes: Any, link_classes: Any = None) -> Actors:
        """Return one actor per distinct value of `classes`, numbered by lowest rank."""
        first, of_rank = in_order_of_first(classes)
        return Actors(of_rank.astype(np.int32), first.astype(np.int64), link_classes)


class MemberTables:
    """The numbers of members; `used[t]` are the canonical names of the groups that template t uses."""

    def __init__(self, workload: Workload, actors: Actors, groups: GroupTable, used: list[list[str]]) -> None:
        self._workload = workload
        self._actors = actors
        self._groups = groups
        self._used = used
        self._template = workload.template_of_rank[actors.representative]
        counts = np.array([len(names) for names in used], np.int64)[self._template]
        self.usage_first = np.concatenate(([0], np.cumsum(counts)))  # per actor, into `actor_members`
        self._row = self._rows()
        self._small_first, self._next = self._number_small()
        self._extra: list[tuple[int, int, int]] = []

    def _rows(self) -> Any:
        """Return the group row of every usage of every actor."""
        rows = np.zeros(int(self.usage_first[-1]), np.int64)
        by_template = np.argsort(self._template, kind="stable")
        first = np.searchsorted(self._template[by_template], np.arange(len(self._used) + 1)).tolist()
        for (begin, end), names in zip(pairwise(first), self._used, strict=True):
            mine = by_template[begin:end]
            for usage, name in enumerate(names):
                if name == WHOLE_SYSTEM:
                    continue
                ranks = self._actors.representative[mine].tolist()
                if self._groups.is_rule(name):
                    group_rows = [self._groups.row(name, rank) for rank in ranks]
                else:
                    group_rows = [self._groups.row(name, 0)] * len(ranks)
                rows[self.usage_first[mine] + usage] = group_rows
        return rows

    def _number_small(self) -> tuple[Any, int]:
        """Return members by usages of groups that do not span the system, and the number of all members."""
        spanning = [row for row in range(len(self._groups)) if self._groups.spans_system(row)]
        self._spanning_first = {row: place * len(self._actors) for place, row in enumerate(spanning)}
        small = ~np.isin(self._row, spanning)
        first = len(spanning) * len(self._actors)
        return first + np.cumsum(small) - small, first + int(small.sum())

    def finish(self, groups: Any, member_count: int) -> tuple[Any, Any, Any]:
        """Return the member table, the rows of the actors' usages and of all listed members; set
        `first_member`.
        """
        owner = np.repeat(np.arange(len(self._actors)), np.diff(self.usage_first))
        actor_members = self._small_first.copy()
        for row, first in self._spanning_first.items():
            groups["first_member"][row] = first
            which = np.flatnonzero(self._row == row)
            actor_members[which] = first + owner[which]
        group_members = np.zeros(member_count, np.int32)
        for row in range(1, len(self._groups)):
            at = self._groups.first_member(row)
            group_members[at : at + len(self._groups.members(row))] = self._rows_of_members(row)
        members = records.table(records.MEMBER, self._next)
        for row, first in self._spanning_first.items():
            span = slice(first, first + len(self._actors))
            members["actor"][span] = np.arange(len(self._actors))
            members["group"][span], members["position"][span] = row, self._actors.representative
        small = np.flatnonzero(~np.isin(self._row, list(self._spanning_first)))
        members["actor"][actor_members[small]] = owner[small]
        members["group"][actor_members[small]] = self._row[small]
        positions = self._positions(owner[small], self._row[small])
        members["position"][actor_members[small]] = positions
        for member, (actor, row, position) in enumerate(self._extra, self._next - len(self._extra)):
            members[member] = (actor, row, position)
        return members, actor_members.astype(np.int32), group_members

    def _positions(self, owner: Any, rows: Any) -> Any:
        ranks = self._actors.representative[owner]
        out = np.empty(len(owner), np.int32)
        order = np.argsort(rows, kind="stable")
        for block in np.split(order, np.flatnonzero(np.diff(rows[order])) + 1) if len(order) else []:
            row = int(rows[block[0]])
            members = self._groups.members(row)
            by_rank = np.argsort(members)
            at = np.minimum(np.searchsorted(members[by_rank], ranks[block]), len(members) - 1)
            out[block] = by_rank[at]
            outside = np.flatnonzero(members[out[block]] != ranks[block])
            if len(outside):
                self._refuse(int(ranks[block][outside[0]]), row)
        return out

    def _refuse(self, rank: int, row: int) -> None:
        raise TraceError(
            f"rank {rank} has a collective in communicator group {self._groups.names[row]} "
            "and is not a member of it",
            place=self._workload.trace(rank).source or self._workload.source,
            remedy="add the rank to the group or the collective to another group",
        )

    def _rows_of_members(self, row: int) -> Any:
        """Return the row of every member's actor, found by the name under which the member uses the group."""
        if row in self._spanning_first:
            return self._spanning_first[row] + self._actors.of_rank[self._groups.members(row)]
        name = self._groups.canonical_names[row]
        members = self._groups.members(row)
        actors = self._actors.of_rank[members]
        templates = self._workload.template_of_rank[members]
        out = np.empty(len(members), np.int64)
        numbers, which = np.unique(templates, return_inverse=True)
        used = (self._used[template] for template in numbers.tolist())
        usage = np.array([names.index(name) if name in names else -1 for names in used])[which.reshape(-1)]
        mine = usage >= 0
        out[mine] = self._small_first[self.usage_first[actors[mine]] + usage[mine]]
        left = np.flatnonzero(~mine)
        for place in left[np.argsort(templates[left], kind="stable")].tolist():
            out[place] = self._next
            self._next += 1
            self._extra.append((int(actors[place]), row, place))
        return out
