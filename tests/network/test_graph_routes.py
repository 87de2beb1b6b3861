"""Routes through graphs: shortest, spread by the routing, the same as on dimensions, and small in memory."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from counting import counted_calls
from machines import network, sends, simulate, system
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.machine import read_network_alone
from et_sim.machine.graph import NPU, Graph
from et_sim.machine.model import GraphFabric, Network
from et_sim.network import description, grid
from et_sim.network.description import bisection, describe
from et_sim.network.fabric import NONE, next_leg
from et_sim.network.graph_of_grid import as_graph
from et_sim.network.registry import model_on
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import FIRST_PORTS, distances_of, murmur3, names_on, ns3_address, path_between
from et_sim.trace import TraceBuilder

LINK = {"bandwidth": "400Gbps", "latency": "0.5us"}


def graph_of(machine: Network) -> Graph:
    assert isinstance(machine.fabric, GraphFabric)
    return machine.fabric.graph


def described(generator: str, routing: str = "shortest", **keys: Any) -> Network:
    return read_network_alone({"graph": {"generator": generator, **LINK, **keys}, "routing": routing})


def ways(machine: Network) -> dict[tuple[int, int], list[str]]:
    tables, graph = route_tables(machine), graph_of(machine)
    ranks = range(machine.ranks)
    return {(a, b): names_on(graph, path_between(tables, a, b)) for a in ranks for b in ranks if a != b}


def random_network(seed: int) -> Network:
    chance = random.Random(seed)
    npus, switches = chance.randint(2, 7), chance.randint(0, 6)
    names = [f"npu{n}" for n in range(npus)] + [f"switch{n}" for n in range(switches)]
    shuffled = chance.sample(names, len(names))
    pairs = {(chance.choice(shuffled[:at]), shuffled[at]) for at in range(1, len(names))}
    pairs |= {tuple(chance.sample(names, 2)) for _ in range(chance.randint(0, 8))}  # type: ignore[misc]
    once = {(min(pair), max(pair)) for pair in pairs}
    links = [{"from": source, "to": other, **LINK} for source, other in sorted(once)]
    routing = chance.choice(["shortest", "ecmp", "ecmp-ns3"])
    given = {"npus": npus, "switches": switches, "links": links, "routing": routing, "forwarding": "all"}
    return read_network_alone(given)


@pytest.mark.parametrize("seed", range(40))
def test_ways_are_shortest_and_follow_links(seed: int) -> None:
    machine = random_network(seed)
    graph = graph_of(machine)
    links: Any = nx.DiGraph(list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)))
    tables = route_tables(machine)
    for source in range(machine.ranks):
        hops = np.zeros(machine.ranks, np.int64)
        distances_of(tables, np.full(machine.ranks, source), np.arange(machine.ranks), hops)
        for target in range(machine.ranks):
            if source == target:
                continue
            path = path_between(tables, source, target)
            ends = [graph.npus[source], *(graph.targets[link] for link in path)]
            assert [graph.sources[link] for link in path] == ends[:-1]
            assert ends[-1] == graph.npus[target]
            assert len(path) == nx.shortest_path_length(links, ends[0], ends[-1]) == hops[target]


def test_npus_forward_only_where_switches_do_not_suffice() -> None:
    rails = {"nodes": 3, "npus-per-node": 2, "inside": {"bandwidth": "450GB/s"}}
    for keys, through_npus in ((rails, True), ({**rails, "spines": 1}, False)):
        machine = described("rail-optimised", **keys)
        kinds = dict(zip(graph_of(machine).names, graph_of(machine).kinds, strict=True))
        inner = {kinds[name] for way in ways(machine).values() for name in way[1:-1]}
        assert (NPU in inner) is through_npus


def test_the_lowest_number_wins_a_tie_and_rings_go_clockwise() -> None:
    assert ways(described("ring", npus=4))[0, 2] == ["npu0", "npu1", "npu2"]
    machine = described("leaf-spine", leaves=2, spines=3, **{"npus-per-leaf": 2})
    assert {way[2] for (a, b), way in ways(machine).items() if a // 2 != b // 2} == {"spine0"}


def test_dimension_order_corrects_one_coordinate_after_the_other() -> None:
    machine = described("mesh", "dimension-order", sizes=[3, 3])
    assert ways(machine)[0, 8] == ["npu0", "npu1", "npu2", "npu5", "npu8"]
    assert ways(machine)[8, 0] == ["npu8", "npu7", "npu6", "npu3", "npu0"]
    torus = described("torus", "dimension-order", sizes=[4, 3, 2])
    assert ways(torus)[0, 23] == ["npu0", "npu3", "npu11", "npu23"]


def test_a_torus_with_a_failed_link_goes_round_it() -> None:
    given = {"graph": {"generator": "ring", "npus": 6, **LINK}}
    broken = given | {"overrides": [{"between": ["npu1", "npu2"], "failed": True}]}
    assert ways(read_network_alone(broken))[0, 2] == ["npu0", "npu5", "npu4", "npu3", "npu2"]


@pytest.mark.deep
def test_ecmp_spreads_pairs_over_all_spines_and_a_seed_draws_again() -> None:
    shape = {"leaves": 4, "spines": 4, "npus-per-leaf": 8}
    given = {"graph": {"generator": "leaf-spine", **LINK, **shape}, "routing": "ecmp"}
    first, again, other = (ways(read_network_alone(given | {"seed": seed})) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    used = [way[2] for (a, b), way in first.items() if a // 8 != b // 8]
    counts = [used.count(f"spine{number}") for number in range(4)]
    assert min(counts) > 0.8 * len(used) / 4


def plain_murmur3(data: bytes, seed: int) -> int:
    """Return MurmurHash3_x86_32 of whole words, written from its description."""
    mask, state = 0xFFFFFFFF, seed

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & mask

    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "little")
        state ^= turned(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        state = (turned(state, 13) * 5 + 0xE6546B64) & mask
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor & mask
    return state ^ state >> 16


def test_the_hash_is_that_of_the_switches_of_ns3() -> None:
    assert plain_murmur3(b"test", 0) == 0xBA6BD213  # published values of MurmurHash3
    assert plain_murmur3(b"test", 0x9747B28C) == 0x704B81DC
    chance = random.Random(1)
    for _ in range(200):
        words = [chance.getrandbits(32) for _ in range(3)]
        seed = chance.randrange(1000)
        data = b"".join(word.to_bytes(4, "little") for word in words)
        assert murmur3(*words, seed) == plain_murmur3(data, seed)


def test_addresses_of_hosts_are_those_of_ns3() -> None:
    dotted = {0: "11.0.0.1", 255: "11.0.255.1", 256: "11.1.0.1", 600: "11.2.88.1", 65_535: "11.255.255.1"}
    assert {host: ".".join(map(str, ns3_address(host).to_bytes(4, "big"))) for host in dotted} == dotted


def switched(seed: int, most_links: int) -> tuple[Network, nx.Graph]:
    """Return hosts on random switches, read as by ns-3."""
    from et_sim.machine.other_topologies import import_text

    chance = random.Random(seed)
    hosts, switches = chance.randint(3, 6), chance.randint(4, 9)
    result = nx.gnm_random_graph(switches, chance.randint(switches, 3 * switches), seed=seed)
    result.add_edges_from((at, at + 1) for at in range(switches - 1))
    numbers = chance.sample(range(hosts + switches), switches)  # of the switches
    result = nx.relabel_nodes(result, dict(enumerate(numbers)))
    for host in sorted(set(range(hosts + switches)) - set(numbers)):
        result.add_edges_from((host, leaf) for leaf in chance.sample(numbers, chance.randint(1, most_links)))
    lines = [f"{hosts + switches} {switches} {result.number_of_edges()}", " ".join(map(str, numbers))]
    lines += [f"{source} {other} 100Gbps 1us 0" for source, other in result.edges]
    content = import_text("\n".join(lines), "<text>", "ns-3").content | {"routing": "ecmp-ns3"}
    return read_network_alone(content), result


def next_hops_of_ns3(links: nx.Graph, switches: set[int], host: int) -> dict[int, list[int]]:
    """Return next hops towards a host in the order of ns-3: breadth first, highest neighbour first."""
    far, waiting = {host: 0}, [host]
    hops: dict[int, list[int]] = {}
    for now in waiting:
        for near in sorted(links[now], reverse=True):
            if near not in far:
                far[near] = far[now] + 1
                if near in switches:
                    waiting.append(near)
            if far[near] == far[now] + 1:
                hops.setdefault(near, []).append(now)
    return hops


def choice_of_ns3(source: int, target: int, ports: int, switch: int, count: int) -> int:
    words = (0x0B000001 + source * 256, 0x0B000001 + target * 256, ports)
    return plain_murmur3(b"".join(word.to_bytes(4, "little") for word in words), switch) % count


@pytest.mark.deep
def test_ecmp_as_in_ns3_counts_next_hops_in_the_order_of_its_search() -> None:
    choices = 0
    for seed in range(40):
        machine, links = switched(seed, most_links=1 + seed % 3)
        graph, tables = graph_of(machine), route_tables(machine)
        hosts = [int(graph.names[npu]) for npu in graph.npus]
        switches = set(links) - set(hosts)
        for rank, target in enumerate(hosts):
            hops = next_hops_of_ns3(links, switches, target)
            for other, source in enumerate(hosts):
                if source == target:
                    continue
                way = names_on(graph, path_between(tables, other, rank))
                for here, there in pairwise(map(int, way[1:])):  # hosts choose among their links otherwise
                    count = len(hops[here])
                    choices += count > 1
                    assert there == hops[here][choice_of_ns3(source, target, 10000 | 100 << 16, here, count)]
    assert choices > 100


def test_ecmp_as_in_ns3_counts_links_side_by_side_by_their_number() -> None:
    """Check the path to a switch that is not the last one, where the hash may select any of the links."""
    names = ("first", "second", "third")
    links = [{"from": f"npu{npu}", "to": "left" if npu < 9 else "right", **LINK} for npu in range(10)]
    links += [{"from": "left", "to": "middle", "name": name, **LINK} for name in names]
    links += [{"from": "middle", "to": "right", **LINK}]
    given = {"npus": 10, "switches": ["left", "middle", "right"], "links": links, "routing": "ecmp-ns3"}
    machine = read_network_alone(given)
    tables, graph = route_tables(machine), graph_of(machine)
    left = graph.names.index("left")
    taken = []
    for source in range(9):
        way = path_between(tables, source, 9)
        assert names_on(graph, way) == [f"npu{source}", "left", "middle", "right", "npu9"]
        taken.append(graph.link_names[way[1]].split(" ")[0])
    assert taken == [names[choice_of_ns3(source, 9, FIRST_PORTS, left, 3)] for source in range(9)]
    assert set(taken) == set(names)


@pytest.mark.parametrize("model", ["link", "flow"])
def test_each_message_between_two_hosts_of_ns3_has_a_source_port_of_its_own(model: str) -> None:
    shape = {"leaves": 2, "spines": 4, "npus-per-leaf": 2}
    net = {"graph": {"generator": "leaf-spine", **LINK, **shape}, "routing": "ecmp-ns3"}
    first, other = TraceBuilder(), TraceBuilder()
    before: list[int] = []
    count, size = 9, 10_000
    for tag in range(count):
        before = [first.send(3, size, tag=tag, after=before)]
        other.receive(0, size, tag=tag)
    builders = [first, TraceBuilder(), TraceBuilder(), other]
    result = simulate(builders, net, system(dimensions=2), model=model, detail="links")
    graph = graph_of(read_network_alone(net))
    number = {name: at for at, name in enumerate(graph.names)}
    spines = sorted((number[f"spine{at}"] for at in range(4)), reverse=True)
    wanted = dict.fromkeys(spines, 0)
    for message in range(count):
        ends = (number["npu0"], number["npu3"])
        at = choice_of_ns3(*ends, (10000 + message) | 100 << 16, number["leaf0"], 4)
        wanted[spines[at]] += size
    carried = dict.fromkeys(spines, 0)
    links = result.table("links").to_pydict()
    for link, bytes_of in zip(links["link"], links["bytes"], strict=True):
        for spine in spines:
            carried[spine] += bytes_of if f"leaf0->{graph.names[spine]}" in link else 0
    assert carried == wanted
    assert sum(count > 0 for count in wanted.values()) > 2


@pytest.mark.parametrize("model", ["link", "flow"])
def test_more_ports_than_memory_has_room_for_are_refused_before_the_run(model: str) -> None:
    shape = {"npus": 24_000, "bandwidth": "1GB/s"}
    machine = read_network_alone({"graph": {"generator": "star", **shape}, "routing": "ecmp-ns3"})
    with pytest.raises(MachineError, match=r"ports of messages among 24000 NPUs .* table of 1.07 GiB"):
        model_on(model, machine)
    model_on("analytical", machine)


def test_a_given_route_is_taken_by_its_pair_only() -> None:
    shape = {"leaves": 2, "spines": 2, "npus-per-leaf": 2}
    path = ["npu0", "leaf0", "spine1", "leaf1", "npu3"]
    given = {"graph": {"generator": "leaf-spine", **LINK, **shape}, "routes": [{"path": path}]}
    result = ways(read_network_alone({**given, "routing": "shortest"}))
    assert result[0, 3] == path
    assert result[0, 2][2] == result[3, 0][2] == "spine0"


@pytest.mark.parametrize(
    ("shapes", "npus"),
    [(["Ring"], [6]), (["Ring", "Switch", "FullyConnected"], [4, 2, 3]), (["Switch", "Ring"], [3, 5])],
)
def test_dimensions_as_a_graph_lead_the_same_ways(shapes: list[str], npus: list[int]) -> None:
    machine = read_network_alone(network(shapes, npus))
    seen = as_graph(machine)
    graph, tables = graph_of(seen), route_tables(seen)
    legs = grid.tables(machine)
    for source in range(machine.ranks):
        for target in range(machine.ranks):
            if source == target:
                continue
            stops, hops, latency = [], 0, 0.0
            leg = next_leg(legs, source, target)
            while leg.row != NONE:
                stops.append(leg.end)
                hops += grid.hops_of(legs, leg)
                latency += grid.hops_of(legs, leg) * legs.dimensions[leg.row].latency_ns
                leg = next_leg(legs, leg.end, target)
            path = path_between(tables, source, target)
            passed = [int(graph.targets[link]) for link in path]
            assert len(path) == hops
            assert [device for device in passed if device in stops] == stops
            assert sum(graph.latency_ns[link] for link in path) == latency


def flow_between_halves(graph: Graph) -> float:
    links: Any = nx.DiGraph()
    for source, target, rate in zip(graph.sources, graph.targets, graph.bytes_per_ns, strict=True):
        known = links.get_edge_data(int(source), int(target), {"capacity": 0})["capacity"]
        links.add_edge(int(source), int(target), capacity=known + float(rate))
    half = len(graph.npus) // 2
    for rank, npu in enumerate(graph.npus.tolist()):
        links.add_edge(*(("from", npu) if rank < half else (npu, "to")))
    return float(nx.maximum_flow_value(links, "from", "to"))


@pytest.mark.parametrize("seed", range(15))
def test_the_bisection_is_a_maximum_flow_even_of_merged_devices(seed: int) -> None:
    graph = graph_of(random_network(seed))
    assert bisection(graph) == pytest.approx(flow_between_halves(graph))


@pytest.mark.parametrize(
    ("machine", "diameter", "across"),
    [
        (described("ring", npus=8), 4, 2 * 50),
        (described("torus", sizes=[4, 4]), 4, 8 * 50),
        (described("fat-tree", k=8), 6, 64 * 50),
        (described("fat-tree", radix=8, oversubscription=3), 4, 8 * 50),
        (described("fully-connected", npus=6), 1, 9 * 50),
    ],
)
def test_diameter_and_bisection_match_the_textbook(machine: Network, diameter: int, across: float) -> None:
    result = describe(machine)
    assert result["diameter"] == diameter
    assert result["diameter_is_exact"]
    assert result["bisection_bytes_per_ns"] == pytest.approx(across)


def test_all_pairs_are_compared_where_ranks_are_few_and_some_of_them_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare 200 NPUs on a switch, 1 and 2 of them a switch farther away and outside of the sample."""
    names = [f"npu{number}" for number in range(200)]
    far, near = names[1:3], [*names[:1], *names[3:]]
    figures = {"bandwidth": "50GB/s", "latency": 500}
    ends = [(near, "switch0"), *zip(far, ("switch1", "switch2"), strict=True)]
    ends += [("switch1", "switch0"), ("switch2", "switch0")]
    links = [{"from": here, "to": there, **figures} for here, there in ends]
    machine = read_network_alone(
        {"npus": 200, "switches": 3, "links": links, "logical-dimensions": [200], "routing": "shortest"}
    )
    for pairs, diameter in ((200 * 200, 4), (200 * 200 - 1, 3)):
        monkeypatch.setattr(description, "MOST_PAIRS", pairs)
        result = describe(machine)
        assert (result["diameter"], result["diameter_is_exact"]) == (diameter, diameter == 4)


