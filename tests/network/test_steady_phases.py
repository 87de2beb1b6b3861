"""Steady phases are skipped within a tolerance: times, counts, and what is never skipped."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from machines import simulate, system

from et_sim import TraceBuilder
from et_sim.basics.errors import EtSimError
from et_sim.network.packet.model import ports_counted
from et_sim.run.result import Result

MIB = 1 << 20
TOLERANCE = 0.005
CONTROLS = ("none", "dcqcn")
LEAF_SPINE = {"generator": "leaf-spine", "leaves": 4, "spines": 2, "npus-per-leaf": 4}
STAR = {"generator": "star", "npus": 16}
RANKS = 16
Message = tuple[int, int, int]  # source, target, bytes


def run(
    messages: list[Message],
    steady: float | None = TOLERANCE,
    graph: dict[str, Any] = LEAF_SPINE,
    protocol: dict[str, Any] | None = None,
    **options: Any,
) -> Result:
    builders = [TraceBuilder() for _ in range(RANKS)]
    for tag, (source, target, size) in enumerate(messages):
        builders[source].send(target, size, tag=tag)
        builders[target].receive(source, size, tag=tag)
    network: dict[str, Any] = {
        "graph": {**graph, "bandwidth": "100Gbps", "latency": "500ns"},
    }
    if graph is LEAF_SPINE:
        network["routing"] = "ecmp"
    network["protocol"] = {"preset": "datacenter", "window": "none", **(protocol or {})}
    return simulate(builders, network, system(), model="packet", steady=steady, **options)


def ends(result: Result) -> Any:
    assert result.is_complete
    return np.array(result.timeline.column("end_ns").to_pylist(), float)


def permutation(seed: int, size: int) -> list[Message]:
    targets = list(range(RANKS))
    random.Random(seed).shuffle(targets)
    return [(source, target, size) for source, target in enumerate(targets) if source != target]


def incast(seed: int, size: int) -> list[Message]:
    draw = random.Random(seed)
    return [(source, 0, int(size * draw.uniform(0.5, 1.5))) for source in range(1, 2 + draw.randrange(8))]


@pytest.mark.parametrize("control", CONTROLS)
def test_every_node_ends_within_the_tolerance(control: str) -> None:
    for seed in range(2):
        for messages in (permutation(seed, 16 * MIB), incast(seed, 8 * MIB)):
            exact, skipped = (
                run(messages, steady, protocol={"congestion-control": control})
                for steady in (None, TOLERANCE)
            )
            assert np.abs(ends(skipped) / ends(exact) - 1).max() <= TOLERANCE


def packets_of(result: Result) -> Any:
    """Return the packets of a run's summary."""
    packets: Any = result.summary()["packets"]
    return packets


def counts(result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    return ports_counted(result.outcome.run.network)


FAT_TREE = {"generator": "fat-tree", "k": 4}  # whose links are trunks that messages share
MESSAGES = [(source, (source + 9) % RANKS, 16 * MIB) for source in range(8)]


def test_most_packets_of_long_messages_that_share_links_are_skipped_and_counted() -> None:
    protocol = {"congestion-control": "none", "skip-repeats": False}
    exact, skipped = (run(MESSAGES, steady, FAT_TREE, protocol) for steady in (None, TOLERANCE))
    packets = packets_of(skipped)
    steady = packets["steady"]
    assert steady["packets"] > 0.5 * packets["sent"]
    assert 0 < steady["error"] <= TOLERANCE
    assert steady["phases"] >= 1
    assert np.abs(ends(skipped) / ends(exact) - 1).max() <= TOLERANCE
    (columns, totals), (columns_then, totals_then) = counts(skipped), counts(exact)
    assert {name: totals[name] for name in ("sent", "acknowledgements", "lost")} == {
        name: totals_then[name] for name in ("sent", "acknowledgements", "lost")
    }
    for name in ("bytes", "packets", "busy_ns"):  # whatever is skipped, links carry the same
        assert (columns[name] == columns_then[name]).all()


def test_nothing_is_skipped_by_default_nor_where_queues_are_recorded() -> None:
    assert "steady" not in packets_of(run(MESSAGES[:1], None))
    recorded = run(MESSAGES[:2], graph=FAT_TREE, detail="ports", protocol={"payload": 4096})
    assert packets_of(recorded)["steady"]["phases"] == 0


def test_nothing_is_skipped_while_ports_are_paused() -> None:
    incast_of_two = [(1, 0, 8 * MIB), (2, 0, 8 * MIB)]
    protocol = {"congestion-control": "none", "skip-repeats": False, "buffer": "256KiB"}
    packets = packets_of(run(incast_of_two, protocol=protocol))
    assert packets["pauses"] > 0
    assert packets["steady"]["packets"] == 0


def test_a_smaller_tolerance_skips_with_a_smaller_error() -> None:
    protocol = {"congestion-control": "none", "skip-repeats": False}
    for tolerance in (0.02, 0.001):
        steady = packets_of(run(MESSAGES, tolerance, FAT_TREE, protocol))["steady"]
        assert steady["error"] <= tolerance


def test_other_models_tcp_and_controls_that_adjust_rates_refuse_the_tolerance() -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    network: dict[str, Any] = {"graph": {**STAR, "bandwidth": "100Gbps", "latency": "500ns"}}
    with pytest.raises(EtSimError, match="--steady is for packets"):
        simulate(builders, network, system(), model="flow", steady=TOLERANCE)
    network["protocol"] = {"preset": "tcp"}
    with pytest.raises(EtSimError, match="RoCE only"):
        simulate(builders, network, system(), model="packet", steady=TOLERANCE)
    network["protocol"] = {"preset": "roce", "congestion-control": "hpcc"}
    with pytest.raises(EtSimError, match="adjusts rates all the time"):
        simulate(builders, network, system(), model="packet", steady=TOLERANCE)
    network["protocol"] = {"preset": "roce"}
    with pytest.raises(EtSimError, match="no window limits messages"):
        simulate(builders, network, system(), model="packet", steady=TOLERANCE)
    for tolerance in (0.0, 0.051):
        with pytest.raises(EtSimError, match=r"--steady is .*allowed: above 0, up to 5%"):
            simulate(builders, network, system(), model="packet", steady=tolerance)
