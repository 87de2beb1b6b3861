"""Random small cases in the format of the golden ones, without expectations."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from cases import Case
from machines import SHAPES

KINDS = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
}
Items = list[list[dict[str, Any]]]  # of every rank


class CaseMaker:
    """A machine and the operations of its ranks."""

    def __init__(self, seed: int, *, dimensions: int = 1, rendezvous: float = 0.3) -> None:
        self.random = random = Random(seed)
        self.npus = [random.choice((2, 3, 4, 5)) for _ in range(dimensions)]
        self.ranks = math.prod(self.npus)
        is_link = dimensions == 1 and random.random() < 0.5
        shapes = [random.choice(SHAPES[2 * (is_link and self.ranks == 2) :]) for _ in self.npus]
        algorithms = [random.choice(("ring", "direct", "direct2")) for _ in self.npus]
        self.groups: dict[str, list[int]] | None = None
        self.programs: dict[str, Any] = {}
        self.items: Items = [[] for _ in range(self.ranks)]
        self.sizes = random.sample((1, 64, 1000, 8192, 65536, 1000003), random.choice((1, 2, 3)))
        self.tags = random.sample((0, 1, 500_000_007), random.choice((1, 1, 2)))
        self.network = {
            "topology": shapes,
            "npus_count": self.npus,
            "bandwidth": [random.choice((400, 50, 1)) for _ in self.npus],
            "latency": [random.choice((0.7, 20, 936.25, 1000)) for _ in self.npus],
        }
        self.backend = "aware" if is_link else "unaware"
        self.system: dict[str, Any] = {
            "scheduling-policy": "LIFO",
            "collective-optimization": random.choice(("localBWAware", "baseline")),
            "endpoint-delay": random.choice((1, 10, 25)),
            "active-chunks-per-dimension": random.choice((1, 2)),
            "preferred-dataset-splits": 1,
            "num-queues-per-dim": random.choice((1, 2)),
            "local-mem-bw": random.choice((1, 50, 1000)),
            "rendezvous-protocol": int(random.random() < rendezvous),
            **{f"{kind}-implementation": algorithms for kind in KINDS.values()},
        }

    def add_messages(self, items: Items, most: int, *, places: int | None = None) -> None:
        """Add a few sends, with their receives."""
        for _ in range(self.random.randint(1, most)):
            source, target = self.random.sample(range(places or len(items)), 2)
            rest = {"comm_size": self.random.choice(self.sizes), "comm_tag": self.random.choice(self.tags)}
            items[source].append({"t": "SEND", "a": {"comm_dst": target, **rest}})
            items[target].append({"t": "RECV", "a": {"comm_src": source, **rest}})

    def add_computations(self, items: Items) -> None:
        """Add a computation on some ranks."""
        for rank in self.random.sample(range(len(items)), self.random.randint(1, len(items))):
            micros, cpu = self.random.choice((0, 1, 2, 5, 30)), self.random.random() < 0.2
            items[rank].append({"t": "COMP", "us": micros, "cpu": cpu})

    def add_collective(self, sizes: tuple[int, ...]) -> None:
        """Add a collective of all ranks, or of a group."""
        group = self.random.choice(["", *(self.groups or {})])
        attributes = {"comm_type": self.random.choice(list(KINDS)), "comm_size": self.random.choice(sizes)}
        if group:
            attributes["pg_name"] = group
        members = self.groups[group] if group and self.groups else range(self.ranks)
        for rank in members:
            self.items[rank].append({"t": "COLL", "a": attributes})

    def numbered(self, items: Items, mixing: float) -> dict[str, Any]:
        """Return a workload: nodes with ids in about this order, and with dependencies on earlier ones."""
        chance = self.random.choice((0, 0.2, 0.5))
        programs = []
        for rank, own in enumerate(items):
            places = [place + self.random.random() * mixing for place in range(len(own))]
            nodes = [dict(own[place]) for place in sorted(range(len(own)), key=places.__getitem__)]
            for number, node in enumerate(nodes):
                node["i"] = number
                if number and self.random.random() < chance:
                    node["d"] = [self.random.randrange(number)]
            programs.append({"r": [rank], "nodes": nodes or [{"i": 0, "t": "COMP", "us": 1}]})
        return {"nranks": len(items), "programs": programs}

    def case(self, mixing: float) -> Case:
        """Return the whole case."""
        return Case(
            {
                "id": "random",
                "category": "random",
                "backend": self.backend,
                "network": self.network,
                "system": self.system,
                "memory": {"memory-type": "NO_MEMORY_EXPANSION"},
                "comm_groups": self.groups,
                "workload": self.numbered(self.items, mixing),
                "extra_et": self.programs,
                "expected": {},
            }
        )


def messages(seed: int) -> Case:
    """Return sends and receives, mostly with rendezvous, few tags and several sizes."""
    make = CaseMaker(seed, rendezvous=0.8)
    for _ in range(make.random.randint(1, 6)):
        make.add_messages(make.items, 3)
        if make.random.random() < 0.5:
            make.add_computations(make.items)
    return make.case(make.random.choice((0, 2, 5)))


def custom(seed: int) -> Case:
    """Return custom collectives among messages and other collectives; lists of groups may be out of order."""
    make = CaseMaker(seed, dimensions=1 + (seed % 4 == 0))
    order = make.random.sample(range(make.ranks), make.ranks)
    if make.random.random() < 0.5:
        make.groups = {"1": order[: make.random.choice((2, make.ranks))]}
    smallest = len(make.groups["1"]) if make.groups else make.ranks
    for kind in make.random.sample(list(KINDS.values()), make.random.choice((2, 4))):
        prefix = f"programs/{kind}"
        make.system[f"{kind}-implementation-custom"] = [prefix]
        items: Items = [[] for _ in range(make.ranks)]
        for _ in range(make.random.randint(1, 4)):
            make.add_messages(items, 2, places=smallest)
            make.add_computations(items)
        make.programs[prefix] = make.numbered(items, make.random.choice((0, 2)))
    for _ in range(make.random.randint(2, 6)):
        make.random.choice((make.add_computations, lambda items: make.add_messages(items, 2)))(make.items)
        make.add_collective((64, 1000003))
    return make.case(0)


def chunks(seed: int) -> Case:
    """Return collectives that are cut exactly, on networks so slow that every byte counts."""
    make = CaseMaker(seed, dimensions=1 + seed % 3)
    make.system["preferred-dataset-splits"] = make.random.choice((1, 2, 3, 4))
    make.system["corrections"] = {"exact-chunks": True}
    make.network["bandwidth"] = [make.random.choice((0.01, 0.1, 1)) for _ in make.npus]
    if make.random.random() < 0.3:
        make.groups = {"1": make.random.sample(range(make.ranks), make.random.randint(2, make.ranks))}
    make.add_computations(make.items)
    for _ in range(make.random.randint(1, 2)):
        make.add_collective((1024, make.random.randint(1, 300), make.random.randint(1, 5000)))
    return make.case(0)
