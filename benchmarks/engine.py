"""The event loop on the reference's own benchmark inputs: one 1 GiB ring all-reduce on a torus.

    python benchmarks/engine.py [--large]

Ring dimensions of 50 GB/s and 500 ns, endpoint delay 10, one active chunk. `engine` is the time in the event
loop alone, after a warm-up; `reference` the whole process of the reference's binary on a quiet two-core
machine (its own figures; start-up is negligible in them except in the smallest rows).
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


def describe(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """The machine of one row."""
    files = torus(shape, chunks)
    return {"system": files["system.json"], "network": files["network.yml"]}


def all_reduce(ranks: int) -> Workload:
    """Every rank runs the same single collective."""
    builder = TraceBuilder()
    builder.collective("all_reduce", 1 << 30)
    return Workload.of([builder.build()] * ranks)


def measure(shape: tuple[int, ...], chunks: int, model: str) -> tuple[int, float]:
    """Messages, and seconds in the event loop."""
    machine = read_machine(**describe(shape, chunks))
    plan = build_plan(all_reduce(machine.network.ranks), machine)
    begin = time.perf_counter()
    outcome = run_plan(plan, machine.network, model_named(model))
    seconds = time.perf_counter() - begin
    assert outcome is not None  # every rank is an actor
    return outcome.messages, seconds


def main() -> None:
    """Print one line a row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="also the rows of up to 134 million messages")
    options = parser.parse_args()
    for model in ("analytical", "link"):  # compile or load before anything is timed
        run(all_reduce(4), **describe((4,), 1), model=model)
    print(
        f"{'network':>12} {'chunks':>6} {'model':>10} {'messages':>12} {'engine':>9} {'ns/message':>10}",
        end="",
    )
    print(f" {'reference':>9} {'ratio':>6} {'peak':>8}")
    for shape, chunks, model, reference in SMALL + (LARGE if options.large else []):
        messages, seconds = measure(shape, chunks, model)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{'x'.join(map(str, shape)):>12} {chunks:>6} {model:>10} {messages:>12,} {seconds:>7.2f} s "
            f"{1e9 * seconds / messages:>10.0f} {reference:>7.2f} s {reference / seconds:>5.1f}x {peak:>5} MB"
        )


if __name__ == "__main__":
    main()
