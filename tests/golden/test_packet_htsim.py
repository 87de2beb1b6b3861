"""The preset `htsim-parity` against ASTRA-sim's system layer on csg-htsim's TCP, without losses: within 2 %.

Of collectives, only those are compared whose paths do not meet by chance, and whose messages are so large
that no receive ends early by the packet that htsim's frontend adds to each message and counts as received.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_packets import collective, messages, system

from et_sim import simulate

DATA = Path(__file__).parent / "data" / "htsim_tcp.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
FIGURES = {"bandwidth": "100Gbps", "latency": "1us"}
TOPOLOGIES = {
    "ls16_4x4_4s_100g_1us": {"generator": "leaf-spine", "leaves": 4, "spines": 4, "npus-per-leaf": 4},
    "ft16_k4_100g_1us": {"generator": "fat-tree", "k": 4},
}
PACKET = 1500
RANKS = 16


def makespan(case: dict[str, Any]) -> int:
    """A case by our own packets."""
    work, queue = case["workload"], case["queue_pkts"]
    network = {
        "graph": TOPOLOGIES[case["topology"]] | FIGURES,
        "routing": "ecmp",
        "logical-dimensions": [RANKS],
        "protocol": {
            "preset": "htsim-parity",
            "queue-bytes": queue * PACKET,
            "random-drop-from": (queue - 3) * PACKET,
        },
    }
    if "msgs" in work:
        workload, algorithm = messages(RANKS, work["msgs"]), "ring"
    else:
        workload, algorithm = collective(RANKS, work["kind"], work["size"]), work["impl"]
    result = simulate(workload, system=system(algorithm), network=network, model="packet")
    return result.makespan_ns


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"], marks=pytest.mark.deep if case["data_packets"] > 800 else ())
        for case in CASES
    ],
)
def test_packets_take_what_those_of_htsim_take(case: dict[str, Any]) -> None:
    theirs, ours = case["completion_ns"], makespan(case)
    if case["workload"]["kind"] == "p2p":
        assert ours == theirs
    else:
        assert ours == pytest.approx(theirs, rel=0.02)
