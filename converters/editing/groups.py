"""Members of communicator groups, from the trace itself, a rule, or a groups file.

Groups can also be written as rules: each is one of many with the same shape. Traces and groups files list
members; a larger machine needs the shape of the next group. Lists with equal distances that tile the ranks
follow a rule, whatever their names; the rule is named after one of them: "like-3". Two groups with equal
members stay separate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from converters.editing.plans import PlanChange
from et_sim.basics.errors import TraceError, UsageError, did_you_mean
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import unique
from et_sim.documents.reading import parse_json
from et_sim.trace import GroupRule, Trace, Workload
from et_sim.trace.columns import NodeKind
from et_sim.trace.disk import read_unpacked
from et_sim.trace.group_attributes import ALL_RANKS, read_process_groups

_WRAPPED = 2  # characters before and behind the JSON text in a node
GroupsFile = Mapping[str, tuple[int, ...]]


class WorkloadGroups:
    """The groups of a workload by rank and name."""

    def __init__(self, workload: Workload, listed: GroupsFile) -> None:
        self._workload = workload
        self._listed = listed
        self._described = [read_process_groups(trace) for trace in workload.templates]

    def instance(self, rank: int, name: str) -> tuple[Any, ...]:
        """Return a key that two ranks share if and only if they mean the same group; names are
        `group_key`s.
        """
        described = self._described[int(self._workload.template_of_rank[rank])].get(name)
        if not name or described == ALL_RANKS:
            return ("all", name)
        if described is not None:
            return ("described", name, *sorted(described))
        rule = self._workload.group_rules.get(name)
        return ("rule", name, rule.index(rank)) if rule else ("listed", name)

    def members(self, rank: int, name: str) -> tuple[int, ...] | None:
        """Return the members in order, or None if they are unknown."""
        described = self._described[int(self._workload.template_of_rank[rank])].get(name)
        if not name or described == ALL_RANKS:
            return tuple(range(self._workload.ranks))
        if described is not None:
            return described
        rule = self._workload.group_rules.get(name)
        return tuple(rule.members(rank)) if rule else self._listed.get(name)


def read_groups_file(path: Path | None) -> dict[str, tuple[int, ...]]:
    """Read a groups file; the keys are `group_key`s."""
    if path is None:
        return {}
    try:
        content = parse_json(read_unpacked(path).decode("utf-8-sig"), str(path), TraceError)
    except UnicodeDecodeError as error:
        cause = f"byte {error.start} is not UTF-8 text"
        raise TraceError(cause, place=str(path), remedy="a groups file is JSON") from None
    form = 'give an object of lists: {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}'
    if not isinstance(content, dict):
        raise TraceError("is not a groups file", place=str(path), remedy=form)
    for name, members in content.items():
        is_list = isinstance(members, list) and len(members) > 0
        if not is_list or any(isinstance(member, bool) or not isinstance(member, int) for member in members):
            raise TraceError(f'group "{name}" is not a list of ranks', place=str(path), remedy=form)
    return {group_key(name): tuple(members) for name, members in content.items()}


def groups_text(groups: Mapping[str, Any]) -> bytes:
    """Return the content of a groups file."""
    return json.dumps({name: list(members) for name, members in groups.items()}).encode()


Rewrite = Callable[[tuple[int, ...]], tuple[int, ...] | None]  # members -> new ones, or None


def rewritten_descriptions(trace: Trace, rewrite: Rewrite) -> tuple[dict[int, str], int]:
    """Return the texts of METADATA rows that change, and the number of dropped descriptions.

    `rewrite` returns None to drop a description.
    """
    texts: dict[int, str] = {}
    gone = 0
    if not read_process_groups(trace):  # also refuses descriptions that cannot be parsed
        return texts, 0
    for row, text in trace.metadata_text.items():
        entries, is_wrapped = _entries(text)
        kept = []
        for entry in entries:
            members = rewrite(tuple(entry["ranks"]))
            gone += members is None
            if members is not None:
                size = {"group_size": len(members)} if "group_size" in entry and members else {}
                kept.append({**entry, "ranks": list(members), **size})
        if kept != entries:
            new = json.dumps(kept)
            texts[row] = f"['{new}']" if is_wrapped else new
    return texts, gone


def _entries(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the descriptions in a node's text, and whether they are wrapped; none if the text has other
    content.
    """
    if "pg_name" in text:
        for candidate, is_wrapped in ((text[_WRAPPED:-_WRAPPED], True), (text, False)):
            try:
                content = json.loads(candidate)
            except ValueError:
                continue
            if isinstance(content, list):
                return content, is_wrapped
    return [], False


