"""The flow model with a protocol: closed forms of lone packets, and exact sharing with acknowledgements."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import sends, simulate, system
from progressive_filling import Flow, end_times

from et_sim.trace import TraceBuilder

BYTES_PER_NS = 50  # 400 Gbps
ROUNDING_NS = 1


def chain(hops: int, ends: int = 1, latency: int = 500) -> dict[str, Any]:
    """Return NPUs at both ends of a row of switches, with equal links."""
    names = [f"npu{number}" for number in range(2 * ends)]
    figures = {"bandwidth": f"{BYTES_PER_NS}GB/s", "latency": latency}
    links: list[dict[str, Any]] = [
        {"from": f"switch{number}", "to": f"switch{number + 1}", **figures} for number in range(hops - 2)
    ]
    links += [
        {"from": names[:ends], "to": "switch0", **figures},
        {"from": names[ends:], "to": f"switch{hops - 2}", **figures},
    ]
    return {"npus": 2 * ends, "switches": hops - 1, "links": links, "logical-dimensions": [2 * ends]}


def sent(net: dict[str, Any], messages: list[tuple[int, int, int]], detail: str = "nodes") -> Any:
    """Run messages (source, target, bytes), all at once."""
    return simulate(
        sends(net["npus"], messages), net, system(profile="corrected"), model="flow", detail=detail
    )


def rounded(value: Fraction) -> int:
    return int(value + Fraction(1, 2))


@given(
    size=st.integers(1, 300_000),
    hops=st.integers(2, 5),
    payload=st.sampled_from([500, 1000, 1448, 9000]),
    header=st.sampled_from([0, 36, 54]),
    acknowledgement=st.sampled_from([0, 48, 300]),
    whole=st.booleans(),
)
def test_a_lone_message_takes_the_time_of_its_packets(
    size: int, hops: int, payload: int, header: int, acknowledgement: int, whole: bool
) -> None:
    """Send packets that follow each other over the first link; the last one crosses the others alone."""
    protocol = {
        "payload": payload,
        "header": header,
        "acknowledgement": acknowledgement,
        "store-and-forward": True,
        "whole-ns": whole,
    }

    def time(count: int) -> Fraction:
        exact = Fraction(count, BYTES_PER_NS)
        return Fraction(rounded(exact)) if whole else exact

    full = (size - 1) // payload
    first, last = time(min(size, payload) + header), time(size - full * payload + header)
    there = full * first + (hops - 1) * first + last + hops * 500
    known = there + hops * (time(acknowledgement) + 500)
    for completion, wanted in (("receipt", there), ("acknowledgement", known)):
        net = chain(hops) | {"protocol": protocol | {"completion": completion}}
        result = sent(net, [(0, 1, size)]).finish_ns.tolist()[1]
        # A last packet that is not full is rounded with the others, and not by itself; so is an only one.
        slack = ROUNDING_NS + (hops if whole else 0)
        assert abs(result - wanted) <= slack


@pytest.mark.parametrize("completion", ["receipt", "acknowledgement"])
def test_a_sender_is_done_when_its_last_byte_has_left_or_is_acknowledged(completion: str) -> None:
    protocol = {"preset": "roce", "acknowledgement": 0, "completion": completion}
    size, packets = 1_000_000, 1000
    source, target = sent(chain(3) | {"protocol": protocol}, [(0, 1, size)]).finish_ns.tolist()
    leaves = (size + 36 * packets) / BYTES_PER_NS
    if completion == "receipt":
        assert source == int(leaves)
        assert target == int(leaves + 3 * 500 + 2 * 1036 / BYTES_PER_NS)
    else:
        assert source == target == int(leaves + 6 * 500 + 2 * 1036 / BYTES_PER_NS)


def test_a_protocol_of_nothing_changes_nothing() -> None:
    nothing = {
        "payload": 4096,
        "header": 0,
        "acknowledgement": 0,
        "store-and-forward": False,
        "completion": "receipt",
        "whole-ns": False,
    }
    traffic = [(0, 3, 10**6), (1, 3, 70_000), (2, 0, 1), (3, 1, 123_457), (1, 3, 5)]
    plain, named = chain(4, ends=2), chain(4, ends=2) | {"protocol": nothing}
    tables = [sent(net, traffic, detail="messages,links") for net in (plain, named)]
    for name in ("timeline", "messages", "links"):
        assert tables[0].table(name).equals(tables[1].table(name))


@given(st.data(), st.sampled_from([0, 60, 700]))
def test_acknowledgements_share_the_links_on_the_way_back_exactly(
    data: st.DataObject, acknowledgement: int
) -> None:
    """Send once from each of four NPUs on each side of two switches; sizes in full packets."""
    payload, header, half = 1000, 50, 4
    protocol = {"payload": payload, "header": header, "acknowledgement": acknowledgement}
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(2 * half)]
    for source, sender in enumerate(builders):
        target = data.draw(st.integers(0, 2 * half - 1).filter(lambda place, own=source: place != own))
        size = payload * data.draw(st.integers(1, 200))
        before = sender.compute("wait", micros=data.draw(st.integers(0, 6)))
        sender.send(target, size, tag=source, after=[before])
        builders[target].receive(source, size, tag=source)
    net = chain(3, ends=half) | {"protocol": protocol}
    result = simulate(builders, net, system(profile="corrected"), model="flow", detail="messages", fold=False)
    table = result.table("messages").to_pydict()

    def way(source: int, target: int) -> tuple[Hashable, ...]:
        is_across = source // half != target // half
        inside: list[Hashable] = [("over", source // half)] if is_across else []
        return (("up", source), *inside, ("down", target))

    flows = [
        Flow(begin, size // payload * (payload + header), way(source, target), way(target, source))
        for begin, size, source, target in zip(
            *(table[name] for name in ("sent_ns", "bytes", "actor", "peer")), strict=True
        )
    ]
    links = {link for flow in flows for link in (*flow.links, *flow.back)}
    part = Fraction(acknowledgement, payload + header)
    capacity = dict.fromkeys(links, Fraction(BYTES_PER_NS))
    ends = end_times(flows, capacity, dict.fromkeys(links, part) if part else None)
    for number, (flow, end) in enumerate(zip(flows, ends, strict=True)):
        assert abs(table["arrived_ns"][number] - int(end + 500 * len(flow.links))) <= ROUNDING_NS


def test_links_carry_headers_and_acknowledgements() -> None:
    size, packets = 1_000_000, 1000
    result = sent(chain(2) | {"protocol": {"preset": "roce"}}, [(0, 1, size)], detail="links")
    links, carried = (
        result.table("links").to_pydict(),
        dict.fromkeys(("npu0->", "->npu1", "npu1->", "->npu0"), 0),
    )
    for link, count in zip(links["link"], links["bytes"], strict=True):
        for end in carried:
            carried[end] += count if end in link else 0
    data, back = size + 36 * packets, 48 * packets
    assert carried == {"npu0->": data, "->npu1": data, "npu1->": back, "->npu0": back}


@pytest.mark.parametrize(("gbps", "packet_ns"), [(100, 83), (200, 41), (400, 21), (20_000, 1)])
def test_links_are_used_as_far_as_whole_nanoseconds_let_them(gbps: int, packet_ns: int) -> None:
    """Check packets of 1,036 bytes in 82.88, 41.44, 20.72 and 0.4144 ns; links are always full."""
    net = {
        "graph": {"generator": "star", "npus": 2, "bandwidth": f"{gbps}Gbps"},
        "protocol": {"preset": "roce", "acknowledgement": 0, "whole-ns": True, "completion": "receipt"},
    }
    builders = sends(2, [(0, 1, 10_000_000)])
    result = simulate(builders, net, system(profile="corrected"), model="flow", detail="links")
    assert result.finish_ns.tolist() == [10_000 * packet_ns, 10_001 * packet_ns]
    of_links = result.table("resources").to_pydict()["bytes_per_ns"]
    assert of_links == [1036 / packet_ns] * 4
