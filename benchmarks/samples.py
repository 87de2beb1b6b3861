"""The cost of samples: processor time of the README's job on 1,024 H100, by the ranks that share draws.

Run as `python benchmarks/samples.py`, or with some of `machine`, `node` and `rank`; every row is a process of
its own, which plans once and simulates a few samples. A sample includes its longest path, for blame.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stragglers import JOB

from et_sim.cli import main
from et_sim.machine.presets import preset
from et_sim.run.options import RunOptions
from et_sim.run.simulation import prepare
from et_sim.samples.study import Sampler

SAMPLES = {"machine": 20, "node": 3, "rank": 3}
LEVEL = {"machine": "step", "node": "step", "rank": "event"}


def measure(shared: str) -> None:
    """Print a row: actors, seconds of planning and of a sample, and peak memory."""
    entry = {
        "kind": "kernel",
        "level": LEVEL[shared],
        "family": "log-normal",
        "spread": 0.02,
        "shared": shared,
    }
    with tempfile.TemporaryDirectory() as folder:
        job = str(Path(folder) / "job")
        main([*JOB.split(), job])
        system = {**preset("h100-dgx:1024").system, "variation": [entry]}
        options = RunOptions(system=system, machine="h100-dgx:1024")
        begin = time.process_time()
        given = f"{job}.workload.json"
        sampler = Sampler(given, options, prepare(given, options))
        planned = time.process_time()
        first = sampler.sample(0)  # compiles, unless machine code is kept
        kept = time.process_time()
        for step in range(1, SAMPLES[shared] + 1):
            sampler.sample(step)
        each = (time.process_time() - kept) / SAMPLES[shared]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"| {shared} | {LEVEL[shared]} | {first.actors:,} | {planned - begin:.2f} | {kept - planned:.2f} "
        f"| {each:.3f} | {peak:,} MiB |",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SHARED", help=", ".join(SAMPLES))
    parser.add_argument("--one", choices=SAMPLES, help="measure one in this process")
    given = parser.parse_args()
    if wrong := set(given.names) - set(SAMPLES):
        parser.error(f"draws are not shared by {', '.join(sorted(wrong))}: give some of {', '.join(SAMPLES)}")
    if given.one:
        measure(given.one)
    else:
        print("| shared by | level | actors | planning s | first sample s | each further one s | peak |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for name in given.names or SAMPLES:
            subprocess.run([sys.executable, __file__, "--one", name], check=True)
