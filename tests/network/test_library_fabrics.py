"""A collective library costs the same on every fabric: fewer or slower links make no collective faster."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

import et_sim
from et_sim.machine.networks import Network, RankCards
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.plan.library_rows import LibraryRows
from et_sim.workloads.microbenchmarks import make_microbenchmark

MIB = 1 << 20
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier")
SIZES = (1000, MIB, 64 * MIB)
NAMES = ("a100-dgx-80gb", "h100-dgx", "b200-dgx", "mi300x-node")
INSIDE = {"Switch": "switch", "FullyConnected": "fully-connected"}
SLACK = 0.99


def graph_of(name: str, fabric: str, *, spines: int = 4, slower: float = 1.0) -> dict[str, Any]:
    """Return the preset's nodes of eight and its cards, with other switches between them."""
    network = preset(f"{name}:64").network
    shape, figures = network["topology"][0], zip(network["bandwidth"], network["latency"], strict=True)
    within, card = ({"bandwidth": rate, "latency": latency} for rate, latency in figures)
    inside = {"generator": INSIDE[shape], **within}
    up = {"uplinks": {"bandwidth": f"{50 / slower}GB/s"}} if slower > 1 else {}
    if fabric == "rails":
        pods: dict[str, Any] = {"nodes-per-leaf": 2, "spines": spines} if spines else {}
        return {
            "generator": "rail-optimised",
            "nodes": 8,
            "npus-per-node": 8,
            "inside": inside,
            **pods,
            **card,
            **up,
        }
    outer = {"generator": "leaf-spine", "leaves": 8, "npus-per-leaf": 8, "spines": spines, **card, **up}
    if fabric == "fat tree":
        outer = {"generator": "fat-tree", "radix": 16, "tiers": 2, "npus": 64, **card}
    return {"generator": "nested", "copies": 8, "inner": {**inside, "npus": 8}, "outer": outer}


def took_ns(name: str, network: dict[str, Any], kind: str, size: int) -> int:
    workload = make_microbenchmark(kind, ranks=64, size=0 if kind == "barrier" else size)
    return et_sim.simulate(
        workload, system=preset(f"{name}:64").system, network=network, model="flow"
    ).makespan_ns


def network_of(name: str, graph: dict[str, Any], **more: Any) -> Network:
    machine = read_machine(system=preset(f"{name}:64").system, network={"graph": graph, **more})
    assert machine.system.library is not None
    return machine.network


@pytest.mark.parametrize("fabric", ["rails", "leaves", "fat tree"])
@pytest.mark.parametrize("name", NAMES)
def test_the_library_sees_the_same_nodes_and_cards_on_every_fabric(name: str, fabric: str) -> None:
    known = preset(f"{name}:64")
    plain = read_machine(system=known.system, network=known.network)
    machine = read_machine(system=known.system, network={"graph": graph_of(name, fabric)})
    ours, theirs = machine.system.library, plain.system.library
    assert ours is not None
    assert theirs is not None
    assert replace(ours, wires=theirs.wires) == theirs
    assert structs.astuple(ours.wires) == pytest.approx(structs.astuple(theirs.wires), rel=1e-12)
    first = plain.network.wiring[0]
    for node in (machine.network.node, plain.network.node):
        assert node is not None
        assert node.bandwidth == pytest.approx(first.bandwidth, rel=1e-12)
        assert structs.replace(node, bandwidth=first.bandwidth) == first


