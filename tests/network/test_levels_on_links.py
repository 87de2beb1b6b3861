"""Networks of ASTRA-sim 1.0 on models in which messages share links."""

from __future__ import annotations

from typing import Any

import pytest

import et_sim
from et_sim import TraceBuilder, Workload
from et_sim.basics.errors import UsageError

SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 500_000,
}
SIZE = 1 << 20


def _network(shape: str, npus: int = 4, links: int = 6, **more: Any) -> dict[str, Any]:
    return {
        "topology-name": "Hierarchical",
        "topologies-per-dim": [shape],
        "dimensions-count": 1,
        "units-count": [npus],
        "links-count": [links],
        "link-latency": [500],
        "link-bandwidth": [50],
        **more,
    }


def _run(sends: dict[int, int], network: dict[str, Any], model: str, **options: Any) -> int:
    """Return the makespan of one message for each pair of a sender and a receiver."""
    ranks = network["units-count"][0]
    traces = []
    for rank in range(ranks):
        build = TraceBuilder()
        for source, target in sends.items():
            if rank == source:
                build.send(target, SIZE, tag=source)
            if rank == target:
                build.receive(source, SIZE, tag=source)
        traces.append(build.build())
    workload = Workload.of(traces)
    run = et_sim.simulate(workload, system=SYSTEM, network=network, model=model, **options)
    return int(run.makespan_ns)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


RATE = 50 * 2**30 / 1e9  # bytes in a ns over one link


@pytest.mark.parametrize("model", ["link", "flow"])
@pytest.mark.parametrize(
    ("shape", "links", "more", "expected"),
    [
        ("Ring", 6, {}, 500 + SIZE / (6 * RATE)),
        ("FullyConnected", 6, {"nic-latency": [70]}, 500 + 2 * 70 + SIZE / (2 * RATE)),
    ],
)
def test_a_message_alone_takes_the_time_of_1_0(
    model: str, shape: str, links: int, more: dict[str, Any], expected: float
) -> None:
    network = _network(shape, links=links, **more)
    alone = _run({0: 1}, network, model)
    assert alone == pytest.approx(expected, abs=3)
    assert alone == pytest.approx(_run({0: 1}, network, "analytical"), abs=3)


def test_cards_and_routers_add_to_the_way_through_a_switch() -> None:
    network = _network("Switch", **{"nic-latency": [70], "router-latency": [31]})
    expected = 2 * 500 + 2 * 70 + 31 + SIZE / (6 * RATE)
    assert _run({0: 1}, network, "flow") == pytest.approx(expected, abs=3)
    assert _run({0: 1}, network, "link") == pytest.approx(expected + SIZE / (6 * RATE), abs=3)


def test_messages_to_one_npu_share_its_bundle() -> None:
    network = _network("Switch")
    alone, together = (_run(sends, network, "flow") for sends in ({0: 3}, {0: 3, 1: 3, 2: 3}))
    assert together - alone == pytest.approx(2 * SIZE / (6 * RATE), abs=5)
    assert _run({0: 3, 1: 3, 2: 3}, network, "analytical") == pytest.approx(alone, abs=3)


@pytest.mark.parametrize("model", ["link", "flow", "packet"])
@pytest.mark.parametrize(
    ("network", "key"),
    [
        (_network("Switch", **{"hbm-scale": [1], "hbm-bandwidth": [50]}), "hbm-scale"),
        (_network("Ring", **{"nic-latency": [5]}), "nic-latency"),
    ],
)
def test_costs_that_belong_to_no_link_are_refused(network: dict[str, Any], key: str, model: str) -> None:
    with pytest.raises(UsageError, match=f'key "{key}" index 0 .* is not supported by the {model} model'):
        _run({0: 1}, network, model)
