"""The members of the groups of a rule, compared with lists."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from group_axes import group_rules, listed_groups
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import TraceError
from et_sim.trace import GroupRule

NO_GROUP = -1


@given(group_rules())
def test_the_groups_of_a_rule_are_those_of_a_list(given_rule: tuple[GroupRule, int]) -> None:
    rule, ranks = given_rule
    groups = listed_groups(rule, ranks)
    assert rule.groups(ranks).tolist() == groups
    assert rule.number(ranks) == len(groups)
    assert {len(members) for members in groups} == {rule.count}
    place = {rank: (group, at) for group, members in enumerate(groups) for at, rank in enumerate(members)}
    assert rule.has_all == (len(place) == ranks)
    for rank in range(ranks):
        index, position = place.get(rank, (NO_GROUP, NO_GROUP))
        members = groups[index] if rank in place else []
        assert list(rule.members(rank)) == members
        assert (rule.has(rank), rule.index(rank), rule.position(rank)) == (rank in place, index, position)
        assert rule.first(rank) == (members[0] if members else NO_GROUP)


@given(group_rules())
def test_functions_of_a_rank_accept_arrays_of_ranks(given_rule: tuple[GroupRule, int]) -> None:
    rule, ranks = given_rule
    for name in ("has", "first", "position", "index"):
        function = getattr(rule, name)
        assert function(np.arange(ranks)).tolist() == [function(rank) for rank in range(ranks)]


@given(group_rules(), st.data())
def test_equal_rules_are_one_value(given_rule: tuple[GroupRule, int], data: st.DataObject) -> None:
    rule, _ = given_rule
    pieces: list[tuple[int, int]] = []
    for size, stride in rule.axes:
        inner = data.draw(st.sampled_from([divisor for divisor in range(1, size + 1) if size % divisor == 0]))
        pieces += [(inner, stride), (size // inner, stride * inner)]
    sizes, strides = zip(*pieces, strict=True)
    again = GroupRule(sizes, strides, rule.every)
    assert (again, hash(again), repr(again)) == (rule, hash(rule), repr(rule))
    assert all(stride > size * apart for (size, apart), (_, stride) in pairwise(again.axes))


def test_plain_integers_make_the_groups_that_they_always_made() -> None:
    rule = GroupRule(size=4, stride=4)
    assert (rule.size, rule.stride, rule.every, rule.count) == (4, 4, 16, 4)
    assert rule.members(6) == range(2, 18, 4)
    assert (GroupRule(1, 8).every, GroupRule(1, 24, 32)) == (8, GroupRule(1, 32))
    assert GroupRule(2) == GroupRule(2, 1) == GroupRule((2,), (1,)) == GroupRule((1, 2), (1, 1))


def test_the_first_and_last_stage_of_a_pipeline_are_a_group() -> None:
    stages, width = 4, 8
    rule = GroupRule(2, (stages - 1) * width, stages * width)
    assert [list(rule.members(rank)) for rank in (0, 7, 8, 24, 40, 63)] == [
        [0, 24],
        [7, 31],
        [],
        [0, 24],
        [],
        [39, 63],
    ]
    assert (str(rule), rule.apart) == ("size 2, stride 24, every 32", "24 apart in every 32 ranks")


def test_data_and_context_are_two_axes_with_others_between_them() -> None:
    rule = GroupRule(size=(2, 4), stride=(8, 64))
    assert rule.members(9) == (1, 9, 65, 73, 129, 137, 193, 201)
    assert (rule.position(137), rule.every, rule.has_all) == (5, 256, True)
    assert (str(rule), rule.apart) == ("size (2, 4), stride (8, 64)", "8 and 64 apart")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (((2, 4), (8,)), r"size \(2, 4\) has 2 axes and stride \(8,\) has 1"),
        (((2, 4),), r"size \(2, 4\) has 2 axes and stride 1 has 1"),
        ((0,), "size is 0"),
        ((2, -1), "stride is -1"),
        ((2.5,), r"size is 2\.5"),
        (((), ()), r"size is \(\)"),
        (("8",), "size is '8'"),
        (((4, 2), (1, 2)), "stride 2 is no multiple of 4, size times stride of the axis before it"),
        (((2, 2), (2, 6)), "stride 6 is no multiple of 4"),
        (((2, 4), (64, 8)), "stride 8 is no multiple of 128"),
        ((2, 24, 24), "every is 24, and groups span 25 ranks in patterns of 48"),
        ((2, 24, 49), "every is 49"),
        (((2, 2), (1, 4), 5), "every is 5, and groups span 6 ranks in patterns of 8"),
        ((2, 1, -2), "every is -2"),
        ((2, 1, 2.0), r"every is 2\.0"),
    ],
)
def test_a_rule_that_makes_no_groups_is_refused_in_a_sentence(parts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TraceError, match=f"^{message}") as caught:
        GroupRule(*parts)
    assert caught.value.remedy


def test_a_million_ranks_are_arithmetic() -> None:
    rule, ranks = GroupRule((2, 64), (8, 1024), 65536 - 8), np.arange((65536 - 8) * 16)
    assert int(rule.has(ranks).sum()) == rule.count * rule.number(len(ranks))
    assert rule.groups(len(ranks)).shape == (rule.number(len(ranks)), 128)
