"""Lines of the summary that few runs have: collectives that waited for each other, failures, fixed gaps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.views.summary.facts import explained_text
from et_sim.views.summary.failures import failed_text, failure_lines
from et_sim.views.summary.stalls import deadlock_text


def entry(count: int, waited_ns: int = 7000) -> dict[str, Any]:
    collectives = [
        {"operation": "all_reduce", "node_name": f"sum {number}", "group": "", "waiting": ""}
        for number in range(count)
    ]
    return {"collectives": collectives, "waited_ns": waited_ns, "at_ns": 9000}


def text_of(*entries: dict[str, Any]) -> str:
    summary: Any = {"deadlocks": list(entries)}
    return deadlock_text(summary)


def test_a_run_without_such_waits_has_no_line() -> None:
    assert text_of() == ""


@pytest.mark.parametrize(("count", "more"), [(2, ""), (4, ""), (5, ", 1 more"), (1004, ", 1,000 more")])
def test_the_first_four_collectives_are_named_and_the_others_counted(count: int, more: str) -> None:
    named = ", ".join(f'all_reduce "sum {number}"' for number in range(min(count, 4)))
    assert text_of(entry(count)).startswith(f"{named}{more} waited for each other for 7 µs, up to 9 µs, when")
    assert text_of(entry(count)).endswith("give all members one order")


def test_chunks_of_one_collective_have_no_order_of_launch() -> None:
    text = text_of(entry(1))
    assert text.startswith('chunks of all_reduce "sum 0" waited for each other for 7 µs')
    assert "order" not in text


def test_the_longest_wait_is_described_and_the_others_are_counted() -> None:
    assert text_of(entry(2), entry(2, 8000)).endswith("; 1 more in summary.json")
    assert "for 8 µs, up to" in text_of(entry(2), entry(2, 8000), entry(2, 1000))


def test_a_collective_has_its_group_and_the_ranks_on_which_it_waits() -> None:
    found = entry(2)
    found["collectives"][1] |= {"group": "tp", "waiting": "0-3", "node_name": "x" * 41}
    cut = f"{'x' * 39}…"
    assert f', all_reduce "{cut}" of group tp (waits on ranks 0-3) waited' in text_of(found)


def failure(**other: Any) -> dict[str, Any]:
    usual = {"part": "leaf0", "links": 4, "left": 0, "at_ns": 5000, "until_ns": None, "waited_ns": 0}
    return usual | other


def lines_of(*failures: dict[str, Any], makespan_ns: int = 9000) -> list[str]:
    summary: Any = {"makespan_ns": makespan_ns, "failures": list(failures)}
    return failure_lines(summary)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "leaf0 (4 links), dead from 5 µs to the end: no message lost bytes"),
        ({"links": 1, "left": 0.5}, "leaf0 (1 link), 50 % of its bandwidth left from 5 µs to the end"),
        ({"links": 0, "left": 0.5}, "leaf0, 50 % of its speed left from 5 µs to the end"),
        (
            {"until_ns": 6000, "waited_ns": 70},
            "leaf0 (4 links), dead from 5 µs to 6 µs: messages waited 70 ns",
        ),
        ({"at_ns": 9000}, "leaf0 (4 links), dead from 9 µs to the end: after the run"),
        ({"at_ns": 8999}, "leaf0 (4 links), dead from 8.999 µs to the end: no message lost bytes"),
        ({"at_ns": 9000, "waited_ns": 1}, "leaf0 (4 links), dead from 9 µs to the end: messages waited 1 ns"),
    ],
)
def test_a_failure_has_what_is_left_its_time_and_its_effect(changes: dict[str, Any], line: str) -> None:
    assert lines_of(failure(**changes)) == [f"failed: {line}"]


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 1008])
def test_eight_failures_have_lines_and_the_others_are_counted(count: int) -> None:
    failures = [failure(part=f"part {number}") for number in range(count)]
    lines = lines_of(*failures)
    assert [line.partition(" (")[0] for line in lines[:8]] == [
        f"failed: part {at}" for at in range(min(count, 8))
    ]
    more = f"failed: … and {count - 8:,} more (all in summary.json)"
    assert lines[8:] == [more] * (count > 8)
    summary: Any = {"makespan_ns": 9000, "failures": failures}
    first = lines[0].removeprefix("failed: ") if lines else ""
    others = f"; {count - 1:,} more (inspect links)" * (count > 1)
    assert failed_text(summary) == first + others


@pytest.mark.parametrize(("lanes", "named"), [(1, "x0"), (2, "x0, x1"), (3, "x0, x1, …")])
def test_fixed_gaps_of_two_lanes_are_named(lanes: int, named: str) -> None:
    gaps = [{"ns": 50, "name": f"thread {lane}", "ranks": "3"} for lane in range(lanes)]
    spent = {"gaps": 400, "copies": 90, "other": 10, "kernels": 9, "communication": 491}
    explained = {"path_ns": 1000, "gaps_ns": 400, "spent_ns": spent, "gaps": gaps}
    run: Any = SimpleNamespace(summary={"explained": explained})
    known = "communication 49 %, copies 9 %, late starts or remote memory 1 %"
    lines = (
        named.replace("x", "50 ns thread ").replace(", …", " of rank 3, …").replace(", 50", " of rank 3, 50")
    )
    last = "" if lines.endswith("…") else " of rank 3"
    assert explained_text(run) == f"60 % of the longest path ({known}); fixed gaps 40 %: {lines}{last}"
    explained["gaps_ns"] = 0
    assert explained_text(run) == f"100 % of the longest path ({known})"
    explained["path_ns"] = 0
    assert explained_text(run) == ""
