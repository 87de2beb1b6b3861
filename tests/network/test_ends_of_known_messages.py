"""The end of a message waits for fewer packets than those that were measured; the estimate includes that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import simulate, system

from et_sim import TraceBuilder

RANKS = 8
STAR = {"generator": "switch", "npus": RANKS, "bandwidth": "100Gbps", "latency": "5us"}


def ends(steady: float | None, completion: str) -> tuple[Any, Any]:
    """Return when the nodes of a ring end, and the packets of the summary."""
    builders = [TraceBuilder() for _ in range(RANKS)]
    for builder in builders:
        builder.collective("all_reduce", RANKS * 40_641)
    protocol = {"congestion-control": "none", "window": "none", "skip-repeats": False}
    network = {
        "graph": STAR,
        "logical-dimensions": [RANKS],
        "protocol": {"preset": "datacenter", "payload": 1000, "completion": completion, **protocol},
    }
    found = simulate(builders, network, system("ring"), model="packet", steady=steady)
    return np.array(found.timeline.column("end_ns").to_pylist(), float), found.summary()["packets"]


@pytest.mark.parametrize("completion", ["receipt", "acknowledgement"])
def test_no_node_of_a_ring_differs_by_more_than_the_estimate(completion: str) -> None:
    (exact, _), (near, packets) = ends(None, completion), ends(0.02, completion)
    steady = packets["steady"]
    assert steady["packets"] > 0.5 * packets["sent"]
    assert 0 < np.abs(near / exact - 1).max() <= steady["error"] <= 0.02
