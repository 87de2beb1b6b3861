"""The cost of pictures of a large run: the files for Perfetto and Chrome, and the HTML page.

    python benchmarks/pictures.py

The run is 64 ranks with 2,750 nodes each, none of which behave alike. Processor time of whole processes.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import et_sim
from et_sim.timeline import write_run

RANKS, COMPUTATIONS = 64, 2500
SYSTEM = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}
NETWORK = {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": ["50GB/s"], "latency": [500]}
COMMANDS = {
    "step.pftrace": ("export", "--perfetto"),
    "step.json": ("export", "--chrome"),
    "step.html": ("report", "--html"),
}


def trace(seed: int) -> et_sim.Trace:
    """Write computations of random length; every tenth starts an all-reduce without a dependent."""
    lengths, build = random.Random(seed), et_sim.TraceBuilder()
    last: list[int] = []
    for number in range(COMPUTATIONS):
        last = [build.compute(f"layer {number % 40} kernel", micros=lengths.randint(1, 30), after=last)]
        if number % 10 == 9:
            build.collective("all_reduce", 1 << 18, name=f"layer {number % 40} sum", after=last)
    return build.build()


def main() -> None:
    """Simulate once, then time each command."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workload = et_sim.Workload.of([trace(rank) for rank in range(RANKS)])
        write_run(et_sim.simulate(workload, system=SYSTEM, network=NETWORK), folder / "run")
        for name, (command, option) in COMMANDS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            program = "import sys; from et_sim.cli import main; sys.exit(main())"
            arguments = [command, str(folder / "run"), option, str(folder / name)]
            subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = (folder / name).stat().st_size
            print(f"{name:<13} {spent:5.2f} s  {size / 2**20:5.1f} MiB")


if __name__ == "__main__":
    main()
