"""The cost of groups that straddle racks of 72: processor time, peak memory and actors of single runs.

Each row is a step of four layers of deepseek-v3 with one micro-batch, without a pipeline, on the flow model.

Run as `python benchmarks/straddling.py`; every row is a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from et_sim.api import run

ROWS = ((1152, 8), (1152, 32), (4608, 32), (4608, 24))  # ranks, experts spread over


def measure(ranks: int, experts: int, *, fold: bool) -> None:
    """Print one row."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "job")
        step = ["--layers", "4", "--micro-batches", "1", "--ranks", str(ranks), "--dp", str(ranks)]
        make = ["make", "llm", "--model", "deepseek-v3", *step, "--ep", str(experts), "-o", prefix]
        subprocess.run(
            [sys.executable, "-c", "from et_sim.cli import main; main()", *make],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        begin = time.process_time()
        result = run(
            f"{prefix}.workload.json",
            machine=f"gb200-nvl72:{ranks}",
            model="flow",
            when_full="report",
            fold=fold,
        )
    seconds, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    folded = result.summary()["folded"]
    print(
        f"{ranks:5} ranks, experts over {experts:2}, {'folded' if fold else '--no-fold':9} {seconds:6.2f} s"
        f" {peak:5} MiB {folded['actors']:5} actors, {result.outcome.messages:,} messages",
        *(limit["reason"] for limit in folded.get("limits", [])),
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", nargs="?", type=int)
    parser.add_argument("experts", nargs="?", type=int, default=32)
    parser.add_argument("--no-fold", action="store_true")
    given = parser.parse_args()
    if given.ranks:
        measure(given.ranks, given.experts, fold=not given.no_fold)
    else:
        for row in ROWS:
            for option in ([], ["--no-fold"]):
                subprocess.run([sys.executable, __file__, *map(str, row), *option], check=True)
