"""Messages on graphs against those on the same dimensions, and how long reading large graphs takes.

    python benchmarks/graphs.py

Seconds are those of the event loop, compiled; every rank is an actor. The last table has the processor time
of whole runs, folded, with that of reading the network: an all-reduce behind leaves of 64 NPUs.
"""

from __future__ import annotations

import time
from typing import Any

from engine import all_reduce

from et_sim.api import run
from et_sim.engine.driver import run_plan
from et_sim.machine import read_machine, read_network_alone
from et_sim.network.registry import model_named
from et_sim.network.route_tables import route_tables
from et_sim.plan import build_plan

LINK = {"bandwidth": "50GiB/s", "latency": 500}
SYSTEM = {"all-reduce-implementation": ["ring"]}  # collectives run along the first dimension
PAIRS: list[tuple[str, list[str], list[int], dict[str, Any]]] = [
    ("ring 512", ["Ring"], [512], {"generator": "ring", "npus": 512}),
    ("switch 512", ["Switch"], [512], {"generator": "switch", "npus": 512}),
    ("torus 32x32", ["Ring", "Ring"], [32, 32], {"generator": "torus", "sizes": [32, 32]}),
]
ALONE: list[tuple[str, dict[str, Any]]] = [("fat tree k=16", {"generator": "fat-tree", "k": 16})]
LARGE: list[tuple[str, dict[str, Any]]] = [
    ("fat tree k=64", {"generator": "fat-tree", "k": 64}),
    ("torus 64x32x32", {"generator": "torus", "sizes": [64, 32, 32]}),
]


LEAVES = {
    "generator": "leaf-spine",
    "npus-per-leaf": 64,
    "spines": 32,
    "bandwidth": "400Gbps",
    "latency": 500,
}
RANKS = (4_096, 16_384, 65_536)


def folded(ranks: int, model: str) -> tuple[int, float]:
    """Return the actors of a run, and its processor time: the best of two."""
    network = {"graph": {**LEAVES, "leaves": ranks // 64}, "routing": "spread"}
    system = {"all-reduce-implementation": ["ring", "ring"], "profile": "corrected"}
    best, actors = float("inf"), 0
    for _ in range(2):
        begin = time.process_time()
        result = run(all_reduce(ranks), system=system, network=network, model=model)
        best = min(best, time.process_time() - begin)
        actors = len(result.outcome.plan.actors)
    return actors, best


def per_message(network: dict[str, Any], model: str) -> tuple[int, float]:
    """Return messages, and ns of the event loop for each: the best of three runs."""
    machine = read_machine(system=SYSTEM, network=network)
    plan = build_plan(all_reduce(machine.network.ranks), machine)
    best, messages = float("inf"), 0
    for _ in range(3):
        begin = time.perf_counter()
        outcome = run_plan(plan, machine.network, model_named(model))
        best = min(best, time.perf_counter() - begin)
        assert outcome is not None  # every rank is an actor
        messages = outcome.messages
    return messages, 1e9 * best / messages


def main() -> None:
    """Print a line for each network and model, and one for each large graph."""
    for model in ("analytical", "link"):
        for network in ({"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}, None):
            graph = {"graph": {"generator": "ring", "npus": 4, **LINK}}
            run(all_reduce(4), system=SYSTEM, network=network or graph, model=model)
    print(f"{'network':>16} {'model':>10} {'messages':>10} {'dimensions':>11} {'graph':>11} {'ratio':>6}")
    for model in ("link", "analytical"):
        for name, shapes, npus, graph in PAIRS:
            count = len(npus)
            grid = {
                "topology": shapes,
                "npus_count": npus,
                "bandwidth": [50] * count,
                "latency": [500] * count,
            }
            messages, before = per_message(grid, model)
            _, after = per_message({"graph": {**graph, **LINK}}, model)
            figures = f"{before:>8.0f} ns {after:>8.0f} ns {after / before:>6.2f}"
            print(f"{name:>16} {model:>10} {messages:>10,} {figures}")
        for name, graph in ALONE:
            messages, after = per_message({"graph": {**graph, **LINK}}, model)
            print(f"{name:>16} {model:>10} {messages:>10,} {'':>11} {after:>8.0f} ns")
    for name, graph in LARGE:
        begin = time.perf_counter()
        machine = read_network_alone({"graph": {**graph, **LINK}})
        tables = route_tables(machine)
        seconds = time.perf_counter() - begin
        size = sum(getattr(tables, column).nbytes for column in type(tables).__struct_fields__)
        print(f"{name:>16} {machine.ranks:,} NPUs: {seconds:.1f} s, routes {size >> 20} MiB")
    print(f"{'leaves of 64':>16} {'model':>10} {'actors':>10} {'seconds':>11}")
    for ranks in RANKS:
        for model in ("analytical", "flow"):
            actors, seconds = folded(ranks, model)
            print(f"{ranks:>16,} {model:>10} {actors:>10,} {seconds:>11.2f}")


if __name__ == "__main__":
    main()
