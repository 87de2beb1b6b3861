"""Links that fail within a run on the packet network, against closed forms and runs without failures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from failing_parts import (
    FIRST_TRY,
    GRID_LINK,
    MS,
    RING,
    SPEED,
    in_machine_code,
    one_message,
    ports,
    random_case,
    sent,
)

from et_sim.api import simulate
from et_sim.basics.errors import StallError, UsageError
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.trace import TraceBuilder

SIZE, PACKET_NS = 800_000, 4158  # bytes, and the time of a packet of 4096
US = 1000
HASHED = {**ports(2), "routing": "ecmp"}
BOTH_FLAP = {"port": "npu0->plane*", "at": "100us", "for": "2s"}
FEW_CASES, MANY_CASES = range(2), range(2, 24)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def of_packets(described: Any, *failures: Any, **recovery: Any) -> int:
    return one_message(described, *failures, size=SIZE, model="packet", **recovery)


def test_a_message_on_a_link_that_slows_down_goes_on_slower_after_its_packet() -> None:
    time = of_packets(RING, {**GRID_LINK, "at": "200us", "slower": 0.25})
    assert time == pytest.approx(4 * of_packets(RING) - 3 * (200 * US + PACKET_NS), rel=0.02)


@pytest.mark.parametrize(("dead_ms", "tries"), [(3, 1), (11, 2)])
def test_packets_on_a_dead_link_are_sent_again_at_the_first_try_after_the_repair(
    dead_ms: int, tries: int
) -> None:
    flap = {**GRID_LINK, "at": "200us", "for": f"{dead_ms}ms"}
    time = of_packets(RING, flap, detection="10ms")
    assert time == pytest.approx(of_packets(RING) + tries * 10 * MS, abs=2 * PACKET_NS)


def test_a_flap_shorter_than_a_window_costs_a_round_trip() -> None:
    """Check that packets that come after the gap have the sender go back at once."""
    far = {**RING, "latency": [50 * US]}
    time = of_packets(far, {**GRID_LINK, "at": "200us", "for": "20us"})
    usual, round_trip = of_packets(far), 2 * 50 * US
    assert usual + 20 * US <= time <= usual + 20 * US + round_trip + 4 * PACKET_NS


def test_a_short_flap_costs_one_time_out() -> None:
    time = of_packets(HASHED, BOTH_FLAP)
    assert time == pytest.approx(of_packets(HASHED) + FIRST_TRY, abs=2 * PACKET_NS)


def test_a_long_flap_ends_the_run_and_fail_over_takes_the_other_port() -> None:
    """Check the port that a hash picks for the message, and the one that carries nothing."""
    links = [{"link": f"npu0->plane{plane}", "at": "100us", "for": "60s"} for plane in (0, 1)]
    usual = of_packets(HASHED)
    (port,) = [link for link in links if outcome(HASHED, link) != usual]
    assert re.search(r"npu0->plane.* failed at 100 .*in 8 tries \(34.36 s\)", outcome(HASHED, port))
    after = of_packets(HASHED, port, fail_over=True)
    assert after == pytest.approx(usual + 8 * FIRST_TRY + 10 * MS, abs=4 * PACKET_NS)


def outcome(described: Any, failure: Any) -> Any:
    """Return when a message arrives, or why it does not."""
    try:
        return of_packets(described, failure)
    except StallError as stall:
        return str(stall)


def test_retries_bound_the_wait() -> None:
    flap = {**GRID_LINK, "at": "200us", "for": "25ms"}
    time = of_packets(RING, flap, detection="10ms", retries=3)
    assert time == pytest.approx(of_packets(RING) + 30 * MS, abs=2 * PACKET_NS)
    words = r"dimension 0: 0 to 1 failed at 200 \u00b5s.*3 tries.* or a graph with a second port"
    with pytest.raises(StallError, match=words):
        of_packets(RING, flap, detection="10ms", retries=2)


def test_tries_are_counted_anew_after_an_acknowledgement() -> None:
    flaps = [{**GRID_LINK, "at": at, "for": "11ms"} for at in ("200us", "20500us")]
    time = of_packets(RING, *flaps, detection="10ms", retries=3)
    assert time == pytest.approx(of_packets(RING) + 40 * MS, abs=4 * PACKET_NS)


def test_tcp_is_refused() -> None:
    with pytest.raises(UsageError, match="TCP keeps connections"):
        of_packets({**HASHED, "protocol": {"preset": "tcp"}}, BOTH_FLAP)


CROWDED = {
    "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 4, **SPEED},
    "routing": "ecmp",
}
LOSSY = {"preset": "roce", "pauses": False, "queue-packets": 2}


def crowded(timeout: str, *failures: Any, **recovery: Any) -> Any:
    """Return times and counts of messages to one rank, some of whose packets are lost in full queues."""
    builders = [TraceBuilder() for _ in range(8)]
    for source in range(1, 8):
        builders[source].send(0, 20_000, tag=source, after=[])
        builders[0].receive(source, 20_000, tag=source, after=[])
    described = {**CROWDED, "protocol": {**LOSSY, "retransmission-timeout": timeout}}
    result = sent(builders, described, *failures, model="packet", **recovery)
    return result.finish_ns.tolist(), result.summary()["packets"]


@pytest.mark.parametrize("timeout", ["20us", "300us"])
def test_time_outs_are_those_of_the_protocol_until_a_link_dies(timeout: str) -> None:
    usual = crowded(timeout)
    assert usual[1]["timeouts"] > 8
    late = {"switch": "spine0", "at": "1s"}
    assert crowded(timeout, late, detection="1us", retries=0) == usual
    slow = {"switch": "spine0", "at": "0s", "slower": 0.999999}
    assert max(crowded(timeout, slow)[0]) < 2 * max(usual[0]) < FIRST_TRY


def test_after_a_link_has_died_the_time_of_a_try_is_that_of_detection() -> None:
    """Check that those which run when the link dies begin anew."""
    flap = {"switch": "spine0", "at": "30us", "for": "10us"}
    times, packets = crowded("20us", flap, detection="10ms")
    assert 10 * MS < max(times) < 10 * MS * (1 + packets["timeouts"])
    assert packets["timeouts"] < crowded("20us")[1]["timeouts"]


def test_a_watchdog_that_ends_tries_is_refused() -> None:
    with pytest.raises(UsageError, match="after 2 ms, before the last try, after 4 ms"):
        of_packets(HASHED, BOTH_FLAP, detection="1ms", retries=3, watchdog="2ms")


def outcome_of(seed: int, failures: Any = None) -> Any:
    """Return the times of a random case with its own or other failures, or why it stalls."""
    workload, machine = random_case(seed, "packet")
    network = machine["network"]
    if failures is not None:
        network = {name: of for name, of in network.items() if name not in ("failures", "recovery")}
        network |= failures
    try:
        result = simulate(workload, network=network, system=machine["system"], model="packet")
    except StallError as stall:
        return str(stall)
    return result.finish_ns.tolist(), result.outcome.messages, result.outcome.waits_ns


@pytest.mark.deep
def test_failures_after_the_run_change_nothing() -> None:
    late = {"failures": [{"link": "*", "at": "1h"}]}
    assert [outcome_of(seed, late)[:2] for seed in FEW_CASES] == [
        outcome_of(seed, {})[:2] for seed in FEW_CASES
    ]


@pytest.mark.deep
@pytest.mark.in_turn(days=2, day=0)
def test_random_failures_end_or_stall_with_their_cause_in_machine_code_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interpreted = [outcome_of(seed) for seed in FEW_CASES]
    monkeypatch.setenv("ET_SIM_COMPILE", "now")
    monkeypatch.setattr(CompiledEntry, "_run", in_machine_code)
    assert [outcome_of(seed) for seed in FEW_CASES] == interpreted
    outcomes = [outcome_of(seed) for seed in MANY_CASES]
    assert all("failed at" in outcome for outcome in outcomes if isinstance(outcome, str))
    assert any(isinstance(outcome, tuple) and max(outcome[2]) > 0 for outcome in outcomes)
