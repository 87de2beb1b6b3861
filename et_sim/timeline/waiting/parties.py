"""Parties of collectives: the members that a collective connects.

A collective of a whole group connects all of its members. A collective over some dimensions of the system
connects the ranks that differ in no other dimension. Where data goes one way along a tree, a member depends
only on the members that its data passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.plan.records import IN_GROUP, NO_AXIS, LoweredPlan

WHOLE = -1  # scope of a collective that connects its whole group


class OneWay(Struct, frozen=True):
    """A tree in which data goes in one direction."""

    tree_first: int
    members: int
    axis: int
    up: bool


class Parties(Struct, frozen=True, eq=False):
    """Parties: party p is `members[first[p]:first[p + 1]]`, rows of the plan's members, ascending."""

    of_row: Any  # per collective of the call
    first: Any
    members: Any

    def some(self, first: int, last: int, of_row: Any) -> Parties:
        """Return a range of parties, with the collectives that belong to them."""
        begin, end = self.first[[first, last + 1]]
        return Parties(of_row - first, self.first[first : last + 2] - begin, self.members[begin:end])


def parties(plan: LoweredPlan, member: Any, collective: Any) -> Parties:
    """Return the parties of these collectives of these members."""
    scopes, known = _scopes(plan)
    scope = scopes[collective]
    group = plan.members["group"][member].astype(np.int64)
    of_row = np.zeros(len(member), np.int64)
    parties_of_rows: list[Any] = []
    for kind in unique(scope).tolist():
        mine = np.flatnonzero(scope == kind)
        if kind != WHOLE and isinstance(scope_of := known[kind], OneWay):
            number, lists = _along_tree(plan, group[mine], member[mine], scope_of)
        elif kind == WHOLE:
            keys, number = np.unique(group[mine], return_inverse=True)
            lists = [_members_of(plan, row) for row in keys.tolist()]
        else:
            number, lists = _within(plan, group[mine], member[mine], known[kind])
        of_row[mine] = len(parties_of_rows) + number.reshape(-1)
        parties_of_rows += lists
    sizes = np.array([len(party) for party in parties_of_rows], np.int64)
    flat = np.concatenate(parties_of_rows) if parties_of_rows else np.zeros(0, np.int64)
    return Parties(of_row, np.concatenate(([0], np.cumsum(sizes))), flat)


def _scopes(plan: LoweredPlan) -> tuple[Any, list[OneWay | tuple[int, ...]]]:
    """Return for each collective of the plan its scope: `WHOLE`, or an index of a one-way tree or of axes."""
    scopes = np.full(len(plan.collectives), WHOLE, np.int64)
    known: dict[OneWay | tuple[int, ...], int] = {}
    system_axis = int(plan.groups["axis"][0])
    for row, collective in enumerate(plan.collectives):
        axes = _axes_of(plan, collective)
        if one_way := _one_way(plan, collective):
            scopes[row] = known.setdefault(one_way, len(known))
            continue
        if any(_is_in_group(plan, axis) for axis in axes):
            continue
        ranks = int(np.prod(plan.axes["members"][list(axes)], dtype=np.int64))
        if not {NO_AXIS, system_axis} & set(axes) and ranks < plan.ranks:
            scopes[row] = known.setdefault(axes, len(known))
    return scopes, list(known)


def _is_in_group(plan: LoweredPlan, axis: int) -> bool:
    """Return whether an axis counts members of groups, which are parts of the system."""
    return axis == NO_AXIS or int(plan.axes["members_first"][axis]) == IN_GROUP


def _one_way(plan: LoweredPlan, collective: Any) -> OneWay | None:
    """Return the tree that a collective follows in one direction, or None."""
    if collective["phases"] != 1 or collective["chunks"] < 1:
        return None
    phase = plan.phases[plan.chunk_plans["phase_first"][collective["chunk_plan_first"]]]
    program = plan.programs[phase["program"]]
    if program.tree_first < 0 or program.trees != 1 or program.goes_up == program.goes_down:
        return None
    return OneWay(int(program.tree_first), int(program.members), int(phase["axis"]), bool(program.goes_up))