Names = tuple[tuple[str, str], ...]  # (group_key in the trace, family)


class GroupRules(Struct, frozen=True):
    """The rules, and their names on each rank."""

    rules: dict[str, GroupRule]
    of_rank: list[Names]  # shared by ranks that use the same names
    unnamed: frozenset[str]  # rules found from lists of members; those of one size and stride grow together

    @property
    def renames_all_ranks(self) -> bool:
        """Return whether the group of all ranks keeps its members, under a name."""
        return any(not key for names in set(self.of_rank) for key, _ in names)

    def alike(self, name: str, source: str) -> list[str]:
        """Return the families that grow together if some rank's group `name` grows; its own comes first."""
        family = self._family(name, source)
        rule = self.rules[family]
        others = [name for name in self.rules if name in self.unnamed and self.rules[name] == rule]
        return list(dict.fromkeys((family, *others))) if family in self.unnamed else [family]

    def _family(self, name: str, source: str) -> str:
        """Return the family of the group `name` of some rank."""
        key = group_key(name)
        if name in self.rules:
            return name
        families = {family for names in set(self.of_rank) for known, family in names if known == key}
        if len(families) == 1:
            return families.pop()
        known = [*self.rules, *dict.fromkeys(name for names in self.of_rank[:64] for name, _ in names)]
        cause = f"there is no group {name!r}" if not families else f"group {name!r} means different groups"
        if not key:
            cause = "the group of all ranks grows by itself"
            remedy = "add ranks with --replicas, or grow another group"
        else:
            remedy = did_you_mean(name, known) or f"groups are {', '.join(known[:8]) or 'not used here'}"
        raise UsageError(cause, place=source, remedy=remedy)


def find_group_rules(
    workload: Workload,
    groups: WorkloadGroups,
    *,
    all_ranks: str = "",
    plan: PlanChange | None = None,
    role: int | None = None,
) -> GroupRules:
    """Return the rules of all groups that collectives name; with `all_ranks`, the group of all ranks has that
    name.

    Rules that lists of members follow are named after the axes of the plan, or after one of the groups. If a
    single rank was recorded, `role` is its number, and all others have groups of the same shape.
    """
    if all_ranks in workload.group_rules:
        raise UsageError(
            f'a group rule is called "{all_ranks}", as the group of all ranks would be',
            place=workload.source,
            remedy="give the rule another name",
        )
    used = [_used(trace) for trace in workload.templates]
    search = _Search(workload, groups, all_ranks, plan)
    if all_ranks:
        search.rules[all_ranks] = GroupRule(workload.ranks)
    known: dict[tuple[int, tuple[Any, ...]], Names] = {}
    of_rank: list[Names] = []
    ranks = range(workload.ranks) if role is None else (role,)
    for rank in ranks:
        template = int(workload.template_of_rank[rank])
        instances = tuple(groups.instance(rank, name) for name in used[template])
        key = template, tuple(instance[:2] if instance[0] == "rule" else instance for instance in instances)
        if key not in known:
            known[key] = search.names(rank, used[template], instances)
        of_rank.append(known[key])
    if role is not None:
        of_rank *= workload.ranks
    return GroupRules(search.rules, of_rank, frozenset(search.rule_names.values()))


