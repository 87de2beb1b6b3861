"""The packets a second of all-to-alls on a star and a fat tree, as ns-3 ran them, 1,024 NPUs, TCP, flits.

    python benchmarks/packets.py [--times 3]

Prints processor time of whole runs, the best of several, after one that compiles the engine.
"Events" are those that ns-3 would have: two for each packet and link. With credits, flits by link.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from typing import Any

os.environ.setdefault("ET_SIM_COMPILE", "now")
NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
PARITY = {"preset": "ns3-parity", "skip-repeats": False}  # every packet is simulated
SKIPS = {"preset": "ns3-parity"}
LINK = {"bandwidth": "100Gbps", "latency": "1us"}
STAR = {"generator": "star", **LINK}
MIB = 1 << 20


def fat_tree(ports: int) -> dict[str, Any]:
    """Return three tiers of switches with `ports` ports."""
    found = {"graph": {"generator": "fat-tree", "k": ports, **LINK}, "routing": "ecmp-ns3"}
    return {**found, "protocol": PARITY, "logical-dimensions": [ports**3 // 4]}


def collective(kind: str, ranks: int, size: int) -> Any:
    """Return a collective of all ranks."""
    from et_sim import TraceBuilder, Workload

    builder = TraceBuilder()
    builder.collective(kind, size)
    return Workload.of([builder.build()] * ranks)


def permutation(ranks: int, size: int) -> Any:
    """Return a permutation: each NPU sends and receives one message."""
    from et_sim import TraceBuilder, Workload

    builders = [TraceBuilder() for _ in range(ranks)]
    targets = list(range(ranks))
    random.Random(1).shuffle(targets)
    for source, target in enumerate(targets):
        builders[source].send(target, size, tag=source)
        builders[target].receive(source, size, tag=source)
    return Workload.of([builder.build() for builder in builders])


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    star = {"graph": {**STAR, "npus": 16}, "routing": "ecmp-ns3", "protocol": PARITY}
    ring = {"graph": {**STAR, "npus": 8}, "protocol": PARITY}
    exchange = collective("all_to_all", 16, 16 * MIB)
    tcp = {"graph": {**STAR, "npus": 8}, "protocol": {"preset": "ns3-tcp-parity"}}
    torus = {"generator": "torus", "sizes": [4, 4, 4], "bandwidth": "32GB/s", "latency": "50ns"}
    cases = (
        ("star, 16 NPUs: all-to-all of 16 MiB", star, exchange, ["direct"]),
        ("fat tree, 16 NPUs: all-to-all of 16 MiB", fat_tree(4), exchange, ["direct"]),
        (
            "fat tree, 1,024 NPUs: permutation of 256 KiB",
            fat_tree(16),
            permutation(1024, MIB // 4),
            ["direct"],
        ),
        ("star, 8 NPUs: ring of 64 MiB", ring, collective("all_reduce", 8, 64 * MIB), ["ring"]),
        (
            "the same, what repeats itself skipped",
            {**ring, "protocol": SKIPS},
            collective("all_reduce", 8, 64 * MIB),
            ["ring"],
        ),
        ("TCP, star, 8 NPUs: ring of 8 MB", tcp, collective("all_reduce", 8, 8 * MIB), ["ring"]),
        (
            "8,192 NPUs: permutation of 128 KiB",
            fat_tree(32),
            permutation(8192, MIB // 8),
            ["direct"],
        ),
        (
            "credits, torus of 4 x 4 x 4: all-reduce of 1 MiB",
            {"graph": torus, "credits": {"flit": 256}},
            collective("all_reduce", 64, MIB),
            ["ring"] * 3,
        ),
    )
    for name, network, workload, algorithms in cases:
        print(f"{name}: {measured(network, workload, algorithms, times)}", flush=True)


def measured(network: dict[str, Any], workload: Any, algorithms: list[str], times: int) -> str:
    """Return the best of several runs."""
    from et_sim import simulate

    system: dict[str, Any] = {"profile": "reference", "endpoint-delay": 10, "active-chunks-per-dimension": 1}
    system |= {"preferred-dataset-splits": 1} | {f"{name}-implementation": algorithms for name in NAMES}
    best = float("inf")
    for _ in range(times + 1):
        begin = time.process_time()
        result = simulate(workload, system=system, network=network, model="packet")
        best = min(best, time.process_time() - begin)
    tables = result.outcome.run.network
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if "credits" in network:
        flits = int(tables.ports["bytes"].sum()) // tables.settings[0].flit
        return (
            f"{flits:,} flits on links in {best:.2f} s, {flits / best / 1e6:.2f} M/s, {peak:.0f} MiB at most"
        )
    state = tables.state[0]
    return (
        f"{state.sent:,} packets in {best:.2f} s, {state.sent / best / 1e6:.2f} M/s, "
        f"{state.order / best / 1e6:.1f} M events/s, {peak:.0f} MiB at most"
    )


if __name__ == "__main__":
    main()