@pytest.mark.parametrize("routing", ["shortest", "ecmp", "ecmp-ns3", "destination", "spread"])
@pytest.mark.parametrize(
    "graph",
    [
        {"generator": "leaf-spine", "leaves": 4, "spines": 3, "npus-per-leaf": 2},
        {"generator": "fat-tree", "k": 4},
        {
            "generator": "rail-optimised",
            "nodes": 4,
            "npus-per-node": 2,
            "nodes-per-leaf": 2,
            "spines": 2,
            "inside": {"bandwidth": "450GB/s"},
        },
    ],
)
def test_the_last_links_of_a_path_are_those_that_a_comparison_of_all_finds(
    graph: dict[str, Any], routing: str
) -> None:
    tables = route_tables(read_network_alone({"graph": {**LINK, **graph}, "routing": routing}))
    compared = replace(tables, near=np.zeros(0, np.int32))
    assert (tables.near != NONE).all() or graph["generator"] == "rail-optimised"
    for source, target in permutations(range(8), 2):
        assert path_between(tables, source, target) == path_between(compared, source, target)


def test_a_switch_above_many_leaves_finds_the_last_links_without_looking_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    calls = []
    for leaves in (4, 256):
        keys = {"leaves": leaves, "spines": 1, "npus-per-leaf": 2}
        tables = route_tables(described("leaf-spine", **keys))
        path_between(tables, 0, 7)
        calls.append(counted_calls(partial(path_between, tables, 0, 7))[1])
    assert calls[0] == calls[1]


