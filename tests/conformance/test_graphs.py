"""Network models on graphs: equal nanoseconds on dimensions and on equivalent graphs, and common rules."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import MODELS, network, of_all_ranks, simulate, system
from test_network_models import EVERYTHING, exchange

from et_sim.machine import read_network_alone
from et_sim.network.route_tables import route_tables
from et_sim.network.routes import path_between
from et_sim.timeline.writer import write_run

LINK = {"bandwidth": "50GiB/s", "latency": 500}
RATE = 50 * 2**30 / 1e9  # bytes per ns
TREE: dict[str, Any] = {
    "graph": {"generator": "fat-tree", "k": 4, "bandwidth": "400Gbps", "latency": "0.3us"},
    "overrides": [
        {"between": ["leaf0", "agg1"], "failed": True},
        {"device": "agg2", "bandwidth": "100Gbps", "latency": "1.5us"},
    ],
    "routing": "ecmp",
}


def graph(generator: str, **keys: Any) -> dict[str, Any]:
    return {"graph": {"generator": generator, **LINK, **keys}}


def times(builders: list[Any], net: Any, dimensions: int = 1, **more: Any) -> list[int]:
    result: list[int] = simulate(builders, net, system(dimensions=dimensions), **more).finish_ns.tolist()
    return result


def stored_packets(hops: list[tuple[float, float]], size: int) -> int:
    """Return the time of packets of 4096 and 62 bytes, stored at every device, in picoseconds by link."""
    arrived = [0] * -(-size // 4096)
    for latency, rate in hops:
        free = 0
        for at, came in enumerate(arrived):
            payload = min(4096, size - 4096 * at)
            free = max(free, came) + round((payload + 62) * 1000 / rate)
            arrived[at] = free
        arrived = [left + round(latency * 1000) for left in arrived]
    return arrived[-1] // 1000


def traffic(ranks: int, seed: int, count: int = 40) -> list[Any]:
    """Return messages between random ranks, all at once."""
    chance = random.Random(seed)
    pairs = [tuple(chance.sample(range(ranks), 2)) for _ in range(count)]
    return exchange(ranks, {pair: chance.randint(1, 10**6) for pair in pairs})  # type: ignore[misc]


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("shape", "generator"), [("Ring", "ring"), ("Switch", "switch"), ("FullyConnected", "fully-connected")]
)
def test_a_graph_that_is_a_dimension_takes_its_nanoseconds(model: str, shape: str, generator: str) -> None:
    for workload in (of_all_ranks(6, "all_reduce"), of_all_ranks(6, "all_to_all"), traffic(6, seed=2)):
        wanted = times(workload, network([shape], [6]), model=model)
        assert times(workload, graph(generator, npus=6), model=model) == wanted


NESTED = {"generator": "nested", "copies": 3, "attach": "rails"}
PRODUCTS = [
    (["Ring", "Ring"], [4, 3], graph("torus", sizes=[4, 3])),
    (
        ["Ring", "Switch"],
        [4, 3],
        {
            "graph": {
                **NESTED,
                "inner": {"generator": "ring", "npus": 4, **LINK},
                "outer": {"generator": "switch", "npus": 3, **LINK},
            },
            "routing": "dimension-order",
        },
    ),
    (
        ["Switch", "FullyConnected"],
        [4, 3],
        {
            "graph": {
                **NESTED,
                "inner": {"generator": "switch", "npus": 4, **LINK},
                "outer": {"generator": "fully-connected", "npus": 3, **LINK},
            },
            "routing": "dimension-order",
        },
    ),
]


@pytest.mark.parametrize(("shapes", "npus", "described"), PRODUCTS)
def test_links_of_nested_networks_queue_messages_as_those_of_dimensions(
    shapes: list[str], npus: list[int], described: dict[str, Any]
) -> None:
    for workload in (of_all_ranks(12, "all_reduce"), *(traffic(12, seed, 30 * seed) for seed in (1, 2, 3))):
        wanted = times(workload, network(shapes, npus), dimensions=2, model="link")
        assert times(workload, described, dimensions=2, model="link") == wanted


def test_messages_of_a_mesh_meet_where_dimension_order_leads_them() -> None:
    """Send in a mesh of 3 x 3: 0 to 4 goes by 1, and 3 to 5 by 4, 1 to 7 by 4, each over two links."""
    size = 10**6
    once = int(500 + size / RATE)
    serial = int(size / RATE)
    net = graph("mesh", sizes=[3, 3])
    alone = times(exchange(9, {(0, 4): size}), net, dimensions=2, model="link")
    assert alone[4] == 2 * once
    apart = times(exchange(9, {(0, 4): size, (3, 5): size}), net, dimensions=2, model="link")
    assert (apart[4], apart[5]) == (2 * once, 2 * once)
    shared = times(exchange(9, {(0, 4): size, (1, 7): size}), net, dimensions=2, model="link")
    # 1 to 7 takes the link from 1 to 4 at once; 0 to 4 reaches it after one hop, when it has just been freed.
    assert (shared[4], shared[7]) == (2 * once, 2 * once)
    late = times(exchange(9, {(0, 4): size, (1, 7): 2 * size}), net, dimensions=2, model="link")
    assert late[4] == int(2 * size / RATE) + once
    assert late[4] > once + serial


@pytest.mark.parametrize("model", MODELS)
def test_a_lone_message_takes_the_time_of_its_path(model: str) -> None:
    machine = read_network_alone(TREE)
    tables, result = route_tables(machine), machine.fabric.graph  # type: ignore[union-attr]
    size = 123_457
    for source, target in ((0, 1), (0, 3), (0, 15), (5, 8), (12, 4)):
        way = path_between(tables, source, target)
        hops = [(float(result.latency_ns[link]), float(result.bytes_per_ns[link])) for link in way]
        if model == "flow":
            serial = size / min(hop[1] for hop in hops)
            assert (
                abs(
                    times(exchange(16, {(source, target): size}), TREE, model=model)[target]
                    - int(sum(hop[0] for hop in hops) + serial)
                )
                <= 1
            )
            continue
        if model == "packet":
            wanted = stored_packets(hops, size)
        elif model == "analytical":
            wanted = int(sum(hop[0] for hop in hops) + size / min(hop[1] for hop in hops))
        else:
            wanted = sum(int(latency + size / rate) for latency, rate in hops)
        assert times(exchange(16, {(source, target): size}), TREE, model=model)[target] == wanted


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast"])
def test_on_a_broken_tree_all_complete_and_folding_changes_nothing(model: str, kind: str) -> None:
    keys: dict[str, Any] = {"preferred-dataset-splits": 2, "corrections": {"simulated-broadcast": True}}
    described = system("direct", dimensions=3, **keys)
    folded, unfolded = (
        simulate(of_all_ranks(16, kind), TREE, described, model=model, fold=fold) for fold in (True, False)
    )
    assert folded.is_complete
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    assert folded.outcome.messages == unfolded.outcome.messages


def test_ranks_of_a_regular_tree_are_one_actor_where_messages_wait_for_nothing() -> None:
    tree = {"graph": TREE["graph"], "routing": "ecmp"}
    result = simulate(of_all_ranks(16, "all_reduce"), tree, system(dimensions=3))
    assert len(result.outcome.plan.actors) == 1


RANKS = 6


def random_graph(seed: int) -> dict[str, Any]:
    """Return a connected graph of six NPUs on switches and on each other, with links of all speeds."""
    chance = random.Random(seed)
    devices = [f"npu{rank}" for rank in range(RANKS)] + [f"s{number}" for number in range(3)]
    chance.shuffle(devices)
    pairs = {(chance.randrange(at), at) for at in range(1, len(devices))}  # a tree, and some more
    pairs |= {(first, other) for first, other in (sorted(chance.sample(range(9), 2)) for _ in range(5))}
    links = [
        {
            "from": devices[first],
            "to": devices[other],
            "bandwidth": f"{chance.choice((3, 10, 12.5, 40))}GB/s",
            "latency": f"{chance.randrange(900)}ns",
        }
        for first, other in sorted(pairs)
    ]
    routing = chance.choice(("shortest", "ecmp"))
    switches = ["s0", "s1", "s2"]
    return {"npus": RANKS, "switches": switches, "links": links, "forwarding": "all", "routing": routing}


def most_over_capacity(rows: list[dict[str, Any]], rate: float) -> float:
    """Return the most bytes that an interval of a link's slices has beyond its capacity and the rounding."""
    worst = 0.0
    for first, row in enumerate(rows):
        carried, begun = 0, 1  # one was under way
        for last in rows[first:]:
            carried, begun = carried + last["bytes"], begun + last["messages"]
            room = (last["end_ns"] - row["start_ns"]) * rate
            worst = max(worst, carried - room - begun * (rate + 1))  # a ns, and a byte, for each message
    return worst


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.deep) for n in range(4, 12))])
def test_links_carry_every_byte_on_its_way_and_never_more_than_their_capacity(model: str, seed: int) -> None:
    net = random_graph(seed)
    sent = traffic(RANKS, seed, count=60)
    result = simulate(sent, net, system(), model=model, fold=False, detail=EVERYTHING)
    assert result.is_complete
    messages, resources = result.table("messages").to_pydict(), result.table("resources").to_pylist()
    rate = {row["link"]: row["bytes_per_ns"] for row in resources}
    machine = read_network_alone(net)
    names, tables = machine.fabric.graph.link_names, route_tables(machine)  # type: ignore[union-attr]
    of_name = dict(zip(names, (row["link"] for row in resources), strict=True))
    wanted: dict[str, int] = {}
    total = 0
    for source, target, size in zip(messages["actor"], messages["peer"], messages["bytes"], strict=True):
        way, count = path_between(tables, source, target), -(-size // 4096)
        sizes = [(way, size + 62 * count if model == "packet" else size)]
        if model == "packet":  # acknowledgements, of 66 bytes
            sizes.append((path_between(tables, target, source), 66 * count))
        for links, carried_bytes in sizes:
            total += len(links) * carried_bytes
            for link in links:
                wanted[of_name[names[link]]] = wanted.get(of_name[names[link]], 0) + carried_bytes
    slices: dict[str, list[dict[str, Any]]] = {}
    for row in result.table("links").to_pylist():
        slices.setdefault(row["link"], []).append(row)
    carried = {link: sum(row["bytes"] for row in rows) for link, rows in slices.items()}
    assert carried == wanted
    assert sum(carried.values()) == total
    for link, rows in slices.items():
        for row in rows:
            length = row["end_ns"] - row["start_ns"]
            waited = row["wait_ns"] or 0
            assert row["mean_at_once"] == pytest.approx((row["busy_ns"] + waited) / length)
            if model == "analytical":
                assert row["most_at_once"] is None
                continue
            assert row["busy_ns"] <= length
            assert row["mean_at_once"] <= row["most_at_once"] == row["most_waiting"] + (row["busy_ns"] > 0)
        if model == "analytical":  # messages overlap: each takes its time on the link
            busy = sum(row["busy_ns"] for row in rows)
            begun = sum(row["messages"] for row in rows)
            assert busy * rate[link] <= carried[link] <= (busy + begun) * rate[link]
        else:
            assert most_over_capacity(rows, rate[link]) <= 0
    # All tiers lie between two rows of devices, and a link is of one tier.
    tiers = {row["link"]: row["tier"] for row in resources}
    assert all(row["tier"] == tiers[link] for link, rows in slices.items() for row in rows)


@pytest.mark.parametrize("model", MODELS)
def test_where_a_rank_stands_does_not_matter_on_a_symmetric_network(model: str) -> None:
    """Check that a shift of all messages by one place along a ring of a torus shifts all times."""
    torus = graph("torus", sizes=[3, 3])
    sizes = {(0, 4): 10_000, (4, 8): 70_000, (1, 4): 300_000, (7, 2): 5_000}
    moved = {(a // 3 * 3 + (a + 1) % 3, b // 3 * 3 + (b + 1) % 3): size for (a, b), size in sizes.items()}
    before = times(exchange(9, sizes), torus, dimensions=2, model=model)
    after = times(exchange(9, moved), torus, dimensions=2, model=model)
    assert [after[rank // 3 * 3 + (rank + 1) % 3] for rank in range(9)] == before


@pytest.mark.parametrize("model", MODELS)
def test_the_record_of_causes_names_classes_of_links_and_reaches_the_end(model: str, tmp_path: Path) -> None:
    result = simulate(of_all_ranks(16, "all_reduce"), TREE, system(dimensions=3), model=model, detail="path")
    assert result.causal_events is not None
    causal_events = np.concatenate(list(result.causal_events.blocks()))
    assert causal_events["end_ns"].max() == result.makespan_ns
    write_run(result, tmp_path / "run")
    assert "NPUs to leaf" in json.dumps(result.table("path")["link"].unique().to_pylist())
