"""The critical path of messages as packets: their parts add up, and are what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import simulate, system

from et_sim import TraceBuilder
from et_sim.run.result import Result

NPUS = 4
LEAVES = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2}
LOSSY = {"pauses": False, "queue-packets": 3, "retransmission-timeout": 50_000}
EXACT = {"preset": "roce", "header": 0, "payload": 1000, "congestion-control": "none", "window": "none"}


def run(
    messages: list[tuple[int, int, int]], graph: dict[str, Any], detail: str = "path", **protocol: Any
) -> Result:
    """Messages (source, target, bytes), all at once."""
    builders = [TraceBuilder() for _ in range(NPUS)]
    for tag, (source, target, size) in enumerate(messages):
        builders[source].send(target, size, tag=tag)
        builders[target].receive(source, size, tag=tag)
    net = {"graph": {**graph, "bandwidth": "100Gbps", "latency": "200ns"}, "protocol": protocol}
    return simulate(builders, net, system(), model="packet", detail=detail)


def causes(result: Result) -> dict[str, int]:
    """What the time went to, which is that of the run."""
    found: dict[str, int] = result.critical_path()["causes"]
    assert sum(found.values()) == result.makespan_ns
    return found


@pytest.mark.parametrize(("completion", "ways"), [("receipt", 1), ("acknowledgement", 2)])
def test_a_lone_message_takes_latencies_and_transmissions_and_names_their_links(
    completion: str, ways: int
) -> None:
    result = run([(0, 2, 5000)], LEAVES, **EXACT, completion=completion, acknowledgement=1000)
    links, packet = 4, 80
    assert causes(result) == {
        "latency": ways * links * 200,
        "serialisation": (5 + links - 1) * packet + (ways - 1) * links * packet,
    }
    classes = result.critical_path()["links"]
    assert sum(one["latency"] for one in classes) == ways * links * 200
    assert sum(one["serialisation"] for one in classes) == causes(result)["serialisation"]


def test_what_is_behind_others_waits_in_queues() -> None:
    result = run([(source, 3, 10_000) for source in range(3)], {"generator": "star", "npus": NPUS}, **EXACT)
    found = causes(result)
    assert found["latency"] == 2 * 2 * 200
    # 30 packets leave the switch after the first has come; the last one alone needs 10 + 1 times.
    assert found["queueing"] == (1 + 30 - 11) * 80
    assert set(found) == {"latency", "serialisation", "queueing"}


def test_a_window_that_holds_a_message_back_is_told_from_queues() -> None:
    narrow = EXACT | {"window": "pair"}
    star = {"generator": "star", "npus": NPUS}
    messages = [(source, 3, 50_000) for source in range(3)]
    result = run(messages, star, "path,ports", **narrow)
    last = max(result.table("flows").to_pylist(), key=lambda flow: flow["arrived_ns"])
    assert causes(result)["window"] == pytest.approx(last["window_ns"], abs=2)
    assert causes(result)["window"] > result.makespan_ns // 3


def test_what_is_lost_costs_the_time_until_it_was_sent_again() -> None:
    star = {"generator": "star", "npus": NPUS}
    result = run([(source, 3, 20_000) for source in range(3)], star, **EXACT | LOSSY)
    assert causes(result)["resending"] > 50_000


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 15_000)), min_size=1, max_size=4),
    st.sampled_from(
        [
            EXACT,
            EXACT | LOSSY,
            {"preset": "ns3-parity"},
            {"preset": "ns3-tcp-parity"},
            {"preset": "datacenter"},
        ]
    ),
)
def test_parts_of_any_messages_add_up_and_recording_them_changes_nothing(
    messages: list[tuple[int, int, int]], protocol: dict[str, Any]
) -> None:
    every = [(source, (source + ahead) % NPUS, size) for source, ahead, size in messages]
    result = run(every, LEAVES, **protocol)
    causes(result)
    assert result.makespan_ns == run(every, LEAVES, "nodes", **protocol).makespan_ns
