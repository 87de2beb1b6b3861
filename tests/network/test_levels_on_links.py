"""Networks of ASTRA-sim 1.0 on models in which messages share links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim import TraceBuilder, Workload
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.cli import main
from et_sim.trace import write_workload

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


def _workload(sends: dict[int, int], ranks: int) -> Workload:
    traces = []
    for rank in range(ranks):
        build = TraceBuilder()
        for source, target in sends.items():
            if rank == source:
                build.send(target, SIZE, tag=source)
            if rank == target:
                build.receive(source, SIZE, tag=source)
        traces.append(build.build())
    return Workload.of(traces)


def _run(sends: dict[int, int], network: dict[str, Any], model: str, **options: Any) -> int:
    """Return the makespan of one message for each pair of a sender and a receiver."""
    workload = _workload(sends, network["units-count"][0])
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


CREDITS = {"flit": 1024, "packet": 4096, "router-cycles": 1, "cycle": "1ns"}


def test_flits_with_credits_cross_the_links_of_1_0_and_take_as_long_as_on_such_a_ring() -> None:
    network = _network("Ring", links=2, credits=CREDITS)
    level = {
        "topology": ["Ring"],
        "npus_count": [4],
        "bandwidth": [100],
        "latency": [500],
        "credits": CREDITS,
    }
    with_credits, of_2 = _run({0: 1}, network, "packet"), _run_of_2({0: 1}, level)
    assert with_credits == of_2
    assert with_credits > _run({0: 1}, _network("Ring", links=2), "packet")


def _run_of_2(sends: dict[int, int], network: dict[str, Any]) -> int:
    """Return the makespan on a network file of 2.x."""
    workload = _workload(sends, network["npus_count"][0])
    system = {"endpoint-delay": 0, "profile": "corrected"}
    run = et_sim.simulate(workload, system=system, network=network, model="packet")
    return int(run.makespan_ns)


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_credits_of_1_0_are_refused_where_there_are_no_flits(model: str) -> None:
    with pytest.raises(EtSimError, match=r'key "credits".*take --network-model packet'):
        _run({0: 1}, _network("Ring", credits=CREDITS), model)


def test_check_looks_at_the_links_of_such_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workload(_workload({0: 1, 1: 2, 2: 3, 3: 0}, 4), tmp_path / "one")
    for name, content in (("system.json", SYSTEM), ("network.json", _network("Ring"))):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    files = ["--system", str(tmp_path / "system.json"), "--network", str(tmp_path / "network.json")]
    for model in ("flow", "link", "packet"):
        assert main(["check", str(tmp_path / "one"), *files, "--network-model", model]) == 0
        assert "no problems found" in capsys.readouterr().out
