"""Repeated periods are skipped, and every figure equals that of single packets, with any disturbance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import simulate, system

from et_sim import TraceBuilder
from et_sim.network.packet.model import ports_counted
from et_sim.run.result import Result

RANKS = 4
SHAPES: tuple[dict[str, Any], ...] = (
    {"generator": "star", "npus": RANKS},
    {"generator": "ring", "npus": RANKS},
    {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2},
)
# (source, places ahead, bytes, when it sets out)
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, RANKS - 1), st.integers(1, RANKS - 1), st.integers(1, 250_000), st.integers(0, 30_000)
    ),
    min_size=1,
    max_size=4,
)
PROTOCOLS = st.fixed_dictionaries(
    {
        "preset": st.sampled_from(["roce", "ns3-parity", "datacenter"]),
        "payload": st.sampled_from([700, 1000]),
        "completion": st.sampled_from(["receipt", "acknowledgement"]),
        "window": st.sampled_from(["pair", "largest", "none"]),
        "buffer": st.sampled_from([1 << 20, 32 << 20]),
    }
)


def run(
    shape: dict[str, Any], protocol: dict[str, Any], messages: list[tuple[int, int, int, int]], skips: bool
) -> Result:
    """Run messages, each after a computation."""
    builders = [TraceBuilder() for _ in range(RANKS)]
    for tag, (source, ahead, size, begin) in enumerate(messages):
        target = (source + ahead) % RANKS
        first = [builders[source].compute(nanos=begin, concurrent=True)] if begin else []
        builders[source].send(target, size, tag=tag, after=first)
        builders[target].receive(source, size, tag=tag)
    graph = {**shape, "bandwidth": "100Gbps", "latency": "200ns"}
    network = {"graph": graph, "protocol": {**protocol, "skip-repeats": skips}}
    return simulate(builders, network, system(), model="packet")


def figures(result: Result) -> dict[str, Any]:
    """Return all results of a run."""
    assert result.is_complete
    tables = result.outcome.run.network
    columns, totals = ports_counted(tables)
    state = tables.state[0]
    return {
        "timeline": result.timeline.to_pylist(),
        "ports": {name: column.tolist() for name, column in columns.items()},
        "totals": totals,
        "kernel": [int(state[name]) for name in ("now_ps", "order", "random")]
        + [int(state.free_packets.rows)],
    }


@pytest.mark.deep
@given(st.sampled_from(SHAPES), PROTOCOLS, MESSAGES)
def test_skipped_periods_equal_single_packets(
    shape: dict[str, Any], protocol: dict[str, Any], messages: list[tuple[int, int, int, int]]
) -> None:
    one_by_one = run(shape, protocol, messages, skips=False)
    assert one_by_one.outcome.run.network.state[0].skipped == 0
    assert figures(run(shape, protocol, messages, skips=True)) == figures(one_by_one)


LONG = 400_000


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([(0, 1, LONG, 0)], id="alone"),
        pytest.param([(rank, 1, LONG, 0) for rank in range(RANKS)], id="everybody-to-the-next"),
        pytest.param([(0, 1, LONG, 0), (2, 3, LONG // 4, 12_345)], id="another-in-between"),
        pytest.param([(1, 3, LONG // 2, 0), (2, 2, LONG // 2, 0)], id="two-to-one"),
    ],
)
def test_long_messages_are_skipped_to_their_ends(messages: list[tuple[int, int, int, int]]) -> None:
    one_by_one = run(SHAPES[0], {"preset": "roce"}, messages, skips=False)
    skipped = run(SHAPES[0], {"preset": "roce"}, messages, skips=True)
    assert figures(skipped) == figures(one_by_one)
    state = skipped.outcome.run.network.state[0]
    assert state.skipped > state.sent // 5


def test_windows_that_follow_round_trips_are_not_skipped() -> None:
    result = run(SHAPES[0], {"preset": "roce", "congestion-control": "timely"}, [(0, 1, LONG, 0)], skips=True)
    assert result.outcome.run.network.state[0].skipped == 0