def _axes_of(plan: LoweredPlan, collective: Any) -> tuple[int, ...]:
    """Return the axes of all phases; rings of a dimension count as one."""
    axes: set[int] = set()
    chunk, row = 0, int(collective["chunk_plan_first"])
    phases = int(collective["phases"]) * int(collective["rotations"])
    while chunk < collective["chunks"]:
        chunk, first = plan.chunk_plans[row].tolist()
        axes.update(plan.phases["axis"][first : first + phases].tolist())
        row += 1
    lines: dict[tuple[int, int], int] = {}
    for axis in sorted(axes - {NO_AXIS}):
        lines.setdefault((int(plan.axes["stride"][axis]), int(plan.axes["members"][axis])), axis)
    return (*(axes & {NO_AXIS}), *lines.values())


def _members_of(plan: LoweredPlan, group: int) -> Any:
    """Return the members of a group, each once however many ranks it stands for."""
    row = plan.groups[group]
    if group == 0:  # of all ranks, which is not listed
        return row.first_member + np.arange(len(plan.actors))
    first = int(row.members_first)
    return unique(plan.group_members[first : first + int(row.members)]).astype(np.int64)


def _within(plan: LoweredPlan, group: Any, member: Any, axes: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """Return parties of members of groups that span the system, along some of its dimensions."""
    rank = plan.actors["rank"][plan.members["actor"][member]].astype(np.int64)
    offsets = np.zeros(1, np.int64)
    for axis in axes:
        stride, size = int(plan.axes["stride"][axis]), int(plan.axes["members"][axis])
        rank = rank - rank // stride % size * stride
        offsets = (offsets[:, None] + np.arange(size) * stride).reshape(-1)
    keys, number = np.unique(group * plan.ranks + rank, return_inverse=True)
    lists = []
    for key in keys.tolist():
        row, lowest = divmod(key, plan.ranks)
        actors = unique(plan.actor_of_rank[lowest + offsets])
        lists.append(plan.groups["first_member"][row] + actors.astype(np.int64))
    return number, lists


def _along_tree(plan: LoweredPlan, group: Any, member: Any, way: OneWay) -> tuple[Any, list[Any]]:
    """Return parties of members of a tree: each with those above it, or below it if data goes up."""
    first, others = _passed(plan.trees["parent"][way.tree_first : way.tree_first + way.members], up=way.up)
    base, place, stride = (
        np.zeros(len(member), np.int64),
        plan.members["position"][member].astype(np.int64),
        0,
    )
    in_group = _is_in_group(plan, way.axis)  # and through all of them
    if not in_group:
        stride = int(plan.axes["stride"][way.axis])
        rank = plan.actors["rank"][plan.members["actor"][member]].astype(np.int64)
        place = rank // stride % way.members
        base = rank - place * stride
    keys, number = np.unique((group * plan.ranks + base) * way.members + place, return_inverse=True)
    lists = []
    for key in keys.tolist():
        rest, at = divmod(key, way.members)
        row, lowest = divmod(rest, plan.ranks)
        places = others[first[at] : first[at + 1]]
        if in_group:
            actors = plan.group_members[plan.groups["members_first"][row] + places]
        else:
            actors = plan.groups["first_member"][row] + plan.actor_of_rank[lowest + places * stride]
        lists.append(unique(actors).astype(np.int64))
    return number.reshape(-1), lists


def _passed(parent: Any, *, up: bool) -> tuple[Any, Any]:
    """Return for each place of a tree where its entries begin, and these: itself with all above, or all
    below.
    """
    below = above = np.arange(len(parent))
    pairs = [(below, above)]
    while len(below):
        above = parent[above].astype(np.int64)
        below, above = below[above >= 0], above[above >= 0]
        pairs.append((below, above))
    lower, upper = (np.concatenate(column) for column in zip(*pairs, strict=True))
    owner, other = (upper, lower) if up else (lower, upper)
    order = np.argsort(owner, kind="stable")
    return np.searchsorted(owner[order], np.arange(len(parent) + 1)), other[order]
