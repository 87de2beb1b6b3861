"""Random runs of packets, by their seed, to compare those with and without skipped steady phases."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from machines import simulate, system

from et_sim import TraceBuilder
from et_sim.run.result import Result

RANKS = 16
MIB = 1 << 20
TOLERANCE = 0.005
LINK = {"bandwidth": "100Gbps", "latency": "500ns"}
GRAPHS: tuple[dict[str, Any], ...] = (
    {"generator": "fat-tree", "k": 4},
    {"generator": "leaf-spine", "leaves": 4, "spines": 2, "npus-per-leaf": 4},
    {"generator": "leaf-spine", "leaves": 4, "spines": 4, "npus-per-leaf": 4},
    {"generator": "star", "npus": RANKS},
    {"generator": "torus", "sizes": [RANKS]},
)
COLLECTIVES = (
    ("all_reduce", "ring"),
    ("all_reduce", "halvingDoubling"),
    ("all_to_all", "direct"),
    ("all_gather", "ring"),
)


def traces(draw: random.Random) -> tuple[list[TraceBuilder], str]:
    """Return traces of messages or collectives, and the algorithm of these."""
    builders = [TraceBuilder() for _ in range(RANKS)]
    kind, algorithm = draw.choice(COLLECTIVES)
    size = draw.choice((4, 8, 16, 24)) * MIB
    if draw.random() < 0.3:
        for tag in range(draw.randrange(4, 24)):
            source, target = draw.sample(range(RANKS), 2)
            size = int(draw.uniform(0.2, 12) * MIB)
            builders[source].send(target, size, tag=tag)
            builders[target].receive(source, size, tag=tag)
        return builders, "ring"
    for _ in range(draw.randrange(1, 3)):
        for builder in builders:
            builder.collective(kind, size)
    return builders, algorithm


def ends(seed: int, steady: float | None) -> tuple[Any, Result]:
    """Return when the nodes of a random run end, and its result; ports may wait for each other for ever."""
    draw = random.Random(seed)
    builders, algorithm = traces(draw)
    network: dict[str, Any] = {"graph": {**draw.choice(GRAPHS), **LINK}, "logical-dimensions": [RANKS]}
    if draw.random() < 0.4:
        network["routing"] = "ecmp"
    protocol: dict[str, Any] = {
        "congestion-control": draw.choice(("none", "dcqcn")),
        "window": "none",
    }
    if draw.random() < 0.3:
        protocol["completion"] = "acknowledgement"
    network["protocol"] = {"preset": "datacenter", **protocol}
    found = simulate(builders, network, system(algorithm), model="packet", steady=steady)
    return np.array(found.timeline.column("end_ns").to_pylist(), float), found
