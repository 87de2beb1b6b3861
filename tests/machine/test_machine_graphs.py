"""Network files that describe graphs: generators, lists, overrides, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine, read_network_alone
from et_sim.machine.graph import NPU
from et_sim.machine.model import GraphFabric, Network

LINK = {"bandwidth": "400Gbps", "latency": "0.5us"}


def read(described: Any) -> tuple[Network, GraphFabric]:
    network = read_network_alone(described)
    assert isinstance(network.fabric, GraphFabric)
    return network, network.fabric


def generated(generator: str, **keys: Any) -> tuple[Network, GraphFabric]:
    keys = {name.replace("_", "-"): value for name, value in keys.items()}
    link = {} if generator == "nested" else LINK
    return read({"graph": {"generator": generator, **link, **keys}})


INSIDE = {"bandwidth": "450GB/s"}
RAILS = {"nodes": 4, "npus_per_node": 8, "inside": INSIDE}
SHARED = {**RAILS, "npus_per_nic": 4, "nic": {"bandwidth": "100GB/s"}}
DRAGONFLY = {"groups": 5, "routers_per_group": 4, "npus_per_router": 2}
# (generator, its keys, NPUs, other devices, directed links, logical dimensions, whether NPUs forward)
MADE = [
    ("ring", {"npus": 2}, 2, 0, 2, [2], True),
    ("ring", {"npus": 5}, 5, 0, 10, [5], True),
    ("mesh", {"sizes": [3, 4]}, 12, 0, 34, [3, 4], True),
    ("torus", {"sizes": [4, 2, 3]}, 24, 0, 24 * (2 + 1 + 2), [4, 2, 3], True),
    ("fully-connected", {"npus": 6}, 6, 0, 30, [6], True),
    ("hybrid-cube-mesh", {}, 8, 0, 32, [8], True),
    ("switch", {"npus": 7}, 7, 1, 14, [7], False),
    ("star", {"npus": 7}, 7, 1, 14, [7], False),
    ("leaf-spine", {"leaves": 3, "spines": 2, "npus_per_leaf": 4}, 12, 5, 24 + 12, [4, 3], False),
    ("fat-tree", {"k": 4}, 16, 20, 96, [2, 2, 4], False),
    ("fat-tree", {"radix": 8, "tiers": 3}, 128, 80, 768, [4, 4, 8], False),
    ("fat-tree", {"radix": 8, "oversubscription": "3:1"}, 48, 10, 96 + 32, [6, 8], False),
    ("rail-optimised", RAILS, 32, 12, 128, [8, 4], True),
    ("rail-optimised", {**RAILS, "nodes_per_leaf": 2, "spines": 2}, 32, 22, 128 + 64, [8, 4], False),
    ("rail-optimised", SHARED, 32, 4 + 8 + 2, 64 + 64 + 16, [8, 4], True),
    (
        "rail-optimised",
        {**SHARED, "inside": {**INSIDE, "generator": "behind-nics"}},
        *(32, 4 + 8 + 2, 64 + 16 + 16, [8, 4], False),
    ),
    (
        "rail-optimised",
        {**RAILS, "inside": {**INSIDE, "generator": "fully-connected"}},
        *(32, 8, 4 * 8 * 7 + 64, [8, 4], True),
    ),
    ("dragonfly", DRAGONFLY, 40, 20, 80 + 60 + 20, [2, 4, 5], False),
]


@pytest.mark.parametrize(("generator", "keys", "npus", "others", "links", "dimensions", "forward"), MADE)
def test_generators_make_the_requested_networks(
    generator: str,
    keys: dict[str, Any],
    npus: int,
    others: int,
    links: int,
    dimensions: list[int],
    forward: bool,
) -> None:
    network, fabric = generated(generator, **keys)
    graph = fabric.graph
    assert (network.ranks, len(graph) - npus, len(graph.sources)) == (npus, others, links)
    assert [dimension.npus for dimension in network.grid.dimensions] == dimensions
    assert fabric.npus_forward is forward
    own = np.isin(graph.sources, graph.npus) & (graph.bytes_per_ns < 400)
    assert set(graph.bytes_per_ns[own]) <= {50.0, 100.0}
    assert set(graph.latency_ns) <= {500.0, 0.0}


def test_every_npu_of_a_dgx_1_has_six_nvlinks() -> None:
    _, fabric = generated("hybrid-cube-mesh")
    leaving = np.bincount(fabric.graph.sources, weights=fabric.graph.bytes_per_ns)
    assert leaving.tolist() == [6 * 50.0] * 8


def test_all_groups_of_a_dragonfly_are_linked_once() -> None:
    _, fabric = generated("dragonfly", **DRAGONFLY)
    graph = fabric.graph
    routers = {name: number for number, name in enumerate(graph.names) if name.startswith("router")}
    group = {number: int(name[6:]) // 4 for name, number in routers.items()}
    pairs = [(group.get(a), group.get(b)) for a, b in zip(graph.sources, graph.targets, strict=True)]
    between = [pair for pair in pairs if None not in pair and pair[0] != pair[1]]
    assert sorted(between) == [(a, b) for a in range(5) for b in range(5) if a != b]


def test_networks_nest_and_a_ring_of_rings_is_a_torus() -> None:
    inner = {"generator": "ring", "npus": 4, **LINK}
    outer = {"generator": "ring", "npus": 3, **LINK}
    nested, made = generated("nested", copies=3, attach="rails", inner=inner, outer=outer)
    torus, wanted = generated("torus", sizes=[4, 3])
    assert made.grid == wanted.grid
    assert nested.grid.dimensions == torus.grid.dimensions

    def links(fabric: GraphFabric) -> set[tuple[int, int]]:
        return set(zip(fabric.graph.sources.tolist(), fabric.graph.targets.tolist(), strict=True))

    assert links(made) == links(wanted)


def test_a_network_around_others_connects_their_npus_rails_or_switches() -> None:
    inner = {"generator": "switch", "npus": 4, **LINK}

    def with_outer(attach: str, npus: int, **keys: Any) -> Any:
        outer = {"generator": "switch", "npus": npus, **LINK, **keys}
        network, fabric = generated("nested", copies=3, attach=attach, inner=inner, outer=outer)
        kinds = np.bincount(fabric.graph.kinds, minlength=3).tolist()
        return kinds, len(fabric.graph.sources), [dimension.npus for dimension in network.grid.dimensions]

    assert with_outer("npus", 12) == ([12, 0, 4], 48, [4, 3])
    assert with_outer("npus", 12, nic=LINK) == ([12, 12, 4], 72, [4, 3])
    assert with_outer("rails", 3) == ([12, 0, 7], 48, [4, 3])
    assert with_outer("gateways", 3) == ([12, 0, 4], 30, [4, 3])


LISTED: dict[str, Any] = {
    "npus": 4,
    "switches": ["s"],
    "links": [
        {"from": [f"npu{n}" for n in range(4)], "to": "s", "bandwidth": "50 GB/s", "latency": 700, "count": 2}
    ],
}


def test_lists_make_a_network_with_decimal_units() -> None:
    network, fabric = read(LISTED)
    assert fabric.graph.names == ("npu0", "npu1", "npu2", "npu3", "s")
    assert set(fabric.graph.bytes_per_ns) == {100.0}
    assert set(fabric.graph.latency_ns) == {700.0}
    assert len(fabric.graph.sources) == 8
    assert network.ranks == 4


def test_overrides_change_links_by_name_ends_or_device_and_failed_ones_are_gone() -> None:
    entries = [
        {"link": "npu0->s", "bandwidth": "10GB/s"},
        {"between": ["npu1", "s"], "latency": "2us"},
        {"from": "s", "to": "npu[23]", "bandwidth": "5GB/s"},
        {"device": "npu2", "latency": 9},
    ]
    _, fabric = read(LISTED | {"overrides": entries})
    graph = fabric.graph
    figures = dict(zip(graph.link_names, zip(graph.bytes_per_ns, graph.latency_ns, strict=True), strict=True))
    assert figures["npu0->s"] == (10, 700)
    assert figures["s->npu0"] == (100, 700)
    assert figures["npu1->s"] == figures["s->npu1"] == (100, 2000)
    assert figures["s->npu2"] == (5, 9)
    assert figures["s->npu3"] == (5, 700)
    _, fabric = read(
        {
            "graph": {"generator": "ring", "npus": 5, **LINK},
            "overrides": [{"between": ["npu0", "npu4"], "failed": True}],
        }
    )
    assert len(fabric.graph.sources) == 8
    assert fabric.grid == ()  # its ways no longer follow from coordinates


def test_ranks_are_placed_by_name_and_pattern() -> None:
    _, fabric = read(LISTED | {"ranks": ["npu3", "npu[0-2]"]})
    assert fabric.graph.npus.tolist() == [3, 0, 1, 2]


REFUSED = [
    ({"links": [{"from": "npu0", "to": "x", "bandwidth": "1GB/s"}]}, 'no device has the name "x"'),
    ({"switches": ["s", "s"]}, 'two devices are named "s"'),
    ({"links": LISTED["links"] * 2}, "is already there"),
    ({"npus": 5}, "no path leads from rank 0 (npu0) to rank 4 (npu4)"),
    ({"links": [{"from": "npu*", "to": "s", "bandwidth": "0GB/s"}]}, "must be more than zero"),
    ({"links": [{"from": "npu*", "to": "s", "bandwidth": "-1GB/s"}]}, "cannot be understood"),
    ({"links": [{"from": "npu*", "to": "s", "bandwidth": 50}]}, "has no unit"),
    ({"links": [{"from": "npu*", "to": "s", "bandwith": "1GB/s"}]}, "is not known"),
    ({"logical-dimensions": [3, 2]}, "3 x 2 = 6 do not make 4 NPUs"),
    ({"ranks": ["npu0", "npu1"]}, '"ranks" lists 2 devices, and the graph has 4 NPUs'),
    ({"ranks": ["npu0", "npu0", "npu1", "npu2"]}, "npu0 is not an NPU, or is listed twice"),
    ({"overrides": [{"link": "nothing", "failed": True}]}, "the entry matches no link"),
    ({"overrides": [{"device": "npu0", "failed": True}]}, "no path leads from rank 0 (npu0) to rank 1"),
    ({"overrides": [{"device": "npu0"}]}, "has no effect"),
    ({"routes": [{"path": ["npu0", "npu1"]}]}, "no link leads from npu0 to npu1"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_a_fault_is_reported_in_a_sentence_with_its_line(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps(LISTED | change, indent=1), encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        read_network_alone(path)
    assert text in str(caught.value)
    assert f"{path}: line " in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("generator", "keys", "text"),
    [
        ("fat-tree", {"k": 5}, "even"),
        ("fat-tree", {"radix": 8, "oversubscription": 2}, "cannot be split 2:1"),
        ("fat-tree", {"radix": 8, "npus": 10}, "do not divide"),
        ("fat-tree", {"radix": 8, "npus": 36}, "two tiers reach 32 NPUs"),
        ("rail-optimised", {**RAILS, "nodes_per_leaf": 3}, "cannot be divided among rail switches"),
        ("rail-optimised", {**RAILS, "nodes_per_leaf": 2}, "no spines above them"),
        ("rail-optimised", {**RAILS, "npus_per_nic": 2}, "the network has no NICs"),
        ("rail-optimised", {**SHARED, "npus_per_nic": 3}, "cannot be divided among NICs of 3"),
        (
            "rail-optimised",
            {**RAILS, "inside": {**INSIDE, "generator": "ring"}},
            "allowed: switch, fully-conn",
        ),
        ("rng", {"npus": 3}, "did you mean 'ring'"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(generator: str, keys: dict[str, Any], text: str) -> None:
    with pytest.raises(MachineError, match=text):
        generated(generator, **keys)


NS3 = "5 2 4\n3 4\n0 3 100Gbps 0.001ms 0\n1 3 100Gbps 1us 0\n2 4 100Gbps 0.001ms 0\n3 4 400Gbps 0.002ms 0\n"


def test_a_topology_of_ns3_is_read_and_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "topology.txt").write_text(NS3, encoding="utf-8")
    _, fabric = read(tmp_path / "topology.txt")
    graph = fabric.graph
    assert graph.names == ("0", "1", "2", "3", "4")
    assert graph.npus.tolist() == [0, 1, 2]
    assert sorted(set(graph.bytes_per_ns)) == [12.5, 50.0]
    assert sorted(set(graph.latency_ns)) == [1000.0, 2000.0]
    file = tmp_path / "network.yml"
    file.write_text("graph: { import: topology.txt }\nrouting: ecmp-ns3\n", encoding="utf-8")
    machine = read_machine(system={}, network=file)
    assert [Path(path).name for path, _ in machine.inputs][:2] == ["network.yml", "topology.txt"]
    (tmp_path / "wrong.txt").write_text(NS3.replace("2 4 100", "2 7 100"), encoding="utf-8")
    with pytest.raises(MachineError, match=r'wrong.txt: line 5: no device has the name "7"'):
        read(tmp_path / "wrong.txt")


def test_a_topology_of_htsim_is_read(tmp_path: Path) -> None:
    tier = "Downlink_speed_Gbps 200\nRadix_Down {}\n{}Downlink_Latency_ns {}\nSwitch_Latency_ns 100\n{}"
    tiers = [tier.format(2, "Radix_Up 4\n", 1000, ""), tier.format(4, "Radix_Up 4\n", 2000, "Bundle 2\n")]
    tiers.append(tier.format(4, "", 3000, ""))
    text = "# a tree\nNodes 32\nTiers 3\nPodsize 8\n"
    text += "".join(f"Tier {number}\n{tier}" for number, tier in enumerate(tiers))
    (tmp_path / "tree.topo").write_text(text, encoding="utf-8")
    network, fabric = read(tmp_path / "tree.topo")
    graph = fabric.graph
    assert [dimension.npus for dimension in network.grid.dimensions] == [2, 4, 4]
    switches = [sum(name.startswith(kind) for name in graph.names) for kind in ("leaf", "agg", "core")]
    assert switches == [16, 8, 8]
    figures = {
        name: (graph.bytes_per_ns[row], graph.latency_ns[row]) for row, name in enumerate(graph.link_names)
    }
    assert figures["npu0->leaf0"] == (25, 1100)
    assert figures["leaf0->npu0"] == (25, 1000)
    assert figures["leaf0->agg1"] == figures["leaf0->agg1#2"] == (25, 2100)  # a bundle of two
    assert figures["agg0->core3"] == (25, 3100)


def test_graphs_of_networkx_graphml_and_node_link_are_the_same(tmp_path: Path) -> None:
    made = nx.Graph()
    made.add_node("hub", kind="switch")
    for number in range(3):
        made.add_node(f"gpu{number}", kind="gpu")
        made.add_edge(f"gpu{number}", "hub", bandwidth="100Gbps", latency="1us")
    nx.write_graphml(made, tmp_path / "net.graphml")
    nodes = [{"id": name, **known} for name, known in made.nodes(data=True)]
    links = [{"source": source, "target": other, **known} for source, other, known in made.edges(data=True)]
    (tmp_path / "net.json").write_text(json.dumps({"nodes": nodes, "links": links}), encoding="utf-8")
    for given in (made, tmp_path / "net.graphml", tmp_path / "net.json"):
        _, fabric = read(given)
        assert fabric.graph.names == ("hub", "gpu0", "gpu1", "gpu2")
        assert sorted(fabric.graph.link_names) == sorted(
            [f"gpu{n}->hub" for n in range(3)] + [f"hub->gpu{n}" for n in range(3)]
        )
    made.nodes["hub"].clear()
    with pytest.raises(MachineError, match="node 'hub' has no kind"):
        read(made)


def test_listed_devices_have_tiers_by_their_distance_from_npus() -> None:
    links = [
        {"from": "npu*", "to": "s", "bandwidth": "1GB/s"},
        {"from": "s", "to": "top", "bandwidth": "1GB/s"},
    ]
    _, fabric = read({"npus": 2, "switches": ["top", "s"], "links": links})
    tier = dict(zip(fabric.graph.names, fabric.graph.tiers.tolist(), strict=True))
    assert tier == {"npu0": 0, "npu1": 0, "s": 1, "top": 2}
    assert (fabric.graph.kinds == NPU).sum() == 2
