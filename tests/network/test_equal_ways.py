"""Messages that take all equal paths at once: loads of links, times, and ranks that are alike."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from machines import of_all_ranks, system

from et_sim.api import run
from et_sim.basics.errors import InputError, MachineError, UsageError
from et_sim.machine import read_network_alone
from et_sim.machine.model import GraphFabric, Routing
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import path_between
from et_sim.network.spread import split, split_tables
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.views import open_run
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import tier_uses

SPEED: dict[str, Any] = {"bandwidth": "50GB/s", "latency": "500ns"}
RATE, LATENCY = 50.0, 500
LEAVES = {"generator": "leaf-spine", "leaves": 4, "spines": 3, "npus-per-leaf": 4, **SPEED}
TREE = {"generator": "fat-tree", "radix": 12, "oversubscription": 2, "npus": 32, **SPEED}
PODS = {"generator": "fat-tree", "k": 4, **SPEED}
RAILED = {"generator": "rail-optimised", "nodes": 4, "npus-per-node": 2, "nodes-per-leaf": 2, "spines": 2}
RAILED |= {"inside": {"bandwidth": "450GB/s", "latency": "300ns"}, **SPEED}
FLIES = {"generator": "dragonfly", "groups": 3, "routers-per-group": 2, "npus-per-router": 2, **SPEED}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def fabric_of(described: Any) -> GraphFabric:
    fabric = read_network_alone(described).fabric
    assert isinstance(fabric, GraphFabric)
    return fabric


@pytest.mark.parametrize(
    ("described", "routing"),
    [
        ({"graph": LEAVES}, Routing.SPREAD),
        ({"graph": TREE}, Routing.SPREAD),
        ({"graph": PODS}, Routing.SPREAD),
        ({"graph": RAILED}, Routing.SPREAD),
        ({"graph": FLIES}, Routing.SPREAD),
        ({"graph": {**RAILED, "spines": 0, "nodes-per-leaf": 4}}, Routing.SHORTEST),
        ({"graph": {"generator": "switch", "npus": 4, **SPEED}}, Routing.SHORTEST),
        ({"graph": {"generator": "torus", "sizes": [3, 3], **SPEED}}, Routing.DIMENSION_ORDER),
        ({"graph": LEAVES, "protocol": {"preset": "roce"}}, Routing.ECMP),
        ({"graph": LEAVES, "credits": {"flit": 256, "packet": 4096}}, Routing.DESTINATION),
        ({"graph": LEAVES, "routing": "shortest"}, Routing.SHORTEST),
    ],
)
def test_every_generator_names_the_ways_of_its_messages(described: Any, routing: Routing) -> None:
    fabric = fabric_of(described)
    assert fabric.routing is routing
    assert fabric.names_routing == ("routing" in described)


def test_a_network_within_another_spreads_if_one_of_them_does() -> None:
    switch = {"generator": "switch", "npus": 4, **SPEED}
    for attach, outer in (("npus", LEAVES), ("rails", {**LEAVES, "npus-per-leaf": 1})):
        nested = {"generator": "nested", "copies": 4, "attach": attach, "inner": switch, "outer": outer}
        assert fabric_of({"graph": nested}).routing is Routing.SPREAD
    assert fabric_of({"graph": {**nested, "outer": switch}}).routing is Routing.SHORTEST


def test_links_that_always_carry_the_same_are_one_trunk() -> None:
    routed = fabric_of({"graph": PODS}).routed.graph
    members: Any = routed.members
    assert len(routed) == 16 + 8 + 4 + 1  # NPUs, leaves, pods of aggregation switches, and all cores
    assert members.sum() == len(fabric_of({"graph": PODS}).graph.sources)
    between = routed.tiers[routed.sources] + routed.tiers[routed.targets]
    assert {(int(t), int(m)) for t, m in zip(between, members, strict=True)} == {(1, 1), (3, 2), (5, 4)}
    assert np.array_equal(routed.bytes_per_ns, members * RATE)


def test_a_failed_link_parts_the_spines_in_two() -> None:
    broken = {"graph": LEAVES, "overrides": [{"between": ["leaf0", "spine1"], "failed": True}]}
    routed = fabric_of(broken).routed.graph
    assert [name for name in routed.names if name.startswith("spine")] == ["spine0", "spine1"]
    assert sorted(set(routed.members.tolist())) == [1, 2]


def random_network(seed: int) -> dict[str, Any]:
    """Return switches that are linked at random, some links slower, and NPUs on one or two of them."""
    draw = Random(seed)
    shape = draw.choice(
        ("random", "random", "leaves", "pods", "rails", "dragonfly", "torus", "broken", "slow")
    )
    if shape != "random":
        named: dict[str, Any] = {
            "leaves": {"graph": LEAVES | {"spines": draw.randint(1, 4)}},
            "pods": {"graph": PODS},
            "rails": {"graph": RAILED},
            "dragonfly": {"graph": FLIES},
            "torus": {"graph": {"generator": "torus", "sizes": [3, 2, 2], **SPEED}},
            "broken": {"graph": LEAVES, "overrides": [{"between": ["leaf0", "spine1"], "failed": True}]},
            "slow": {"graph": LEAVES, "overrides": [{"between": ["leaf1", "spine0"], "bandwidth": "20GB/s"}]},
        }
        return {**named[shape], "routing": "spread"}
    switches = [f"s{at}" for at in range(draw.randint(3, 6))]
    links: list[dict[str, Any]] = []
    for at in range(draw.choice((4, 6))):
        near = draw.sample(switches, draw.choice((1, 1, 2)))
        links += [{"from": f"npu{at}", "to": switch, **SPEED} for switch in near]
    for at, one in enumerate(switches):
        for other in switches[at + 1 :]:
            if at == 0 or draw.random() < 0.5:
                figures = {"bandwidth": draw.choice(("25GB/s", "50GB/s")), "latency": draw.choice((100, 400))}
                links.append({"from": one, "to": other, **figures})
    npus = len({link["from"] for link in links if str(link["from"]).startswith("npu")})
    return {"npus": npus, "switches": switches, "links": links, "routing": "spread"}


def shares_by_links(fabric: GraphFabric, source: int, target: int) -> dict[int, Fraction]:
    """Return the bytes of one message on each link: devices divide them by the bandwidths of their links."""
    graph = fabric.graph
    wires: Any = nx.DiGraph()
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    goal, at = int(graph.npus[target]), int(graph.npus[source])
    for row, (here, there) in enumerate(ends):
        if fabric.npus_forward or here == at or graph.kinds[here] != 0:
            wires.add_edge(there, here)
            wires[there][here].setdefault("rows", []).append(row)
    away = nx.single_source_shortest_path_length(wires, goal)
    held, shares = {at: Fraction(1)}, {}
    for device in sorted(away, key=lambda device: -away[device]):
        if device not in held or device == goal:
            continue
        rows = [
            row
            for there in wires.predecessors(device)
            if away.get(there, 99) == away[device] - 1
            for row in wires[there][device]["rows"]
        ]
        whole = sum(Fraction(float(graph.bytes_per_ns[row])) for row in rows)
        for row in rows:
            share = held[device] * Fraction(float(graph.bytes_per_ns[row])) / whole
            shares[row] = share
            there = int(graph.targets[row])
            held[there] = held.get(there, Fraction(0)) + share
    assert held[goal] == 1
    return shares


@pytest.mark.parametrize("seed", range(16))
def test_every_link_gets_its_share_of_every_message(seed: int) -> None:
    """Compare with the whole graph, link by link and in fractions: the links of a trunk share its load."""
    network = read_network_alone(random_network(seed))
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    routes, ways = route_tables(network), split_tables(network)
    draw = Random(seed)
    for _ in range(12):
        source, target = draw.sample(range(network.ranks), 2)
        count = split(routes, ways, source, target)
        found: Any = np.zeros(len(fabric.routed.graph.sources))
        np.add.at(found, ways.link[:count], ways.share[:count])
        members = fabric.routed.graph.members
        each = found[fabric.trunks.of_link] / members[fabric.trunks.of_link]
        wanted = shares_by_links(fabric, source, target)
        expected = [float(wanted.get(row, 0)) for row in range(len(each))]
        assert np.allclose(each, expected, rtol=1e-12, atol=0)


def collective(kind: str, ranks: int, size: int) -> Workload:
    build = TraceBuilder()
    build.collective(kind, size)
    return Workload.of([build.build()] * ranks)


DIRECT = system(
    "direct", 1, **{"endpoint-delay": 0, "active-chunks-per-dimension": 1, "profile": "corrected"}
)


def makespan(described: Any, kind: str, ranks: int, size: int, model: str = "flow", **more: Any) -> int:
    result = run(
        collective(kind, ranks, size),
        network={"logical-dimensions": [ranks], **described},
        system=more.pop("system", DIRECT),
        model=model,
        **more,
    )
    return int(result.makespan_ns)


@pytest.mark.parametrize("ratio", [1, 2, 5])
def test_an_all_to_all_on_a_fat_tree_takes_the_time_of_its_uplinks(ratio: int) -> None:
    """Check a leaf of d NPUs, which sends d (n - d) messages over u links, and a port n - 1."""
    radix, share = 12, 1 << 18
    up = radix // (ratio + 1)
    down = radix - up
    ranks = 4 * down
    tree = {**TREE, "radix": radix, "oversubscription": ratio, "npus": ranks}
    carried = max(down * (ranks - down) / up, ranks - 1) * share
    taken = makespan({"graph": tree}, "all_to_all", ranks, ranks * share)
    assert -1 < taken - carried / RATE - 4 * LATENCY <= 2


def test_an_all_to_all_in_pods_takes_the_time_of_ports() -> None:
    """Run three tiers with as many links up as down: the port of an NPU is the narrowest."""
    share = 1 << 18
    taken = makespan({"graph": PODS}, "all_to_all", 16, 16 * share)
    assert -1 < taken - 15 * share / RATE - 6 * LATENCY <= 2


def test_a_lone_message_takes_as_long_on_every_model() -> None:
    """Send over several narrow links at once, up and down: four of 5 GB/s carry as much as two of 10."""
    leaves = {**LEAVES, "spines": 4, "uplinks": {"bandwidth": "5GB/s"}}
    first, second = TraceBuilder(), TraceBuilder()
    first.send(8, 10**6)
    second.receive(0, 10**6)
    idle = [TraceBuilder() for _ in range(16)]
    idle[0], idle[8] = first, second
    workload = Workload.of([builder.build() for builder in idle])
    for model, serial in (("analytical", 10**6 / 20), ("flow", 10**6 / 20)):
        result = run(workload, network={"graph": leaves}, system=system("ring", 2), model=model)
        assert result.finish_ns[8] == 4 * LATENCY + serial
    stored = run(workload, network={"graph": leaves}, system=system("ring", 2), model="link")
    assert stored.finish_ns[8] == 4 * LATENCY + 2 * 10**6 / 50 + 2 * 10**6 / 20


EVEN = [
    ("all_to_all", DIRECT),
    ("all_gather", system("ring", 1)),
    ("all_reduce", system("halvingDoubling", 1)),
]


@pytest.mark.parametrize("graph", [LEAVES, {**LEAVES, "spines": 2}, PODS, TREE, FLIES])
@pytest.mark.parametrize(("kind", "on"), EVEN)
def test_an_even_split_is_no_slower_than_a_table_or_a_hash(graph: Any, kind: str, on: Any) -> None:
    """Compare the mean of several seeds, because a single hash may be lucky."""
    ranks = fabric_of({"graph": graph}).ranks
    size = ranks << 16
    if "halvingDoubling" in str(on) and ranks & (ranks - 1):
        on = system("ring", 1)
    spread = makespan({"graph": graph}, kind, ranks, size, system=on)
    table = makespan({"graph": graph, "routing": "destination"}, kind, ranks, size, system=on)
    seeds = (
        makespan({"graph": graph, "routing": "ecmp", "seed": seed}, kind, ranks, size, system=on)
        for seed in range(4)
    )
    assert spread <= 1.01 * table
    assert spread <= 1.01 * sum(seeds) / 4


def random_workload(seed: int, ranks: int) -> tuple[Workload, Any]:
    draw = Random(seed)
    build = TraceBuilder()
    for _ in range(draw.choice((1, 2))):
        kind = draw.choice(("all_to_all", "all_reduce", "all_gather"))
        build.collective(kind, draw.choice((1 << 18, 3 << 16, 99_999)))
    algorithm = draw.choice(("ring", "direct", "halvingDoubling" if not ranks & (ranks - 1) else "ring"))
    on = system(algorithm, 1, **{"preferred-dataset-splits": draw.choice((1, 2)), "profile": "corrected"})
    on["all-to-all-implementation"] = ["direct"]
    return Workload.of([build.build()] * ranks), on


@pytest.mark.parametrize("seed", range(12))
def test_folded_runs_on_equal_ways_are_exact(seed: int) -> None:
    described = random_network(seed)
    ranks = read_network_alone(described).ranks
    if seed % 4 == 3:
        described["protocol"] = {"preset": "roce"}
    workload, on = random_workload(seed, ranks)
    net = {**described, "logical-dimensions": [ranks]}
    times = [
        run(workload, network=net, system=on, model="flow", fold=fold).finish_ns.tolist()
        for fold in (True, False)
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize(("graph", "actors"), [(PODS, 4), (LEAVES, 4), (RAILED, 2)])
def test_equal_ways_leave_ranks_alike(graph: Any, actors: int) -> None:
    """Check that a ring distinguishes the places behind a leaf, and no other ranks."""
    ranks = fabric_of({"graph": graph}).ranks
    net = {"graph": graph, "logical-dimensions": [ranks]}
    result = run(
        collective("all_reduce", ranks, 1 << 20), network=net, system=system("ring", 1), model="flow"
    )
    assert len(result.outcome.plan.actors) <= actors


@pytest.mark.parametrize("model", ["flow", "link"])
@pytest.mark.parametrize("fold", [True, False])
def test_links_are_counted_one_by_one_and_load_them_evenly(model: str, fold: bool, tmp_path: Path) -> None:
    """Check that each of a leaf's three links carries a third of its 4 * 12 messages."""
    share = 3 << 12
    net = {"graph": LEAVES, "logical-dimensions": [16]}
    result = run(
        collective("all_to_all", 16, 16 * share),
        network=net,
        system=DIRECT,
        model=model,
        fold=fold,
        detail="links",
    )
    write_run(result, tmp_path / "run")
    written = open_run(tmp_path / "run")
    table = link_table(written)
    assert table is not None
    uses = {use.tier: use for use in tier_uses(written, table, 4)}
    up = uses["leaf to spine"]
    assert (up.links, up.bytes) == (12, 4 * 48 * share)
    assert up.used == up.most_used
    bottleneck = written.summary["bottleneck"]
    assert bottleneck["tier_links"] == bottleneck["links_as_loaded"] == 12
    assert written.summary["routing"] == {"name": "spread", "is_default": True, "actors_by_hash": None}


