"""Numbers of ranks in a larger machine, and the growth of groups and distances.

A group rule grows in place: with `size` members `stride` apart, blocks of size * stride ranks are copied one
after the other, so that the group has more members at the same distance. Replicas are copies of the whole
workload, one after the other. Every rank of the larger workload is a copy of one old rank, and all old ranks
have the same number of copies, at the same offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import UsageError
from et_sim.trace import GroupRule
from et_sim.trace.manifest import MOST_RANKS


class GrowthStep(Struct, frozen=True):
    """A step of growth: blocks of `block` consecutive ranks are copied `factor` times, one copy after the
    other.
    """

    block: int
    factor: int
    group: str = ""  # the rule or axis that grows; "": replicas
    rule: GroupRule | None = None  # the old rule of its members


class Growth(Struct):
    """The steps taken so far from `ranks` ranks with these rules."""

    ranks: int
    rules: dict[str, GroupRule]
    source: str
    steps: list[GrowthStep] = field(default_factory=list)
    old_rules: Mapping[str, GroupRule] = field(default_factory=dict)
    old_ranks: int = 0
    of_role: bool = False  # one rank was recorded and represents all old ranks

    def __post_init__(self) -> None:
        self.old_rules, self.old_ranks = dict(self.rules), self.ranks

    @property
    def is_bigger(self) -> bool:
        """Return whether there are more ranks than recorded traces."""
        return self.factor > 1 or self.of_role

    @property
    def factor(self) -> int:
        """Return the number of copies of each old rank."""
        return self.ranks // self.old_ranks

    def factor_of(self, name: str) -> int:
        """Return the factor by which a group has grown; "" is the group of all ranks."""
        return self.rules[name].count // self.old_rules[name].count if name else self.factor

    def replicate(self, copies: int) -> None:
        """Copy the whole workload `copies` times."""
        self._take(GrowthStep(self.ranks, copies))

    def grow(self, names: Sequence[str], size: int) -> None:
        """Grow group rules, all of which are equal, to `size` members."""
        name = names[0]
        rule = self.rules[name]
        if size % rule.count or size < rule.count:
            raise UsageError(
                f"group {name} has {rule.count} members, of which {size} is no multiple",
                place=self.source,
                remedy=f"give a multiple, such as {max(1, size // rule.count) * rule.count}",
            )
        if size == rule.count:
            return
        if not (isinstance(rule.stride, int) and rule.has_all):
            raise UsageError(
                f"group {name} ({rule}) does not lie along one axis with all ranks in it,"
                " so its growth is undefined",
                place=self.source,
                remedy="scale with --replicas, or a group along one axis",
            )
        block, factor = rule.every, size // rule.count
        grown = dict.fromkeys(names, GroupRule(size, rule.stride))
        for other, its in self.rules.items():
            if other not in grown:
                grown[other] = self._beside(other, its, block, factor, name)
        self._take(GrowthStep(block, factor, name, self.old_rules[name]))
        self.rules = {known: grown[known] for known in self.rules}

    def spread(self, steps: Sequence[GrowthStep], rules: Mapping[str, GroupRule]) -> None:
        """Take several steps at once; `rules` are the rules afterwards."""
        for step in steps:
            self._take(step)
        self.rules = {name: rules[name] for name in self.rules}

    def add(self, name: str, rule: GroupRule) -> str:
        """Add a group in which each old rank was alone, and return a free name for it."""
        while name in self.rules:
            name = f"{name}-gradients"
        self.rules, self.old_rules = {**self.rules, name: rule}, {**self.old_rules, name: GroupRule(1)}
        return name

    def _beside(self, other: str, rule: GroupRule, block: int, factor: int, growing: str) -> GroupRule:
        """Return a rule after the growth of another one: the same within its blocks, wider across them."""
        sizes, strides = zip(*rule.axes, strict=True)
        across = [stride % block == 0 for stride in strides]
        fits = [
            wide or block % (size * stride) == 0
            for wide, (size, stride) in zip(across, rule.axes, strict=True)
        ]
        if across[-1] and rule.every % block == 0 and all(fits):
            wider = tuple(
                stride * (factor if wide else 1) for wide, stride in zip(across, strides, strict=True)
            )
            return GroupRule(sizes, wider, rule.every * factor)
        if block % rule.every == 0:
            return rule
        raise UsageError(
            f"group {other} ({rule.count} members {rule.apart}) lies across the members of {growing},"
            " so its new members are undefined",
            place=self.source,
            remedy="scale with --replicas, or a group of which this one is a part",
        )

    def _take(self, step: GrowthStep) -> None:
        if self.ranks * step.factor > MOST_RANKS:
            raise UsageError(
                f"there would be {self.ranks * step.factor:,} ranks", remedy=f"at most {MOST_RANKS:,} can be"
            )
        self.steps.append(step)
        self.ranks *= step.factor

    def first_copy(self, ranks: Any) -> Any:
        """Return the new numbers of old ranks in the first copy; other copies have the same offsets from
        these.
        """
        for step in self.steps:
            ranks = ranks + ranks // step.block * step.block * (step.factor - 1)
        return ranks

    def old_rank_of_new(self) -> Any:
        """Return the old rank of which each new rank is a copy."""
        owner = np.arange(self.old_ranks, dtype=np.int32)
        for step in self.steps:
            blocks = owner.reshape(-1, 1, step.block)
            owner = np.broadcast_to(blocks, (len(blocks), step.factor, step.block)).reshape(-1)
        return owner

    def along(self, old: Any, peer: Any) -> str:
        """Return the first growing group of which old ranks and their peers are different members, or ""."""
        for step in self.steps:
            rule = step.rule
            if rule is None or step.factor == 1:
                continue
            if bool((rule.position(old) != rule.position(peer)).any()):
                return step.group
        return ""