@pytest.mark.deep
@pytest.mark.in_turn(days=3)
@pytest.mark.parametrize(
    "graph",
    [
        {"generator": "fat-tree", "k": 64},
        {"generator": "torus", "sizes": [64, 32, 32]},
        {
            "generator": "rail-optimised",
            "nodes": 8192,
            "npus-per-node": 8,
            "nodes-per-leaf": 32,
            "spines": 64,
            "inside": {"bandwidth": "450GB/s"},
        },
    ],
)
def test_65536_npus_are_routed_in_few_steps_each(graph: dict[str, Any]) -> None:
    route_tables(described("fat-tree", k=4))  # compiled

    def routed() -> tuple[int, Any]:
        machine = read_network_alone({"graph": {**graph, **LINK}})
        tables = route_tables(machine)
        path_between(tables, 0, machine.ranks - 1)
        return machine.ranks, tables

    (ranks, tables), calls = counted_calls(routed)
    assert ranks == 65536
    assert calls < 100 * ranks
    assert sum(getattr(tables, name).nbytes for name in type(tables).__struct_fields__) < 1 << 29


@pytest.mark.parametrize(
    ("profile", "wanted_ns"), [("corrected", 2 * (700 + 1000)), ("astra-1.0", 2 * 700 + 2001)]
)
def test_links_of_a_graph_take_fractions_of_a_nanosecond_with_the_rules_of_1_0(
    profile: str, wanted_ns: int
) -> None:
    """Check a message that takes 1000.6 ns on each of two links, which it takes one after the other."""
    star = {"graph": {"generator": "star", "npus": 4, "bandwidth": "50GB/s", "latency": "700ns"}}
    result = simulate(sends(4, [(0, 1, 50_030)]), star, system(profile=profile), model="link")
    assert result.makespan_ns == wanted_ns