@pytest.mark.parametrize(("graph", "tier"), [(LEAVES | {"spines": 4}, 1), (PODS, 1), (PODS, 2)])
def test_static_tables_part_targets_evenly_among_the_ways_up(graph: Any, tier: int) -> None:
    """Check that from any switch, each link upwards leads to equally many of the targets above."""
    network = read_network_alone({"graph": graph, "routing": "destination"})
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    wires, tables = fabric.graph, route_tables(network)
    taken: dict[int, set[int]] = {}
    for source in range(network.ranks):
        for target in range(network.ranks):
            for link in path_between(tables, source, target) if source != target else ():
                if wires.tiers[wires.sources[link]] == tier < wires.tiers[wires.targets[link]]:
                    taken.setdefault(link, set()).add(target)
    up = (wires.tiers[wires.sources] == tier) & (wires.tiers[wires.targets] > tier)
    assert len(taken) == up.sum()
    assert len({len(targets) for targets in taken.values()}) == 1


def test_packets_are_not_spread_unless_that_is_only_the_default() -> None:
    net = {"graph": LEAVES, "logical-dimensions": [16]}
    workload = Workload.of([builder.build() for builder in of_all_ranks(16, "all_reduce", 1 << 12)])
    on = system("ring", 1)
    with pytest.raises(UsageError, match="spread is not supported"):
        run(workload, network={**net, "routing": "spread"}, system=on, model="packet")
    default = run(workload, network=net, system=on, model="packet")
    hashed = run(workload, network={**net, "routing": "ecmp"}, system=on, model="packet")
    assert default.finish_ns.tolist() == hashed.finish_ns.tolist()
    assert default.manifest["routing"]["name"] == "ecmp"


def test_spread_routing_follows_explicit_routes() -> None:
    path = ["npu0", "leaf0", "spine1", "leaf1", "npu4"]
    network = read_network_alone({"graph": LEAVES, "routes": [{"path": path}]})
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    routes, ways = route_tables(network), split_tables(network)
    for target, spines in ((4, ["spine1"]), (5, ["spine0", "spine1"])):
        count = split(routes, ways, 0, target)
        names = {fabric.routed.graph.names[routes.target[link]] for link in ways.link[:count].tolist()}
        assert sorted(name for name in names if name.startswith("spine")) == spines


def test_an_unknown_routing_is_refused_with_the_known_ones() -> None:
    with pytest.raises((InputError, MachineError), match="spread, shortest, destination"):
        read_network_alone({"graph": LEAVES, "routing": "sprayed"})
