"""How many packets a second: all-to-alls on a star and a fat tree, as ns-3 ran them, and 1,024 NPUs.

    python benchmarks/packets.py [--times 3]

What is printed is processor time of whole runs, the best of several, after one that compiles the engine.
"Events" are those that ns-3 would have: two for each packet and link.
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
PARITY = {"preset": "ns3-parity"}
LINK = {"bandwidth": "100Gbps", "latency": "1us"}
MIB = 1 << 20


def fat_tree(ports: int) -> dict[str, Any]:
    """Three tiers of switches with so many ports."""
    found = {"graph": {"generator": "fat-tree", "k": ports, **LINK}, "routing": "ecmp-ns3"}
    return {**found, "protocol": PARITY, "logical-dimensions": [ports**3 // 4]}


def exchange(ranks: int, size: int) -> Any:
    """An all-to-all."""
    from et_sim import TraceBuilder, Workload

    builder = TraceBuilder()
    builder.collective("all_to_all", size)
    return Workload.of([builder.build()] * ranks)


def permutation(ranks: int, size: int) -> Any:
    """A message from each NPU, and to each."""
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
    star = {"graph": {"generator": "star", "npus": 16, **LINK}, "routing": "ecmp-ns3", "protocol": PARITY}
    cases = (
        ("star, 16 NPUs: all-to-all of 16 MiB", star, exchange(16, 16 * MIB)),
        ("fat tree, 16 NPUs: all-to-all of 16 MiB", fat_tree(4), exchange(16, 16 * MIB)),
        ("fat tree, 1,024 NPUs: permutation of 256 KiB", fat_tree(16), permutation(1024, MIB // 4)),
    )
    for name, network, workload in cases:
        print(f"{name}: {measured(network, workload, times)}", flush=True)


def measured(network: dict[str, Any], workload: Any, times: int) -> str:
    """The best of several runs."""
    from et_sim import simulate

    system = {"profile": "reference", "endpoint-delay": 10, "active-chunks-per-dimension": 1}
    system |= {"preferred-dataset-splits": 1} | {f"{name}-implementation": ["direct"] for name in NAMES}
    best = float("inf")
    for _ in range(times + 1):
        begin = time.process_time()
        result = simulate(workload, system=system, network=network, model="packet")
        best = min(best, time.process_time() - begin)
    state = result.outcome.run.network.state[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{state.sent:,} packets in {best:.2f} s, {state.sent / best / 1e6:.2f} M/s, "
        f"{state.order / best / 1e6:.1f} M events/s, {peak:.0f} MiB at most"
    )


if __name__ == "__main__":
    main()
