"""Steady phases that are skipped (`--steady 0.5%`) against all packets: all-reduces on a fat tree.

    python benchmarks/steady.py [--hosts 1024] [--size 1024] [--part 16] [--algorithm ring] [--window none]

Prints processor time of runs with links of 100 Gb/s. The time of all packets is measured with a part of the
size, and taken to grow with the number of packets.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("ET_SIM_COMPILE", "now")
MIB = 1 << 20


def simulated(
    hosts: int, size: int, algorithm: str, window: str, steady: float | None
) -> tuple[float, dict[str, Any], int]:
    """Return the processor time of a run, its packets, and its makespan."""
    from et_sim import TraceBuilder, Workload, simulate

    builder = TraceBuilder()
    builder.collective("all_reduce", size)
    system: dict[str, Any] = {
        "profile": "reference",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
    }
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system |= {f"{name}-implementation": [algorithm] for name in names}
    network: dict[str, Any] = {
        "graph": {
            "generator": "fat-tree",
            "k": round((4 * hosts) ** (1 / 3)),
            "bandwidth": "100Gbps",
            "latency": "500ns",
        },
        "logical-dimensions": [hosts],
        "protocol": {"preset": "datacenter", "congestion-control": "none", "window": window},
    }
    if steady is None:
        network["protocol"] |= {"skip-repeats": False}
    begin = time.process_time()
    result = simulate(
        Workload.of([builder.build()] * hosts), system=system, network=network, model="packet", steady=steady
    )
    took = time.process_time() - begin
    packets: Any = result.summary()["packets"]
    return took, packets, result.makespan_ns


def main() -> None:
    """Run a part of the size with all packets, and the whole with steady phases skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--part", type=int, default=16, help="the size by which all packets are simulated")
    parser.add_argument("--algorithm", default="ring")
    parser.add_argument("--window", default="none")
    given = parser.parse_args()
    run = given.hosts, given.size * MIB, given.algorithm, given.window
    simulated(16, 4 * MIB, given.algorithm, given.window, 0.005)  # compiles
    part = given.hosts, run[1] // given.part, given.algorithm, given.window
    all_packets, few, _ = simulated(*part, None)
    print(
        f"all packets, {given.size // given.part} MiB: {few['sent']:,} packets in {all_packets:.2f} s",
        flush=True,
    )
    took, packets, makespan = simulated(*run, 0.005)
    steady = packets["steady"]
    whole = all_packets * packets["sent"] / few["sent"]
    share = steady["packets"] / packets["sent"]
    print(
        f"--steady 0.5%, {given.size} MiB: {packets['sent']:,} packets in {took:.2f} s, makespan "
        f"{makespan / 1e6:.3f} ms, {share:.2%} skipped, error {steady['error']:.3%} "
        f"by estimate; all packets would take {whole:.0f} s, {whole / took:.0f}x"
    )


if __name__ == "__main__":
    main()
