"""Pre-flight checks of collectives and groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_preflight import only

from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.preflight import CorrectionEffects, find_problems

MIB = 1 << 20
Fill = Callable[[TraceBuilder], object]


def workload(*fills: Fill) -> Workload:
    """Return a workload with one trace per distinct program, as a reader of files makes it."""
    traces = {}
    for rank, fill in enumerate(fills):
        if fill not in traces:
            build = TraceBuilder(source=f"x.{rank}.et")
            fill(build)
            traces[fill] = build.build()
    return Workload.of([traces[fill] for fill in fills])


def program(*collectives: tuple[str, int, str], chained: bool = False) -> Fill:
    """Return a program of collectives in ascending ids, each after the last if `chained`."""

    def fill(build: TraceBuilder) -> None:
        after: list[int] = []
        for kind, size, group in collectives:
            node = build.collective(kind, size, group, after=after)
            after = [node] if chained else []

    return fill


REDUCE, GATHER = ("all_reduce", MIB, ""), ("all_gather", MIB, "")


def test_different_types_are_an_error_that_names_both_sides() -> None:
    usual = program(REDUCE, GATHER)
    problem = only(find_problems(workload(usual, program(REDUCE, REDUCE), usual)), "collective-type")
    assert problem.severity == "error"
    assert problem.ranks == "1"
    assert problem.text == (
        "collectives of the group of all ranks differ: the 2nd is on ranks 0,2 all_gather of 1 MiB"
        ' (node 1 "all_gather" in x.0.et) and on rank 1 all_reduce of 1 MiB (node 1 "all_reduce" in x.1.et)'
    )


def test_different_sizes_are_an_error() -> None:
    problem = only(
        find_problems(workload(program(REDUCE), program(("all_reduce", 2 * MIB, "")))), "collective-size"
    )
    assert problem.severity == "error"
    assert "on rank 1 all_reduce of 2 MiB" in problem.text


def test_a_missing_collective_is_an_error_that_names_it() -> None:
    problem = only(find_problems(workload(program(REDUCE, GATHER), program(REDUCE))), "collective-count")
    assert problem.text == (
        "rank 1 (x.1.et) has 1 collective in the group of all ranks, but rank 0 has 2; the 2nd is"
        ' all_gather of 1 MiB (node 1 "all_gather" in x.0.et)'
    )


def test_a_member_without_any_collective_is_an_error() -> None:
    problem = only(
        find_problems(workload(program(REDUCE), lambda b: b.compute(), program(REDUCE))),
        "collectives-missing",
    )
    assert problem.ranks == "1"
    assert "where ranks 0,2 have 1" in problem.text


def test_a_collective_in_the_wrong_group_is_pointed_at() -> None:
    strayed = program(REDUCE, ("all_gather", MIB, "1"))
    problems = find_problems(workload(program(REDUCE, GATHER), strayed), groups={"1": (0, 1)})
    assert [problem.kind for problem in problems] == ["collective-count", "collectives-missing"]
    assert 'rank 1 has one like it in group 1 (node 1 "all_gather")' in problems[0].text


def test_a_hint_names_the_first_of_more_alike_in_another_group() -> None:
    """Look for type and size at the difference, among those that the other side has more often there."""
    elsewhere = [("all_gather", MIB, "1")]
    groups = {"1": (0, 1)}

    def hint(usual: list[tuple[str, int, str]], other: list[tuple[str, int, str]]) -> str:
        return find_problems(workload(program(*usual), program(*other)), groups=groups)[0].text

    strayed = hint([REDUCE, GATHER], [REDUCE, REDUCE, *elsewhere * 2])
    assert strayed.endswith('; rank 1 has one like it in group 1 (node 2 "all_gather")')
    both_have_it = [*elsewhere, ("all_reduce", 8, "1")]
    assert "like it" not in hint([REDUCE, GATHER, *both_have_it], [REDUCE, REDUCE, *both_have_it])
    assert "like it" in hint([REDUCE, GATHER, *elsewhere], [REDUCE, REDUCE, *elsewhere * 2])
    fewer_alike = [("all_reduce", 8, "1"), ("all_gather", 8, "1"), ("all_reduce", MIB, "1")]
    assert "like it" in hint([REDUCE, GATHER, *fewer_alike], [REDUCE, REDUCE, *elsewhere])
    for unlike in (("all_gather", 8, "1"), ("all_reduce", MIB, "1")):
        assert "like it" not in hint([REDUCE, GATHER], [REDUCE, REDUCE, unlike])
    assert "like it" not in hint([REDUCE, GATHER], [REDUCE, REDUCE, GATHER, GATHER])  # in the same group


@pytest.mark.parametrize(
    ("usual", "other", "text"),
    [
        ((REDUCE, GATHER, GATHER), (REDUCE, REDUCE), "the 2nd is on rank 0 all_gather"),
        ((REDUCE, GATHER, GATHER), (GATHER, GATHER, GATHER), "the 1st is on rank 0 all_reduce"),
        ((REDUCE, GATHER, GATHER), (GATHER, REDUCE, REDUCE), "the 1st is on rank 0 all_reduce"),
        ((REDUCE, GATHER, REDUCE), (REDUCE,), "rank 0 has 3; the 2nd is all_gather"),
        ((REDUCE,), (REDUCE, GATHER, REDUCE), "rank 1 has 3; the 2nd is all_gather"),
        ((REDUCE, REDUCE, ("all_reduce", 8, "")), (REDUCE, ("all_reduce", 8, ""), REDUCE), "the 2nd is on"),
    ],
)
def test_the_first_difference_is_named(
    usual: tuple[tuple[str, int, str], ...], other: tuple[tuple[str, int, str], ...], text: str
) -> None:
    assert text in find_problems(workload(program(*usual), program(*other)))[0].text


def test_sizes_for_each_member_on_one_side_are_an_error_of_their_own() -> None:
    def with_sizes(build: TraceBuilder) -> None:
        build.collective("all_to_all", splits=[8, 24])

    plain = program(("all_to_all", 32, ""))
    for first, other in ((plain, with_sizes), (with_sizes, plain)):
        problem = only(find_problems(workload(first, other)), "collective-splits")
        assert "or none of them" in problem.remedy
        assert "all_to_all with sizes for each member" in problem.text
    only(find_problems(workload(plain, program(("all_to_all", 64, "")))), "collective-size")


def test_ranks_with_equal_sequences_are_shown_by_the_node_of_the_first() -> None:
    def renumbered(build: TraceBuilder) -> None:
        build.compute("before")
        build.collective("all_reduce", MIB, name="sum", node_id=70)

    problems = find_problems(workload(renumbered, program(REDUCE), program(GATHER)))
    assert 'on ranks 0-1 all_reduce of 1 MiB (node 70 "sum" in x.0.et)' in problems[0].text


@pytest.mark.parametrize("chained", [True, False])
def test_another_order_is_an_error_if_it_is_fixed(chained: bool) -> None:
    first, other = program(REDUCE, GATHER, chained=chained), program(GATHER, REDUCE, chained=chained)
    problem = only(find_problems(workload(first, other)), "collective-order")
    assert problem.severity == "error"
    assert "the same 2, in a different order (they would be matched by order and hang)" in problem.text


def test_another_order_is_a_warning_if_times_may_correct_it() -> None:
    def other(build: TraceBuilder) -> None:
        long = build.compute("long", micros=1000)
        build.collective("all_gather", MIB, after=[long])
        build.collective("all_reduce", MIB, after=[build.compute("short", micros=1, cpu=True)])

    problem = only(find_problems(workload(program(REDUCE, GATHER), other)), "collective-order")
    assert problem.severity == "warning"


def test_dependencies_against_the_order_of_ids_count() -> None:
    def backward(build: TraceBuilder) -> None:
        build.collective("all_gather", MIB, node_id=1, after=[2])
        build.collective("all_reduce", MIB, node_id=2)

    assert find_problems(workload(program(REDUCE, GATHER, chained=True), backward)) == []
    problem = only(find_problems(workload(program(GATHER, REDUCE), backward)), "collective-order")
    assert problem.severity == "error"


def test_the_most_common_sequence_is_taken_for_the_usual_one() -> None:
    usual = program(REDUCE)
    problems = find_problems(workload(program(GATHER), *[usual] * 5))
    assert only(problems, "collective-type").ranks == "0"


def test_node_ids_and_names_may_differ() -> None:
    def renumbered(build: TraceBuilder) -> None:
        build.collective("all_reduce", MIB, "0", node_id=70, name="other")

    assert find_problems(workload(program(REDUCE), renumbered)) == []


def test_different_dimensions_are_a_warning() -> None:
    def flagged(flag: bool) -> Fill:
        return lambda build: build.collective("all_reduce", MIB, involved_dims=[True, flag])

    problem = only(find_problems(workload(flagged(True), flagged(False))), "collective-dimensions")
    assert problem.severity == "warning"


def test_broadcasts_only_warn_because_no_rank_waits_in_them() -> None:
    problem = only(
        find_problems(workload(program(REDUCE, ("broadcast", 8, "")), program(REDUCE))),
        "collectives-missing",
    )
    assert problem.severity == "warning"
    assert "no broadcast in the group of all ranks" in problem.text


def test_broadcasts_that_are_simulated_must_agree() -> None:
    lacking = workload(program(REDUCE, ("broadcast", 8, "")), program(REDUCE))
    problem = only(
        find_problems(lacking, rules=CorrectionEffects(simulates_broadcast=True)), "collective-count"
    )
    assert problem.severity == "error"


def test_different_roots_are_an_error_and_a_root_that_one_leaves_out_a_warning() -> None:
    def gathers(root: int | None) -> Fill:
        return lambda build: build.collective("gather", MIB, root=root)

    for first, other in ((1, 0), (0, 1)):
        problem = only(find_problems(workload(gathers(first), gathers(other))), "collective-root")
        assert problem.severity == "error"
        assert f"the first names rank {first}, the other rank {other}" in problem.text
    problem = only(find_problems(workload(gathers(0), gathers(None))), "collective-root")
    assert problem.severity == "warning"
    assert "names rank 0, the other no rank, so the first member" in problem.text
    assert only(find_problems(workload(gathers(None), gathers(0))), "collective-root").severity == "warning"
    assert find_problems(workload(gathers(1), gathers(1))) == []


@pytest.mark.parametrize("flag", [True, False])
def test_other_dimensions_before_them_do_not_hide_different_roots(flag: bool) -> None:
    def two_gathers(root: int, takes_part: bool) -> Fill:
        def fill(build: TraceBuilder) -> None:
            build.collective("gather", MIB, root=0, involved_dims=[takes_part])
            build.collective("gather", MIB, root=root)

        return fill

    problem = only(find_problems(workload(two_gathers(0, flag), two_gathers(1, not flag))), "collective-root")
    assert "the 2nd is on rank 0" in problem.text


def test_sizes_of_barriers_and_names_of_reduce_scatters_do_not_matter() -> None:
    first = program(("barrier", 0, ""), ("reduce_scatter", MIB, ""))
    other = program(("barrier", 8, ""), ("reduce_scatter_block", MIB, ""))
    assert find_problems(workload(first, other)) == []


def test_crossing_groups_with_a_member_that_does_not_wait_are_no_cycle() -> None:
    """Let the root of a scatter continue at once, so that crossing orders need not hang."""
    order = (("scatter", MIB, "1"), ("all_reduce", MIB, "2"))
    ranks = workload(program(*order, chained=True), program(*order[::-1], chained=True))
    assert find_problems(ranks, groups={"1": (0, 1), "2": (0, 1)}) == []


def test_empty_collectives_are_a_warning_and_barriers_are_not() -> None:
    both = program(("all_reduce", 0, ""), ("barrier", 0, ""))
    problem = only(find_problems(workload(both, both)), "empty-collective")
    assert problem.severity == "warning"
    assert "likewise" not in problem.text


def test_groups_are_compared_among_their_members_only() -> None:
    left, right = program(("all_reduce", MIB, "1")), program(("all_gather", 8, "2"))
    groups = {"1": (0, 1), "2": (3, 2)}
    assert find_problems(workload(left, left, right, right), groups=groups) == []


def test_a_stranger_in_a_group_is_an_error() -> None:
    mine = program(("all_reduce", MIB, "1"))
    problem = only(find_problems(workload(mine, mine, mine), groups={"1": (0, 1)}), "not-a-member")
    assert problem.ranks == "2"
    assert "of group 1, whose members are ranks 0-1" in problem.text


@pytest.mark.parametrize("name", ["3", "dp"])
def test_an_unknown_group_is_an_error(name: str) -> None:
    mine = program(("all_reduce", MIB, name))
    problem = only(find_problems(workload(mine, mine), groups={"1": (0, 1)}), "unknown-group")
    assert problem.text.endswith(f"names group '{name}', which is not defined (defined: 1)")


def test_without_groups_the_users_are_compared_with_a_warning() -> None:
    first, other = program(("all_reduce", MIB, "dp")), program(("all_gather", MIB, "dp"))
    problems = find_problems(workload(first, other, lambda b: b.compute()))
    assert [problem.kind for problem in problems] == ["collective-type", "group-not-given"]


def test_a_group_with_ranks_that_do_not_exist_is_an_error() -> None:
    mine = program(("all_reduce", MIB, "1"))
    problem = only(find_problems(workload(mine, mine), groups={"1": (0, 1, 9)}), "unknown-member")
    assert "group 1 lists rank 9" in problem.text


def test_all_spellings_of_the_group_of_all_ranks_are_one() -> None:
    assert find_problems(workload(program(("all_reduce", 8, "0")), program(("all_reduce", 8, "")))) == []


def test_groups_started_crosswise_wait_for_each_other() -> None:
    a, b = ("all_reduce", MIB, "1"), ("all_gather", MIB, "2")
    groups = {"1": (0, 1), "2": (0, 1)}
    problem = only(find_problems(workload(program(a, b), program(b, a)), groups=groups), "collective-circle")
    assert problem.severity == "error"
    assert "rank 0 starts the all_reduce of 1 MiB" in problem.text
    assert "of group 1 before the all_gather of 1 MiB" in problem.text
    assert "; rank 1 starts the all_gather of 1 MiB" in problem.text


def test_a_circle_over_three_ranks_is_found() -> None:
    a, b, c = (("all_reduce", 8, name) for name in "123")
    groups = {"1": (0, 2), "2": (0, 1), "3": (1, 2)}
    crossed = workload(program(a, b, chained=True), program(b, c, chained=True), program(c, a, chained=True))
    problem = only(find_problems(crossed, groups=groups), "collective-circle")
    assert problem.ranks == "0-2"
    straight = workload(program(a, b), program(b, c), program(a, c))
    assert find_problems(straight, groups=groups) == []


def test_a_circle_that_time_may_open_is_a_warning() -> None:
    a, b = ("all_reduce", MIB, "1"), ("all_gather", MIB, "2")

    def loose(build: TraceBuilder) -> None:
        build.collective("all_gather", MIB, "2", after=[build.compute("x", micros=1000)])
        build.collective("all_reduce", MIB, "1", after=[build.compute("y", cpu=True)])

    problem = only(
        find_problems(workload(program(a, b), loose), groups={"1": (0, 1), "2": (0, 1)}), "collective-circle"
    )
    assert problem.severity == "warning"


def test_very_many_different_sequences_are_counted() -> None:
    problems = find_problems(workload(*(program(("all_reduce", size, "")) for size in range(1, 31))))
    assert len(problems) == 21
    assert problems[-1].text == "9 more ranks with other collectives in the group of all ranks"


def test_collectives_of_unknown_type_are_named_by_number() -> None:
    import numpy as np
    from msgspec.structs import replace

    base = workload(program(REDUCE), program(GATHER))
    odd = replace(base.templates[1], comm_type=np.array([42], np.int32))
    strange, differs = find_problems(Workload.of([base.templates[0], odd]))
    assert "has a comm_type that no collective has" in strange.text
    assert (differs.kind, "collective type 42" in differs.text) == ("collective-type", True)


def test_many_circles_are_counted() -> None:
    pairs = [(("all_reduce", 8, str(k)), ("all_reduce", 8, str(k + 1))) for k in range(1, 11, 2)]
    straight = program(*(collective for pair in pairs for collective in pair), chained=True)
    crossed = program(*(collective for a, b in pairs for collective in (b, a)), chained=True)
    problems = find_problems(
        workload(straight, crossed), groups=dict.fromkeys(map(str, range(1, 11)), (0, 1))
    )
    assert len(problems) == 4
    assert problems[-1].text == "2 more circles of collectives that wait for each other"


def described(groups: dict[str, list[int]], name: str, size: int = MIB) -> Fill:
    def fill(build: TraceBuilder) -> None:
        build.process_groups(groups)
        build.collective("all_reduce", size, name)

    return fill


def test_groups_that_the_traces_describe_need_no_groups_file() -> None:
    low, high = described({"1": [0, 1]}, "1"), described({"1": [2, 3]}, "1", 2 * MIB)
    assert find_problems(workload(low, low, high, high)) == []
    assert find_problems(workload(low, low, high, high), groups={"1": (0, 3)}) == []


def test_members_of_a_described_group_are_compared() -> None:
    low, other = described({"1": [0, 1]}, "1"), described({"1": [0, 1]}, "1", 2 * MIB)
    problem = only(find_problems(workload(low, other)), "collective-size")
    assert "collectives of group 1 (ranks 0-1) differ" in problem.text


def test_a_stranger_to_a_described_group_is_an_error() -> None:
    mine = described({"1": [0, 1]}, "1")
    assert only(find_problems(workload(mine, mine, mine)), "not-a-member").ranks == "2"


def test_a_described_group_with_a_rank_that_does_not_exist_is_an_error() -> None:
    mine = described({"1": [0, 1, 9]}, "1")
    problem = only(find_problems(workload(mine, mine)), "unknown-member")
    assert problem.text == "group 1 lists rank 9, and there are ranks 0 to 1"
    assert problem.remedy.startswith("correct the traces' metadata")


def test_a_description_that_cannot_be_used_is_an_error() -> None:
    def broken(build: TraceBuilder) -> None:
        build.metadata("pg_name")
        build.collective("all_reduce", MIB)

    assert only(find_problems(workload(broken, broken)), "process-groups").ranks == "0-1"
    partial = described({"0": [0]}, "")
    assert "lists 1 of 2 ranks" in only(find_problems(workload(partial, partial)), "process-groups").text


def test_orders_do_not_matter_if_the_machine_matches_by_program() -> None:
    first, other = program(REDUCE, GATHER), program(GATHER, REDUCE)
    assert only(find_problems(workload(first, other)), "collective-order").severity == "error"
    assert (
        find_problems(workload(first, other), rules=CorrectionEffects(side_by_side=True, any_order=True))
        == []
    )
    assert (
        only(
            find_problems(workload(first, other), rules=CorrectionEffects(any_order=True)), "collective-order"
        ).severity
        == "error"
    )


def test_dependencies_in_opposite_orders_hang_even_so() -> None:
    early, other = program(REDUCE, GATHER, chained=True), program(GATHER, REDUCE, chained=True)
    problem = only(
        find_problems(workload(early, other), rules=CorrectionEffects(side_by_side=True, any_order=True)),
        "collective-circle",
    )
    assert problem.severity == "error"
    assert problem.ranks == "0-1"
    reduce, gather = "the all_reduce of 1 MiB", "the all_gather of 1 MiB"
    for rank, first, second in ((0, reduce, gather), (1, gather, reduce)):
        sentence = problem.text[problem.text.index(f"rank {rank} starts") :].split(";")[0]
        assert sentence.startswith(f"rank {rank} starts {first}")
        assert f"before {second}" in sentence


def test_contents_matter_even_if_orders_do_not() -> None:
    first, other = program(REDUCE, GATHER), program(GATHER, ("all_reduce", 2 * MIB, ""))
    problems = find_problems(
        workload(first, other), rules=CorrectionEffects(side_by_side=True, any_order=True)
    )
    assert only(problems, "collective-size").severity == "error"


def test_parallel_collectives_of_groups_cannot_wait_for_each_other() -> None:
    first = program(("all_reduce", MIB, "1"), ("all_reduce", MIB, "2"))
    other = program(("all_reduce", MIB, "2"), ("all_reduce", MIB, "1"))
    groups = {"1": (0, 1), "2": (0, 1)}
    assert only(find_problems(workload(first, other), groups=groups), "collective-circle").severity == "error"
    assert (
        find_problems(workload(first, other), groups=groups, rules=CorrectionEffects(side_by_side=True)) == []
    )
