"""Rules for any workload and machine in the corrected profile."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, RING_4, SHAPES, network

import et_sim
from et_sim.trace import TraceBuilder, Workload

ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree", "oneRing", "oneDirect")
MODELS = ("analytical", "link")


def system(algorithm: str, dimensions: int, **keys: Any) -> dict[str, Any]:
    return {
        "profile": "corrected",
        "scheduling-policy": "LIFO",
        "collective-optimization": "localBWAware",
        "endpoint-delay": 10,
        "local-mem-bw": 50,
        **{f"{kind.replace('_', '-')}-implementation": [algorithm] * dimensions for kind in KINDS[:-1]},
        "all-to-all-implementation": ["ring" if "halving" in algorithm else algorithm] * dimensions,
        **keys,
    }


def finish(traces: list[Any], net: dict[str, Any], described: dict[str, Any], **more: Any) -> list[int]:
    result = et_sim.simulate(Workload.of(traces), system=described, network=net, **more)
    times: list[int] = result.finish_ns.tolist()
    return times


# ---- a lone collective on a slower machine


@given(data=st.data())
@pytest.mark.parametrize("model", MODELS)
def test_a_lone_collective_is_never_faster_on_a_slower_network(model: str, data: Any) -> None:
    dimensions = data.draw(st.integers(1, 2))
    count = st.lists(st.integers(2, 5), min_size=dimensions, max_size=dimensions)
    shape = st.lists(st.sampled_from(SHAPES), min_size=dimensions, max_size=dimensions)
    net = {
        "topology": data.draw(shape),
        "npus_count": data.draw(count),
        "bandwidth": [data.draw(st.sampled_from((25.0, 50.0, 90.0))) for _ in range(dimensions)],
        "latency": [data.draw(st.sampled_from((1.0, 500.0, 3000.0))) for _ in range(dimensions)],
    }
    ranks = 1
    for npus in net["npus_count"]:
        ranks *= npus
    build = TraceBuilder()
    build.collective(data.draw(st.sampled_from(KINDS)), data.draw(st.integers(1, 1 << 22)))
    described = system(data.draw(st.sampled_from(ALGORITHMS)), dimensions)
    at = data.draw(st.integers(0, dimensions - 1))
    slower = {name: list(values) for name, values in net.items()}
    slower["bandwidth"][at] /= data.draw(st.sampled_from((1.0, 1.1, 3.0)))
    slower["latency"][at] += data.draw(st.sampled_from((0.0, 1.0, 700.0)))
    traces = [build.build()] * ranks
    before, after = (
        finish(traces, net, described, model=model),
        finish(traces, slower, described, model=model),
    )
    assert max(after) >= max(before)


# ---- programs that cannot deadlock


@dataclass
class Program:
    """The nodes of one rank, each with an action and the earlier nodes that it waits for."""

    nodes: list[tuple[Any, ...]] = field(default_factory=list)
    parents: list[list[int]] = field(default_factory=list)

    def add(self, node: tuple[Any, ...], chance: random.Random) -> None:
        earlier = range(len(self.nodes))
        self.parents.append([at for at in earlier if chance.random() < 0.3])
        self.nodes.append(node)

    def order(self, chance: random.Random) -> list[int]:
        """Return a random order that keeps dependencies, and like collectives in their order."""
        waits = [set(parents) for parents in self.parents]
        last: dict[tuple[Any, ...], int] = {}
        for at, node in enumerate(self.nodes):
            if node[0] == "collective":
                if node in last:
                    waits[at].add(last[node])
                last[node] = at
        done: list[int] = []
        while len(done) < len(self.nodes):
            ready = [at for at, of in enumerate(waits) if at not in done and of <= set(done)]
            done.append(chance.choice(ready))
        return done

    def build(self, order: list[int], peers: list[int], step: int = 1) -> Any:
        """Return a trace whose ids follow an order, `step` apart; peers are renamed by `peers`."""
        build = TraceBuilder()
        number = {at: place * step + 1 for place, at in enumerate(order)}
        for at in order:
            what, *values = self.nodes[at]
            keys = {"after": [number[parent] for parent in self.parents[at]], "node_id": number[at]}
            if what == "collective":
                kind, size, group = values
                build.collective(kind, size, group, **keys)
            elif what == "compute":
                build.compute(micros=values[0], cpu=values[1], **keys)
            elif what == "send":
                build.send(peers[values[0]], values[1], values[2], **keys)
            else:
                build.receive(peers[values[0]], values[1], values[2], **keys)
        return build.build()


def programs(ranks: int, groups: dict[str, list[int]], steps: int, chance: random.Random) -> list[Program]:
    """Return a global order of operations, in which every rank waits for some of its earlier ones."""
    results = [Program() for _ in range(ranks)]
    for tag in range(steps):
        what = chance.choice(("collective", "collective", "message", "compute"))
        if what == "collective":
            group = chance.choice(["", *groups])
            node = ("collective", chance.choice(KINDS), chance.choice((999, 1 << 16, 1 << 20)), group)
            for rank in groups.get(group, range(ranks)):
                results[rank].add(node, chance)
        elif what == "message":
            source, target = chance.sample(range(ranks), 2)
            size = chance.choice((100, 1 << 18))
            results[source].add(("send", target, size, tag), chance)
            results[target].add(("receive", source, size, tag), chance)
        else:
            rank = chance.randrange(ranks)
            results[rank].add(("compute", chance.randrange(1, 97), chance.random() < 0.3), chance)
    return results


@given(seed=st.integers(0, 10**9), steps=st.integers(1, 24))
@pytest.mark.parametrize("model", MODELS)
def test_programs_that_follow_one_global_order_complete(model: str, seed: int, steps: int) -> None:
    chance = random.Random(seed)
    npus = chance.choice(([4], [6], [2, 3], [2, 2, 2]))
    ranks = 1
    for count in npus:
        ranks *= count
    groups = {
        str(name): chance.sample(range(ranks), chance.randint(1, ranks))
        for name in range(1, chance.randint(1, 4))
    }
    every = programs(ranks, groups, steps, chance)
    traces = [program.build(program.order(chance), list(range(ranks))) for program in every]
    described = system(
        chance.choice(ALGORITHMS),
        len(npus),
        **{
            "preferred-dataset-splits": chance.choice((1, 3, 8)),
            "active-chunks-per-dimension": chance.choice((1, 2)),
            "num-queues-per-dim": chance.choice((1, 2, 3)),
            "scheduling-policy": chance.choice(("LIFO", "FIFO")),
        },
    )
    net = network([chance.choice(SHAPES) for _ in npus], npus)
    assert min(finish(traces, net, described, groups=groups, model=model)) >= 0


# ---- names mean nothing


@given(seed=st.integers(0, 10**9), step=st.integers(2, 1000))
def test_other_node_ids_in_the_same_order_change_nothing(seed: int, step: int) -> None:
    chance = random.Random(seed)
    every = programs(4, {"1": [0, 2], "2": [1, 2, 3]}, 14, chance)
    orders = [program.order(chance) for program in every]
    described = system(chance.choice(ALGORITHMS), 1, **{"preferred-dataset-splits": 2})
    times = [
        finish(
            [
                program.build(order, list(range(4)), apart)
                for program, order in zip(every, orders, strict=True)
            ],
            RING_4,
            described,
            groups={"1": [0, 2], "2": [1, 2, 3]},
        )
        for apart in (1, step)
    ]
    assert times[0] == times[1]


@given(seed=st.integers(0, 10**9))
def test_a_symmetry_of_the_machine_permutes_the_results(seed: int) -> None:
    """Rotate a ring, or permute a fully connected or switch dimension, with distinct late starts."""
    chance = random.Random(seed)
    shape = chance.choice(SHAPES)
    count = chance.randint(3, 6)
    turn = chance.randrange(count)
    if shape == "Ring":
        renamed = [(rank + turn) % count for rank in range(count)]
    else:
        renamed = chance.sample(range(count), count)
    algorithm = "ring" if shape == "Ring" else "direct"
    late = chance.sample(range(1, 500), count)
    kinds = [chance.choice(KINDS) for _ in range(3)]
    target = [(rank + 1) % count for rank in range(count)]

    def trace(rank: int, names: list[int]) -> Any:
        build = TraceBuilder()
        last = build.compute(micros=late[rank])
        for kind in kinds:
            last = build.collective(kind, 1 << 18, after=[last])
        build.send(names[target[rank]], 1000 * (rank + 1), 7, after=[last])
        source = target.index(rank)
        build.receive(names[source], 1000 * (source + 1), 7, after=[last])
        return build.build()

    net = {"topology": [shape], "npus_count": [count], "bandwidth": [50.0], "latency": [500.0]}
    # in turns, one rank would be first
    described = system(algorithm, 1, corrections={"port-bandwidth": False})
    plain = finish([trace(rank, list(range(count))) for rank in range(count)], net, described)
    moved = [None] * count
    for rank in range(count):
        moved[renamed[rank]] = trace(rank, renamed)
    turned = finish(moved, net, described)
    assert [turned[renamed[rank]] for rank in range(count)] == plain
