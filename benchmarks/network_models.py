"""The cost of network models: exchanges, permutations, a ring, switches that reduce; most are not folded.

    python benchmarks/network_models.py [--models flow,link] [--cases "exchange, leaf-spine" ...]

Each run is a process of its own, and its processor time is printed with that of Python's start; the engine is
compiled before.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
from typing import Any, NamedTuple

NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SPEED = {"bandwidth": "400Gbps", "latency": "500ns"}


class Case(NamedTuple):
    """A machine and what its ranks do."""

    ranks: int
    dimensions: int
    network: dict[str, Any]
    traffic: str
    algorithm: str = "direct"
    chunks: int = 1
    fold: bool = False


def grid(shapes: list[str], npus: list[int]) -> dict[str, Any]:
    """Return equal dimensions."""
    speeds = {"bandwidth": [50.0] * len(npus), "latency": [500.0] * len(npus)}
    return {"topology": shapes, "npus_count": npus, **speeds}


def graph(ranks: int, **keys: Any) -> dict[str, Any]:
    """Return a graph under one logical dimension."""
    return {"graph": {**keys, **SPEED}, "routing": "ecmp", "logical-dimensions": [ranks]}


FAT_TREE = graph(4096, generator="fat-tree", radix=64, tiers=3, oversubscription=1, npus=4096)
RAILS = graph(
    1024,
    generator="rail-optimised",
    nodes=128,
    **{"npus-per-node": 8, "inside": {"bandwidth": "450GB/s", "latency": "300ns"}, "nodes-per-leaf": 32},
    spines=8,
)
LEAVES = graph(512, generator="leaf-spine", leaves=32, spines=16, **{"npus-per-leaf": 16})
REDUCERS = [{"tier": 1, "latency": 100}, {"tier": 2, "latency": 100}]
REDUCING = {
    **graph(512, generator="leaf-spine", leaves=32, spines=1, **{"npus-per-leaf": 16}),
    "in-network": REDUCERS,
}
CASES = {
    "exchange, switch": Case(512, 1, grid(["Switch"], [512]), "exchange"),
    "exchange, leaf-spine": Case(512, 1, LEAVES, "exchange"),
    "permutation, torus": Case(4096, 3, grid(["Ring"] * 3, [16] * 3), "permutation"),
    "permutation, fat tree": Case(4096, 1, FAT_TREE, "permutation"),
    "ring, rails": Case(1024, 1, RAILS, "ring", "ring", 64),
    "in network, leaf-spine": Case(512, 1, REDUCING, "sum", "inNetwork", 64),
    "folded in network, leaf-spine": Case(512, 1, REDUCING, "sum", "inNetwork", 64, fold=True),
    "folded exchange, leaf-spine": Case(512, 1, {**LEAVES, "routing": "shortest"}, "exchange", fold=True),
    "folded ring, rails": Case(1024, 1, {**RAILS, "routing": "shortest"}, "ring", "ring", 64, fold=True),
}


def workload(case: Case) -> Any:
    """Return traffic: 1 MiB a pair; 64 MiB to one other rank; an all-reduce of 1 GiB."""
    from et_sim.trace import TraceBuilder, Workload

    if case.traffic != "permutation":
        build = TraceBuilder()
        if case.traffic == "exchange":
            build.collective("all_to_all", case.ranks << 20)
        else:
            build.collective("all_reduce", 1 << 30)
        return Workload.of([build.build()] * case.ranks)
    target = random.Random(1).sample(range(case.ranks), case.ranks)
    builders = [TraceBuilder() for _ in range(case.ranks)]
    for source, to in enumerate(target):
        if source != to:
            builders[source].send(to, 64 << 20)
            builders[to].receive(source, 64 << 20)
    return Workload.of([builder.build() for builder in builders])


def run(name: str, model: str) -> None:
    """Run once in this process."""
    import et_sim

    case = CASES[name]
    system: dict[str, Any] = {f"{one}-implementation": [case.algorithm] * case.dimensions for one in NAMES}
    if case.algorithm == "inNetwork":
        del system["all-to-all-implementation"]
    system |= {"scheduling-policy": "LIFO", "collective-optimization": "baseline", "profile": "corrected"}
    system |= {"preferred-dataset-splits": case.chunks, "active-chunks-per-dimension": case.chunks}
    result = et_sim.simulate(workload(case), model=model, fold=case.fold, system=system, network=case.network)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"| {name} | {model} | {result.makespan_ns / 1e6:.3f} ms | {result.outcome.messages:,} |"
        f" {used.ru_utime + used.ru_stime:.1f} s | {used.ru_maxrss // 1024} MiB |",
        flush=True,
    )


def main() -> None:
    """Measure each case on each model, twice: the first run may compile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="analytical,flow,link")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(*options.one)
        return
    command = [sys.executable, __file__, "--one"]
    environment = {**os.environ, "ET_SIM_COMPILE": "now"}
    for name in options.cases:
        for model in options.models.split(","):
            for output in (subprocess.DEVNULL, None):
                one = [*command, name, model]
                subprocess.run(one, env=environment, check=True, stdout=output, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
