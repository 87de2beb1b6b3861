"""Pre-flight checks of dependencies and messages; similar findings are reported once, with a count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.units import exact_bytes, format_ranks
from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.columns import BIT
from et_sim.trace.order import settle
from et_sim.trace.preflight import Problem, find_problems
from et_sim.trace.preflight.check import deduplicate
from et_sim.trace.preflight.cycles import find_knots, shortest_cycle
from et_sim.trace.preflight.problem import ordinal


def trace(fill: Callable[[TraceBuilder], object], source: str = "x.et") -> Trace:
    build = TraceBuilder(source=source)
    fill(build)
    return build.build()


def workload(*fills: Callable[[TraceBuilder], object]) -> Workload:
    return Workload.of([trace(fill, f"x.{rank}.et") for rank, fill in enumerate(fills)])


def only(problems: list[Problem], kind: str) -> Problem:
    assert [problem.kind for problem in problems] == [kind]
    return problems[0]


def nothing(build: TraceBuilder) -> None:
    build.compute("idle", micros=1)


def test_a_sound_workload_has_no_problems() -> None:
    def program(build: TraceBuilder) -> None:
        first = build.compute("forward", micros=3)
        build.collective("all_reduce", 1 << 20, after=[first])

    assert find_problems(Workload.of([trace(program)] * 4096)) == []


def test_each_communication_on_the_cpu_is_a_mistake_and_a_kernel_there_is_none() -> None:
    def program(build: TraceBuilder) -> None:
        on_cpu: dict[str, Any] = {"attributes": {"is_cpu_op": True}}
        build.compute("host", nanos=5, **on_cpu)
        build.send(1, 8, **on_cpu)
        build.receive(1, 8, **on_cpu)
        build.collective("barrier", 0, **on_cpu)

    texts = [problem.text for problem in find_problems(workload(program)) if "is_cpu_op" in problem.text]
    assert texts == ['rank 0 (x.0.et): node 1 "send" is a communication node marked is_cpu_op, like 2 more']


def test_a_cycle_is_printed_with_ids_names_and_kinds_of_edges() -> None:
    def program(build: TraceBuilder) -> None:
        build.compute("a", node_id=10, after=[20])
        build.compute("b", node_id=20, ctrl_after=[30])
        build.compute("c", node_id=30, after=[10], ctrl_after=[10])
        build.compute("behind", node_id=40, after=[30])

    problem = only(find_problems(Workload.of([trace(program)] * 3)), "dependency-cycle")
    assert problem.severity == "error"
    assert problem.ranks == "0-2"
    assert problem.text == (
        'ranks 0-2 (x.et): dependency cycle of 3 nodes: node 10 "a" waits for node 20 "b" (data), which waits'
        ' for node 30 "c" (control), which waits for node 10 "a" (data and control)'
    )


def test_the_shortest_cycle_of_a_knot_is_printed_and_the_knot_counted() -> None:
    def program(build: TraceBuilder) -> None:
        build.compute("a", node_id=1, after=[4])
        build.compute("b", node_id=2, after=[1, 3])
        build.compute("c", node_id=3, after=[2])
        build.compute("d", node_id=4, after=[3])

    problem = only(find_problems(workload(program)), "dependency-cycle")
    assert 'cycle of 2 nodes: node 2 "b" waits for node 3 "c"' in problem.text
    assert problem.text.endswith("4 nodes wait for each other in all")


def test_a_long_cycle_is_shortened_in_print() -> None:
    def program(build: TraceBuilder) -> None:
        for k in range(1000):
            build.compute(f"n{k}", after=[(k + 1) % 1000])

    problem = only(find_problems(workload(program)), "dependency-cycle")
    assert "cycle of 1,000 nodes" in problem.text
    assert "and so on through 993 more nodes, the last of which waits for node 0" in problem.text
    assert len(problem.text) < 600


def test_many_separate_cycles_are_counted() -> None:
    def program(build: TraceBuilder) -> None:
        for k in range(0, 20, 2):
            build.compute("", node_id=k, after=[k + 1])
            build.compute("", node_id=k + 1, after=[k])

    problems = find_problems(workload(program))
    assert len(problems) == 4
    assert "7 more dependency cycles" in problems[-1].text


def test_a_node_that_waits_for_itself_is_named_apart_from_cycles() -> None:
    def program(build: TraceBuilder) -> None:
        build.compute("me", node_id=1, ctrl_after=[1])
        build.compute("me too", node_id=2, after=[2])

    problem = only(find_problems(workload(program)), "self-dependency")
    assert 'node 1 "me" depends on itself (control)' in problem.text
    assert problem.text.endswith("and so does 1 more node")


def test_a_trace_without_nodes_is_a_warning() -> None:
    problem = only(find_problems(workload(lambda _: None)), "empty-trace")
    assert problem.severity == "warning"


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_knots_are_the_strongly_connected_components(count: int, pairs: list[tuple[int, int]]) -> None:
    edges = [(a % count, b % count) for a, b in pairs]
    parent, child = (np.array([edge[side] for edge in edges], np.int32) for side in (0, 1))
    graph = networkx.DiGraph(edges)
    parts = networkx.strongly_connected_components(graph)
    knots = [sorted(part) for part in parts if len(part) > 1 or graph.has_edge(*part, *part)]
    result = find_knots(parent, child, count)
    assert [rows for _, rows in result] == sorted(knots)
    for cycle, _ in result:
        for row, needed in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert (needed, row) in edges
    order, _ = settle(parent, child, np.zeros(count, np.uint8))
    assert (len(order) == count) == (not knots)


@pytest.mark.deep
def test_a_huge_knot_still_gives_one_real_cycle() -> None:
    count = 60_000
    child = np.arange(count, dtype=np.int32)
    knots = find_knots(np.roll(child, 1), child, count)
    assert len(knots) == 1
    assert len(knots[0].cycle) == len(knots[0].rows) == count


def test_the_shortest_of_several_cycles_is_found() -> None:
    providers = {0: [1], 1: [2], 2: [3], 3: [0, 2]}
    assert shortest_cycle(providers, [0, 1, 2]) == [2, 3]


def test_matching_messages_are_sound_and_tags_are_folded() -> None:
    def left(build: TraceBuilder) -> None:
        build.send(1, 8, tag=7)
        build.send(1, 8, tag=500_000_007)

    def right(build: TraceBuilder) -> None:
        build.receive(0, 8, tag=7)
        build.receive(0, 8, tag=7)

    assert find_problems(workload(left, right)) == []


@pytest.mark.parametrize(
    ("receive", "message", "remedy"),
    [
        (lambda b: b.receive(0, 6 << 20, tag=7), "rank 1 expects 6 MiB (node 0", "same comm_size"),
        (lambda b: b.receive(0, 8 << 20, tag=9), "rank 1 expects tag 9 (node 0", "same comm_tag"),
        (lambda b: b.receive(0, 1, tag=9), "rank 1 expects 1 B with tag 9 (node 0", "comm_size and comm_tag"),
        (lambda b: b.receive(2, 8 << 20, tag=7), "rank 1 expects it from rank 2 (node 0", "comm_src"),
        (lambda b: b.send(0, 8 << 20, tag=7), "rank 1 also sends to rank 0, and neither rec", "a receive"),
        (nothing, "rank 1 never receives it", "add the missing receive"),
    ],
    ids=["size", "tag", "both", "source", "direction", "nothing"],
)
def test_an_unmatched_send_is_explained_by_its_nearest_mismatch(
    receive: Callable[[TraceBuilder], object], message: str, remedy: str
) -> None:
    problem = only(
        find_problems(workload(lambda b: b.send(1, 8 << 20, tag=7, name="p2p"), receive, nothing)),
        "unmatched-message",
    )
    assert problem.severity == "error"
    assert problem.text.startswith('rank 0 sends 8 MiB with tag 7 to rank 1 (node 0 "p2p" in x.0.et); ')
    assert message in problem.text
    assert remedy in problem.remedy


def test_a_receive_on_another_rank_is_found() -> None:
    problem = only(
        find_problems(workload(lambda b: b.send(1, 8), nothing, lambda b: b.receive(0, 8))),
        "unmatched-message",
    )
    assert "rank 2 expects it from rank 0" in problem.text
    assert problem.ranks == "0-2"


def test_two_receives_without_a_send_wait_for_each_other() -> None:
    problem = only(
        find_problems(workload(lambda b: b.receive(1, 8), lambda b: b.receive(0, 8))), "unmatched-message"
    )
    assert "rank 1 expects 8 B with tag 0 from rank 0" in problem.text
    assert "rank 0 also waits for rank 1, and neither sends" in problem.text


def test_different_counts_are_reported() -> None:
    def thrice(build: TraceBuilder) -> None:
        for _ in range(3):
            build.send(1, 8)

    problem = only(find_problems(workload(thrice, lambda b: b.receive(0, 8))), "unmatched-message")
    assert "sends 8 B with tag 0 to rank 1 3 times (first: node 0" in problem.text
    assert problem.text.endswith("rank 1 receives once")


def test_the_nearest_pairs_are_taken_first() -> None:
    def left(build: TraceBuilder) -> None:
        build.send(1, 100, tag=1)
        build.send(1, 200, tag=2)

    def right(build: TraceBuilder) -> None:
        build.receive(0, 201, tag=2)
        build.receive(0, 101, tag=1)

    texts = [problem.text for problem in find_problems(workload(left, right))]
    assert len(texts) == 2
    assert "rank 1 expects 101 B (node 1" in texts[0]
    assert "rank 1 expects 201 B (node 0" in texts[1]


def test_very_many_unmatched_messages_are_counted() -> None:
    def program(build: TraceBuilder) -> None:
        for tag in range(100):
            build.send(1, 8, tag)

    problems = find_problems(workload(program, nothing))
    assert [problem.like for problem in problems] == [19, 0]
    assert problems[0].text.endswith("never receives it; 19 more like it, on ranks 0-1")
    assert problems[1].text.startswith("80 more channels")


def test_sizes_that_differ_by_a_byte_do_not_look_alike() -> None:
    def left(build: TraceBuilder) -> None:
        build.send(1, (1 << 30) + 1)

    problem = only(find_problems(workload(left, lambda b: b.receive(0, 1 << 30))), "unmatched-message")
    assert "sends 1073741825 B" in problem.text
    assert "expects 1 GiB" in problem.text


def test_peers_outside_the_workload_are_errors_once_per_trace() -> None:
    def program(build: TraceBuilder) -> None:
        build.receive(4, 8, name="late")
        build.send(-1, 8)

    problem = only(find_problems(Workload.of([trace(program)] * 4)), "unknown-peer")
    assert problem.text == (
        'ranks 0-3 (x.et): node 0 "late" receives from rank 4, and there are ranks 0 to 3,'
        " and 1 more node likewise"
    )
    assert problem.ranks == "0-3"


def test_messages_to_oneself_and_of_no_bytes_are_warnings() -> None:
    def program(build: TraceBuilder) -> None:
        build.send(0, 0)
        build.receive(0, 0)

    problems = find_problems(workload(program))
    assert [(p.severity, p.kind) for p in problems] == [
        ("warning", "message-to-oneself"),
        ("warning", "empty-message"),
    ]


def test_a_foreign_own_end_is_found_in_a_shared_trace() -> None:
    from msgspec.structs import replace

    sent = trace(lambda b: b.send(0, 8))
    sent = replace(sent, comm_src=np.array([1], np.int32), present=sent.present | np.uint32(BIT["comm_src"]))
    received = trace(lambda b: (b.receive(1, 8), b.receive(2, 8)))
    problem = only(find_problems(Workload.of([received, sent, sent])), "foreign-end")
    assert problem.ranks == "2"
    assert "has the own end rank 1 (comm_src)" in problem.text


def _receive_then_send(peer: int, times: int = 1) -> Callable[[TraceBuilder], object]:
    def program(build: TraceBuilder) -> None:
        done: list[int] = []
        for _ in range(times):
            got = build.receive(peer, 1000, name="get", after=done)
            done = [build.send(peer, 1000, name="put", after=[got])]

    return program


def _send_then_receive(peer: int) -> Callable[[TraceBuilder], object]:
    def program(build: TraceBuilder) -> None:
        build.receive(peer, 1000, after=[build.send(peer, 1000)])

    return program


def test_two_ranks_that_receive_before_they_send_are_a_circle() -> None:
    problem = only(find_problems(workload(_receive_then_send(1), _receive_then_send(0))), "message-circle")
    assert (problem.severity, problem.ranks) == ("error", "0-1")
    assert problem.text == (
        "messages wait for each other in a circle (their ranks hang):"
        ' rank 0 (x.0.et) sends to rank 1 (node 1 "put") only after it received from rank 1 (node 0 "get");'
        ' rank 1 (x.1.et) sends to rank 0 (node 1 "put") only after it received from rank 0 (node 0 "get")'
    )


def test_a_rank_that_sends_first_breaks_the_circle() -> None:
    assert find_problems(workload(_receive_then_send(1), _send_then_receive(0))) == []
    assert find_problems(workload(_send_then_receive(1), _send_then_receive(0))) == []


def test_a_circle_on_the_second_message_of_a_channel_is_found() -> None:
    def first_answers(build: TraceBuilder) -> None:
        first = build.send(1, 1000, name="first put")
        got = build.receive(1, 1000, after=[first])
        again = build.receive(1, 1000, name="get", after=[got])
        build.send(1, 1000, name="put", after=[again])

    problem = only(find_problems(workload(first_answers, _receive_then_send(0, times=2))), "message-circle")
    assert 'rank 0 (x.0.et) sends to rank 1 (node 3 "put") only after it received' in problem.text
    assert 'rank 1 (x.1.et) sends to rank 0 (node 3 "put") only after it received' in problem.text


def test_a_cycle_that_depends_on_the_order_of_similar_receives_is_left_to_the_run() -> None:
    """Leave the order of two similar receives to the run: with one order, no rank hangs."""

    def program(build: TraceBuilder) -> None:
        slow = build.compute("slow", micros=100)
        quick = build.compute("quick", micros=1)
        build.send(1, 1000, after=[build.receive(1, 1000, after=[slow])])
        build.receive(1, 1000, after=[quick])

    def other(build: TraceBuilder) -> None:
        first = build.send(0, 1000)
        build.send(0, 1000, after=[build.receive(0, 1000, after=[first])])

    assert find_problems(workload(program, other)) == []


def test_a_long_circle_is_cut_short_and_many_are_counted() -> None:
    def link(rank: int, first: int, count: int) -> Callable[[TraceBuilder], object]:
        def program(build: TraceBuilder) -> None:
            got = build.receive(first + (rank - 1) % count, 8)
            build.send(first + (rank + 1) % count, 8, after=[got])

        return program

    long = only(find_problems(workload(*(link(r, 0, 12) for r in range(12)))), "message-circle")
    assert long.text.count("only after") == 7
    assert "; … 5 more …; " in long.text
    assert long.ranks == "0-11"
    pairs = find_problems(workload(*(link(r % 2, r - r % 2, 2) for r in range(10))))
    assert [problem.kind for problem in pairs] == ["message-circle"] * 4
    assert pairs[3].text == "2 more circles of messages"


def test_a_rank_count_that_differs_is_an_error() -> None:
    problem = only(find_problems(workload(nothing, nothing), ranks=8), "rank-count")
    assert "has 2 ranks, but the machine has 8 NPUs" in problem.text


def test_ranks_are_written_compactly() -> None:
    assert format_ranks([6, 0, 1, 2, 3, 3]) == "0-3,6"
    assert format_ranks([]) == ""


def test_words_for_sizes_and_places() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th",
    ]  # fmt: skip
    assert exact_bytes(-5) == "-5 B"


def problem(text: str, ranks: str = "0", kind: str = "unmatched-message", severity: str = "error") -> Problem:
    return Problem(severity, kind, ranks, text, "correct it")  # type: ignore[arg-type]


def pair(rank: int, *, sizes: tuple[int, int]) -> Trace:
    """Make half of a group of two: the second collective differs between the halves."""
    first = rank // 2 * 2
    build = TraceBuilder(source=f"job.{rank}.et")
    build.process_groups({f"{rank // 2}": [first, first + 1]} if first else {"left": [0, 1]})
    group = f"{rank // 2}" if first else "left"
    build.collective("all_reduce", 64, group)
    build.collective("all_reduce", sizes[rank % 2], group, name="odd")
    return build.build()


def test_the_same_mismatch_in_many_groups_is_one_finding() -> None:
    problems = find_problems(Workload.of([pair(rank, sizes=(64, 32)) for rank in range(12)], "job"))
    assert [problem.like for problem in problems] == [4, 0]
    assert problems[0].ranks == "3,5,7,9,11"
    assert problems[0].text == (
        "collectives of group 1 (ranks 2-3) differ: the 2nd is on rank 2 all_reduce of 64 B"
        ' (node 2 "odd" in job.2.et) and on rank 3 all_reduce of 32 B (node 2 "odd" in job.3.et);'
        " 4 more like it, on ranks 5,7,9,11"
    )


def test_other_sizes_are_another_mistake() -> None:
    sizes = [(64, 32), (64, 32), (64, 32), (128, 1024)]
    problems = find_problems(Workload.of([pair(rank, sizes=sizes[rank // 2]) for rank in range(8)], "job"))
    assert [(problem.like, problem.ranks) for problem in problems] == [(1, "3,5"), (0, "7"), (0, "1")]


@pytest.mark.parametrize(
    ("text", "other", "is_alike"),
    [
        ("rank 3 (a.3.et): node 7 is odd", "rank 12 (a.12.et): node 9 is odd", True),
        ("rank 3 (a.3.et): node 7 is odd", "ranks 3-5,9 (a.3.et): node 9 is odd", True),
        ("sends 1 MiB to rank 1", "sends 2 MiB to rank 1", False),
        ("sends 1.5 KiB to rank 1", "sends 1.6 KiB to rank 1", False),
        ("sends 1048577 B to rank 1", "sends 1048576 B to rank 1", False),
        ("node 1 is odd", "node 1 is even", False),
        ("tag 1.5 of rank 2", "tag 11 of rank 2", True),
    ],
)
def test_only_numbers_that_are_no_sizes_may_differ(text: str, other: str, is_alike: bool) -> None:
    merged = deduplicate([problem(text), problem(other, "1")])
    assert len(merged) == 2 - is_alike
    assert merged[0].like == is_alike
    assert merged[0].ranks == ("0-1" if is_alike else "0")


def test_order_kind_and_severity_are_respected() -> None:
    given = [
        problem("node 1 is odd"),
        problem("node 2 is odd", kind="other"),
        problem("node 3 is odd", severity="warning"),
        problem("node 4 is odd", ranks=""),
    ]
    merged = deduplicate(given)
    assert [problem.text for problem in merged] == [
        "node 1 is odd; 1 more like it",
        "node 2 is odd",
        "node 3 is odd",
    ]
    assert deduplicate(given[:3]) == given[:3]


def test_cycles_are_reported_one_by_one() -> None:
    circles = [problem(f"node {number} waits for itself", kind="dependency-cycle") for number in range(3)]
    assert deduplicate(circles) == circles


@pytest.mark.parametrize(("nodes", "shortest"), [(400, 2), (401, 401)])
def test_the_shortest_of_all_cycles_is_searched_in_knots_of_up_to_400_nodes(
    nodes: int, shortest: int
) -> None:
    """Let nodes wait for each other in a circle, and two neighbours of them for each other."""
    parent = np.array([*range(nodes), 6], np.int32)
    child = np.array([*range(1, nodes), 0, 5], np.int32)
    [knot] = find_knots(parent, child, nodes)
    assert (len(knot.cycle), len(knot.rows)) == (shortest, nodes)
