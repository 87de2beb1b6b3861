"""Links that fail within a run, against closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from failing_parts import (
    BYTES,
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
    spines,
)
from machines import collective, system

from et_sim.api import run, simulate
from et_sim.basics.errors import InputError, StallError, UsageError
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.documents.keys import Remarks
from et_sim.machine import read_network_alone
from et_sim.trace import TraceBuilder

FEW_CASES, MANY_CASES = range(4), range(4, 28)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_link_that_is_slow_from_the_start_is_one_that_the_file_describes_so(share: float) -> None:
    times = []
    for described in (
        {**RING, "failures": [{**GRID_LINK, "at": "0s", "slower": share}]},
        {**RING, "links": [{**GRID_LINK, "bandwidth": f"{share}GB/s"}]},
    ):
        workload = collective(4, "all_reduce", BYTES)
        result = run(workload, network=described, system=system("ring", 1, profile="corrected"), model="flow")
        times.append(result.finish_ns.tolist())
    assert times[0] == times[1]
    assert max(times[0]) >= 2 * 3 * BYTES / 4 / share


def test_a_ring_with_a_slow_link_takes_the_time_of_that_link() -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "0s", "slower": 0.25}]}
    workload = collective(4, "all_reduce", BYTES)
    on = system("ring", 1, profile="corrected", **{"endpoint-delay": 0, "preferred-dataset-splits": 1})
    result = run(workload, network=described, system=on, model="flow")
    assert result.makespan_ns == 2 * 3 * (BYTES // 4) * 4


def test_a_message_over_a_link_that_slows_down_goes_on_slower() -> None:
    time = one_message(RING, {**GRID_LINK, "at": "2ms", "slower": 0.25})
    assert time == 2 * MS + (BYTES - 2 * MS) * 4
    time = one_message(RING, {**GRID_LINK, "at": "2ms", "for": "4ms", "slower": 0.25})
    assert time == BYTES + 4 * MS * 3 // 4


@pytest.mark.parametrize(("dead_ms", "tries"), [(3, 1), (10, 1), (11, 2), (25, 3)])
def test_a_message_over_a_dead_link_goes_on_at_the_first_try_after_the_repair(
    dead_ms: int, tries: int
) -> None:
    flap = {**GRID_LINK, "at": "2ms", "for": f"{dead_ms}ms"}
    assert one_message(RING, flap, detection="10ms") == BYTES + tries * 10 * MS


def test_a_message_that_begins_on_a_dead_link_counts_its_tries_from_then() -> None:
    flap = {**GRID_LINK, "at": "0s", "for": "5ms"}
    assert one_message(RING, flap, detection="3ms") == BYTES + 6 * MS


def test_a_message_to_others_does_not_wait() -> None:
    assert one_message(RING, {"dimension": 0, "from": 1, "to": 2, "at": "2ms"}) == BYTES


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_a_split_message_waits_for_detection_and_takes_the_ways_that_are_left(ways: int) -> None:
    """Check T = t + d + k / (k - 1) (T0 - t)."""
    size, at, wait = ways * 6 * MS, 2 * MS, 5 * MS
    time = one_message(spines(ways), {"link": "leaf0->spine1", "at": "2ms"}, size=size, detection="5ms")
    assert one_message(spines(ways), size=size) == 6 * MS
    assert time == at + wait + ways * (6 * MS - at) // (ways - 1)


@pytest.mark.parametrize(
    "failure", [{"switch": "spine1"}, {"port": "spine1->leaf1"}, {"link": "spine1->leaf1"}]
)
def test_a_switch_and_a_link_behind_it_are_led_around_too(failure: Any) -> None:
    time = one_message(spines(2), {**failure, "at": "2ms"}, size=12 * MS, detection="5ms")
    assert time == 2 * MS + 5 * MS + 2 * (6 * MS - 2 * MS)


def test_a_port_is_one_cable_in_both_directions() -> None:
    both = [{"from": ["npu0", "npu1"], "to": "switch", **SPEED}]
    both += [{"from": "npu0", "to": "switch", "name": name, **SPEED} for name in ("second", "third")]
    described = {"npus": 2, "switches": ["switch"], "links": both}
    ports_of = {"npu0->switch": (0, 1), "second": (4, 5), "third": (6, 7), "third:back": (7, 6)}
    for port, links in ports_of.items():
        [failure] = read_network_alone({**described, "failures": [{"port": port, "at": "1s"}]}).failures
        assert failure.links == links


def test_messages_that_begin_later_take_the_ways_that_are_left_at_once() -> None:
    assert one_message(spines(2), {"link": "leaf0->spine1", "at": "0s"}, size=12 * MS) == 12 * MS


def test_a_short_flap_costs_one_time_out() -> None:
    flap = {"port": "npu0->plane1", "at": "1ms", "for": "2s"}
    assert one_message(ports(2), flap, size=12 * MS) == 6 * MS + FIRST_TRY


def test_a_long_flap_of_a_port_ends_the_run() -> None:
    flap = {"port": "npu0->plane1", "at": "1ms", "for": "60s"}
    with pytest.raises(StallError, match=r"port npu0->plane1 failed at 1 ms.*from rank 0 to rank 1.*8 tries"):
        one_message(ports(2), flap, size=12 * MS)


def test_with_fail_over_a_long_flap_costs_the_bandwidth_of_the_port() -> None:
    flap = {"port": "npu0->plane1", "at": "1ms", "for": "60s"}
    time = one_message(ports(2), flap, size=12 * MS, fail_over=True)
    assert time == 1 * MS + 8 * FIRST_TRY + 10 * MS + 2 * (6 * MS - 1 * MS)


def test_fail_over_without_a_second_port_ends_the_run() -> None:
    with pytest.raises(StallError, match="describe a second way"):
        one_message(ports(1), {"port": "npu0->plane0", "at": "1ms"}, fail_over=True)


def test_retries_and_the_watchdog_bound_the_wait() -> None:
    flap = {**GRID_LINK, "at": "2ms", "for": "25ms"}
    assert one_message(RING, flap, detection="10ms", retries=3) == BYTES + 30 * MS
    for recovery in ({"retries": 2}, {"retries": 7, "watchdog": "20ms"}):
        with pytest.raises(StallError, match="dimension 0: 0 to 1 failed at 2 ms"):
            one_message(RING, flap, detection="10ms", **recovery)


def test_a_failed_gpu_ends_a_run_that_needs_it_no_more() -> None:
    builders = [TraceBuilder() for _ in range(4)]
    for builder in builders:
        builder.compute("work", micros=5000)
    failure = {"gpu": 2, "at": "1ms"}
    with pytest.raises(StallError, match="1 of 4 ranks cannot finish: gpu 2 failed at 1 ms, before rank 2"):
        sent(builders, RING, failure)
    assert sent(builders, RING, {"gpu": 2, "at": "6ms"}).is_complete


def test_failures_after_the_run_change_nothing() -> None:
    assert one_message(RING, {**GRID_LINK, "at": "3600s"}) == one_message(RING) == BYTES
    assert one_message(spines(2), {"switch": "spine*", "at": "3600s"}) == one_message(spines(2))


def test_a_failure_at_the_last_moment_of_a_message_holds_it() -> None:
    assert (
        one_message(RING, {**GRID_LINK, "at": f"{BYTES - 1}ns", "for": "1ms"}, detection="2ms")
        == BYTES + 2 * MS
    )
    assert one_message(RING, {**GRID_LINK, "at": f"{BYTES + 1}ns", "for": "1ms"}, detection="2ms") == BYTES


def test_a_failure_in_the_nanosecond_in_which_a_message_ends_holds_it() -> None:
    flap = {**GRID_LINK, "at": f"{BYTES}ns", "for": "1ms"}
    assert one_message(RING, flap, detection="2ms") == BYTES + 2 * MS
    builders = [TraceBuilder() for _ in range(4)]
    for source, size in ((0, BYTES), (1, BYTES + 5)):  # the end of the other one is not earlier
        builders[source].send(source + 1, size)
        builders[source + 1].receive(source, size, after=[])
    assert sent(builders, RING, flap, detection="2ms").finish_ns[2] == BYTES + 5


def test_several_failures_on_one_link_multiply() -> None:
    slow = {**GRID_LINK, "at": "0s", "slower": 0.5}
    assert one_message(RING, slow, {**GRID_LINK, "at": "0s", "slower": 0.25}) == 8 * BYTES


def test_a_rate_draws_the_time_of_each_part_by_its_name() -> None:
    described = {**spines(2), "failures": [{"link": "leaf0->*", "rate": 0.5}]}
    drawn = {failure.name: failure.at_ns for failure in read_network_alone(described).failures}
    again = {**spines(2), "failures": [{"link": "leaf0->spine1", "rate": 0.5}]}
    assert len({*drawn.values()}) == len(drawn) == 3
    assert [failure.at_ns for failure in read_network_alone(again).failures] == [drawn["leaf0->spine1"]]
    other = {**spines(2), "failures": [{"link": "leaf0->spine1", "rate": 0.5, "seed": 1}]}
    assert read_network_alone(other).failures[0].at_ns != drawn["leaf0->spine1"]


def test_the_mean_of_drawn_times_is_that_of_the_rate() -> None:
    many = {**RING, "failures": [{"gpu": 0, "rate": 2.0, "seed": seed} for seed in range(400)]}
    hours = [failure.at_ns / 3.6e12 for failure in read_network_alone(many).failures]
    assert abs(sum(hours) / 400 - 0.5) < 3 * 0.5 / 20


@pytest.mark.parametrize(
    ("described", "entry", "message"),
    [
        (RING, {"at": "2s"}, "names no part"),
        (RING, {**GRID_LINK, "gpu": 1, "at": "2s"}, "names 2 parts"),
        (RING, GRID_LINK, "has no time"),
        (RING, {**GRID_LINK, "at": "2s", "rate": 1}, "both a time and a rate"),
        (RING, {**GRID_LINK, "at": 2}, "no unit"),
        (RING, {**GRID_LINK, "at": "2s", "for": "0s"}, "less than 1 ns"),
        (RING, {**GRID_LINK, "at": "200d"}, "more than 9007199254740992"),
        ({**RING, "npus_count": [1]}, {"port": 0, "dimension": 0, "at": "2s"}, "the port has no link"),
        (RING, {**GRID_LINK, "at": "2s", "slower": 1.0}, "slower"),
        (RING, {**GRID_LINK, "at": "2s", "slower": 1e-15}, "slower"),
        (RING, {**GRID_LINK, "at": "2s", "seed": 1}, "no effect"),
        (RING, {"dimension": 0, "from": 0, "to": 2, "at": "2s"}, "no such link"),
        (RING, {"dimension": 1, "from": 0, "to": 1, "at": "2s"}, "allowed: 0 to 0"),
        (RING, {"from": 0, "to": 1, "at": "2s"}, "missing"),
        (RING, {"gpu": 4, "at": "2s"}, "allowed: 0 to 3"),
        (RING, {"gpu": 1, "at": "2s", "for": "1s"}, 'key "for" is given, .* loses its state'),
        (RING, {"gpu": 1, "at": "2s", "slower": 0.5}, "in the system file"),
        (RING, {"switch": "leaf0", "at": "2s"}, "describe a graph"),
        (spines(2), {"link": "leaf7->spine0", "at": "2s"}, "no link has the name"),
        (spines(2), {"nic": "nic0", "at": "2s"}, "the graph has no nic"),
        (spines(2), {"switch": "npu0", "at": "2s"}, "no switch has the name"),
        (spines(2), {"rack": "rack0", "at": "2s"}, "no rack is called"),
        (spines(2), {**GRID_LINK, "at": "2s"}, "is a graph"),
    ],
)
def test_entries_without_a_meaning_are_refused(described: Any, entry: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_network_alone({**described, "failures": [entry]})


@pytest.mark.parametrize(
    ("described", "part", "remedy"),
    [
        (ports(1), "switch", r"there are plane0\)"),
        (spines(2), "switch", r"there are leaf0, leaf1, spine0, …"),
        (spines(2), "nic", "the graph has no nic"),
    ],
)
def test_a_refused_name_of_a_part_comes_with_the_names_that_there_are(
    described: Any, part: str, remedy: str
) -> None:
    with pytest.raises(InputError, match=remedy):
        read_network_alone({**described, "failures": [{part: "npu0", "at": "2s"}]})


def test_recovery_without_failures_is_refused() -> None:
    for described in (RING, spines(2)):
        with pytest.raises(InputError, match="no effect without"):
            read_network_alone({**described, "recovery": {"retries": 1}})


PORT_FAILS = {"port": "npu0->plane1", "at": "2s"}


@pytest.mark.parametrize(
    ("entry", "recovery", "message"),
    [
        (PORT_FAILS, {"probe": "1ms"}, '"probe" has no effect without "fail-over"'),
        (PORT_FAILS, {"fail-back": "1ms", "fail-over": False}, '"fail-back" has no effect without'),
        (PORT_FAILS, {"detection": 0.5}, "less than 1 ns"),
        ({**PORT_FAILS, "slower": 0.5}, {"retries": 1}, '"recovery" has no effect: with "slower"'),
    ],
)
def test_rules_of_senders_that_never_apply_are_refused(entry: Any, recovery: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_network_alone({**ports(2), "failures": [entry], "recovery": recovery})


def test_fail_over_is_refused_where_no_port_fails() -> None:
    described = {**spines(2), "failures": [{"switch": "spine0", "at": "2s"}], "recovery": {"fail-over": True}}
    with pytest.raises(InputError, match="no failure takes a port"):
        read_network_alone(described)


@pytest.mark.parametrize(
    ("entry", "recovery", "warning"),
    [
        ({"for": "30s"}, {"fail-over": True}, "fail-over: no effect: all ports are repaired before"),
        ({}, {"fail-over": True, "fail-back": "1s"}, "fail-back: no effect: no port that messages have left"),
        ({}, {"watchdog": "35s"}, "watchdog: no effect: the last try is after 34.36 s"),
        ({}, {"watchdog": "10s", "retries": 4}, "retries: only 2 of 4 are made before the watchdog"),
        ({"for": "1h"}, {"fail-over": True, "fail-back": "1s", "watchdog": "20s"}, ""),
    ],
)
def test_rules_of_senders_without_effect_on_these_failures_are_warned_of(
    entry: Any, recovery: Any, warning: str
) -> None:
    described = {**ports(2), "failures": [{**PORT_FAILS, **entry}], "recovery": recovery}
    remarks = Remarks()
    read_network_alone(described, remarks)
    assert [each for each in map(notice_text, remarks.warnings) if not each.startswith(warning or "-")] == []
    assert bool(remarks.warnings) == bool(warning)


def notice_text(notice: Any) -> str:
    return f"{notice.key}: {notice.text}"


def test_shares_that_multiply_below_the_least_are_refused() -> None:
    few = {**GRID_LINK, "at": "1s", "for": "1s", "slower": 1e-4}
    for last, is_refused in (("1500ms", True), ("2s", False)):
        described = {**RING, "failures": [few, {**GRID_LINK, "at": last, "slower": 1e-4}]}
        if is_refused:
            with pytest.raises(InputError, match=r"leave 1e-08 of the bandwidth of a link from 1.5 s on"):
                read_network_alone(described)
        else:
            assert len(read_network_alone(described).failures) == 2


def test_times_of_failures_may_be_hours_and_days() -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "1.5h", "for": "2d"}]}
    (failure,) = read_network_alone(described).failures
    assert (failure.at_ns, failure.until_ns) == (5400 * 10**9, (5400 + 172800) * 10**9)


def test_fail_over_without_a_graph_is_refused() -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "2s"}], "recovery": {"fail-over": True}}
    with pytest.raises(InputError, match="describe a graph with two ports"):
        read_network_alone(described)


def test_a_failure_that_hardly_ever_happens_comes_after_the_run() -> None:
    assert one_message(RING, {**GRID_LINK, "rate": 1e-300}) == BYTES


@pytest.mark.parametrize("model", ["analytical"])
def test_other_models_refuse_failures(model: str) -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "2s"}]}
    workload = collective(4, "all_reduce", BYTES)
    with pytest.raises(UsageError, match="--network-model flow"):
        run(workload, network=described, system=system("ring", 1, profile="corrected"), model=model)


def test_a_record_of_causes_is_refused() -> None:
    described = {**RING, "failures": [{**GRID_LINK, "at": "2s"}]}
    with pytest.raises(UsageError, match='"failures", and a record of causes'):
        simulate(
            collective(4, "all_reduce", BYTES),
            network=described,
            system=system("ring", 1, profile="corrected"),
            model="flow",
            detail="path",
        )


def differs(seed: int) -> str:
    """Return how the folded run of a random case differs from the whole one; empty: not at all."""
    workload, machine = random_case(seed)
    results = []
    for fold in (True, False):
        try:
            result = simulate(workload, **machine, fold=fold)
            results.append((result.finish_ns.tolist(), result.outcome.messages))
        except StallError as stall:
            results.append((str(stall).split(":")[0], 0))
    return "" if results[0] == results[1] else f"{seed}: {machine['network']}: {results}"


def test_random_failures_fold_exactly() -> None:
    assert [text for seed in FEW_CASES if (text := differs(seed))] == []


RAILS = {
    "topology": ["Switch", "Switch"],
    "npus_count": [2, 4],
    "bandwidth": ["9GB/s", "1GB/s"],
    "latency": [0, 0],
}


@pytest.mark.parametrize("model", ["flow", "link"])
@pytest.mark.parametrize("effect", [{"slower": 0.5}, {"for": "2us"}, {"slower": 0.5, "for": "3us"}])
def test_ranks_behind_links_that_fail_alike_fold_exactly(effect: Any, model: str) -> None:
    """Check entries of their own for the links of half of the ranks, and one that comes later."""
    entries = [{"port": npu, "dimension": 1, "at": "1us", **effect} for npu in (0, 2, 4, 6)]
    on = system("ring", 2, profile="corrected")
    actors = []
    for failures in (entries, [*entries[:3], {**entries[3], "at": "1.001us"}]):
        network = {**RAILS, "failures": failures, "recovery": {"detection": "1us"}}
        if "slower" in effect:
            del network["recovery"]
        folded, whole = (
            simulate(collective(8, "all_reduce", 40_000), network=network, system=on, model=model, fold=fold)
            for fold in (True, False)
        )
        assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
        assert folded.outcome.waits_ns == whole.outcome.waits_ns
        actors.append(len(folded.measurement.ranks_per_actor))
    assert actors[0] == 2 < actors[1]


@pytest.mark.parametrize("model", ["flow", "link"])
def test_a_message_loses_its_bytes_on_the_first_of_the_links_that_die_together(model: str) -> None:
    """Check two ranks that send to each other: each waits for its own port."""
    switch = {"topology": ["Switch"], "npus_count": [2], "bandwidth": ["9GB/s"], "latency": [0]}
    failures = [{"port": npu, "dimension": 0, "at": "1us", "for": "2us"} for npu in (0, 1)]
    network = {**switch, "failures": failures, "recovery": {"detection": "5us"}}
    on = system("ring", 1, profile="corrected")
    folded, whole = (
        simulate(collective(2, "all_gather", 40_000), network=network, system=on, model=model, fold=fold)
        for fold in (True, False)
    )
    assert folded.outcome.waits_ns == whole.outcome.waits_ns == (5_000, 5_000)
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
    assert len(folded.measurement.ranks_per_actor) == 1


@pytest.mark.parametrize("names", [("spine0",), ("spine0", "spine1"), ("spine1", "spine0", "spine2")])
def test_spines_that_die_together_as_entries_of_their_own_fold_exactly(names: tuple[str, ...]) -> None:
    graph = {"generator": "leaf-spine", "leaves": 4, "spines": 3, "npus-per-leaf": 2, **SPEED}
    failures = [{"switch": name, "at": "3us", "for": "20us"} for name in names]
    rules = {"recovery": {"detection": "7us"}, "logical-dimensions": [8]}
    network = {"graph": graph, "failures": failures, **rules}
    on = system("ring", 1, profile="corrected")
    folded, whole = (
        simulate(collective(8, "all_reduce", 40_000), network=network, system=on, model="flow", fold=fold)
        for fold in (True, False)
    )
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
    assert folded.outcome.waits_ns == whole.outcome.waits_ns


@pytest.mark.deep
def test_many_random_failures_fold_exactly() -> None:
    assert [text for seed in MANY_CASES if (text := differs(seed))] == []


def figures(seed: int) -> Any:
    """Return all times of a random case, or why it stalls."""
    workload, machine = random_case(seed)
    try:
        result = simulate(workload, **machine)
    except StallError as stall:
        return str(stall)
    outcome = result.outcome
    return result.finish_ns.tolist(), outcome.nodes.tolist(), outcome.end_ns, outcome.waits_ns


@pytest.mark.deep
def test_machine_code_and_interpreted_code_agree_on_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(8)
    interpreted = [figures(seed) for seed in seeds]
    monkeypatch.setenv("ET_SIM_COMPILE", "now")
    monkeypatch.setattr(CompiledEntry, "_run", in_machine_code)
    assert [figures(seed) for seed in seeds] == interpreted
    flap = {"port": "npu0->plane1", "at": "1ms", "for": "2s"}
    assert one_message(ports(2), flap, size=12 * MS) == 6 * MS + FIRST_TRY
    time = one_message(ports(2), {**flap, "for": "60s"}, size=12 * MS, fail_over=True)
    assert time == 1 * MS + 8 * FIRST_TRY + 10 * MS + 2 * (6 * MS - 1 * MS)
    time = one_message(spines(3), {"switch": "spine1", "at": "2ms"}, size=18 * MS, detection="5ms")
    assert time == 2 * MS + 5 * MS + 3 * (6 * MS - 2 * MS) // 2


def test_a_stall_is_written_and_exits_with_one(tmp_path: Path) -> None:
    from et_sim.cli import main
    from et_sim.views import open_run

    network = tmp_path / "network.yml"
    network.write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 1GB/s ]\nlatency: [ 0 ]\n"
        "failures: [ { dimension: 0, from: 0, to: 1, at: 1ms } ]\n"
    )
    (tmp_path / "system.json").write_text('{"profile": "corrected", "all-reduce-implementation": ["ring"]}')
    assert main(["make", "all_reduce", "--ranks", "4", "--bytes", "8MB", "-o", f"{tmp_path}/sum"]) == 0
    words = ["run", f"{tmp_path}/sum", "--network-model", "flow", "--out", f"{tmp_path}/run"]
    words += ["--system", f"{tmp_path}/system.json", "--network", str(network)]
    assert main(words) == 1
    assert "failed at 1 ms" in str(open_run(tmp_path / "run").stall)
