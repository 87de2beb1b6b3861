"""Groups of a plan equal those of Megatron for the same order, by an independent count of its rule.

Megatron counts ranks along the axes of its order, the first one innermost; a group of some axes has the ranks
that have equal places along all others. For experts it counts again, with one place for tensor parallelism
(`expert-tensor-parallel-size 1`) and as many replicas as are left; stages must be the same in both.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import UsageError
from et_sim.workloads import Plan

TOKENS = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}
Groups = list[list[int]]


def counted(order: str, sizes: dict[str, int], token: str) -> Groups:
    """Return the groups of `token` ("dp-cp") by a walk through all places, the last axis slowest."""
    names = order.split("-")
    walk = product(*(range(sizes[name]) for name in reversed(names)))
    groups = defaultdict(list)
    for rank, places in enumerate(walk):
        others = tuple(
            place for name, place in zip(reversed(names), places, strict=True) if name not in token.split("-")
        )
        groups[others].append(rank)
    return sorted(groups.values())


def ours(plan: Plan, *axes: str) -> Groups:
    return sorted(plan.axes.rule(*axes).groups(plan.ranks).tolist())


sizes_of_axes = st.integers(1, 3)
orders = st.permutations(["tp", "cp", "ep", "dp", "pp"]).map("-".join)


@given(orders, sizes_of_axes, sizes_of_axes, sizes_of_axes, sizes_of_axes)
def test_groups_of_every_order_are_those_of_megatron(order: str, tp: int, cp: int, dp: int, pp: int) -> None:
    plan = Plan(tensor=tp, context=cp, data=dp, pipeline=pp, order=order)
    sizes = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    for token in ("tp", "cp", "dp", "pp", "dp-cp", "tp-pp", "tp-dp-cp", "tp-cp"):
        assert ours(plan, *(TOKENS[word] for word in token.split("-"))) == counted(order, sizes, token)


@given(orders, sizes_of_axes, sizes_of_axes, sizes_of_axes, sizes_of_axes, st.data())
def test_groups_of_experts_are_those_of_megatron_or_refused(
    order: str, tp: int, cp: int, dp: int, pp: int, data: st.DataObject
) -> None:
    inner = tp * cp * dp
    ep = data.draw(st.sampled_from([divisor for divisor in range(1, inner + 1) if inner % divisor == 0]))
    dense = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    experts = {"tp": 1, "cp": 1, "ep": ep, "dp": inner // ep, "pp": pp}
    has_same_stages = counted(order, dense, "pp") == counted(order, experts, "pp")
    try:
        plan = Plan(tensor=tp, context=cp, data=dp, pipeline=pp, expert=ep, order=order)
    except UsageError:
        assert not has_same_stages
        return
    assert ep == 1 or has_same_stages
    if ep > 1:
        assert ours(plan, "expert") == counted(order, experts, "ep")
        assert ours(plan, "expert-data") == counted(order, experts, "dp")
        assert ours(plan, "expert", "pipeline") == counted(order, experts, "ep-pp")


def test_the_usual_order_has_tensor_inside_and_stages_outside() -> None:
    plan = Plan(tensor=2, data=2, pipeline=2)
    assert ours(plan, "tensor") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert ours(plan, "data") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert ours(plan, "pipeline") == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("order", ["tp-pp-dp", "tp-cp-ep-pp-dp", "tensor-context-pipeline-data"])
def test_stages_inside_replicas(order: str) -> None:
    """Compare orders with Megatron's --use-tp-pp-dp-mapping; axes of one place may be left out."""
    plan = Plan(tensor=2, data=2, pipeline=2, order=order)
    assert ours(plan, "pipeline") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert ours(plan, "data") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_all_orders_number_every_rank_once() -> None:
    sizes = {"tp": 2, "cp": 1, "dp": 3, "pp": 2}
    for names in permutations(sizes):
        plan = Plan(tensor=2, data=3, pipeline=2, order="-".join(names))
        members = [rank for group in ours(plan, "tensor") for rank in group]
        assert sorted(members) == list(range(prod(sizes.values())))