def _used(trace: Trace) -> list[str]:
    """Return the group keys of collectives, sorted by name."""
    numbers = unique(trace.group[trace.kind == NodeKind.COLL]).tolist()
    return sorted({group_key(trace.group_names[number]) for number in numbers} - {""})


class _Search(Struct):
    """A collection of rules, filled rank by rank."""

    workload: Workload
    groups: WorkloadGroups
    all_ranks: str
    plan: PlanChange | None
    rules: dict[str, GroupRule] = field(default_factory=dict)
    rule_names: dict[tuple[GroupRule, int], str] = field(
        default_factory=dict
    )  # rules without names of their own

    def names(self, rank: int, used: list[str], instances: tuple[Any, ...]) -> Names:
        """Return the names of a rank's groups as rules."""
        names = [("", self.all_ranks)] if self.all_ranks else []
        alike: dict[GroupRule, int] = {}
        for name, instance in zip(used, instances, strict=True):
            if instance[0] == "all" and not self.all_ranks:
                continue
            if instance[0] == "rule":
                self.rules.setdefault(name, self.workload.group_rules[name])
                names.append((name, name))
                continue
            rule = self.rule_of(rank, name)
            alike[rule] = alike.get(rule, 0) + 1
            names.append((name, self.name_of(rule, alike[rule], name)))
        return tuple(names)

    def name_of(self, rule: GroupRule, number: int, group: str) -> str:
        """Return the name of the `number`-th rule of its size and stride: by its axes, or after a group."""
        if (rule, number) not in self.rule_names:
            first = name = self.plan.name_of(rule, f"group {group}") if self.plan else f"like-{group}"
            others = 1
            while name in self.rules:
                others += 1
                name = f"{first}-{others}"
            self.rule_names[rule, number] = name
            self.rules[name] = rule
        return self.rule_names[rule, number]

    def rule_of(self, rank: int, name: str) -> GroupRule:
        """Return the rule of a list of members."""
        members = self.groups.members(rank, name)
        where = f"group {name} of rank {rank}"
        if members is None:
            raise TraceError(
                f"the members of {where} are unknown",
                place=self.workload.source,
                remedy="give the groups file with --groups, or traces whose metadata describes their groups",
            )
        patterns = (0, *(self.plan.patterns if self.plan else ()))
        rules = (_rule_of_members(members, every) for every in patterns)
        rule = next(
            (candidate for candidate in rules if candidate and self._fits(candidate, rank, members)), None
        )
        if rule is None:
            listed = ", ".join(map(str, members[:8])) + (", …" if len(members) > 8 else "")
            raise TraceError(
                f"{where} has the members {listed}, which follow no rule: equally far apart along each axis,"
                f" in blocks that divide {self.workload.ranks} ranks",
                place=self.workload.source,
                remedy="number the ranks differently: the growth of such a group is undefined",
            )
        return rule

    def _fits(self, rule: GroupRule, rank: int, members: Sequence[int]) -> bool:
        return self.workload.ranks % rule.every == 0 and tuple(rule.members(rank)) == tuple(members)


def _rule_of_members(members: Sequence[int], every: int) -> GroupRule | None:
    """Return the rule of members that lie along axes and repeat every `every` ranks, or None."""
    left, axes = np.array(members, np.int64), [(1, 1)]
    while len(left) > 1:
        steps = np.diff(left)
        size = int(np.argmax(steps != steps[0])) + 1 if (steps != steps[0]).any() else len(left)
        axes.append((size, int(steps[0])))
        left = left[::size]
    sizes, strides = zip(*axes, strict=True)
    try:
        return GroupRule(sizes, strides, every)
    except TraceError:
        return None


def uses_all_ranks(workload: Workload) -> bool:
    """Return whether a collective uses the group of all ranks."""
    return any(
        group_key(trace.group_names[number]) == ""
        for trace in workload.templates
        for number in unique(trace.group[trace.kind == NodeKind.COLL]).tolist()
    )
