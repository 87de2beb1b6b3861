"""The cost of the critical path of a long record, the first time and again.

    python benchmarks/critical.py RUN

CPU time and memory of `et-sim inspect RUN critical-path`, each in a process of its own: with nothing kept,
and with the files that the first call kept. README.md shows how long runs are made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from et_sim.tables.registry import KEPT
from et_sim.views import open_run

CALL = """
import resource, sys, time
from et_sim.cli import main
main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.process_time(), used.ru_maxrss >> 10, file=sys.stderr)
"""


def cost(*arguments: str) -> str:
    """Return CPU time and peak memory of a call of et-sim."""
    command = [sys.executable, "-c", CALL, *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    seconds, peak = said.splitlines()[-1].split()
    return f"{float(seconds):>6.2f} s {peak:>5} MiB"


def main() -> None:
    """Print one line a call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the directory of a run")
    run = parser.parse_args().run
    events = sum(len(rows) for rows in open_run(run).batches("path", ("kind",)))
    print(f"{events:,} causal events")
    (run / KEPT).unlink(missing_ok=True)
    view = ("inspect", str(run), "critical-path")
    print("first      ", cost(*view))
    print("again      ", cost(*view))
    print("as JSON    ", cost(*view, "--json"))


if __name__ == "__main__":
    main()
