"""Records of `--detail ports`: the bytes that wait for ports over time, and the pauses between ports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_2, sends, simulate, system
from msgspec.structs import replace

from et_sim import TraceBuilder
from et_sim.basics.errors import UsageError
from et_sim.engine.observe import queues as observed
from et_sim.engine.state.queue_tables import PER_PORT, WIDTH, Queues, new_queues
from et_sim.plan.records import table
from et_sim.run.result import Result
from et_sim.views.view import view_text

NOTED = ("deepest_bytes", "pauses", "paused_ns", "marked", "lost")
EXACT = {"preset": "roce", "header": 0, "payload": 1000, "congestion-control": "none"}


def run(net: dict[str, Any], messages: list[tuple[int, int, int]], detail: str = "ports") -> Result:
    """Run messages (source, target, bytes), all at once."""
    return simulate(
        sends(net["graph"].get("npus", 8), messages), net, system(), model="packet", detail=detail
    )


def star(npus: int, **protocol: Any) -> dict[str, Any]:
    graph = {"generator": "star", "npus": npus, "bandwidth": "100Gbps", "latency": "200ns"}
    return {"graph": graph, "protocol": EXACT | protocol}


def dumbbell(**protocol: Any) -> dict[str, Any]:
    """Return two leaves with four NPUs each, and one spine."""
    graph = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 4}
    return {"graph": {**graph, "bandwidth": "100Gbps", "latency": "200ns"}, "protocol": EXACT | protocol}


def rows(result: Result, name: str) -> list[dict[str, Any]]:
    return list(result.table(name).to_pylist())


def waited(result: Result, link: str) -> float:
    """Return the waiting on a link in bytes times nanoseconds."""
    outcome = (row for row in rows(result, "queues") if row["link"] == link)
    return sum(row["mean_bytes"] * (row["end_ns"] - row["start_ns"]) for row in outcome)


def test_the_second_of_two_packets_waits_for_as_long_as_the_first_is_sent() -> None:
    result = run(star(3), [(0, 2, 1000), (1, 2, 1000)])
    assert waited(result, "switch0->npu2") == pytest.approx(1000 * 80)
    assert max(row["most_messages"] for row in rows(result, "queues")) == 2


def test_slices_add_up_to_the_counts_of_ports_and_change_no_time() -> None:
    net = dumbbell(buffer=150_000, pauses=True)
    messages = [(source, 4 + source // 3, 60_000) for source in range(4)]
    result, bare = run(net, messages), run(net, messages, "nodes")
    assert result.makespan_ns == bare.makespan_ns
    assert rows(result, "ports") == rows(bare, "ports")
    ports = {row["link"]: row for row in rows(result, "ports")}
    sums = {link: dict.fromkeys(NOTED, 0) for link in ports}
    for row in rows(result, "queues"):
        mine = sums[row["link"]]
        mine["deepest_bytes"] = max(mine["deepest_bytes"], row["deepest_bytes"])
        for name in NOTED[1:]:
            mine[name] += row[name]
        assert 0 <= row["mean_bytes"] <= row["deepest_bytes"]
        assert row["paused_ns"] <= row["end_ns"] - row["start_ns"]
    assert any(mine["pauses"] for mine in sums.values())
    for link, mine in sums.items():
        noted_ns = mine.pop("paused_ns")  # of each pause, in whole nanoseconds
        assert abs(noted_ns - ports[link]["paused_ns"]) <= mine["pauses"]
        assert mine == {name: ports[link][name] for name in mine}, link


def test_losses_and_marks_are_noted_at_the_port_and_time_where_they_happen() -> None:
    marking = [{"bandwidth": "100Gbps", "from": 2000, "to": 4000, "probability": 1.0}]
    lossy = star(
        4, pauses=False, **{"queue-bytes": 8000, "retransmission-timeout": 100_000, "marking": marking}
    )
    result = run(lossy, [(source, 3, 20_000) for source in range(3)])
    for name in ("lost", "marked"):
        results = {row["link"]: row[name] for row in rows(result, "ports") if row[name]}
        assert set(results) == {"switch0->npu3"}
        assert sum(row[name] for row in rows(result, "queues")) == results["switch0->npu3"]


@pytest.mark.deep
def test_a_chain_of_pauses_names_the_queue_that_each_is_caused_by() -> None:
    result = run(dumbbell(buffer=150_000), [(source, 4, 400_000) for source in range(4)])
    pauses = rows(result, "pauses")
    causes = {(pause["link"], pause["egress"]) for pause in pauses}
    assert ("spine0->leaf1", "leaf1->npu4") not in causes  # it brings no more than can leave
    assert {egress for link, egress in causes if link.startswith("npu")} == {"leaf0->spine0"}
    for pause in pauses:
        assert pause["asked_ns"] < pause["begin_ns"] <= pause["end_ns"]
        assert 0 < pause["egress_bytes"] <= pause["egress_depth"]
    assert len(pauses) == sum(row["pauses"] for row in rows(result, "queues"))


def test_flits_hold_their_place_until_they_go_on(tmp_path: Path) -> None:
    graph = {"generator": "star", "npus": 3, "bandwidth": "32GB/s", "latency": "50ns"}
    net = {"graph": graph, "credits": {"flit": 256, "packet": 1024}}
    result = run(net, [(0, 2, 1024)])
    lone = waited(result, "npu0->switch0") / 4
    settings, port = result.outcome.run.network.settings[0], result.outcome.run.network.ports[0]
    cycles = int(port.cycles + port.latency + settings.router_cycles)
    assert lone == pytest.approx(256 * cycles * settings.cycle_ps / 1000, rel=0.02)  # whole nanoseconds
    assert {row["most_messages"] for row in rows(result, "queues")} == {None}
    assert result.makespan_ns == run(net, [(0, 2, 1024)], "nodes").makespan_ns
    assert rows(result, "pauses") == []
    assert "--detail messages" in view_text("flows", result.save(tmp_path / "run"))


def test_models_without_packets_refuse_to_record_ports() -> None:
    build = [TraceBuilder(), TraceBuilder()]
    build[0].send(1, 8)
    build[1].receive(0, 8)
    with pytest.raises(UsageError, match=r"no packets, and so no ports to record \(leave ports out"):
        simulate(build, RING_2, system(), model="link", detail="ports")


Changes = list[tuple[int, int, int, bool]]  # how much later, port, bytes, whether they come
CHANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 500), st.booleans()), max_size=30
)


def _recorded(changes: Changes, per_port: int) -> Queues:
    """Return the record of ports of one switch at which bytes wait and leave."""
    queues = new_queues(np.zeros(3, np.int64), np.arange(1, 4), pauses=False)
    queues.grid[PER_PORT] = per_port
    slices = table(queues.slices.dtype, 3 * per_port)
    network = SimpleNamespace(queues=replace(queues, slices=slices))
    now, held = 0, [0, 0, 0]
    for later, port, size, comes in changes:
        now += later
        if comes:
            held[port] += size
            observed.bytes_wait(network, -1, port, size, now * 1000)
        elif held[port]:
            size = min(size, held[port])
            held[port] -= size
            observed.bytes_go_on(network, -1, port, size, now * 1000 + 999)
    for port in range(3):
        observed.settle(network.queues, port, now + 1)
    result: Queues = network.queues
    return result


def test_the_pause_of_a_port_without_bytes_and_messages_counts() -> None:
    queues = new_queues(np.zeros(3, np.int64), np.arange(1, 4), pauses=False)
    queues.ports[1].since_ns, queues.ports[1].is_paused = 5, 1
    for port in range(2):
        observed.settle(queues, port, 25)
    paused = [part["paused_ns"].sum() for part in np.split(queues.slices, 3)]
    assert paused == [0, 20, 0]
    assert queues.ports["since_ns"][:2].tolist() == [25, 25]


@given(CHANGES)
def test_merged_slices_are_as_if_their_width_had_been_known(
    changes: list[tuple[int, int, int, bool]],
) -> None:
    merged, fine = _recorded(changes, 4), _recorded(changes, 2048)
    assert fine.grid[WIDTH] == 0
    width = 1 << int(merged.grid[WIDTH])
    by_port = fine.slices.reshape(3, -1)
    for port in range(3):
        for number in range(4):
            mine, parts = (
                merged.slices[port * 4 + number],
                by_port[port, number * width : (number + 1) * width],
            )
            assert mine.filled == parts["filled"].sum()
            assert mine.deepest == parts["deepest"].max(initial=0)
