"""Checks of workloads with distances and group rules have the findings of checks of their expansions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expanded_workloads import expanded
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import transformer

from et_sim.trace import GroupRule, Trace, TraceBuilder, Workload
from et_sim.trace.preflight import CorrectionEffects, Problem, find_problems, message_cycles
from et_sim.trace.preflight import interleaving as interleaving_module
from et_sim.workloads.microbenchmarks import make_microbenchmark

RULES = {
    "tensor": GroupRule(2, 1),
    "data": GroupRule(2, 2),
    "four": GroupRule(4, 2),
    "two axes": GroupRule((2, 2), (1, 4)),
}
RANKS = 8


def kinds(problems: list[Problem]) -> set[tuple[str, str]]:
    return {(problem.severity, problem.kind) for problem in problems}


def kinds_when_expanded(workload: Workload) -> set[tuple[str, str]]:
    whole, groups = expanded(workload)
    return kinds(find_problems(whole, groups=groups))


def workload_of(build: TraceBuilder, **rules: GroupRule) -> Workload:
    return Workload((build.build(),), np.zeros(RANKS, np.int32), relative_peers=(True,), group_rules=rules)


@st.composite
def collectives(draw: st.DrawFn) -> Workload:
    """Draw two or three templates with collectives in groups of rules, in orders of their own."""
    listed = draw(
        st.lists(st.tuples(st.sampled_from(sorted(RULES)), st.integers(1, 2)), min_size=1, max_size=4)
    )
    templates: list[Trace] = []
    for _ in range(draw(st.integers(1, 3))):
        build = TraceBuilder()
        last: list[int] = []
        mine = draw(st.permutations(listed)) if draw(st.booleans()) else listed
        for group, size in mine[draw(st.integers(0, 1)) * draw(st.integers(0, 1)) :]:
            last = [build.collective("all_reduce", size * 64, group, after=last)]
        templates.append(build.build())
    of_rank = draw(st.lists(st.integers(0, len(templates) - 1), min_size=RANKS, max_size=RANKS))
    return Workload(tuple(templates), np.array(of_rank, np.int32), group_rules=RULES)


@st.composite
def messages(draw: st.DrawFn) -> Workload:
    """Draw templates that send by distance or to ranks, mostly to ranks that receive."""
    templates: list[Trace] = []
    relative = []
    count = draw(st.integers(1, 3))
    of_rank = np.array(draw(st.lists(st.integers(0, count - 1), min_size=RANKS, max_size=RANKS)), np.int32)
    distances = draw(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 1)), min_size=1, max_size=3))
    for number in range(count):
        build = TraceBuilder()
        ends = [(d, tag, is_send) for d, tag in distances for is_send in (True, False)]
        chained = draw(st.booleans())
        last: list[int] = []
        for distance, tag, is_send in draw(st.permutations(ends))[draw(st.integers(0, 9)) // 9 :]:
            call: Any = build.send if is_send else build.receive
            node = call(distance if is_send else -distance, 64, tag, after=last)
            last = [node] if chained else []
        templates.append(build.build())
        relative.append(draw(st.integers(0, 5)) > 0 or number == 0)
    return Workload(tuple(templates), of_rank, relative_peers=tuple(relative))


@given(messages())
def test_messages_are_judged_as_those_of_the_expansion(workload: Workload) -> None:
    assert kinds(find_problems(workload)) == kinds_when_expanded(workload)


@given(collectives())
def test_collectives_are_judged_as_those_of_the_expansion(workload: Workload) -> None:
    assert kinds(find_problems(workload)) == kinds_when_expanded(workload)


@pytest.mark.deep
def test_a_million_ranks_are_checked_without_a_trace_for_each() -> None:
    for kind in ("ring_send_receive", "send_receive", "all_reduce"):
        assert find_problems(make_microbenchmark(kind, ranks=1 << 20, size=8, repeat=2)) == []


def test_a_large_training_job_is_found_sound() -> None:
    job = transformer(tensor=8, pipeline=8, data=64, layers=8, micro_batches=16)
    assert find_problems(job) == []


def test_a_missing_receive_of_a_template_is_named_by_rank() -> None:
    build = TraceBuilder(source="job.template0.et")
    build.send(3, 64, tag=1, name="on")
    problems = find_problems(workload_of(build))
    assert kinds(problems) == {("error", "unmatched-message")}
    assert problems[0].text == (
        'rank 0 sends 64 B with tag 1 to rank 3 (node 0 "on" in job.template0.et); rank 3 never receives it;'
        " 7 more like it, on ranks 0-7"
    )
    assert [1 + problem.like for problem in problems] == [RANKS]


def test_very_many_unmatched_messages_are_counted() -> None:
    build = TraceBuilder()
    build.send(1, 64)
    workload = Workload((build.build(),), np.zeros(100_000, np.int32), relative_peers=(True,))
    problems = find_problems(workload)
    assert "9,980 more channels" in problems[-2].text
    assert "90,000 more pairs of ranks" in problems[-1].text


def test_members_of_a_rule_that_differ_are_named() -> None:
    usual, odd = TraceBuilder(source="a.et"), TraceBuilder(source="b.et")
    usual.collective("all_reduce", 64, "tensor")
    odd.collective("all_reduce", 128, "tensor")
    workload = Workload(
        (usual.build(), odd.build()),
        np.array([0] * 5 + [1] + [0] * 2, np.int32),
        group_rules={"tensor": GroupRule(2)},
    )
    (problem,) = find_problems(workload)
    assert problem.kind == "collective-size"
    assert "on rank 4 all_reduce of 64 B" in problem.text
    assert "on rank 5 all_reduce of 128 B" in problem.text


def test_members_along_two_axes_that_differ_are_named() -> None:
    usual, odd = TraceBuilder(source="a.et"), TraceBuilder(source="b.et")
    usual.collective("all_reduce", 64, "two axes")
    odd.collective("all_reduce", 128, "two axes")
    of_rank = np.array([0] * 6 + [1] + [0], np.int32)
    (problem,) = find_problems(Workload((usual.build(), odd.build()), of_rank, group_rules=RULES))
    assert "on ranks 2-3,7 all_reduce of 64 B" in problem.text
    assert "on rank 6 all_reduce of 128 B" in problem.text


def test_members_of_groups_that_leave_ranks_out_are_compared_too() -> None:
    usual, odd, idle = TraceBuilder(), TraceBuilder(), TraceBuilder()
    usual.collective("all_reduce", 64, "ends")
    odd.collective("all_reduce", 128, "ends")
    idle.compute("only", micros=1)
    ends = {"ends": GroupRule(2, 3, 4)}
    templates = (usual.build(), odd.build(), idle.build())
    of_rank = np.array([0, 2, 2, 0, 1, 2, 2, 1], np.int32)
    assert find_problems(Workload(templates, of_rank, group_rules=ends)) == []
    of_rank[7] = 0
    (problem,) = find_problems(Workload(templates, of_rank, group_rules=ends))
    assert (problem.kind, "on rank 4 " in problem.text) == ("collective-size", True)


def test_stages_may_use_a_rule_differently() -> None:
    first, second = TraceBuilder(), TraceBuilder()
    first.collective("all_reduce", 64, "tensor")
    second.compute("only", micros=1)
    stages = np.array([0] * 4 + [1] * 4, np.int32)
    workload = Workload((first.build(), second.build()), stages, group_rules={"tensor": GroupRule(2)})
    assert find_problems(workload) == []


def chain_through_all_ranks() -> Workload:
    """Return a chain in which every rank but the last forwards its message, with one template for the
    middle.
    """
    first, middle, last = TraceBuilder(), TraceBuilder(), TraceBuilder()
    first.send(1, 64)
    middle.send(1, 64, after=[middle.receive(-1, 64)])
    last.receive(-1, 64)
    of_rank = np.array([0] + [1] * (RANKS - 2) + [2], np.int32)
    templates = (first.build(), middle.build(), last.build())
    return Workload(templates, of_rank, relative_peers=(True,) * 3)


def test_a_template_that_sends_to_its_own_kind_is_no_circle(monkeypatch: Any) -> None:
    assert find_problems(chain_through_all_ranks()) == []
    monkeypatch.setattr(message_cycles, "_MOST_VERTICES", 3)
    (problem,) = find_problems(chain_through_all_ranks())
    assert (problem.severity, problem.kind) == ("warning", "not-checked")
    assert "was not checked" in problem.text


def test_a_ring_in_which_all_wait_first_is_a_cycle() -> None:
    build = TraceBuilder(source="ring.template0.et")
    build.send(1, 64, after=[build.receive(-1, 64)])
    problems = find_problems(workload_of(build))
    assert kinds(problems) == {("error", "message-circle")}
    assert "rank 0 (ring.template0.et) sends to rank 1" in problems[0].text
    assert "only after it received from rank 7" in problems[0].text


def staggered() -> Workload:
    """Return templates whose groups seem to form a cycle until the groups are separated."""
    one_way, other_way = TraceBuilder(), TraceBuilder()
    one_way.collective("all_reduce", 64, "data", after=[one_way.collective("all_reduce", 64, "tensor")])
    other_way.collective("all_reduce", 64, "tensor", after=[other_way.collective("all_reduce", 64, "data")])
    of_rank = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    rules = {"tensor": GroupRule(2, 1), "data": GroupRule(2, 2)}
    return Workload((one_way.build(), other_way.build()), of_rank, group_rules=rules)


def test_groups_of_different_stages_do_not_wait_for_each_other() -> None:
    assert find_problems(staggered()) == []


def mixed() -> Workload:
    """Return a job in which ranks 0 and 3 of four start with the tensor group, the others with the data
    group.
    """
    workload = staggered()
    of_rank = np.array([0, 1, 1, 0] * 2, np.int32)
    return Workload(workload.templates, of_rank, group_rules=workload.group_rules)


def test_groups_that_wait_for_each_other_are_found_or_reported_as_unchecked(monkeypatch: Any) -> None:
    problems = find_problems(mixed())
    assert kinds(problems) == {("error", "collective-circle")}
    assert kinds_when_expanded(mixed()) == kinds(problems)
    monkeypatch.setattr(interleaving_module, "_MOST_VERTICES", 3)
    (problem,) = find_problems(mixed())
    assert (problem.severity, problem.kind) == ("warning", "not-checked")


def test_dependencies_between_groups_of_rules_are_followed() -> None:
    rules = CorrectionEffects(side_by_side=True, any_order=True)
    problems = find_problems(mixed(), rules=rules)
    assert kinds(problems) == {("error", "collective-circle")}
    assert "collectives wait for each other through dependencies (they hang)" in problems[0].text
    whole, groups = expanded(mixed())
    assert kinds(find_problems(whole, groups=groups, rules=rules)) == kinds(problems)
    assert find_problems(staggered(), rules=rules) == []


def test_a_message_to_oneself_by_distance_is_seen() -> None:
    build = TraceBuilder(source="t.et")
    build.send(-RANKS, 64)
    build.receive(0, 64)
    problems = find_problems(workload_of(build))
    assert kinds(problems) == {("warning", "message-to-oneself")}
    assert problems[0].ranks == "0-7"
