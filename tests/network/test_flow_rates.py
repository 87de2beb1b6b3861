"""Rates of the flow model are max-min fair after every update, also after an update of few rates."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import ring, simulate, system

from et_sim.engine.containers import first_of, heap_for, put, take_out
from et_sim.engine.state.traffic_tables import LINK_QUEUE, SLICE
from et_sim.network.flow import model, shares
from et_sim.network.flow.records import SHARED, USE
from et_sim.trace import TraceBuilder

ROUNDED = 1e-9  # relative
ROUNDED_NS = 50  # each of some hundred steps is cut to whole nanoseconds
SPINES = {"generator": "leaf-spine", "leaves": 4, "spines": 3, "npus-per-leaf": 4}
NETWORKS: dict[str, dict[str, Any]] = {
    "leaf-spine": {
        "graph": {**SPINES, "bandwidth": "50GB/s", "latency": "1us"},
        "routing": "ecmp",
        "overrides": [{"device": "leaf2", "bandwidth": "20GB/s"}],
        "logical-dimensions": [16],
    },
    "torus": {
        "graph": {"generator": "torus", "sizes": [4, 4], "bandwidth": "50GB/s", "latency": "1us"},
        "logical-dimensions": [16],
    },
    "line": {
        "graph": {"generator": "mesh", "sizes": [16], "bandwidth": "50GB/s", "latency": "1us"},
        "logical-dimensions": [16],
    },
}


def traffic(seed: int, messages: int) -> list[TraceBuilder]:
    """Return messages of several sizes, which begin and end at different times."""
    chance = random.Random(seed)
    builders = [TraceBuilder() for _ in range(16)]
    for tag in range(messages):
        source, target = chance.sample(range(16), 2)
        size = chance.choice([1 << 12, 1 << 17, 10**6 + tag, 4 * 10**6])
        wait = builders[source].compute("wait", micros=chance.randint(1, 20))
        builders[source].send(target, size, tag=tag, after=[wait])
        builders[target].receive(source, size, tag=tag)
    return builders


def kept_after_check(network: Any) -> int:
    """Check that every flow has a bottleneck, and return the number of kept rates."""
    load: defaultdict[int, float] = defaultdict(float)
    highest: defaultdict[int, float] = defaultdict(float)
    links: dict[int, list[int]] = {}
    for at in range(network.ends.size[0]):
        row = network.ends.entries[at].row
        route, use = network.routes[row], network.routes[row].uses.head
        links[row] = []
        while use >= 0:
            link = network.uses[use].link
            links[row].append(link)
            load[link] += route.rate
            highest[link] = max(highest[link], route.rate)
            use = network.uses[use].next
    for link, carried in load.items():
        assert carried <= network.shared[link].capacity * (1 + ROUNDED)
    for row, way in links.items():
        route = network.routes[row]
        assert route.bottleneck in way
        assert load[route.bottleneck] >= network.shared[route.bottleneck].capacity * (1 - ROUNDED)
        assert highest[route.bottleneck] <= route.rate * (1 + ROUNDED)
    for link in load:
        bound = [row for row in links if network.routes[row].bottleneck == link]
        assert network.shared[link].bound == len(bound)
    return sum(network.routes[row].part != network.state[0].part for row in links)


@pytest.fixture
def settings_of_rates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of rates that each setting kept; all of them are checked."""
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    kept: list[int] = []

    def checked(run: Any) -> None:
        shares.set_rates(run)
        kept.append(kept_after_check(run.network))

    monkeypatch.setattr(model, "set_rates", checked)
    return kept


@pytest.mark.parametrize("name", NETWORKS)
def test_every_flow_has_a_bottleneck_after_every_setting(name: str, settings_of_rates: list[int]) -> None:
    result = simulate(
        traffic(seed=1, messages=120), NETWORKS[name], system(profile="corrected"), model="flow"
    )
    assert result.is_complete
    assert len(settings_of_rates) > 100
    assert sum(kept > 0 for kept in settings_of_rates) > 50


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", NETWORKS)
def test_every_flow_has_a_bottleneck_in_much_traffic(
    name: str, seed: int, settings_of_rates: list[int]
) -> None:
    described = system(profile="corrected")
    assert simulate(traffic(seed, 600), NETWORKS[name], described, model="flow").is_complete
    assert settings_of_rates


