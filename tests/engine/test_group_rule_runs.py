"""Runs with groups by rule equal runs with the same groups listed, for every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expanded_workloads import expanded
from group_axes import group_rules
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system

from et_sim.api import run
from et_sim.basics.errors import TraceError
from et_sim.run.result import Result
from et_sim.trace import GroupRule, TraceBuilder, Workload
from et_sim.trace.preflight import find_problems

pytestmark = pytest.mark.usefixtures("warm_engine")


def training(rule: GroupRule, ranks: int, paces: int = 2) -> Workload:
    """Return computations of different lengths, and collectives of all ranks and of members of the rule."""
    templates = []
    for is_member in (False, True):
        for pace in range(paces):
            build = TraceBuilder()
            last = [build.compute("work", micros=5 + 3 * pace)]
            if is_member:
                last = [build.collective("all_reduce", 40_000, "axes", after=last)]
                build.collective("all_gather", 3_000, "axes", after=last)
            build.collective("all_reduce", 10_000, after=last)
            templates.append(build.build())
    every = np.arange(ranks)
    of_rank = rule.has(every) * paces + every * 7 // 5 % paces
    return Workload(
        tuple(templates), of_rank.astype(np.int32), group_rules={"axes": rule}, profile="corrected"
    )


def finished(workload: Workload, **options: Any) -> Result:
    result = run(
        workload, system=system("direct"), network=network(["FullyConnected"], [workload.ranks]), **options
    )
    assert result.is_complete
    return result


@pytest.mark.deep
@given(group_rules(), st.integers(1, 3))
def test_a_run_with_a_rule_equals_one_with_its_groups_listed(
    given_rule: tuple[GroupRule, int], paces: int
) -> None:
    workload = training(*given_rule, paces)
    whole, groups = expanded(workload)
    listed = {number: list(members) for number, members in groups.items()}
    assert find_problems(workload) == []
    expected = finished(whole, groups=listed, fold=False).finish_ns.tolist()
    assert finished(workload).finish_ns.tolist() == expected
    assert finished(workload, fold=False).finish_ns.tolist() == expected


STAGES = GroupRule(2, 6, 8)  # ranks 0 and 6, 1 and 7; 2 to 5 in none


def test_ranks_outside_a_rule_may_run_programs_without_it() -> None:
    member, other = TraceBuilder(), TraceBuilder()
    member.collective("all_reduce", 40_000, "ends")
    other.compute("work", micros=5)
    of_rank = STAGES.has(np.arange(64)).astype(np.int32)
    workload = Workload((other.build(), member.build()), of_rank, group_rules={"ends": STAGES})
    assert len(finished(workload).outcome.plan.actors) == 2


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("begin", [0, 1])  # the template's lowest rank is a member, or it is not
def test_a_rank_with_a_collective_in_a_group_without_it_is_refused(begin: int, fold: bool) -> None:
    workload = training(STAGES, 16, 1)
    of_rank = workload.template_of_rank.copy()
    of_rank[[2, 3][begin:]] = 1
    if begin:
        of_rank[[0, 1, 6, 7, 8, 9, 14, 15]] = 0
    wrong = Workload(workload.templates, of_rank, group_rules=workload.group_rules, profile="corrected")
    stranger = 2 + begin
    not_in = f"rank {stranger} has a collective in communicator group axes and is not a member of it"
    with pytest.raises(TraceError, match=not_in):
        finished(wrong, fold=fold)
    (problem,) = find_problems(wrong)
    assert (problem.severity, problem.kind) == ("error", "not-a-member")
    assert "which has no group with such a rank (size 2, stride 6, every 8)" in problem.text
    with pytest.raises(TraceError, match=rf'rank {stranger} names group "axes" .* in none of its groups'):
        expanded(wrong)
