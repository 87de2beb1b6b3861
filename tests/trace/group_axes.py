"""Random group rules, and their groups as lists made without arithmetic."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from et_sim.trace import GroupRule

MOST_RANKS = 48


@st.composite
def group_rules(draw: st.DrawFn, axes: int = 3) -> tuple[GroupRule, int]:
    """Draw a rule and a number of ranks for it."""
    sizes, strides, block = [], [], 1
    for _ in range(draw(st.integers(1, axes))):
        apart = draw(st.integers(1, 3))
        size = draw(st.integers(1, 4))
        if sizes and block * apart * size > MOST_RANKS:
            break
        sizes.append(size)
        strides.append(block * apart)
        block *= apart * size
    whole = GroupRule(tuple(sizes), tuple(strides))
    shortest = max(whole.members(0)) + 1
    rule = GroupRule(whole.size, whole.stride, draw(st.integers(shortest, whole.every)))
    return rule, rule.every * draw(st.integers(1, max(1, MOST_RANKS // rule.every)))


def listed_groups(rule: GroupRule, ranks: int) -> list[list[int]]:
    """Return the groups: each rank outside of all so far begins one, if it ends before the pattern does."""
    groups: list[list[int]] = []
    taken: set[int] = set()
    steps = [sum(step) for step in product(*(range(0, s * d, d) for s, d in reversed(rule.axes)))]
    for rank in range(ranks):
        members = [rank + step for step in steps]
        if rank not in taken and members[-1] < (rank // rule.every + 1) * rule.every:
            groups.append(members)
            taken |= set(members)
    return groups
