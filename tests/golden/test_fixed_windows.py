"""Flows differ from ns-3 in a permutation with collisions, because packets share by windows over queues.

In a fluid model, each message sends its window per round trip, and a round trip lasts as long as an idle one
plus the waits in the queues of both directions. It predicts the end of each of the 16 messages without a
fitted figure: the window fills an idle path. Its rates change while queues fill; rates of the flow model
change only where messages begin or end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_packets import BEYOND, golden

from et_sim.machine import read_network_alone
from et_sim.network.route_tables import RouteTables, route_tables
from et_sim.network.routes import FIRST_PORTS, next_link, ports_back

BYTES_PER_NS, LATENCY_NS, LINKS = 12.5, 1000, 6
PACKET, PAYLOAD, ACKNOWLEDGEMENT = 1036, 1000, 48
ROUND_TRIP_NS = 2 * LINKS * LATENCY_NS + LINKS * (83 + 4)  # a packet and its acknowledgement on every link
STEP_NS = 10.0


def way(routes: RouteTables, source: int, target: int, ports: int) -> list[int]:
    device, links = int(routes.device_of[source]), []
    while device != routes.device_of[target]:
        links.append(int(next_link(routes, device, target, source, target, ports)))
        device = int(routes.target[links[-1]])
    return links


def ends_of(case: dict[str, Any], routes: RouteTables) -> Any:
    """Return the arrival time of the last acknowledgement of each message."""
    pairs = [(source, target) for source, target, _ in case["end_ns"]]
    data, back = np.zeros((2, len(pairs), len(routes.source)))
    for row, (source, target) in enumerate(pairs):
        data[row, way(routes, source, target, FIRST_PORTS)] = 1
        back[row, way(routes, target, source, ports_back(FIRST_PORTS))] = 1
    size = case["messages"][0][2]
    left = np.full(len(pairs), -(-size // PAYLOAD) * PACKET, np.float64)
    queues, ends, now = np.zeros(len(routes.source)), np.zeros(len(pairs)), 0.0
    while (left > 0).any():
        is_under_way = left > 0
        round_trip = ROUND_TRIP_NS + (data + back) @ queues / BYTES_PER_NS
        rate = np.where(is_under_way, ROUND_TRIP_NS * BYTES_PER_NS / round_trip, 0)
        loads = (data + back * ACKNOWLEDGEMENT / PACKET).T @ rate
        queues = np.maximum(queues + (loads - BYTES_PER_NS) * STEP_NS, 0)
        left -= rate * STEP_NS
        now += STEP_NS
        ends[is_under_way & (left <= 0)] = now + ROUND_TRIP_NS
    return ends


def test_windows_over_queues_predict_every_message_of_the_permutation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    (case,) = (case for case in golden()["roce"] if case["name"] == BEYOND)
    (tmp_path / "topology.txt").write_text(golden()["topologies"][case["topology"]], encoding="utf-8")
    network = tmp_path / "network.yml"
    network.write_text("graph: { import: topology.txt }\nrouting: ecmp-ns3\n", encoding="utf-8")
    ends = ends_of(case, route_tables(read_network_alone(str(network))))
    true = np.array([end for _, _, end in case["end_ns"]])
    assert np.abs(ends / true - 1).max() < 0.05
    assert abs(ends.max() / true.max() - 1) < 0.02
