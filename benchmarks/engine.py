"""The event loop on the reference's own benchmark inputs: one 1 GiB ring all-reduce on a torus.

    python benchmarks/engine.py [--large | --algorithms]

Ring dimensions of 50 GB/s and 500 ns, endpoint delay 10, one active chunk. `engine` is the time in the event
loop alone, after a warm-up; `reference` the whole process of the reference's binary on a quiet two-core
machine (its own figures; start-up is negligible in them except in the smallest rows). `--algorithms`: other
collectives of 64 MiB instead, of which no step is skipped as a repeat, and the least of four processor times.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

from machines import torus

from et_sim.api import run
from et_sim.engine.driver import run_plan
from et_sim.machine import read_machine
from et_sim.network.registry import model_named
from et_sim.plan import build_plan
from et_sim.trace import TraceBuilder, Workload

# shape, chunks, model, seconds of the reference
SMALL = [
    ((256,), 4, "analytical", 0.33),
    ((16, 16), 4, "analytical", 0.077),
    ((16, 16, 16), 4, "analytical", 2.4),
    ((1024,), 4, "analytical", 5.6),
    ((256,), 4, "link", 0.40),
]
LARGE = [
    ((16, 16, 16), 64, "analytical", 46.0),
    ((1024,), 64, "analytical", 93.0),
    ((1024,), 64, "link", 129.0),
]
# topology, shape, chunks, algorithm, collective, model
ALGORITHMS = [
    ("Ring", (16, 16, 16), 4, "ring", "all-reduce", "analytical"),
    ("Ring", (16, 16, 16), 4, "ring", "all-reduce", "link"),
    ("Switch", (1024,), 16, "halvingDoubling", "all-reduce", "analytical"),
    ("Switch", (1024,), 16, "doubleBinaryTree", "all-reduce", "analytical"),
    ("Switch", (256,), 4, "direct", "all-to-all", "analytical"),
    ("Switch", (256,), 4, "direct", "all-to-all", "link"),
]


def describe(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return the machine of one row."""
    files = torus(shape, chunks)
    return {"system": files["system.json"], "network": files["network.yml"]}


def all_reduce(ranks: int) -> Workload:
    """Return a workload in which every rank runs the same collective."""
    builder = TraceBuilder()
    builder.collective("all_reduce", 1 << 30)
    return Workload.of([builder.build()] * ranks)


def measure(shape: tuple[int, ...], chunks: int, model: str) -> tuple[int, float]:
    """Return messages, and seconds in the event loop."""
    machine = read_machine(**describe(shape, chunks))
    plan = build_plan(all_reduce(machine.network.ranks), machine)
    begin = time.perf_counter()
    outcome = run_plan(plan, machine.network, model_named(model))
    seconds = time.perf_counter() - begin
    assert outcome is not None  # every rank is an actor
    return outcome.messages, seconds


def print_algorithms() -> None:
    """Print a line for each algorithm: nanoseconds of processor time per message."""
    for topology, shape, chunks, algorithm, collective, model in ALGORITHMS:
        files = describe(shape, chunks)
        files["system"] |= {f"{collective}-implementation": [algorithm] * len(shape)}
        files["network"] |= {"topology": [topology] * len(shape)}
        machine = read_machine(**files)
        builder = TraceBuilder()
        builder.collective(collective.replace("-", "_"), 1 << 26)
        plan = build_plan(Workload.of([builder.build()] * machine.network.ranks), machine)
        seconds = []
        for _ in range(4):
            begin = time.process_time()
            outcome = run_plan(plan, machine.network, model_named(model))
            seconds.append(time.process_time() - begin)
        assert outcome is not None  # every rank is an actor
        name = f"{topology} {'x'.join(map(str, shape))}"
        each = 1e9 * min(seconds) / outcome.messages
        print(f"{name:>14} {chunks:>6} {algorithm:>17} {model:>10} {each:>6.0f} ns/message")


def print_rows(rows: list[tuple[tuple[int, ...], int, str, float]]) -> None:
    """Print a line for each machine."""
    for model in ("analytical", "link"):  # compile or load before anything is timed
        run(all_reduce(4), **describe((4,), 1), model=model)
    print(
        f"{'network':>12} {'chunks':>6} {'model':>10} {'messages':>12} {'engine':>9} {'ns/message':>10}",
        end="",
    )
    print(f" {'reference':>9} {'ratio':>6} {'peak':>8}")
    for shape, chunks, model, reference in rows:
        messages, seconds = measure(shape, chunks, model)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{'x'.join(map(str, shape)):>12} {chunks:>6} {model:>10} {messages:>12,} {seconds:>7.2f} s "
            f"{1e9 * seconds / messages:>10.0f} {reference:>7.2f} s {reference / seconds:>5.1f}x {peak:>5} MB"
        )


def main() -> None:
    """Print one line a row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="also the rows of up to 134 million messages")
    parser.add_argument("--algorithms", action="store_true", help="other collectives, step by step")
    options = parser.parse_args()
    if options.algorithms:
        print_algorithms()
    else:
        print_rows(SMALL + (LARGE if options.large else []))


if __name__ == "__main__":
    main()
