"""The cost of GOAL texts: conversion, and simulation on the LogGOPS model.

    python benchmarks/loggops.py [--cases "dissemination, 4096" ...]

Each case is run from the traces that it is converted to, and from the text without a conversion.

The texts are those of LogGOPSim's patterns, with the default constants of its command line. The processor
time of the conversion is that of a process; that of the simulation is the engine's alone, which has been
compiled before. "Events" are counted as LogGOPSim does: a send, a receive and a message each.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONSTANTS = {"L": 2500, "o": 1500, "g": 1000, "G": 6, "S": 65535}


def dissemination(ranks: int) -> Iterator[str]:
    """Write rounds in which rank r sends eight bytes to rank r + 2^k."""
    yield f"num_ranks {ranks}\n"
    for rank in range(ranks):
        yield f"rank {rank} {{\n"
        for step in range((ranks - 1).bit_length()):
            yield f"s{step}: send 8b to {(rank + (1 << step)) % ranks} tag {step}\n"
            yield f"r{step}: recv 8b from {(rank - (1 << step)) % ranks} tag {step}\n"
            if step:
                yield f"s{step} requires s{step - 1}\ns{step} requires r{step - 1}\n"
        yield "}\n"


def linear_all_to_all(ranks: int) -> Iterator[str]:
    """Write sends of 1 KiB to all other ranks at once, the nearest ones first."""
    yield f"num_ranks {ranks}\n"
    for rank in range(ranks):
        yield f"rank {rank} {{\n"
        for ahead in range(1, ranks):
            yield f"send 1024b to {(rank + ahead) % ranks} tag 0\n"
            yield f"recv 1024b from {(rank - ahead) % ranks} tag 0\n"
        yield "}\n"


CASES = {
    "dissemination, 4096": (dissemination, 4096),
    "dissemination, 16384": (dissemination, 16384),
    "linear all-to-all, 512": (linear_all_to_all, 512),
}


def run(name: str, workload: str) -> None:
    """Run one simulation in this process."""
    import et_sim
    from et_sim.engine import driver
    from et_sim.run import simulation

    spent = 0.0

    def timed(*arguments: Any, **keys: Any) -> Any:
        nonlocal spent
        begin = time.process_time()
        try:
            return driver.run_plan(*arguments, **keys)
        finally:
            spent = time.process_time() - begin

    timed_simulation: Any = simulation
    timed_simulation.run_plan = timed
    ranks = CASES[name][1]
    network = {"loggops": {"npus": ranks, **CONSTANTS}}
    result = et_sim.simulate(workload, system={"profile": "corrected"}, network=network, model="loggops")
    used = resource.getrusage(resource.RUSAGE_SELF)
    events = 3 * result.outcome.messages
    print(
        f"{result.makespan_ns:,} ns | {events:,} | {spent:.2f} s | {events / spent / 1e6:.2f} M/s |"
        f" {used.ru_utime + used.ru_stime:.1f} s | {used.ru_maxrss // 1024} MiB |",
        flush=True,
    )


def main() -> None:
    """Measure each case: writing, conversion, simulation from traces (twice) and from the text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(*options.one)
        return
    environment = {**os.environ, "ET_SIM_COMPILE": "now"}
    convert = (sys.executable, "-c", "import sys; from converters.cli import main; sys.exit(main())", "goal")
    for name in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            text, prefix = Path(folder) / "a.goal", f"{folder}/a"
            pattern, ranks = CASES[name]
            text.write_text("".join(pattern(ranks)))
            begin = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*convert, str(text), "-o", prefix], check=True, capture_output=True)
            end = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
            size = text.stat().st_size / 1e6
            for label, workload in (("", prefix), (f"{seconds:.1f} s", prefix), ("none", str(text))):
                output = None if label else subprocess.DEVNULL  # the first one compiles
                if label:
                    print(f"| {name} | {size:.1f} MB | {label} | ", end="", flush=True)
                command = [sys.executable, __file__, "--one", name, workload]
                subprocess.run(command, env=environment, check=True, stdout=output, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
