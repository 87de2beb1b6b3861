"""Samples with slower and faster links are runs on networks with these links."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import network, ring
from sampled_cases import finish, sampled

from et_sim.api import simulate
from et_sim.machine.networks import AT_SWITCH, GridFabric
from et_sim.trace import TraceBuilder, Workload

LINKS: dict[str, Any] = {"kind": "link", "level": "step", "family": "log-normal", "spread": 0.3}
SYSTEM = {"all-reduce-implementation": ["ring"]}


def reduced(ranks: int, size: int) -> Workload:
    build = TraceBuilder()
    build.collective("all_reduce", size)
    return Workload((build.build(),), np.zeros(ranks, np.int32))


@pytest.mark.parametrize(("shape", "links"), [("Ring", 8), ("Switch", 8), ("FullyConnected", 12)])
@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_a_sample_is_the_run_on_a_network_with_these_links(shape: str, links: int, model: str) -> None:
    plain, workload = network([shape], [4]), reduced(4, 1 << 20)
    plan = sampled(workload, plain, LINKS, model=model, **SYSTEM)
    for step in range(3):
        found = finish(plan, step)
        fabric = plan._network_in(step, (0,)).fabric
        assert isinstance(fabric, GridFabric)
        assert len(fabric.links) == links
        listed = [
            {
                "dimension": 0,
                "from": "switch" if link.source == AT_SWITCH else link.source,
                "to": "switch" if link.target == AT_SWITCH else link.target,
                "bandwidth": link.bandwidth,
            }
            for link in fabric.links
        ]
        run = simulate(workload, system=SYSTEM, network={**plain, "links": listed}, model=model)
        assert found == run.finish_ns.tolist()
    assert (
        finish(plan, None) == simulate(workload, system=SYSTEM, network=plain, model=model).finish_ns.tolist()
    )


def test_bytes_on_a_link_take_its_factor_times_as_long() -> None:
    size, factor = 1 << 24, 2.5
    sender, receiver = TraceBuilder(), TraceBuilder()
    sender.send(1, size)
    receiver.receive(0, size)
    workload = Workload.of([sender.build(), receiver.build()])
    entry = {"kind": "link", "level": "element", "family": "empirical", "factors": [factor]}
    plan = sampled(workload, ring(2, bandwidth=50.0, latency=0.0), entry)
    nominal, slow = finish(plan, None)[1], finish(plan, 0)[1]
    assert slow == pytest.approx(factor * nominal, abs=2 * factor)


def test_a_ring_is_as_fast_as_its_slowest_link() -> None:
    ranks, size, bandwidth = 8, 1 << 26, 50.0
    parts = [{"weight": 3}, {"weight": 1, "factor": 4.0}]
    entry = {"kind": "link", "level": "element", "family": "mixture", "parts": parts}
    plan = sampled(reduced(ranks, size), ring(ranks, bandwidth, 0.0), entry, seed=5, model="link", **SYSTEM)
    links = plan._network_in(0, (0,)).fabric.links  # type: ignore[union-attr]
    slow = {link.bandwidth for link in links if (link.target - link.source) % ranks == 1}
    assert slow == {bandwidth, bandwidth / 4}
    rate = bandwidth / 4 * 1.073741824
    assert max(finish(plan, 0)) == pytest.approx(2 * (ranks - 1) / ranks * size / rate, rel=0.01)


def test_links_of_a_graph_vary_too() -> None:
    graph = {
        "npus": 2,
        "switches": ["middle"],
        "links": [{"from": ["npu0", "npu1"], "to": "middle", "bandwidth": "100Gbps", "latency": "1us"}],
    }
    plan = sampled(reduced(2, 1 << 22), graph, LINKS, **SYSTEM)
    assert len({max(finish(plan, step)) for step in (None, 0, 1, 2)}) == 4
