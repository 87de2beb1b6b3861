"""Links that fail within a run on the link network, against closed forms and runs without failures."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from failing_parts import (
    BYTES,
    FIRST_TRY,
    GRID_LINK,
    MS,
    RING,
    in_machine_code,
    one_message,
    ports,
    random_case,
    random_machine,
    sent,
    spines,
)
from machines import collective, system

from et_sim.api import run, simulate
from et_sim.basics.errors import StallError
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.trace import TraceBuilder, Workload

FEW_CASES, MANY_CASES = range(6), range(6, 40)
FLAP = {"port": "npu0->plane1", "at": "1ms", "for": "2s"}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def on_link(described: Any, *failures: Any, size: int = BYTES, **recovery: Any) -> int:
    return one_message(described, *failures, size=size, model="link", **recovery)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_ring_with_a_slow_link_takes_the_time_of_that_link(share: float) -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "0s", "slower": share}]}
    on = system("ring", 1, profile="corrected", **{"endpoint-delay": 0, "preferred-dataset-splits": 1})
    result = run(collective(4, "all_reduce", BYTES), network=described, system=on, model="link")
    assert result.makespan_ns == 2 * 3 * (BYTES // 4) / share


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("flow", "links fail, perhaps behind some of the ranks only"),
        ("link", "links fail, perhaps behind some of the ranks only"),
        ("packet", "this network model simulates every rank"),
    ],
)
def test_the_summary_states_why_ranks_are_not_folded(model: str, reason: str) -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "1h"}]}
    result = run(collective(4, "all_reduce", 4096), network=described, system=system("ring", 1), model=model)
    (limit,) = result.summary()["folded"]["limits"]
    assert limit["reason"] == reason


def test_a_message_on_a_link_that_slows_down_goes_on_slower() -> None:
    time = on_link(RING, {**GRID_LINK, "at": "2ms", "slower": 0.25})
    assert time == 2 * MS + (BYTES - 2 * MS) * 4
    time = on_link(RING, {**GRID_LINK, "at": "2ms", "for": "4ms", "slower": 0.25})
    assert time == BYTES + 4 * MS * 3 // 4


@pytest.mark.parametrize("model", ["link", "flow"])
def test_a_run_ends_with_its_last_node_and_not_with_a_withdrawn_event(model: str) -> None:
    builders = [TraceBuilder() for _ in range(4)]
    builders[0].send(1, BYTES)
    builders[1].receive(0, BYTES)
    slow = {**GRID_LINK, "at": "2ms", "for": "1ms", "slower": 0.01}
    result = sent(builders, RING, slow, model=model)
    assert result.outcome.end_ns == result.makespan_ns == BYTES + 990_000


@pytest.mark.parametrize(("dead_ms", "tries"), [(3, 1), (10, 1), (11, 2), (25, 3)])
def test_a_message_that_is_cut_is_sent_again_at_the_first_try_after_the_repair(
    dead_ms: int, tries: int
) -> None:
    flap = {**GRID_LINK, "at": "2ms", "for": f"{dead_ms}ms"}
    assert on_link(RING, flap, detection="10ms") == 2 * MS + tries * 10 * MS + BYTES


def test_a_message_that_begins_on_a_dead_link_counts_its_tries_from_then() -> None:
    flap = {**GRID_LINK, "at": "0s", "for": "5ms"}
    assert on_link(RING, flap, detection="3ms") == BYTES + 6 * MS


@pytest.mark.parametrize("waiting", [1, 3])
def test_messages_that_wait_for_a_dead_link_are_lost_too(waiting: int) -> None:
    """Check that all are sent again at the time of one try, in their order."""
    builders = [TraceBuilder() for _ in range(4)]
    for tag in range(waiting + 1):
        builders[0].send(1, BYTES, tag=tag)
        builders[1].receive(0, BYTES, tag=tag)
    flap = {**GRID_LINK, "at": "2ms", "for": "5ms"}
    result = sent(builders, RING, flap, model="link", detection="10ms")
    assert result.finish_ns[1] == 2 * MS + 10 * MS + (waiting + 1) * BYTES


def test_what_has_left_a_link_arrives() -> None:
    late = {**RING, "latency": [1000]}
    flap = {**GRID_LINK, "at": f"{BYTES}ns", "for": "1ms"}
    assert on_link(late, flap, detection="2ms") == on_link(late) == BYTES + 1000
    cut = {**GRID_LINK, "at": f"{BYTES - 1}ns", "for": "1ms"}
    assert on_link(late, cut, detection="2ms") == BYTES - 1 + 2 * MS + BYTES + 1000


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_a_sprayed_message_is_sent_again_over_the_ways_that_are_left(ways: int) -> None:
    """Check T = t + d + k / (k - 1) T0 over a link of k ways between links that are no bottleneck."""
    size, at, wait = ways * 6 * MS, 2 * MS, 5 * MS
    before, behind = (on_link(spines(ways), size=size) // 4 for _ in range(2))  # each of four links
    assert before == behind == 6 * MS
    failure = {"link": "leaf0->spine1", "at": f"{before + at}ns"}
    time = on_link(spines(ways), failure, size=size, detection="5ms")
    again = 6 * MS + ways * 6 * MS // (ways - 1) + 6 * MS + 6 * MS
    assert time == before + at + wait + again


def test_a_switch_that_dies_takes_its_part_of_all_trunks() -> None:
    failure = {"switch": "spine1", "at": "2ms"}  # before the message reaches the trunk
    assert on_link(spines(2), failure, size=12 * MS) == 6 * MS + 12 * MS + 12 * MS + 6 * MS


def test_a_short_flap_costs_one_time_out_and_what_was_under_way() -> None:
    assert on_link(ports(2), FLAP, size=12 * MS) == 1 * MS + FIRST_TRY + on_link(ports(2), size=12 * MS)


def test_a_long_flap_of_a_port_ends_the_run() -> None:
    with pytest.raises(StallError, match=r"port npu0->plane1 failed at 1 ms.*from rank 0 to rank 1.*8 tries"):
        on_link(ports(2), {**FLAP, "for": "60s"}, size=12 * MS)


def test_with_fail_over_a_long_flap_costs_half_of_the_bandwidth_of_two_ports() -> None:
    time = on_link(ports(2), {**FLAP, "for": "60s"}, size=12 * MS, fail_over=True)
    assert time == 1 * MS + 8 * FIRST_TRY + 10 * MS + 12 * MS + 6 * MS  # the way back to rank 1 is whole


def test_retries_and_the_watchdog_bound_the_wait() -> None:
    flap = {**GRID_LINK, "at": "2ms", "for": "25ms"}
    assert on_link(RING, flap, detection="10ms", retries=3) == 2 * MS + 30 * MS + BYTES
    for recovery in ({"retries": 2}, {"retries": 7, "watchdog": "20ms"}):
        with pytest.raises(StallError, match="dimension 0: 0 to 1 failed at 2 ms"):
            on_link(RING, flap, detection="10ms", **recovery)


def test_a_run_that_a_dead_part_ends_has_no_remedies_for_other_waits() -> None:
    """Check a ring whose ranks wait for one that turns the other way, because a message to it was lost."""
    nic, figures = {"bandwidth": "64GB/s", "latency": "250ns"}, {"bandwidth": "50GB/s", "latency": "500ns"}
    graph = {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 4, "nic": nic, **figures}
    described = {"graph": graph, "failures": [{"gpu": "npu3", "at": "2ms"}]}
    rings = {"profile": "corrected", "all-reduce-implementation": ["ring", "ring"]}
    result = run(collective(8, "all_reduce", 64 << 20), network=described, system=rings, model="link")
    assert result.stall is not None
    assert "member-turned" in {wait.kind for wait in result.stall.waits}
    assert "gpu npu3 failed at 2 ms" in result.stall.cause
    assert [text[:21] for text in result.stall.remedies] == ["describe a second way"]


def test_hashed_messages_take_the_other_way_around_a_dead_link() -> None:
    hashed = {**spines(2), "routing": "ecmp"}
    usual = on_link(hashed)
    for spine in (0, 1):
        assert on_link(hashed, {"switch": f"spine{spine}", "at": "0s"}) == usual


def random_messages(seed: int) -> tuple[Workload, dict[str, Any]]:
    """Return sends among ranks and a machine."""
    draw = Random(seed)
    described = random_machine(draw, "link")
    ranks = described["logical-dimensions"][0]
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(20):
        source, target = draw.sample(range(ranks), 2)
        size = draw.choice((1, 4096, 1_000_001))
        builders[source].send(target, size, tag=tag, after=[])
        builders[target].receive(source, size, tag=tag, after=[])
    workload = Workload.of([builder.build() for builder in builders])
    return workload, {"network": described, "system": system("ring", 1, profile="corrected")}


def differs_from_none(seed: int) -> bool:
    """Return whether failures after the run, or of no effect, change a random case."""
    workload, machine = random_messages(seed) if seed % 2 else random_case(seed, "link")
    network = {name: of for name, of in machine["network"].items() if name not in ("failures", "recovery")}
    late = [{"link": "*", "at": "1h"}]
    times = []
    for described in (network, {**network, "failures": late}):
        result = simulate(workload, network=described, system=machine["system"], model="link")
        nodes = result.outcome.nodes
        times.append((result.finish_ns.tolist(), result.outcome.messages, nodes["end_ns"].max()))
    return times[0] != times[1]


def test_failures_after_the_run_change_nothing() -> None:
    assert [seed for seed in FEW_CASES if differs_from_none(seed)] == []


@pytest.mark.deep
def test_failures_after_many_runs_change_nothing() -> None:
    assert [seed for seed in MANY_CASES if differs_from_none(seed)] == []


def outcome_of(seed: int, *, fold: bool = True) -> Any:
    """Return the times, messages and bytes of a random case, or why it stalls."""
    workload, machine = random_case(seed, "link")
    try:
        result = simulate(workload, **machine, fold=fold)
    except StallError as stall:
        return str(stall)
    outcome = result.outcome
    return result.finish_ns.tolist(), outcome.messages, outcome.waits_ns


def test_random_failures_end_or_stall_with_their_cause() -> None:
    outcomes = [outcome_of(seed) for seed in FEW_CASES]
    assert all("failed at" in outcome for outcome in outcomes if isinstance(outcome, str))
    assert any(isinstance(outcome, tuple) and max(outcome[2]) > 0 for outcome in outcomes)


@pytest.mark.deep
def test_many_random_failures_end_or_stall_with_their_cause() -> None:
    outcomes = [outcome_of(seed) for seed in MANY_CASES]
    assert all("failed at" in outcome for outcome in outcomes if isinstance(outcome, str))


@pytest.mark.deep
@pytest.mark.in_turn(days=2, day=1)
def test_machine_code_and_interpreted_code_agree_on_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(8)
    interpreted = [outcome_of(seed) for seed in seeds]
    monkeypatch.setenv("ET_SIM_COMPILE", "now")
    monkeypatch.setattr(CompiledEntry, "_run", in_machine_code)
    assert [outcome_of(seed) for seed in seeds] == interpreted
    assert on_link(ports(2), FLAP, size=12 * MS) == 1 * MS + FIRST_TRY + 24 * MS // 2
