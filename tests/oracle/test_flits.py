"""Routers with credits agree with a fabric that examines every channel in every cycle."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flits import Fabric, Message, Rules, Wire
from hypothesis import given
from hypothesis import strategies as st
from machines import sends, simulate, system

from et_sim.machine import read_network_alone
from et_sim.network.graph import tables as graph_tables
from et_sim.network.packet.credit.classes import _upwards, order_of_links
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import path_between
from et_sim.trace import TraceBuilder

SHAPES: list[tuple[int, dict[str, Any]]] = [
    (5, {"generator": "ring", "npus": 5}),
    (9, {"generator": "torus", "sizes": [3, 3]}),
    (6, {"generator": "mesh", "sizes": [2, 3]}),
    (4, {"generator": "star", "npus": 4}),
    (6, {"generator": "leaf-spine", "leaves": 3, "spines": 2, "npus-per-leaf": 2}),
]


@st.composite
def machines(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    ranks, shape = draw(st.sampled_from(SHAPES))
    flit = draw(st.sampled_from([16, 64, 100]))
    credits: dict[str, Any] = {
        "flit": flit,
        "packet": draw(st.sampled_from([flit, 3 * flit + 5, 500])),
        "router-cycles": draw(st.integers(1, 3)),
        "cycle": draw(st.sampled_from([1, 2, 0.5])),
        "turns": draw(st.sampled_from(["packet", "flit"])),
        "padding": draw(st.booleans()),
        "channels": draw(st.integers(1, 3)),
        "buffer": draw(st.integers(1, 4)),
    }
    figures = {"bandwidth": draw(st.sampled_from(["16GB/s", "50GB/s"])), "latency": draw(st.integers(0, 7))}
    slower = {"device": "npu1", "bandwidth": "9GB/s", "latency": "3ns"}
    return ranks, {
        "graph": {**shape, **figures},
        "overrides": [slower],
        "credits": credits,
        "logical-dimensions": [ranks],
    }


@st.composite
def traffic(draw: st.DrawFn, ranks: int, most: int) -> list[TraceBuilder]:
    builders = [TraceBuilder() for _ in range(ranks)]
    ends = st.lists(st.integers(0, ranks - 1), min_size=2, max_size=2, unique=True)
    for tag in range(draw(st.integers(1, most))):
        source, target = draw(ends)
        size = draw(st.sampled_from([0, 1, 300, 1000, 2777]))
        before = builders[source].compute("wait", nanos=draw(st.sampled_from([1, 20, 150])))
        builders[source].send(target, size, tag=tag, after=[before])
        builders[target].receive(source, size, tag=tag)
    return builders


def check_against_oracle(ranks: int, machine: dict[str, Any], builders: list[TraceBuilder]) -> None:
    model = "packet"
    result = simulate(builders, machine, system(), model=model, detail="messages,links")
    given, network = machine["credits"], read_network_alone(machine)
    cycle_ps = round(given["cycle"] * 1000)
    fabric = graph_tables(network)
    order, classes = order_of_links(fabric, ranks)
    routes = route_tables(network)
    figures = fabric.speeds[fabric.speed_of]
    wires = [
        Wire(
            int(routes.source[row]),
            int(routes.target[row]),
            max(math.ceil(given["flit"] / (figures["bytes_per_ns"][row] * cycle_ps / 1000) - 1e-9), 1),
            math.ceil(figures["latency_ns"][row] * 1000 / cycle_ps - 1e-9),
            int(order[row]),
        )
        for row in range(len(order))
    ]
    rules = Rules(
        given["flit"],
        given["packet"],
        given["channels"],
        given["buffer"],
        given["router-cycles"],
        given["padding"],
        given["turns"] == "flit",
    )
    table = result.table("messages").to_pydict()
    messages = [
        Message(-(-sent * 1000 // cycle_ps), tuple(path_between(routes, source, target)), size)
        for sent, source, target, size in zip(
            *(table[name] for name in ("sent_ns", "actor", "peer", "bytes")), strict=True
        )
    ]
    oracle = Fabric(wires, rules, classes, messages)
    assert table["arrived_ns"] == [-(-end * cycle_ps // 1000) for end in oracle.run()]
    carried: Counter[str] = Counter()
    links = result.table("links").to_pydict()
    for name, size in zip(links["link"], links["bytes"], strict=True):
        carried[name] += size
    names = result.table("resources").to_pydict()["link"]
    assert [carried[name] for name in names] == [many * given["flit"] for many in oracle.carried]


@given(st.data())
def test_flits_go_on_in_the_cycles_of_the_oracle(data: st.DataObject) -> None:
    ranks, machine = data.draw(machines())
    check_against_oracle(ranks, machine, data.draw(traffic(ranks, 24)))


@pytest.mark.parametrize("turns", ["packet", "flit"])
def test_ports_that_request_at_the_same_time_have_their_turns_in_order(turns: str) -> None:
    credits = {"flit": 64, "packet": 320, "router-cycles": 1, "cycle": 1, "padding": False}
    star = {"generator": "star", "npus": 4, "bandwidth": "50GB/s", "latency": 1}
    builders = sends(4, [(source, 0, 640) for source in (1, 2, 3)])
    rules = {**credits, "turns": turns, "channels": 2, "buffer": 4}
    check_against_oracle(4, {"graph": star, "credits": rules, "logical-dimensions": [4]}, builders)


@given(st.data())
def test_class_and_number_of_links_grow_along_every_way(data: st.DataObject) -> None:
    ranks, machine = data.draw(machines())
    network = read_network_alone(machine)
    order, classes = order_of_links(graph_tables(network), ranks)
    assert sorted(order) == list(range(len(order)))
    routes, most = route_tables(network), 0
    for source, target in np.ndindex(ranks, ranks):
        way = path_between(routes, source, target) if source != target else []
        falls = sum(order[after] < order[before] for before, after in pairwise(way))
        most = max(most, falls + 1)
    assert classes == most


def test_a_torus_needs_a_dateline_for_each_dimension_and_a_tree_none() -> None:
    for shape, expected in (
        ({"generator": "torus", "sizes": [4, 4, 4]}, 4),
        ({"generator": "mesh", "sizes": [4, 4]}, 1),
        ({"generator": "fat-tree", "k": 4}, 1),
        ({"generator": "ring", "npus": 6}, 2),
    ):
        network = read_network_alone({"graph": {**shape, "bandwidth": "50GB/s", "latency": 100}})
        assert order_of_links(graph_tables(network), network.ranks)[1] == expected, shape


def check_torus(seed: int) -> None:
    """Send many messages at once over one channel of one flit in each class: all arrive on shortest paths."""
    chance = random.Random(seed)
    sizes = [chance.randint(2, 4) for _ in range(chance.randint(1, 3))]
    ranks = math.prod(sizes)
    builders, links = [TraceBuilder() for _ in range(ranks)], 0
    for tag in range(4 * ranks):
        source, target = chance.randrange(ranks), chance.randrange(ranks)
        if source == target:
            continue
        flits = chance.randint(1, 6)
        builders[source].send(target, 64 * flits, tag=tag)
        builders[target].receive(source, 64 * flits, tag=tag)
        here, there = source, target
        for size in sizes:
            ahead = (there % size - here % size) % size
            links += flits * min(ahead, size - ahead)
            here, there = here // size, there // size
    machine = {
        "graph": {
            "generator": "torus",
            "sizes": sizes,
            "bandwidth": "64GB/s",
            "latency": chance.randint(0, 3),
        },
        "credits": {"flit": 64, "packet": chance.choice([64, 128, 384]), "channels": 1, "buffer": 1},
    }
    result = simulate(builders, machine, system(dimensions=len(sizes)), model="packet", detail="links")
    assert result.outcome.is_complete, seed
    assert sum(result.table("links").to_pydict()["bytes"]) == 64 * links, seed


def test_no_torus_stands_still() -> None:
    for seed in range(5):
        check_torus(seed)


@pytest.mark.seeds(deep=30, exhaustive=10000, at_a_time=30)
def test_no_torus_stands_still_in_many_cases(seeds: range) -> None:
    for seed in seeds:
        check_torus(seed)


def test_links_are_numbered_in_the_reverse_order_in_which_a_search_leaves_them() -> None:
    follows = np.array(
        [[2, 0], [1, 3], [0, 0], [3, 1]]
    )  # plus 1: after link 1 comes link 0, which is known, or 2
    assert _upwards(follows).tolist() == [1, 2, 3, 0]
