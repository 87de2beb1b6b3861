"""Collectives that wait for each other in queues until nothing else is left: the summary names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from machines import network, system

from et_sim.api import simulate
from et_sim.basics.errors import StallError
from et_sim.engine.blocked import MOST_LOOKS
from et_sim.trace import TraceBuilder, Workload
from et_sim.views.summary.stalls import deadlock_text

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def opposite(group: Sequence[int], pairs: int = 1, profile: str = "corrected", ranks: int = 4) -> Any:
    """Return a run in which every second member issues two collectives in the opposite order.

    Rank n begins 10 n us late. Another rank computes for 1 ms.
    """
    traces = []
    for rank in range(ranks):
        build = TraceBuilder()
        last = [build.compute("late", micros=10 * rank)]
        orders = [("all_reduce", "sum"), ("all_gather", "parts")]
        for _ in range(pairs):
            if rank not in group:
                last = [build.compute("work", micros=1000, after=last)]
                continue
            shown = orders[:: -1 if rank % 2 else 1]
            last = [build.collective(kind, SIZE, "g", name=name, after=last) for kind, name in shown]
        traces.append(build.build())
    one_at_a_time = {"active-chunks-per-dimension": 1, "preferred-dataset-splits": 1}
    return simulate(
        Workload.of(traces),
        network=network(["Ring"], [ranks]),
        system=system("ring", 1, profile=profile, **one_at_a_time),
        groups={"g": list(group)},
        model="analytical",
    )


def test_the_summary_names_collectives_their_group_and_ranks_and_the_wait() -> None:
    result = opposite(range(4))
    (entry,) = result.summary()["deadlocks"]
    assert entry["collectives"] == [
        {"operation": "all_gather", "node_name": "parts", "group": "g", "waiting": "0,2"},
        {"operation": "all_reduce", "node_name": "sum", "group": "g", "waiting": "1,3"},
    ]
    assert entry["waited_ns"] == entry["at_ns"] - 30_000  # when rank 3 issued both
    assert result.is_complete
    text = deadlock_text(result.summary())
    assert 'all_reduce "sum" of group g (waits on ranks 1,3)' in text
    assert "a library would hang" in text


def test_the_wait_lasts_until_ranks_outside_of_the_group_have_nothing_left_to_do() -> None:
    (entry,) = opposite((0, 1)).summary()["deadlocks"]
    assert entry["at_ns"] == 1_030_000  # rank 3 computes for 1 ms from 30 us on
    assert entry["waited_ns"] == 1_020_000


def test_each_time_is_listed_and_after_many_no_more_are_looked_at() -> None:
    assert len(opposite(range(4), pairs=3).summary()["deadlocks"]) == 3
    result = opposite((0, 1), pairs=MOST_LOOKS + 2, ranks=2)
    assert len(result.summary()["deadlocks"]) == MOST_LOOKS
    assert "; 63 more in summary.json" in deadlock_text(result.summary())


def test_collectives_in_one_order_have_no_deadlock() -> None:
    result = opposite((0, 2))
    assert "deadlocks" not in result.summary()
    assert deadlock_text(result.summary()) == ""


def test_the_reference_stalls_as_before() -> None:
    with pytest.raises(StallError, match="in a different order"):
        opposite(range(4), profile="reference")


def test_groups_that_are_folded_together_count_as_the_first_on_the_ranks_of_all() -> None:
    traces = []
    for rank in range(8):
        build = TraceBuilder()
        for kind in ("all_reduce", "all_gather")[:: -1 if rank % 2 else 1]:
            build.collective(kind, SIZE, f"g{rank // 2}")
        traces.append(build.build())
    inputs: dict[str, Any] = {
        "network": network(["Switch"], [8]),
        "system": system(
            "ring",
            1,
            profile="corrected",
            **{"active-chunks-per-dimension": 1, "preferred-dataset-splits": 1},
        ),
        "groups": {f"g{number}": [2 * number, 2 * number + 1] for number in range(4)},
        "model": "analytical",
    }
    alone = simulate(Workload.of(traces), **inputs).summary()["deadlocks"]
    (folded,) = simulate(Workload.of(traces), **inputs, ties_alike=True).summary()["deadlocks"]
    waits = [(one["group"], one["waiting"]) for entry in alone for one in entry["collectives"]]
    assert waits == [(f"g{number // 2}", str(number)) for number in range(8)]
    assert [(one["group"], one["waiting"]) for one in folded["collectives"]] == [
        ("g0", "0,2,4,6"),
        ("g0", "1,3,5,7"),
    ]
    assert {folded["at_ns"]} == {entry["at_ns"] for entry in alone}
