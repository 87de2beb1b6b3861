"""No run in the corrected profile is faster than its bytes pass through the ports of the machine.

The bounds are closed forms: the bytes that must leave an NPU, or a block of NPUs such as a node, with any
algorithm; the bytes that enter or leave an NPU whose links differ, pass a unit of a memory pool, or are sent
by a NIC of LogGOPS (which has no bandwidth for its receiving side).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, RING_4, SHAPES, network, sent, system

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.machine import read_network_alone
from et_sim.machine.model import DimensionShape, GraphFabric, LogicalDimension, Network, bytes_per_ns
from et_sim.machine.presets import entry, names, preset
from et_sim.timeline import network_load
from et_sim.trace import TraceBuilder, Workload
from et_sim.workloads.microbenchmarks import make_microbenchmark

MIB, GIB = 1 << 20, 1 << 30
MODELS = ("analytical", "link", "flow")
CORRECTED = system(profile="corrected")


def makespan_ns(kind: str, machine: str, size: int, **options: Any) -> int:
    workload = make_microbenchmark(kind, ranks=preset(machine).npus, size=size)
    return et_sim.simulate(workload, machine=machine, **options).makespan_ns


def ports_of(dimension: LogicalDimension) -> float:
    """Return bytes per nanosecond that leave an NPU along a dimension."""
    others = dimension.npus - 1
    links = {
        DimensionShape.SWITCH: 1,
        DimensionShape.FULLY_CONNECTED: others,
        DimensionShape.RING: min(others, 2),
    }
    return links[dimension.shape] * bytes_per_ns(dimension.bandwidth)


def leaving(network: Network) -> Iterator[tuple[int, float]]:
    """Yield NPUs of a block, and bytes per nanosecond that leave it."""
    if isinstance(network.fabric, GraphFabric):
        graph, cards = network.fabric.graph, network.cards
        yield 1, graph.bytes_per_ns[graph.sources == graph.npus[0]].sum()
        if cards is not None and cards.has_node and len(cards.dimensions) == 2:
            inner, outer = cards.dimensions
            yield inner.npus, inner.npus / cards.sharers * outer.bytes_per_ns
        return
    dimensions = network.grid.dimensions
    blocks = accumulate((dimension.npus for dimension in dimensions[:-1]), mul, initial=1)
    for place, block in enumerate(blocks):
        yield block, block * sum(map(ports_of, dimensions[place:]))


def bound_ns(kind: str, machine: str, size: int) -> float:
    """Return the time until all bytes have left an NPU, or a block of inner dimensions."""
    npus = preset(machine).npus
    library = preset(machine).system.get("library", {})
    reduces_in_switches = library.get("gpu") in ("hopper", "blackwell") and "link" not in library
    bounds = []
    for block, rate in leaving(read_network_alone(preset(machine).network)):
        outside = 1 - block / npus
        crossings = 2 * outside
        if reduces_in_switches and block == 1:  # a port carries its data once, and the sum once the other way
            crossings = min(crossings, 1)
        needed = {"all_reduce": crossings * size, "all_to_all": size * block * outside}
        bounds.append(needed.get(kind, size * outside) / rate)
    return max(bounds)


def machines_of(name: str, most: int) -> Iterator[str]:
    """Yield a part of a node, a node, some nodes, and two whose NPUs share cards."""
    fewest = entry(name).fewest
    for npus in (fewest // 2, fewest, 2 * fewest, 8 * fewest):
        with suppress(UsageError):
            if npus <= most:
                yield preset(f"{name}:{npus}").text
    with suppress(UsageError):
        if 2 * fewest <= most and fewest >= 4:
            yield preset(f"{name}:{2 * fewest},cards={fewest // 4}").text


def below(name: str, most: int, sizes: tuple[int, ...], models: tuple[str, ...]) -> list[Any]:
    """Return points whose result is faster than their wires, with the factor."""
    results = []
    for machine in machines_of(name, most):
        for kind in KINDS:
            for size in sizes:
                least = bound_ns(kind, machine, size)
                for model in models:
                    took = makespan_ns(kind, machine, size, model=model)
                    if took < int(least):
                        results.append((machine, kind, size, model, least / took))
    return results


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if place % 5 else pytest.mark.deep)
        for place, name in enumerate(names())
    ],
)
def test_no_collective_is_faster_than_its_wires(name: str) -> None:
    assert below(name, 128, (3 * MIB + 7, GIB), MODELS) == []


@pytest.mark.deep
def test_no_collective_in_packets_is_faster_than_its_wires() -> None:
    assert below("a100-dgx-80gb", 16, (MIB,), ("packet",)) == []


def test_the_reference_profile_warns_of_overloaded_ports() -> None:
    workload = make_microbenchmark("all_to_all", ranks=8, size=64 * MIB)
    result = et_sim.simulate(workload, machine="a100-dgx-80gb:8", profile="reference")
    assert result.makespan_ns < bound_ns("all_to_all", "a100-dgx-80gb:8", 64 * MIB) / 10
    texts = [warning["text"] for warning in result.manifest["warnings"]]
    assert [text for text in texts if "each of ranks 0-7 sends 13 times what its links carry" in text]


def test_eight_gpus_all_reduce_at_the_bandwidth_of_their_links_by_default() -> None:
    took = makespan_ns("all_reduce", "h100-dgx:8", GIB)
    assert 300 < 2 * 7 / 8 * GIB / took < 450


@st.composite
def exchanges(draw: Any) -> tuple[str, int, list[tuple[int, int, int]]]:
    """Draw a shape, NPUs, and messages to neighbours without a common source or target."""
    npus = draw(st.integers(2, 8))
    pairs = draw(st.permutations(range(npus)))
    ends = zip(pairs[::2], pairs[1::2], strict=False)
    shape = draw(st.sampled_from(["Switch", "FullyConnected"]))
    return shape, npus, [(source, other, draw(st.integers(1, 10**7))) for source, other in ends]


@given(exchanges(), st.integers(0, 2000))
def test_without_sharing_analytical_equals_flow(
    case: tuple[str, int, list[tuple[int, int, int]]], latency: int
) -> None:
    shape, npus, messages = case
    workload = sent(npus, messages)
    network = {"topology": [shape], "npus_count": [npus], "bandwidth": [50], "latency": [latency]}
    ends = [
        et_sim.simulate(
            workload, system={"profile": profile}, network=network, model=model
        ).finish_ns.tolist()
        for model, profile in (("analytical", "corrected"), ("flow", "corrected"))
    ]
    assert ends[0] == pytest.approx(ends[1], abs=1)


def links_of(shape: str, npus: int) -> list[tuple[Any, Any]]:
    """Return the ends of every link in one dimension."""
    if shape == "Switch":
        return [ends for npu in range(npus) for ends in ((npu, "switch"), ("switch", npu))]
    near = {1, npus - 1} if shape == "Ring" else set(range(1, npus))
    return [(npu, (npu + ahead) % npus) for npu in range(npus) for ahead in sorted(near)]


@given(st.data(), st.sampled_from(SHAPES), st.integers(2, 5), st.sampled_from(MODELS))
def test_no_messages_are_faster_than_the_links_of_their_ends_where_these_differ(
    data: st.DataObject, shape: str, npus: int, model: str
) -> None:
    rates = {ends: data.draw(st.integers(1, 99)) for ends in links_of(shape, npus)}
    links = [
        {"dimension": 0, "from": source, "to": other, "bandwidth": f"{rate}GB/s"}
        for (source, other), rate in rates.items()
    ]
    network = {"topology": [shape], "npus_count": [npus], "bandwidth": [50], "latency": [7], "links": links}
    pairs = st.tuples(st.integers(0, npus - 1), st.integers(1, npus - 1), st.integers(1, 10**4))
    drawn = data.draw(st.lists(pairs, min_size=1, max_size=20))
    messages = [(source, (source + ahead) % npus, size) for source, ahead, size in drawn]
    took = et_sim.simulate(sent(npus, messages), system=CORRECTED, network=network, model=model).makespan_ns
    for end in (0, 1):
        for npu in range(npus):
            size = sum(message[2] for message in messages if message[end] == npu)
            assert took >= int(size / sum(rate for ends, rate in rates.items() if ends[end] == npu))


@given(st.data(), st.sampled_from(["fair", "in-turn"]), st.booleans())
def test_no_unit_of_a_memory_pool_passes_more_than_it_can(
    data: st.DataObject, sharing: str, is_duplex: bool
) -> None:
    requests = st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=12)
    of_rank = [data.draw(requests) for _ in range(4)]
    drawn = st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 99)), min_size=1, max_size=3)
    stages: list[dict[str, Any]] = [
        {"name": f"stage {at}", "count": count, "bandwidth": rate, "duplex": is_duplex}
        for at, (count, rate) in enumerate(data.draw(drawn))
    ]
    memory = {"memory-type": "HIERARCHICAL_POOL", "chunk": 64, "stages": stages, "sharing": sharing}
    builders = [TraceBuilder() for _ in of_rank]
    for build, accesses in zip(builders, of_rank, strict=True):
        for stores, size in accesses:
            (build.store if stores else build.load)(size)
    workload = Workload.of([build.build() for build in builders])
    took = et_sim.simulate(workload, system=CORRECTED, network=RING_4, memory=memory).makespan_ns
    for stage in stages:
        each = 4 // stage["count"]
        for unit in range(stage["count"]):
            accesses = [node for rank in range(unit * each, (unit + 1) * each) for node in of_rank[rank]]
            ways = [sum(size for stores, size in accesses if stores is way) for way in (False, True)]
            # The time of each transfer is rounded down.
            assert took + len(accesses) >= (max(ways) if is_duplex else sum(ways)) / stage["bandwidth"]


def test_parts_of_nanoseconds_count_where_a_port_passes_messages_without_a_break() -> None:
    """Send seven messages over one link of 10 bytes a nanosecond: they are cut to nanoseconds together."""
    for size in (1003, 1009):
        messages = sent(8, [(source, 0, size) for source in range(1, 8)])
        for model, first in (("analytical", 0), ("link", size // 10)):
            result = et_sim.simulate(
                messages, system=CORRECTED, network=network(["Switch"], [8], "10GB/s"), model=model
            )
            assert result.finish_ns[0] == 2 * 500 + first + 7 * size // 10


def test_parts_of_nanoseconds_count_where_a_unit_of_a_pool_serves_without_a_break() -> None:
    build = TraceBuilder()
    build.load(1003)
    stage = {"name": "all", "count": 1, "bandwidth": 10, "latency": 100}
    memory = {"memory-type": "HIERARCHICAL_POOL", "chunk": "64KiB", "stages": [stage]}
    result = et_sim.simulate(
        Workload.of([build.build()] * 4), system=CORRECTED, network=RING_4, memory=memory
    )
    assert result.finish_ns.tolist() == [100 + turn * 1003 // 10 for turn in (1, 2, 3, 4)]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=10), st.sampled_from([0.01, 0.04, 6]))
def test_no_nic_of_loggops_sends_faster_than_its_gap_per_byte(sizes: list[int], gap: float) -> None:
    constants = {"npus": 4, "L": 10, "o": 1, "g": 0, "G": gap, "S": 1000}
    workload = sent(4, [(0, 1 + at % 3, size) for at, size in enumerate(sizes)])
    network = {"loggops": constants}
    took = et_sim.simulate(workload, system=CORRECTED, network=network, model="loggops").makespan_ns
    assert took >= sum(int((size - 1) * gap) for size in sizes)


def test_bursts_of_millions_of_ranks_that_take_hours_are_separated() -> None:
    hours, last = 10**13, 5_000_000
    actor = np.array([0, 0, 0, last, last])
    start = np.array([0, 3, hours, 2, hours])
    end = np.array([5, 4, hours + 7, hours, hours + 1])
    begin, until, first = network_load._bursts(actor, start, end)
    assert begin.tolist() == [0, hours, 2]
    assert until.tolist() == [5, hours + 7, hours + 1]
    assert first.tolist() == [0, 2, 3]