@pytest.mark.parametrize("name", NETWORKS)
def test_times_do_not_depend_on_the_number_of_updated_rates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    described, outcome = system(profile="corrected"), []
    for rounds in (0, 1, shares.FEW_ROUNDS):
        monkeypatch.setattr(shares, "FEW_ROUNDS", rounds)
        result = simulate(traffic(seed=2, messages=60), NETWORKS[name], described, model="flow")
        outcome.append(result.finish_ns.tolist())
    assert outcome[0] == outcome[1] == outcome[2]


@pytest.mark.parametrize("name", NETWORKS)
def test_flows_that_share_no_link_have_the_rates_of_the_general_rule(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    set_alone, alone, outcome = shares._set_alone, list[bool](), list[Any]()

    def counted(run: Any, row: int) -> bool:
        alone.append(set_alone(run, row))
        return alone[-1]

    for rule in (counted, lambda *_: False):
        monkeypatch.setattr(shares, "_set_alone", rule)
        for detail in ((), ("path", "links")):
            described = system(profile="corrected")
            result = simulate(traffic(3, 60), NETWORKS[name], described, model="flow", detail=detail)
            load = result.outcome.load
            outcome.append((load.bytes.tolist(), result.outcome.nodes))
    first, with_details, general, general_with_details = outcome
    assert first[0] == with_details[0] == general[0] == general_with_details[0]
    assert (first[1] == with_details[1]).all()
    assert (general[1] == general_with_details[1]).all()
    for name_of_time in ("start_ns", "end_ns"):  # such flows begin at their own part of the nanosecond
        assert abs(first[1][name_of_time] - general[1][name_of_time]).max() <= 1
    assert any(alone)
    assert not all(alone)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([None, 0.0, 1.0, 2.5, 3.0])), max_size=60))
def test_a_heap_always_has_the_smallest_key_first(changes: list[tuple[int, float | None]]) -> None:
    heap, keys = heap_for(4), dict[int, float]()
    heap = heap_for(10, heap)
    for row, key in changes:
        if key is None:
            take_out(heap, row)
            keys.pop(row, None)
        else:
            put(heap, row, key, 100 - row)
            keys[row] = key
        first = min(keys, key=lambda link: (keys[link], 100 - link), default=-1)
        assert first_of(heap) == first
        assert heap.size[0] == len(keys)


def test_counts_hold_as_many_messages_as_there_are_ranks_times_messages_of_each() -> None:
    """Check that counts on a shared link are exact for a million folded ranks with many messages each."""
    wide = (SHARED, ("links", "messages", "to_set", "back_to_set", "open", "open_back"))
    for table, names in (
        wide,
        (USE, ("weight",)),
        (SLICE, ("messages", "waiting")),
        (LINK_QUEUE, ("waiting",)),
    ):
        assert {table[name].itemsize for name in names} == {8}


@pytest.mark.parametrize("late_us", [0, 7, 40, 200])
def test_steps_on_a_ring_follow_each_other_when_a_rank_is_late(late_us: int) -> None:
    """Check that a late rank leaves no link idle, as it would if steps that share a link arrived together."""
    ends = {}
    for model_name in ("link", "flow"):
        builders = [TraceBuilder() for _ in range(8)]
        for rank, builder in enumerate(builders):
            wait = builder.compute("forward", micros=5 + late_us * (rank == 5))
            for layer in range(6):
                builder.collective("all_reduce", 1 << 18, after=[wait], name=f"layer {layer}")
        described = system(profile="corrected", **{"preferred-dataset-splits": 4})
        ends[model_name] = simulate(builders, ring(8), described, model=model_name).makespan_ns
    assert ends["flow"] == pytest.approx(ends["link"], abs=ROUNDED_NS)
