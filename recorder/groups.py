"""Process groups of recorded ranks as rules that say who is in the group of any rank.

Not here: what ranks do in them (`roles`).
"""

from __future__ import annotations

from collections.abc import Sequence

from et_sim.basics.errors import TraceError
from et_sim.trace.group_rule import GroupRule

EVERYBODY = ""  # the name of the group of all ranks


def rule_of(members: Sequence[int], rank: int, world: int) -> GroupRule | None:
    """The rule by which a rank has these members beside it; None: there is none, or ranks are left over."""
    wanted = sorted(members)
    axes = _axes(wanted)
    if axes is None:
        return None
    sizes, strides = tuple(size for size, _ in axes), tuple(stride for _, stride in axes)
    end, last = axes[-1][0] * axes[-1][1], wanted[-1] - wanted[0]
    for every in (0, *range(last + 1, end)):
        if world % (every or end):
            continue
        try:
            rule = GroupRule(sizes, strides, every)
        except TraceError:
            continue
        if list(rule.members(rank)) == wanted:
            return rule
    return None


def _axes(members: Sequence[int]) -> list[tuple[int, int]] | None:
    """Sizes and strides, innermost first, that make these ranks; None if none do."""
    rest = [one - members[0] for one in members]
    axes = []
    while len(rest) > 1:
        stride, size = rest[1], 1
        while size < len(rest) and rest[size] == size * stride:
            size += 1
        if len(rest) % size:
            return None
        axes.append((size, stride))
        heads = rest[::size]
        if rest != [head + at * stride for head in heads for at in range(size)]:
            return None
        rest = heads
    return axes or [(1, 1)]


def name_of(rule: GroupRule, title: str, taken: dict[str, GroupRule]) -> str:
    """A name for the groups of a rule: PyTorch's if it says something, and another for each rule."""
    title = title.removeprefix("mesh_")
    if title in ("", "undefined", "default_pg"):
        title = str(rule)
    name = title
    while taken.setdefault(name, rule) != rule:
        name = f"{title} ({rule})" if name == title else f"{name}'"
    return name
