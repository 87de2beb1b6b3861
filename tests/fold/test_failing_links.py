"""Ranks behind links that fail within a run are folded on the link network, exactly, as on the flow model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failing_cases import behind_nics, results_of
from machines import collective, system

from et_sim.api import simulate
from et_sim.fold.limits import TIE
from et_sim.machine import read_network_alone
from et_sim.network import link
from et_sim.trace import TraceBuilder, Workload

A_FEW = 24


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def both(workload: Workload, network: Any) -> tuple[Any, Any]:
    """Return the results of a run folded and not."""
    on = system("ring", 1, profile="corrected")
    folded, whole = (
        simulate(workload, network=network, system=on, model="link", fold=fold) for fold in (True, False)
    )
    return folded, whole


def assert_same(folded: Any, whole: Any) -> None:
    assert folded.finish_ns.tolist() == whole.finish_ns.tolist()
    assert folded.outcome.waits_ns == whole.outcome.waits_ns
    assert folded.outcome.messages == whole.outcome.messages


@pytest.mark.parametrize("part", [{"nic": "nic*"}, {"port": "nic*->plane0"}, {"switch": "plane0"}])
@pytest.mark.parametrize("effect", [{"for": "20us"}, {"for": "20us", "slower": 0.25}])
def test_ranks_whose_parts_all_fail_together_are_one_actor(part: Any, effect: Any) -> None:
    failure = {**part, "at": "3us", **effect}
    network = {**behind_nics(6, 1), "failures": [failure]}
    if "slower" not in effect:
        network["recovery"] = {"detection": "7us"}
    folded, whole = both(collective(6, "all_reduce", 600_000), network)
    assert len(folded.measurement.ranks_per_actor) == 1
    assert_same(folded, whole)
    even, _ = both(collective(6, "all_reduce", 600_000), behind_nics(6, 1))
    assert folded.makespan_ns > even.makespan_ns


def test_only_the_group_behind_a_link_that_fails_is_simulated_by_itself() -> None:
    """Check four pairs of ranks; one rank has a link that fails."""
    traces = []
    for rank in range(8):
        build = TraceBuilder()
        build.send(rank ^ 1, 400_000)
        build.receive(rank ^ 1, 400_000)
        traces.append(build.build())
    network = {
        **behind_nics(8, 1),
        "failures": [{"port": "nic2->plane0", "at": "3us", "for": "9us"}],
        "recovery": {"detection": "5us"},
    }
    folded, whole = both(Workload.of(traces), network)
    assert sorted(folded.measurement.ranks_per_actor) == [1, 1, 6]
    assert_same(folded, whole)


def test_a_message_that_turns_to_another_link_on_its_way_ends_the_folded_run() -> None:
    """Check messages on their way to a spine that dies, which is named among the limits."""
    shape = {"generator": "leaf-spine", "npus-per-leaf": 2, "leaves": 2, "spines": 2}
    speed = {"bandwidth": "50GB/s", "latency": "500ns"}
    network = {
        "graph": shape | speed,
        "routing": "destination",
        "logical-dimensions": [4],
        "failures": [{"switch": "spine0", "at": "1us"}],
    }
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        build.send((rank + 2) % 4, 400_000)
        build.receive((rank + 2) % 4, 400_000)
        traces.append(build.build())
    folded, whole = both(Workload.of(traces), network)
    assert TIE in folded.outcome.plan.limits
    assert "messages turn to other links on their way" in TIE.reason
    assert_same(folded, whole)


def test_links_of_other_figures_have_other_codes() -> None:
    """Check codes before classes are refined; kinds and marks are not added as fractions."""
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": ["1GB/s"], "latency": [0]}
    network = read_network_alone(ring)
    fails = np.array([0, *[1] * 7])
    keys, ranks = link.links_in_turn(network, fails), np.arange(4)
    codes = keys.codes(ranks, (ranks + 1) % 4).tolist()
    assert codes[0] not in codes[1:]
    assert len(set(codes[1:])) == 1


def test_random_failures_fold_exactly_and_often() -> None:
    for seed in (2, 9, 13, 29):
        (first, second), is_folded = results_of(seed, "link")
        assert first == second, seed
        assert is_folded or seed == 9


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("model", ["link", "flow"])
def test_more_random_failures_fold_exactly_and_often(model: str) -> None:
    folded = 0
    for seed in range(A_FEW, 4 * A_FEW):
        (first, second), is_folded = results_of(seed, model)
        assert first == second, seed
        folded += is_folded
    assert folded >= A_FEW // 2


@pytest.mark.seeds(deep=20, exhaustive=2000, at_a_time=20)
def test_many_random_failures_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        first, second = results_of(seed, "link")[0]
        assert first == second, seed
