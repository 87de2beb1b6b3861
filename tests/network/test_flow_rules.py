"""Rules of the flow model, each on one small example by closed form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from machines import of_all_ranks, ring, sends, simulate, system

from et_sim.network.flow.model import SAME_NS
from et_sim.trace import TraceBuilder

LATENCY_NS = 500
PACKET = 1000
STORED = {
    "payload": PACKET,
    "header": 0,
    "acknowledgement": 0,
    "store-and-forward": True,
    "completion": "receipt",
    "whole-ns": False,
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def row_of_links(*bandwidths: float) -> dict[str, Any]:
    """Return two NPUs at the ends of a row of links."""
    devices = ["npu0", *(f"switch{number}" for number in range(len(bandwidths) - 1)), "npu1"]
    links = [
        {"from": here, "to": there, "bandwidth": f"{bandwidth}GB/s", "latency": LATENCY_NS}
        for (here, there), bandwidth in zip(pairwise(devices), bandwidths, strict=True)
    ]
    return {"npus": 2, "switches": len(devices) - 2, "links": links, "logical-dimensions": [2]}


def star(npus: int) -> dict[str, Any]:
    names = [f"npu{number}" for number in range(npus)]
    links = [{"from": names, "to": "switch0", "bandwidth": "50GB/s", "latency": LATENCY_NS}]
    return {"npus": npus, "switches": 1, "links": links, "logical-dimensions": [npus]}


def ran(builders: list[TraceBuilder], net: dict[str, Any], **more: Any) -> Any:
    return simulate(builders, net, system("direct", profile="corrected"), model="flow", **more)


def order_of_arrival(sizes: Sequence[int]) -> list[int]:
    """Return in which order messages that are sent at once let the receiver compute."""
    here, there = TraceBuilder(), TraceBuilder()
    for tag, size in enumerate(sizes):
        here.send(1, size, tag=tag, attributes={"concurrent": 1})
    for tag, size in reversed(list(enumerate(sizes))):
        received = there.receive(0, size, tag=tag)
        there.compute(f"{tag}", nanos=1, after=[received])
    rows = ran([here, there], row_of_links(50, 50)).timeline.to_pylist()
    kernels = sorted((row["start_ns"], int(row["name"])) for row in rows if row["lane"] == "compute")
    return [number for _, number in kernels]


def test_smaller_messages_sent_at_once_come_first_and_equal_ones_in_their_order() -> None:
    assert order_of_arrival([4000, 4000]) == [0, 1]
    assert order_of_arrival([4000, 9000, 4000]) == [0, 2, 1]
    assert order_of_arrival([9000, 4000, 9000, 4000, 1000]) == [4, 1, 3, 0, 2]


@pytest.mark.parametrize("routing", ["shortest", "spread"])
def test_a_packet_is_stored_once_at_every_link_but_the_narrowest(routing: str) -> None:
    size = 20 * PACKET
    for bandwidths in ([50, 20, 100], [20, 50, 100], [100, 50, 20], [50, 50], [20, 10, 20, 5, 40]):
        *others, narrowest = sorted(bandwidths, reverse=True)
        net = row_of_links(*bandwidths) | {"protocol": STORED, "routing": routing}
        exact = size / narrowest + sum(PACKET / other for other in others) + LATENCY_NS * len(bandwidths)
        assert ran(sends(2, [(0, 1, size)]), net).finish_ns.tolist() == [size // narrowest, int(exact)]


def test_a_message_that_ends_almost_at_a_nanosecond_ends_in_it() -> None:
    """Check that `SAME_NS` is larger than the error of rates, which are sums of rounded numbers."""
    assert SAME_NS == 2 / 4096
    for rest, more in ((0, 0), (4093, 0), (4094, 1), (4095, 1)):
        ends = ran(sends(2, [(0, 1, 10 * 4096 + rest)]), row_of_links(4096)).finish_ns.tolist()
        assert ends == [10 + more, 10 + more + LATENCY_NS]


def waiting(result: Any) -> dict[str, tuple[int, int]]:
    """Return the time that messages wait for others at each link, and the largest number that wait."""
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in result.table("links").to_pylist():
        before, most = found[row["link"]]
        found[row["link"]] = before + row["wait_ns"], max(most, row["most_waiting"])
    return dict(found)


def test_all_messages_that_share_a_link_but_one_wait_there() -> None:
    """Share the last link among three for 600 ns; then the largest uses it alone, and so does a later one."""
    builders = sends(4, [(0, 1, 10_000), (2, 1, 10_000), (3, 1, 30_000)])
    builders[2].send(1, 5000, tag=9, after=[builders[2].compute("wait", micros=4)])
    builders[1].receive(2, 5000, tag=9)
    result = ran(builders, star(4), detail="links")
    assert result.makespan_ns == 4000 + 100 + 2 * LATENCY_NS
    found = waiting(result)
    assert found.pop("switch0->npu1") == (2 * 600, 2)
    assert set(found.values()) == {(0, 0)}


def test_as_many_messages_wait_at_a_link_that_stands_for_equal_ones() -> None:
    for kind in ("all_to_all", "all_reduce"):
        folded, unfolded = (
            waiting(ran(of_all_ranks(4, kind, 40_000), ring(4), detail="links", fold=fold))
            for fold in (True, False)
        )
        assert folded["clockwise"][0] > 0
        assert {link: (4 * wait, most) for link, (wait, most) in folded.items()} == unfolded
