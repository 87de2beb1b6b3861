"""Like findings are told once, with a count; whatever differs in more than numbers is told apart."""

from __future__ import annotations

import pytest

from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.preflight import Problem, find_problems
from et_sim.trace.preflight.check import deduplicate


def problem(text: str, ranks: str = "0", kind: str = "unmatched-message", severity: str = "error") -> Problem:
    return Problem(severity, kind, ranks, text, "correct it")  # type: ignore[arg-type]


def pair(rank: int, *, sizes: tuple[int, int]) -> Trace:
    """Half of a group of two: the second collective differs between the halves."""
    first = rank // 2 * 2
    build = TraceBuilder(source=f"job.{rank}.et")
    build.process_groups({f"{rank // 2}": [first, first + 1]} if first else {"left": [0, 1]})
    group = f"{rank // 2}" if first else "left"
    build.collective("all_reduce", 64, group)
    build.collective("all_reduce", sizes[rank % 2], group, name="odd")
    return build.build()


def test_the_same_mismatch_in_many_groups_is_one_finding() -> None:
    found = find_problems(Workload.of([pair(rank, sizes=(64, 32)) for rank in range(12)], "job"))
    assert [one.like for one in found] == [4, 0]
    assert found[0].ranks == "3,5,7,9,11"
    assert found[0].text == (
        "collectives of group 1 (ranks 2-3) differ: the 2nd is on rank 2 all_reduce of 64 B"
        ' (node 2 "odd" in job.2.et) and on rank 3 all_reduce of 32 B (node 2 "odd" in job.3.et);'
        " 4 more like it, on ranks 5,7,9,11"
    )


def test_other_sizes_are_another_mistake() -> None:
    sizes = [(64, 32), (64, 32), (64, 32), (128, 1024)]
    found = find_problems(Workload.of([pair(rank, sizes=sizes[rank // 2]) for rank in range(8)], "job"))
    assert [(one.like, one.ranks) for one in found] == [(1, "3,5"), (0, "7"), (0, "1")]


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
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
def test_only_numbers_that_are_no_sizes_may_differ(one: str, other: str, is_alike: bool) -> None:
    merged = deduplicate([problem(one), problem(other, "1")])
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
    assert [one.text for one in merged] == [
        "node 1 is odd; 1 more like it",
        "node 2 is odd",
        "node 3 is odd",
    ]
    assert deduplicate(given[:3]) == given[:3]


def test_circles_are_told_one_by_one() -> None:
    circles = [problem(f"node {number} waits for itself", kind="dependency-cycle") for number in range(3)]
    assert deduplicate(circles) == circles
