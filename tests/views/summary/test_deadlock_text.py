"""The line of the summary on collectives that waited for each other until nothing else was left."""

from __future__ import annotations

from typing import Any

import pytest

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