@pytest.mark.deep
@given(
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(KINDS),
    size=st.sampled_from(SIZES),
    fabrics=st.sampled_from(
        [
            (("rails", 0, 1), ("rails", 4, 1)),
            (("rails", 0, 1), ("leaves", 8, 1)),
            (("rails", 8, 1), ("rails", 2, 1)),
            (("rails", 4, 1), ("rails", 4, 2)),
            (("leaves", 8, 1), ("leaves", 2, 1)),
            (("leaves", 8, 1), ("leaves", 8, 4)),
        ]
    ),
)
def test_fewer_or_slower_links_make_no_collective_faster(
    name: str, kind: str, size: int, fabrics: tuple[tuple[str, int, float], ...]
) -> None:
    times = [took_ns(name, preset(f"{name}:64").network, kind, size)]
    for fabric, spines, slower in fabrics:
        graph = graph_of(name, fabric, spines=spines, slower=slower)
        times.append(took_ns(name, {"graph": graph}, kind, size))
    for more, fewer in pairwise(times):
        assert fewer >= SLACK * more


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_hashed_ways_over_fewer_spines_are_not_faster_in_the_mean(kind: str) -> None:
    means = [
        mean(
            took_ns(
                "h100-dgx", {"graph": graph_of("h100-dgx", "leaves", spines=spines), **ways}, kind, 16 * MIB
            )
            for ways in ({"routing": "ecmp", "seed": seed} for seed in range(8))
        )
        for spines in (8, 4, 2)
    ]
    full = took_ns("h100-dgx", preset("h100-dgx:64").network, kind, 16 * MIB)
    assert full * SLACK <= means[0]
    assert means[0] * SLACK <= means[1]
    assert means[1] * SLACK <= means[2]


def test_a_link_that_failed_leaves_the_library_on() -> None:
    graph = graph_of("h100-dgx", "rails")
    network = network_of("h100-dgx", graph, overrides=[{"link": "rail3-leaf1->spine2", "failed": True}])
    assert network.cards == network_of("h100-dgx", graph).cards


def test_a_rank_without_links_to_others_of_its_node_is_a_node() -> None:
    flat = {
        "generator": "leaf-spine",
        "leaves": 8,
        "spines": 2,
        "npus-per-leaf": 8,
        "bandwidth": "50GB/s",
        "latency": "1us",
    }
    network = network_of("h100-dgx", flat)
    assert network.node is None
    assert network.outside == network.wiring[0]


def test_ways_that_npus_forward_have_no_cards() -> None:
    torus = {"generator": "torus", "sizes": [8, 8], "bandwidth": "50GB/s", "latency": "1us"}
    machine = read_machine(system=preset("h100-dgx:64").system, network={"graph": torus})
    assert machine.system.library is None
    assert any("not used" in warning.text for warning in machine.warnings)


def test_npus_behind_one_link_share_the_card() -> None:
    known = preset("l40s-node:16")
    cards = read_machine(system=known.system, network=known.network).network.cards
    assert isinstance(cards, RankCards)
    assert (cards.sharers, cards.is_only_port, cards.has_node) == (2, True, True)


def test_a_group_with_unequal_parts_of_nodes_is_on_all_of_them() -> None:
    for ranks, nodes in (((0, 1, 2, 3, 4, 8, 9, 10), 2), ((0, 1, 2), 1), ((7, 8, 16), 3)):
        builders = [et_sim.TraceBuilder() for _ in range(24)]
        for rank in ranks:
            builders[rank].collective("all_reduce", MIB, group="some")
        workload = et_sim.Workload.of([build.build() for build in builders])
        result = et_sim.simulate(workload, machine="h100-dgx:24", groups={"some": [*ranks]})
        assert max(result.outcome.plan.library_nodes) == nodes


def test_rows_of_other_collectives_have_no_choice_nodes_or_processors_of_the_library() -> None:
    rows = LibraryRows()
    assert rows.choices(2) == ()
    choice = SimpleNamespace(text="ring, Simple", larger=None)
    made = cast(Any, SimpleNamespace(choice=choice, nodes=2, held=16))
    rows.add(1, cast(Any, SimpleNamespace(made=made)))
    assert rows.choices(3) == ("", "ring, Simple", "")
    assert rows.nodes(3) == (0, 2, 0)
    assert rows.held(3).tolist() == [0, 16, 0]
    assert rows.notices == []
