"""The flow model shares links as progressive filling in exact fractions does."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, ring, simulate, system
from progressive_filling import Flow, end_times, fair_rates

from et_sim.machine import read_network_alone
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import path_between
from et_sim.trace import TraceBuilder

BANDWIDTHS = (10, 25, 50)  # GiB/s
LATENCY = 500
SIZES = (1, 1000, 65536, 10**6, 2**20 + 7)
ROUNDING_NS = 1  # a message that begins in the nanosecond in which others end waits for its end


class Sending(NamedTuple):
    """A message and how long its rank waits before it sends."""

    source: int
    target: int
    size: int
    micros: int


def test_rates_are_those_of_the_textbook() -> None:
    """Share one link among three flows; another link limits one of them to a third of its share."""
    capacity: dict[Hashable, Fraction] = {"wide": Fraction(12), "narrow": Fraction(1)}
    ways: dict[int, tuple[Hashable, ...]] = {0: ("wide",), 1: ("wide",), 2: ("wide", "narrow")}
    loads = {number: dict.fromkeys(links, Fraction(1)) for number, links in ways.items()}
    assert fair_rates(loads, capacity) == {0: Fraction(11, 2), 1: Fraction(11, 2), 2: Fraction(1)}


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    shapes = draw(st.lists(st.sampled_from(["Ring", "Switch", "FullyConnected"]), min_size=1, max_size=2))
    npus = [draw(st.integers(2, 5)) for _ in shapes]
    bandwidths = [draw(st.sampled_from(BANDWIDTHS)) for _ in shapes]
    return {**network(shapes, npus, latency=LATENCY), "bandwidth": bandwidths}


@st.composite
def sendings(draw: st.DrawFn, ranks: int) -> list[Sending]:
    ends = st.lists(st.integers(0, ranks - 1), min_size=2, max_size=2, unique=True)
    return [
        Sending(
            *draw(ends), draw(st.sampled_from([1, 1000, 65536, 10**6, 2**20 + 7])), draw(st.integers(0, 30))
        )
        for _ in range(draw(st.integers(1, 14)))
    ]


@given(st.data())
def test_random_traffic_is_shared_as_progressive_filling_does(data: st.DataObject) -> None:
    machine = data.draw(machines())
    ranks = math.prod(machine["npus_count"])
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(ranks)]
    for tag, sent in enumerate(data.draw(sendings(ranks))):
        before = builders[sent.source].compute("wait", micros=sent.micros)
        builders[sent.source].send(sent.target, sent.size, tag=tag, after=[before])
        builders[sent.target].receive(sent.source, sent.size, tag=tag)
    described = system(dimensions=len(machine["npus_count"]), profile="corrected")
    result = simulate(builders, machine, described, model="flow", detail="messages,links", fold=False)
    check_on_dimensions(result, machine)
    carried = result.table("links").to_pydict()
    for begin, end, size, busy in zip(
        *(carried[name] for name in ("start_ns", "end_ns", "bytes", "busy_ns")), strict=True
    ):
        widest = max(machine["bandwidth"]) * 2**30 / 1e9
        assert size <= (end - begin + 1) * widest + 1
        assert busy <= end - begin
    table = result.table("messages").to_pydict()
    ways = zip(*(table[name] for name in ("bytes", "actor", "peer")), strict=True)
    assert sum(carried["bytes"]) == sum(size * len(list(path(machine, *ends))) for size, *ends in ways)


@given(st.data())
def test_messages_of_one_group_follow_each_other_and_those_sent_together_share(data: st.DataObject) -> None:
    """Run chunks of several collectives at once, which share the path to the same neighbours."""
    ranks, queues = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4))
    machine = ring(ranks, 50, LATENCY)
    builders = [TraceBuilder() for _ in range(ranks)]
    late, sizes = data.draw(st.integers(0, ranks - 1)), st.sampled_from([9_999, 65_536, 10**6])
    for size in data.draw(st.lists(sizes, min_size=1, max_size=4)):
        for rank, builder in enumerate(builders):
            builder.collective("all_gather", size, after=[builder.compute("wait", micros=9 * (rank == late))])
    keys = {
        "preferred-dataset-splits": data.draw(st.integers(1, 3)),
        "active-chunks-per-dimension": queues,
        "num-queues-per-dim": queues,
    }
    described = system(profile="corrected", **keys)
    check_on_dimensions(
        simulate(builders, machine, described, model="flow", detail="messages", fold=False), machine
    )


def check_on_dimensions(result: Any, machine: dict[str, Any]) -> None:
    """Check the arrival of messages, given the times at which they were sent."""
    table = result.table("messages").to_pydict()
    sources, targets, sizes = table["actor"], table["peer"], table["bytes"]
    flows = [
        Flow(begin, size, tuple(path(machine, source, target)), pair=(source, target))
        for begin, size, source, target in zip(table["sent_ns"], sizes, sources, targets, strict=True)
    ]
    capacity: dict[Hashable, Fraction] = {
        link: Fraction(machine["bandwidth"][link[0]] * 2**30, 10**9) for flow in flows for link in flow.links
    }
    for number, (flow, end) in enumerate(zip(flows, end_times(flows, capacity), strict=True)):
        expected = math.floor(end + LATENCY * len(flow.links))
        assert abs(table["arrived_ns"][number] - expected) <= ROUNDING_NS, (number, flows)


def path(machine: dict[str, Any], source: int, target: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield links by dimension and ends, from the lowest dimension; clockwise unless that is longer."""
    stride, at = 1, source
    for number, (shape, npus) in enumerate(zip(machine["topology"], machine["npus_count"], strict=True)):
        here, there = at // stride % npus, target // stride % npus
        end = at + (there - here) * stride
        if here != there and shape == "FullyConnected":
            yield number, at, end
        elif here != there and shape == "Switch":
            yield number, at, "switch"
            yield number, "switch", end
        elif here != there:
            ahead = (there - here) % npus
            step = 1 if ahead <= npus - ahead else -1
            while here != there:
                after = (here + step) % npus
                yield number, at + (here - at // stride % npus) * stride, step
                here = after
        at, stride = end, stride * npus


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw small graphs on which many paths cross, with some slower links."""
    figures = {"bandwidth": "25GB/s", "latency": LATENCY}
    slower = {"bandwidth": draw(st.sampled_from(["10GB/s", "20GB/s", "100GB/s"]))}
    shape: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"generator": "leaf-spine", "leaves": 3, "spines": 2, "npus-per-leaf": 3},
                {"generator": "fat-tree", "k": 4},
                {"generator": "mesh", "sizes": [3, 3]},
                {"generator": "torus", "sizes": [4, 3]},
            ]
        )
    )
    npus = 16 if "k" in shape else 12 if shape["generator"] == "torus" else 9
    if "sizes" in shape:
        ways: dict[str, Any] = {}
    else:
        ways = {"routing": "ecmp", "seed": draw(st.integers(0, 9))}
        ways["overrides"] = [{"device": "leaf1", **slower}, {"device": "npu3", "bandwidth": "15GB/s"}]
    return {"graph": {**shape, **figures}, "logical-dimensions": [npus], **ways}


def check_on_graph(data: st.DataObject, messages: int) -> None:
    described = data.draw(graphs())
    machine = read_network_alone(described)
    ways, graph = route_tables(machine), machine.fabric.graph  # type: ignore[union-attr]
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(machine.ranks)]
    for tag in range(data.draw(st.integers(messages // 2, messages))):
        ends = st.lists(st.integers(0, machine.ranks - 1), min_size=2, max_size=2, unique=True)
        (source, target), size = data.draw(ends), data.draw(st.sampled_from(SIZES))
        wait = builders[source].compute("wait", micros=data.draw(st.integers(0, 12)))
        builders[source].send(target, size, tag=tag, after=[wait])
        builders[target].receive(source, size, tag=tag)
    result = simulate(
        builders, described, system(profile="corrected"), model="flow", detail="messages", fold=False
    )
    table = result.table("messages").to_pydict()
    flows = [
        Flow(begin, size, tuple(path_between(ways, source, target)), pair=(source, target))
        for begin, size, source, target in zip(
            *(table[name] for name in ("sent_ns", "bytes", "actor", "peer")), strict=True
        )
    ]
    capacity: dict[Hashable, Fraction] = {
        link: Fraction(float(graph.bytes_per_ns[link])) for flow in flows for link in flow.links
    }
    arrived = table["arrived_ns"]
    expected = _arrivals(flows, capacity, once_per_ns=True)
    if any(abs(time - other) > ROUNDING_NS for time, other in zip(arrived, expected, strict=True)):
        # Fluids that set their rates at once end some nanoseconds apart from these: the model lies between.
        for time, *both in zip(arrived, expected, _arrivals(flows, capacity, once_per_ns=False), strict=True):
            assert min(both) - ROUNDING_NS <= time <= max(both) + ROUNDING_NS, flows


def _arrivals(flows: list[Flow], capacity: dict[Hashable, Fraction], *, once_per_ns: bool) -> list[int]:
    ends = end_times(flows, capacity, once_per_ns=once_per_ns)
    return [math.floor(end + LATENCY * len(flow.links)) for flow, end in zip(flows, ends, strict=True)]


@pytest.mark.deep
@given(st.data())
def test_on_graphs_rates_are_those_of_progressive_filling_once_per_nanosecond(data: st.DataObject) -> None:
    check_on_graph(data, 24)


@pytest.mark.deep
@given(st.data())
def test_on_graphs_with_more_messages_rates_are_those_of_progressive_filling(data: st.DataObject) -> None:
    check_on_graph(data, 40)
