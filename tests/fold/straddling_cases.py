"""Random jobs in which groups straddle nodes: cut by them in several ways, on one pattern after the other."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from machines import SHAPES, network
from random_cases import ALGORITHMS, ALL_TO_ALL, Case, Step, random_program, random_trace

from et_sim.machine.presets import preset
from et_sim.trace import GroupRule, Workload

# ranks of a node, nodes, neighbours in a group; groups and nodes begin together after 2 nodes, or 3
JOBS = ((3, 4, 2), (3, 8, 2), (2, 6, 3), (4, 6, 3), (6, 4, 4), (2, 9, 3), (6, 2, 4), (4, 3, 3))
LATE = ({"delay": "1us"}, {"delay": "70us"}, {"compute": 1.5})


def straddling_case(seed: int) -> Case:
    """Return the case of a seed: one program, with groups of neighbours, and of equal places."""
    draw = Random(seed)
    node, nodes, size = draw.choice(JOBS)
    ranks = node * nodes
    on = _of_library(node, nodes) if draw.random() < 0.5 else _of_lists(draw, node, nodes)
    machine = on | {"model": draw.choice(("analytical", "link", "flow", "flow", "flow"))}
    if draw.random() < 0.25:
        late = draw.choice(("0", f"{ranks - 1}", f"0-{ranks - 1}/{2 * node}"))
        machine["system"]["stragglers"] = [{"ranks": late, **draw.choice(LATE)}]
    rules = {"near": GroupRule(size), "far": GroupRule(ranks // size, size)}
    if ranks % (2 * size) == 0 and draw.random() < 0.5:
        rules["far"] = GroupRule(ranks // size // 2, size)
    named = draw.choice((("near", "far", "near"), ("near", "far", "far"), ("near", "near", "far")))
    program = random_program(draw, ranks)
    if draw.random() < 0.7:  # messages to peers distinguish ranks
        program = [step if step.what != "exchange" else Step("instant", step.after, ()) for step in program]
    trace = random_trace(program, ranks, named, 0, 0)
    workload = Workload((trace,), np.zeros(ranks, np.int32), relative_peers=(True,), group_rules=rules)
    return Case(workload, machine)


def _of_library(node: int, nodes: int) -> dict[str, Any]:
    """Return a machine whose library goes round uneven nodes in rings of their own order."""
    found = preset(f"gb200-nvl72:{node * nodes},node={node}")
    keys = dict(found.system)
    del keys["compute"], keys["costs"]
    return {"system": keys, "network": found.network}


def _of_lists(draw: Random, node: int, nodes: int) -> dict[str, Any]:
    """Return a grid or a graph with algorithms by dimension."""
    npus = [node, nodes]
    keys = {
        "profile": "corrected",
        "scheduling-policy": draw.choice(("LIFO", "FIFO")),
        "preferred-dataset-splits": draw.choice((1, 2, 3)),
        "active-chunks-per-dimension": draw.choice((1, 2)),
        "endpoint-delay": draw.choice((0, 10, 500)),
        "local-mem-bw": 50,
        "collective-optimization": "baseline",
        "all-to-all-implementation": [draw.choice(ALL_TO_ALL)] * 2,
    }
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        keys[f"{kind}-implementation"] = [draw.choice(ALGORITHMS)] * 2
    net = network([draw.choice(SHAPES) for _ in npus], npus, bandwidth=50.0, latency=500.0)
    if draw.random() < 0.4:
        speed = {"bandwidth": "50GB/s", "latency": "500ns"}
        leaves = {"generator": "leaf-spine", "npus-per-leaf": node, "leaves": nodes, "spines": 1}
        switch = {"generator": "switch", "npus": node * nodes}
        graph = draw.choice((leaves, leaves | {"spines": 2}, switch)) | speed
        net = {"graph": graph, "logical-dimensions": npus}
    return {"system": keys, "network": net}
